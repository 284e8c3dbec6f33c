"""The kinds of parameters: one class for each `kind` of the manifest decides which arguments fit.

This module has numbers and arrays, which nearly every kernel takes; `arguments.other_kinds` has the
other kinds.
"""

# The kinds, `array_view.view` and `scalars.reader` define the meaning of arguments. A launch reads an argument once,
# with a function that depends only on the argument's type. The parameter of each overload then accepts or refuses the
# value that was read. `record` describes the parameter to the fast path in C. Kernels with a parameter that has no
# record take the general path.

from __future__ import annotations

import struct
from operator import itemgetter

from ....common import scalar_types
from . import array_view, arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ....manifest import Parameter
    from .array_view import View

    Fit = Callable[[Any, list[object]], bool]
    Append = Callable[[int, tuple[int, ...], list[object]], bool]
    Fields = list[tuple[int, str, bool]]

_WORDS = {"zero": 0, "items": 1, "itemsize": 2, "data": 3}
NO_BOUNDS = (-(2**63), 2**63 - 1)
_WORD_FAMILIES = {"shape": 16, "stride": 32, "step": 48}


class Kind:
    """The behaviour of a kind of parameter; `parameter` is its entry in the manifest."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        """Return the distance from a value's type to the parameter's: 0 is best; None if the type never fits."""
        raise NotImplementedError

    def fit(self, parameter: Parameter) -> Fit:
        """Return the function that appends an argument's numbers in the order of `fields`, or returns False."""
        raise NotImplementedError

    def fit_contiguous(self, parameter: Parameter) -> Append | None:
        """Return the function that appends the numbers of a C-contiguous array of the parameter's dtype.

        The function takes address and shape, and returns False for a shape that the parameter does not accept. The
        result is None if the parameter checks more than dtype and number of dimensions.
        """
        return None

    def fields(self, parameter: Parameter) -> Fields:
        """Return for each number in the block: offset, `struct` character, True for the address of an array.

        Words that are always zero are omitted, since packing fills the gaps with zeros.
        """
        raise NotImplementedError

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        """Return the problem of an argument that the parameter does not accept, or None."""
        raise NotImplementedError

    def describe(self, parameter: Parameter) -> str:
        """Return the end of an error such as "is float where int32 is packaged"."""
        dtype = parameter.get("dtype")
        return f"{parameter['type']} is packaged{f' ({dtype})' if dtype else ''}"

    def is_exact(self, parameter: Parameter, arg: object) -> bool:
        """Return True if the JIT fallback compiles this parameter for every value of the argument's type that fits.

        Earlier compilations must not decide which overload a launch takes. A parameter for any strides would accept
        contiguous arrays, too, and a parameter for large ints would accept small ones.
        """
        return True

    def record(self, parameter: Parameter) -> tuple[object, ...] | None:
        """Return the parameter for the fast path in C, from `fast_path_record`; None if C does not know its kind."""
        return None


class Scalar(Kind):
    """A number: `scalar` and `complex`."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return scalars.rank(parameter, value)

    def fit(self, parameter: Parameter) -> Fit:
        special = {"bool": scalars.fit_bool, "complex": scalars.fit_complex}
        return special.get(scalars.family(parameter), scalars.fit_plain)

    def fields(self, parameter: Parameter) -> Fields:
        offset, form = parameter["offset"], parameter["format"]
        if parameter["kind"] == "complex":
            return [(offset, form, False), (offset + struct.calcsize(form), form, False)]
        if form not in "?bBhHiIqQefd":
            message = f"format {form!r}"
            raise ValueError(message)
        return [(offset, form, False)]

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        from . import parameter_errors  # noqa: PLC0415 (only errors come here)

        return parameter_errors.range_problem(self, parameter, arg, read)

    def is_exact(self, parameter: Parameter, arg: object) -> bool:
        large = parameter["kind"] == "scalar" and parameter["format"] == "Q"
        return not large or scalars.numpy_dtype(arg) is not None

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        return fast_path_record(parameter["kind"][0], parameter, parameter["format"])


class Array(Kind):
    """A device array of one dtype and number of dimensions; its words are made from its view.

    Layout `C` or `F` accepts arrays that are contiguous in that order, `A` any strides. A read-only array fits only a
    parameter that was compiled as read-only. If words count strides in elements, all strides have to be multiples of
    the element's size. `divisor` applies to the address, or to one of the `sizes`.
    """

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return None if arrays.family(value) is None else 0

    def fit(self, parameter: Parameter) -> Fit:
        dtype, ndim, layout = parameter["dtype"], parameter["ndim"], parameter["layout"]
        writable, itemsize = not parameter.get("readonly", False), array_view.item_bytes(dtype)
        counts_elements = counts_in_elements(parameter)
        append = _contiguous(parameter)
        pick = picker(parameter)
        divisor, promises = parameter.get("divisor", 1), _promises(parameter)
        first = -len(parameter.get("sizes", ()))

        def fit_promised(view: View | None, values: list[object]) -> bool:
            return (
                fit(view, values)
                and view[1] % divisor == 0  # type: ignore[index]  # of a view that fits
                and all(_keeps_promise(values[first + at], *promise) for at, promise in promises)
            )

        def fit(view: View | None, values: list[object]) -> bool:
            if view is None:
                return False
            typestr, address, shape, strides, readonly = view
            if typestr != dtype or len(shape) != ndim or (readonly and writable):
                return False
            if strides is None:
                if layout != "F" or ndim < 2:
                    return append(address, shape, values)
                strides = array_view.contiguous_strides(shape, itemsize, "C")
            elif layout == "C":
                return False  # the strides of a C-contiguous array are None
            if layout == "F":
                if not array_view.is_contiguous(shape, strides, itemsize, "F"):
                    return False
                strides = array_view.contiguous_strides(shape, itemsize, "F")
            elif counts_elements and any(stride % itemsize for stride in strides):
                return False
            items = 1
            for extent in shape:
                items *= extent
            values += pick((itemsize, address, items, *shape, *strides, *[step // itemsize for step in strides]))
            return True

        return fit_promised if divisor > 1 or promises else fit

    def fit_contiguous(self, parameter: Parameter) -> Append | None:
        is_f_order = parameter["layout"] == "F" and parameter["ndim"] > 1
        has_promises = parameter.get("divisor", 1) > 1 or _promises(parameter)
        return None if is_f_order or has_promises else _contiguous(parameter)

    def fields(self, parameter: Parameter) -> Fields:
        return [
            (parameter["offset"] + 8 * at, "Q" if word == "data" else "q", word == "data")
            for at, word in enumerate(parameter["words"])
            if word != "zero"  # the padding of the `struct` format
        ] + size_fields(parameter)

    def describe(self, parameter: Parameter) -> str:
        from . import type_names  # noqa: PLC0415 (as above)

        return f"{type_names.array_name(parameter['dtype'], parameter['ndim'], parameter['layout'])} is packaged"

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        from . import parameter_errors  # noqa: PLC0415 (as above)

        return parameter_errors.array_problem(self, parameter, read, counts_elements=counts_in_elements(parameter))

    def is_exact(self, parameter: Parameter, arg: object) -> bool:
        return parameter["layout"] == "C" and not parameter.get("readonly", False)

    def record(self, parameter: Parameter) -> tuple[object, ...]:
        return fast_path_record(
            "a",
            parameter,
            layout=parameter["layout"],
            ndim=parameter["ndim"],
            flag=not parameter.get("readonly", False),
            words=parameter["words"],
        )


_KINDS: dict[str, Kind] = {"scalar": Scalar(), "complex": Scalar(), "array": Array()}

ANY_DIMENSIONS = 255
"""The extension's value for a parameter that accepts arrays of any number of dimensions."""


def add_kinds(kinds: dict[str, Kind]) -> None:
    """Add kinds that `kind_of` finds."""
    _KINDS.update(kinds)


def is_known(parameter: Parameter) -> bool:
    """Return True if `kind_of` finds the kind of a parameter."""
    return parameter["kind"] in _KINDS


def kind_of(parameter: Parameter) -> Kind:
    """Return the kind of a parameter.

    Raises:
        LookupError: There is no such kind.
    """
    return _KINDS[parameter["kind"]]


def counts_in_elements(parameter: Parameter) -> bool:
    """Return True if an array's words or sizes count strides in elements."""
    return any(word.startswith("step") for word in (*parameter["words"], *size_words(parameter)))


def form(parameter: Parameter) -> tuple[str, int | None] | None:
    """Return dtype and number of dimensions (None: any) of a parameter's arrays; None if it accepts no arrays.

    Overloads are grouped by this form. Records, which accept arrays of one element, have none.
    """
    if parameter["kind"] not in ("array", "buffer", "elements"):
        return None
    return parameter["dtype"], parameter["ndim"] if parameter["kind"] == "array" else None


def alignment(parameter: Parameter) -> int:
    """Return the alignment in bytes of the elements of a parameter's arrays; 1 for other parameters."""
    kind = parameter["kind"]
    if kind in ("array", "buffer", "elements"):
        return parameter.get("align") or scalar_types.alignment(parameter["dtype"])
    return parameter.get("align", 1) if kind == "record" else 1


def size_words(parameter: Parameter) -> list[str]:
    """Return the words of an array's sizes that are further parameters of the kernel."""
    return [size["word"] for size in parameter.get("sizes", ())]


def size_fields(parameter: Parameter) -> Fields:
    """Return `Kind.fields` of an array's sizes."""
    return [(size["offset"], size["format"], False) for size in parameter.get("sizes", ())]


def fast_path_record(
    code: str,
    parameter: Parameter,
    form: str = "Q",
    *,
    layout: str = "C",
    ndim: int = 0,
    flag: bool = False,
    words: Sequence[str] = (),
    value: object = None,
) -> tuple[object, ...]:
    """Return a parameter's description for `ArgumentLayout` of the extension.

    Args:
        code: The kind, as `Parameter` in launch.h has it.
        parameter: The parameter's entry in the manifest.
        form: The `struct` character of a number.
        layout: The layout of an array: `C`, `F` or `A`.
        ndim: The number of dimensions of an array.
        flag: Of an array True if the kernel may write to it; of a constant True if it may be omitted.
        words: The words of an array.
        value: The value of a constant.
    """
    dtype = parameter.get("dtype", "")
    itemsize = array_view.item_bytes(dtype) if dtype else 0
    numbers = parameter.get("divisor", 1), parameter.get("least", NO_BOUNDS[0]), parameter.get("most", NO_BOUNDS[1])
    codes = bytes(map(_word_code, words))
    array = layout, ndim, itemsize, alignment(parameter), int(flag), codes, dtype, _size_records(parameter)
    return code, form, parameter["offset"], *array, *numbers, value


def _size_records(parameter: Parameter) -> bytes:
    """Return the sizes for the fast path: word, format, offset, divisor, and True if it must not be negative."""
    return b"".join(
        [
            struct.pack(
                "<BciHB",
                _word_code(size["word"]),
                size["format"].encode(),
                size["offset"],
                size.get("divisor", 1),
                "least" in size,
            )
            for size in parameter.get("sizes", ())
        ]
    )


def _promises(parameter: Parameter) -> list[tuple[int, tuple[int, bool]]]:
    """Return index, divisor and True for a lower bound of 0 for each size that promises more than its type."""
    promises = [(size.get("divisor", 1), "least" in size) for size in parameter.get("sizes", ())]
    return [(at, promise) for at, promise in enumerate(promises) if promise != (1, False)]


def _keeps_promise(number: Any, divisor: int, bounded: bool) -> bool:
    return number % divisor == 0 and not (bounded and number < 0)


def _names(ndim: int) -> list[str]:
    """Return the names of the numbers from which words are picked, in the order of `Array.fit`."""
    families = [f"{family}{axis}" for family in ("shape", "stride", "step") for axis in range(ndim)]
    return ["itemsize", "data", "items", *families]


def picker(parameter: Parameter) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return the function that picks an array's words and sizes from the numbers that `_names` lists."""
    names = _names(parameter["ndim"])
    indices = [names.index(word) for word in (*parameter["words"], *size_words(parameter)) if word != "zero"]
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda numbers: tuple([numbers[at] for at in indices])


def _contiguous(parameter: Parameter) -> Append:
    """Return the function that appends the numbers of a C-contiguous array; see `Kind.fit_contiguous`."""
    ndim, itemsize, pick = parameter["ndim"], array_view.item_bytes(parameter["dtype"]), picker(parameter)
    most = array_view.MOST_BYTES // max(itemsize, 1)

    def append_line(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
        if len(shape) != 1:
            return False
        extent = shape[0]
        if type(extent) is not int or not 0 <= extent <= most:
            return False
        values += pick((itemsize, address, extent, extent, itemsize, 1))
        return True

    def append(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
        items = array_view.count_items(shape, itemsize) if len(shape) == ndim else None
        if items is None:
            return False
        strides = array_view.contiguous_strides(shape, itemsize, "C")
        values += pick((itemsize, address, items, *shape, *strides, *[step // itemsize for step in strides]))
        return True

    return append_line if ndim == 1 else append


def _word_code(name: str) -> int:
    """Return the extension's code of a word."""
    code = _WORDS.get(name)
    if code is not None:
        return code
    family = name.rstrip("0123456789")
    return _WORD_FAMILIES[family] + int(name[len(family) :])
