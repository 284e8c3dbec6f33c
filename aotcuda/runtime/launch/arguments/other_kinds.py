"""The kinds of parameters other than numbers and arrays; see `aotcuda.runtime.launch.arguments.parameter_kinds`."""

from __future__ import annotations

from ....manifest import constants
from ... import errors
from . import (
    array_view,
    arrays,
    descriptor_kind,
    other_values,
    parameter_errors,
    parameter_kinds,
    scalars,
    small_floats,
    type_names,
)
from .parameter_kinds import Kind, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....manifest import Parameter
    from .array_view import View
    from .parameter_kinds import Append, Fields, Fit


class Pointer(Kind):
    """An address, as an int or a `ctypes.c_void_p`."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return 0
        return 0 if other_values.is_pointer(value) else None

    def fit(self, parameter: Parameter) -> Fit:
        return scalars.fit_plain

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], "Q", False)]

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        return parameter_errors.range_problem(self, parameter, arg, read)

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        return parameter_kinds.fast_path_record("p", parameter)


class Datetime(Kind):
    """A datetime or timedelta of NumPy's in the parameter's unit, or a count of it."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return 1
        return 0 if other_values.is_datetime(value) else None

    def fit(self, parameter: Parameter) -> Fit:
        dtype = parameter["dtype"]

        def fit(read: Any, values: list[object]) -> bool:
            unit, count = read if isinstance(read, tuple) else (dtype, read)
            values.append(count)
            return bool(unit == dtype)

        return fit

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], "q", False)]

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        return _wrong_dtype(self, parameter, arg, read)


class SmallFloat(Kind):
    """A bfloat16 or float8 number by value; it accepts and rounds the numbers that a float parameter accepts."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        kind = scalars.kind_of(value)
        if getattr(scalars.numpy_dtype(value), "name", "") == parameter["dtype"]:
            return 0
        return {"float": 4, "int": 104, "bool": 204}.get(kind or "")  # after float16 in the order of `scalars.rank`

    def fit(self, parameter: Parameter) -> Fit:
        dtype = parameter["dtype"]

        def fit(read: Any, values: list[object]) -> bool:
            try:
                code = small_floats.encode(dtype, float(read))
            except OverflowError:  # an int beyond all floats
                return False
            values.append(code)
            return code is not None

        return fit

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], _CODES[array_view.item_bytes(parameter["dtype"])], False)]

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        return parameter_errors.range_problem(self, parameter, arg, read)


_CODES = {1: "B", 2: "H"}


class Address(Kind):
    """A device array; the kernel gets only its address."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return None if arrays.family(value) is None else 0

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], "Q", True)]


class Record(Address):
    """One structured element on the GPU, in an array of one element; the kernel gets its address."""

    def fit(self, parameter: Parameter) -> Fit:
        dtype = parameter["dtype"]

        def fit(view: View | None, values: list[object]) -> bool:
            if view is None or view[0] != dtype or any(extent != 1 for extent in view[2]):
                return False
            values.append(view[1])
            return True

        return fit

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        return _wrong_dtype(self, parameter, arg, read)


class Buffer(Address):
    """A C-contiguous device array of one dtype and any number of dimensions; the kernel gets only its address.

    A read-only array fits only a parameter that is `readonly`, as `const float *` is.
    """

    def fit(self, parameter: Parameter) -> Fit:
        dtype, writable = parameter["dtype"], not parameter.get("readonly", False)
        append = self.fit_contiguous(parameter)

        def fit(view: View | None, values: list[object]) -> bool:
            if view is None:
                return False
            typestr, address, shape, strides, readonly = view
            if typestr != dtype or strides is not None or (readonly and writable):
                return False
            return append(address, shape, values)

        return fit

    def fit_contiguous(self, parameter: Parameter) -> Append:
        itemsize, sizes = array_view.item_bytes(parameter["dtype"]), parameter_kinds.size_words(parameter)

        def append(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
            items = array_view.count_items(shape, itemsize)
            if items is None:
                return False
            values += address, *[items if word == "items" else itemsize for word in sizes]
            return True

        return append

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], "Q", True), *parameter_kinds.size_fields(parameter)]

    def describe(self, parameter: Parameter) -> str:
        return f"a C-contiguous array of {type_names.type_name(parameter['dtype'])} is packaged ({parameter['type']})"

    def problem(self, parameter: Parameter, arg: object, read: Any) -> str | None:
        view: View = read
        typestr, _, shape, strides, readonly = view
        if typestr != parameter["dtype"]:
            return f"is {type_names.view_name(view)} where {self.describe(parameter)}"
        if strides is not None:
            return (
                f"has shape {shape} and strides {strides} in bytes, which is not contiguous in C order, and "
                f"{parameter['type']} passes no strides to the kernel; pass a contiguous copy"
            )
        if readonly and not parameter.get("readonly", False):
            return f"is read-only, and {parameter['type']} lets the kernel write to it; {parameter_errors.WRITABLE}"
        return parameter_errors.size_problem(self, parameter, read)

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        writable, ndim = not parameter.get("readonly", False), parameter_kinds.ANY_DIMENSIONS
        return parameter_kinds.fast_path_record("a", parameter, ndim=ndim, flag=writable, words=["data"])


class Struct(Kind):
    """One structured element by value: a record of NumPy's, or a tensor map."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return 0 if other_values.is_record(value) else None

    def fit(self, parameter: Parameter) -> Fit:
        dtype, size = parameter["dtype"], parameter["bytes"]

        def fit(read: Any, values: list[object]) -> bool:
            typestr, data = read
            values.append(data)
            return bool(typestr == dtype and len(data) == size)

        return fit

    def fields(self, parameter: Parameter) -> Fields:
        return [(parameter["offset"], f"{parameter['bytes']}s", False)]

    def describe(self, parameter: Parameter) -> str:
        if parameter["dtype"] == other_values.TENSOR_MAP:
            return f"{parameter['type']} is packaged: a tensor map of cuda.core or of cuda.bindings.driver"
        return f"{parameter['type']} is packaged ({parameter['dtype']}): a record, as array[()] is one"

    def problem(self, parameter: Parameter, arg: object, read: Any) -> str | None:
        if parameter_errors.packs(self, parameter, read):
            return None
        return f"is a record {read[0]} where {self.describe(parameter)}"


class Type(Kind):
    """A type such as `float64`: a class or dtype of NumPy, a dtype of PyTorch, a type of Numba. Nothing is packed.

    Since all classes have one Python type, the value has to fit.
    """

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return 0 if other_values.is_type(value) else None

    def fit(self, parameter: Parameter) -> Fit:
        dtype = parameter["dtype"]
        return lambda read, _values: bool(read == dtype)

    def fields(self, parameter: Parameter) -> Fields:
        return []  # the padding of the `struct` format has the zeros

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        return _wrong_dtype(self, parameter, arg, read)


class Tuple(Kind):
    """A tuple; its members are parameters."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        members = parameter["members"]
        if not isinstance(value, tuple) or len(value) != len(members):
            return None
        ranks = [
            parameter_kinds.kind_of(member).rank(member, item) for member, item in zip(members, value, strict=True)
        ]
        return None if None in ranks else sum(part for part in ranks if part is not None)

    def fit(self, parameter: Parameter) -> Fit:
        fits = [parameter_kinds.kind_of(member).fit(member) for member in parameter["members"]]

        def fit(read: list[object], values: list[object]) -> bool:
            return all(member(item, values) for member, item in zip(fits, read, strict=True))

        return fit

    def fields(self, parameter: Parameter) -> Fields:
        return [field for member in parameter["members"] for field in parameter_kinds.kind_of(member).fields(member)]

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        raise NotImplementedError  # aotcuda.runtime.launch.arguments.explain uses its members

    def is_exact(self, parameter: Parameter, arg: object) -> bool:
        assert isinstance(arg, tuple)  # noqa: S101 (only for mypy)
        return all(
            parameter_kinds.kind_of(member).is_exact(member, item)
            for member, item in zip(parameter["members"], arg, strict=True)
        )


class Elements(Address):
    """The address of the first element of an array of one dtype, with any shape and strides.

    `divisor` applies to the address. A read-only array fits only a parameter that is `readonly`.
    """

    def fit(self, parameter: Parameter) -> Fit:
        dtype, divisor, writable = parameter["dtype"], parameter.get("divisor", 1), not parameter.get("readonly", False)

        def fit(view: View | None, values: list[object]) -> bool:
            if view is None or view[0] != dtype or view[1] % divisor or (writable and view[4]):
                return False
            values.append(view[1])
            return True

        return fit

    def fit_contiguous(self, parameter: Parameter) -> Append:
        itemsize, divisor = array_view.item_bytes(parameter["dtype"]), parameter.get("divisor", 1)

        def append(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
            values.append(address)
            return address % divisor == 0 and array_view.count_items(shape, itemsize) is not None

        return append

    def problem(self, parameter: Parameter, arg: object, read: Any) -> str | None:
        view: View = read
        if view[0] != parameter["dtype"]:
            return f"is {type_names.view_name(view)} where {self.describe(parameter)}"
        if view[1] % parameter.get("divisor", 1):
            return (
                f"has the address {view[1]:#x}, which {parameter['divisor']} does not divide as "
                f"{parameter['type']} promises"
            )
        if view[4] and not parameter.get("readonly", False):
            return f"is read-only, and {parameter['type']} was compiled as writable; {parameter_errors.WRITABLE}"
        return None

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        writable = not parameter.get("readonly", False)
        return parameter_kinds.fast_path_record("e", parameter, layout="A", flag=writable)


class Number(Scalar):
    """A number by value. A launch takes the first overload that fits; with `Scalar` it takes the widest one."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return None if scalars.rank(parameter, value) is None else 0

    def fit(self, parameter: Parameter) -> Fit:
        plain = super().fit(parameter)
        if not _is_bounded(parameter):
            return plain
        divisor, least, most = _bounds(parameter)
        is_free = "least" not in parameter  # only the type limits the number, also beyond int64

        def fit(number: Any, values: list[object]) -> bool:
            return number % divisor == 0 and (is_free or least <= number <= most) and plain(number, values)

        return fit

    def problem(self, parameter: Parameter, arg: object, read: Any) -> str | None:
        if _is_bounded(parameter):
            divisor, least, most = _bounds(parameter)
            if read % divisor:
                number = errors.short_repr(arg)
                return f"is {number}, which {divisor} does not divide as {parameter['type']} promises"
            if "least" in parameter and not least <= read <= most:
                return f"is {errors.short_repr(arg)}, and this variant is for {least} to {most}"
        return super().problem(parameter, arg, read)

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        return parameter_kinds.fast_path_record("s", parameter, parameter["format"])


class Constant(Kind):
    """A value that was compiled into the kernel; nothing is packed. An `optional` constant accepts None, too.

    Values of different types are different: 1, 1.0 and True are three values.
    """

    def rank(self, parameter: Parameter, value: object) -> int | None:
        constant = constants.decode(parameter["value"])
        if value is None:
            return 0 if parameter.get("optional") or constant is None else None
        return 0 if type(value) is type(constant) else None

    def fit(self, parameter: Parameter) -> Fit:
        value = constants.decode(parameter["value"])
        if isinstance(value, float):
            text = repr(value)  # equal for NaN, and not for the two zeros
            return lambda read, _values: read is None or repr(read) == text
        return lambda read, _values: read is None or bool(read == value)

    def fields(self, parameter: Parameter) -> Fields:
        return []

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        if read is None or repr(read) == repr(constants.decode(parameter["value"])):
            return None
        return f"is {errors.short_repr(arg)} where {self.describe(parameter)}"

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        optional = bool(parameter.get("optional"))
        value = constants.decode(parameter["value"])
        return parameter_kinds.fast_path_record("k", parameter, "q", flag=optional, value=value)


KINDS: dict[str, Kind] = {
    "pointer": Pointer(),
    "datetime": Datetime(),
    "record": Record(),
    "type": Type(),
    "tuple": Tuple(),
    "elements": Elements(),
    "number": Number(),
    "constant": Constant(),
    "buffer": Buffer(),
    "struct": Struct(),
    "small": SmallFloat(),
    "descriptor": descriptor_kind.TensorDescriptor(),
}


def _wrong_dtype(kind: Kind, parameter: Parameter, arg: object, read: object) -> str | None:
    if parameter_errors.packs(kind, parameter, read):
        return None
    return f"is {type_names.name_of(arg)} where {kind.describe(parameter)}"


def _is_bounded(parameter: Parameter) -> bool:
    return "divisor" in parameter or "least" in parameter


def _bounds(parameter: Parameter) -> tuple[int, int, int]:
    """Return the divisor, the smallest and the largest value of a number."""
    least, most = parameter_kinds.NO_BOUNDS
    return parameter.get("divisor", 1), parameter.get("least", least), parameter.get("most", most)
