"""The quick path of a launch: Python code made for one overload, the types of its arguments and one configuration.

The general path (`aotcuda.runtime.dispatch`) finds the overload and asks each argument what it is. What it found for
some types of arguments holds for the next launch with the same types too, so the checks that remain (dtype, number of
dimensions, layout, range, stream) and the packing are written out as one function, and compiled. It does the same as
the converters in `aotcuda.runtime.plan` do, in a fourth of the time.

A quick function takes the tuple of arguments and answers with the driver's code, 0 for success, or with `DECLINED`, for
whatever is not as it was: then nothing was launched, and the general path decides. It never raises by itself.
"""

from __future__ import annotations

from aotcuda.runtime import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.manifest import Parameter
    from aotcuda.runtime.plan import Plan

    Quick = Callable[[tuple[object, ...]], int]
    Bind = Callable[..., Quick]

DECLINED = -1
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

_TEMPLATE = """
def bind(launch, configuration, kernel, same, context, device):
    def quick(args):
        if not live:
            return -1
        try:
            {checks}
        except Exception:
            return -1
        try:
            slot = take()
        except IndexError:
            slot = make_slot()
        try:
            {place}
            pack_into(slot[0], 0, {values})
        except Exception:
            give_back(slot)
            return -1
        code = launch(configuration, kernel, None, slot[1])
        give_back(slot)
        return code
    return quick
"""


class Place:
    """What quick launches ask about contexts and GPUs.

    Attributes:
        current: `cuCtxGetCurrent`, for a launch that depends on which context is current; None if it does not.
        attribute: `cuPointerGetAttribute`, where there are several GPUs, and arrays may lie on another one; else None.
    """

    __slots__ = ("attribute", "current")

    def __init__(self, current: Callable[..., int] | None, attribute: Callable[..., int] | None) -> None:
        self.current = current
        self.attribute = attribute


def specialise(plan: Plan, args: tuple[object, ...], live: list[bool], place: Place) -> Bind | None:
    """A function that makes the quick function of an overload for a configuration; None if arguments are unusual.

    That function takes `cuLaunchKernelEx`, the configuration, the kernel, the stream's handles, and the context and the
    GPU that the quick function is for.

    Args:
        plan: The overload.
        args: Arguments that it takes.
        live: Empty when the overload's code is not loaded any more.
        place: What has to be asked about where it is launched.
    """
    writer = _Writer(several=place.attribute is not None)
    if place.current is not None:
        writer.places.append("if current(slot[4]) or slot[3].value != context: raise LookupError")
    try:
        writer.parameters("args", plan.parameters, args)
    except _UnusualError:
        return None
    source = _TEMPLATE.format(
        checks="\n            ".join(writer.checks) or "pass",
        place="\n            ".join(writer.places),
        values=", ".join(writer.values),
    )
    scope: dict[str, Any] = {
        **writer.names,
        "live": live,
        "current": place.current,
        "attribute": place.attribute,
        "take": plan.slots.pop,
        "give_back": plan.slots.append,
        "make_slot": plan.make_slot,
        "pack_into": plan.quick_struct().pack_into,
    }
    # The text is made of this file's own words and of numbers; names and types of the manifest are not in it.
    exec(compile(source, f"<quick path of {plan.overload['symbol']}>", "exec"), scope)  # noqa: S102
    bind: Bind = scope["bind"]
    return bind


class _UnusualError(Exception):
    """An argument that only the general path takes."""


class _Writer:
    """Writes the checks of arguments, and the expressions of the numbers to pack.

    Attributes:
        checks: Statements; `return -1` is how they decline.
        places: Statements that ask the driver, and raise to decline.
        values: The expressions, in the order of the parameter block.
        names: The objects that both refer to.
    """

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self.checks: list[str] = []
        self.places: list[str] = []
        self.values: list[str] = []
        self.names: dict[str, object] = {}
        self._count = 0

    def parameters(self, tuple_: str, parameters: list[Parameter], args: tuple[object, ...]) -> None:
        """Write a tuple of arguments, whose type and length are known or checked already."""
        names = [self._fresh("a") for _ in args]
        if len(args) == 0:
            self.checks.append(f"if {tuple_}: return -1")
            return
        self.checks.append(f"{', '.join(names)}, = {tuple_}")  # of another length: it raises, and so declines
        types = [self._keep("T", type(arg)) for arg in args]
        differ = [f"type({name}) is not {type_}" for name, type_ in zip(names, types, strict=True)]
        self.checks.append(f"if {' or '.join(differ)}: return -1")
        for name, parameter, arg in zip(names, parameters, args, strict=True):
            self._parameter(name, parameter, arg)

    def _parameter(self, name: str, parameter: Parameter, arg: object) -> None:
        kind = parameter["kind"]
        if kind in ("record", "datetime", "type"):
            raise _UnusualError
        if kind == "array":
            self._array(name, parameter, arg)
        elif kind == "tuple":
            assert isinstance(arg, tuple)  # noqa: S101 (the general path has taken it)
            self.parameters(name, parameter["members"], arg)
        elif kind == "pointer":
            self.values.append(name if isinstance(arg, int) else f"{name}.value or 0")
        elif kind == "complex":
            number = self._fresh("c")
            self.checks.append(f"{number} = complex({name})")
            self.values += [f"{number}.real", f"{number}.imag"]
        elif scalars.family(parameter) == "bool":
            self.checks.append(f"if not ({name} == 0 or {name} == 1): return -1")
            self.values.append(name)
        elif scalars.kind_of(arg) == "bool" and type(arg) is not bool:
            self.values.append(f"bool({name})")
        else:
            self.values.append(name)

    def _array(self, name: str, parameter: Parameter, array: object) -> None:
        found = arrays.family(array)
        known = arrays.identity(array)
        if known is None or arrays.element(known[0]) != parameter["dtype"]:
            raise _UnusualError
        ndim, layout = parameter["ndim"], parameter["layout"]
        if found == "cupy":
            address, extents, strides = self._cupy(name, array, ndim, layout)
        elif found == "torch":
            address, extents, strides = self._torch(name, array, parameter)
        elif found == "numba":
            address, extents, strides = self._numba(name, array, parameter)
        elif found == "interface" and "V" not in parameter["dtype"]:  # a type string does not tell the fields
            address, extents, strides = self._interface(name, parameter)
        else:
            raise _UnusualError
        self._words(parameter, address, extents, strides)

    def _cupy(self, name: str, array: object, ndim: int, layout: str) -> tuple[str, list[str], str]:
        """Address, extents and the tuple of strides in bytes (or "") of a CuPy array."""
        contiguous = {"C": "_c_contiguous", "F": "_f_contiguous", "A": ""}[layout]
        unfit = f" or not {name}.{contiguous}" if contiguous else ""
        dtype = self._keep("D", array.dtype)  # type: ignore[attr-defined]
        self.checks.append(
            f"if ({name}.dtype is not {dtype} and {name}.dtype != {dtype}) or {name}.ndim != {ndim}{unfit}: return -1"
        )
        if self._several:
            self.checks.append(f"if {name}.data.device_id != device: return -1")
        current = arrays.cupy_stream()
        if current is not None and "cupy_stream" not in self.names:
            self.names["cupy_stream"] = current
            self.checks.append("if cupy_stream().ptr not in same: return -1")
        strides = ""
        if not contiguous:
            strides = self._fresh("t")
            self.checks.append(f"{strides} = {name}.strides")
        return f"{name}.data.ptr", self._extents(name, ndim, length=f"len({name})"), strides

    def _torch(self, name: str, tensor: object, parameter: Parameter) -> tuple[str, list[str], str]:
        ndim, layout = parameter["ndim"], parameter["layout"]
        if layout == "F" and ndim > 1:
            raise _UnusualError
        dtype = self._keep("D", tensor.dtype)  # type: ignore[attr-defined]
        wrong = [f"{name}.dtype is not {dtype}", f"not {name}.is_cuda"]
        if self._several:
            wrong.append(f"{name}.get_device() != device")
        if ndim == 0:
            wrong.append(f"{name}.ndim")
        elif layout == "A":
            wrong.append(f"{name}.ndim != {ndim}")
        elif ndim == 1:  # one question for two; single elements may have other strides, and are declined
            wrong.append(f"{name}.stride() != (1,)")
        else:  # unpacking the shape tells the number of dimensions
            wrong.append(f"not {name}.is_contiguous()")
        self.checks.append(f"if {' or '.join(wrong)}: return -1")
        current = arrays.torch_stream()
        if current is not None and "torch_stream" not in self.names:
            self.names["torch_stream"] = current
            self.checks.append("if torch_stream(device) not in same: return -1")
        # A tensor's len() is a Python function of 0.5 us; its numel() takes a sixth of that.
        extents = self._extents(name, ndim, length=f"{name}.numel()")
        if "c" in parameter["dtype"]:
            self.checks.append(f"if {name}.is_neg() or {name}.is_conj(): return -1")
        elif ndim == 0 or layout == "A":
            self.checks.append(f"if {name}.is_neg(): return -1")
        else:  # negated lazily: the imaginary part of a conjugate, contiguous as a single number or by as_strided
            self.checks.append(f"if {' == '.join(extents)} == 1 and {name}.is_neg(): return -1")
        strides = ""
        if layout == "A":
            strides = self._fresh("t")
            itemsize = arrays.item_bytes(parameter["dtype"])
            self.checks.append(f"{strides} = [step * {itemsize} for step in {name}.stride()]")
        return f"{name}.data_ptr()", extents, strides

    def _numba(self, name: str, array: object, parameter: Parameter) -> tuple[str, list[str], str]:
        ndim, layout, itemsize = parameter["ndim"], parameter["layout"], arrays.item_bytes(parameter["dtype"])
        dtype, none = self._keep("D", array.dtype), self._keep("Z", 0)  # type: ignore[attr-defined]
        address, shape, strides, ready = (self._fresh(letter) for letter in "pstw")
        extents = [self._fresh("n") for _ in range(ndim)]
        self.checks += [
            f"{ready} = {name}.stream",  # 0 for none, an int, or a stream object
            f"if {ready} is not {none} and int({ready}) not in same: return -1",
            f"if {name}.dtype is not {dtype} and {name}.dtype != {dtype}: return -1",
            f"{shape} = {name}.shape",
            f"{', '.join(extents)}, = {shape}" if extents else f"if {shape}: return -1",
            f"{strides} = {name}.strides",
            f"{address} = int({name}.gpu_data.device_pointer)",
        ]
        self._lies_here(address)
        if layout == "A":
            return address, extents, strides
        if ndim == 1:
            self.checks.append(f"if {strides}[0] != {itemsize} and {extents[0]} > 1: return -1")
        elif ndim:
            self.names["is_contiguous"] = arrays.is_contiguous
            self.checks.append(f"if not is_contiguous({shape}, {strides}, {itemsize}, {layout!r}): return -1")
        return address, extents, ""

    def _lies_here(self, address: str) -> None:
        """Where there are several GPUs: decline an address on another one."""
        if self._several:  # the driver writes an int into the cell
            elsewhere = f"attribute(slot[4], {_ORDINAL}, {address}) or slot[3].value & 0xFFFFFFFF != device"
            self.places.append(f"if {address} and ({elsewhere}): raise LookupError")

    def _interface(self, name: str, parameter: Parameter) -> tuple[str, list[str], str]:
        ndim, layout, dtype = parameter["ndim"], parameter["layout"], parameter["dtype"]
        itemsize = arrays.item_bytes(dtype)
        interface, address, readonly, shape, strides = (self._fresh(letter) for letter in "iprst")
        ready = self._fresh("w")
        wrong = "" if parameter.get("readonly", False) else f" or {readonly}"
        typestr = self._keep("D", dtype)
        self.checks += [
            f"{interface} = {name}.__cuda_array_interface__",
            f"{address}, {readonly} = {interface}['data']",
            f"{shape} = {interface}['shape']",
            f"{strides} = {interface}.get('strides')",
            f"{ready} = {interface}.get('stream')",
            f"if {interface}['typestr'] != {typestr} or len({shape}) != {ndim}{wrong}: return -1",
            f"if {ready} is not None and {ready} not in same or {interface}.get('mask') is not None: return -1",
        ]
        self._lies_here(address)
        extents = [self._fresh("n") for _ in range(ndim)]
        if extents:
            self.checks.append(f"{', '.join(extents)}, = {shape}")
        self.names["contiguous_strides"] = arrays.contiguous_strides
        self.names["is_contiguous"] = arrays.is_contiguous
        if layout == "A":
            made = f"contiguous_strides({shape}, {itemsize}, 'C')"
            self.checks.append(f"if {strides} is None: {strides} = {made}")
            return address, extents, strides
        if ndim == 1:
            unfit = f"{strides} is not None and {strides}[0] != {itemsize} and {extents[0]} > 1"
        elif layout == "C":
            unfit = f"{strides} is not None and not is_contiguous({shape}, {strides}, {itemsize}, 'C')"
        else:
            unfit = f"{strides} is None or not is_contiguous({shape}, {strides}, {itemsize}, 'F')"
        self.checks.append(f"if {unfit}: return -1")
        return address, extents, ""

    def _extents(self, name: str, ndim: int, *, length: str) -> list[str]:
        """Variables that hold the extents of an array of so many dimensions; `length` is for one dimension."""
        extents = [self._fresh("n") for _ in range(ndim)]
        if ndim == 1:  # less than half the time that a shape takes
            self.checks.append(f"{extents[0]} = {length}")
        elif ndim:
            self.checks.append(f"{', '.join(extents)} = {name}.shape")  # raises, and so declines, if they are others
        return extents

    def _words(self, parameter: Parameter, address: str, extents: list[str], strides: str) -> None:
        """Add the words of an array; those that are zero are the `struct` format's padding."""
        ndim = len(extents)
        itemsize = arrays.item_bytes(parameter["dtype"])
        numbers = {"items": " * ".join(extents) or "1", "itemsize": str(itemsize), "data": address}
        numbers |= {f"shape{axis}": extent for axis, extent in enumerate(extents)}
        if strides:
            steps = [f"{strides}[{axis}]" for axis in range(ndim)]
            elements = [f"{step} // {itemsize}" for step in steps]
        else:  # contiguous: each stride is the product of the faster dimensions' extents
            order = list(range(ndim))[:: -1 if parameter["layout"] == "C" else 1]
            faster = {axis: [extents[other] for other in order[:at]] for at, axis in enumerate(order)}
            elements = [" * ".join(faster[axis]) or "1" for axis in range(ndim)]
            steps = [" * ".join([str(itemsize), *faster[axis]]) for axis in range(ndim)]
        numbers |= {f"stride{axis}": step for axis, step in enumerate(steps)}
        numbers |= {f"step{axis}": step for axis, step in enumerate(elements)}
        self.values += [numbers[word] for word in parameter["words"] if word != "zero"]

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _keep(self, letter: str, value: object) -> str:
        """A name for an object."""
        name = self._fresh(letter)
        self.names[name] = value
        return name
