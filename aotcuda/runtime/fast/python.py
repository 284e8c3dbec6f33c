"""The fast path of a launch in Python: a function made for a group of overloads and the types of their arguments.

The general path (`aotcuda.runtime.arguments.overloads`) finds the overload and asks each argument what it is. What it
found for some types of arguments holds for the next launch with the same types too, so the checks that remain (dtype,
number of dimensions, layout, range, stream) and the packing are written out as one function, and compiled. It does what
`aotcuda.runtime.arguments.parameters` and `views.view` say, in a fourth of the time: it reads each argument once, and
tries the overloads in their order.

A fast function takes the tuple of arguments and answers with the driver's code, 0 for success, or with `DECLINED`, for
whatever is not as it was, or is rare: then nothing was launched, and the general path decides. It never raises by
itself.

A slot that is not in its overload's list is a launch under way. So whether the images are still loaded is asked once
the slot is taken: who unloads empties `live` first, and then waits for the slots.
"""

from __future__ import annotations

import ctypes

import aotcuda
from aotcuda.runtime import module_of
from aotcuda.runtime.arguments import arrays, parameters, scalars, views
from aotcuda.runtime.driver import AFTER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from aotcuda.manifest import Parameter, Size
    from aotcuda.runtime.arguments.overloads import Group, PackedOverload
    from aotcuda.runtime.driver import Driver, Mark

    FastPath = Callable[[tuple[object, ...]], int]
    Bind = Callable[..., FastPath]

DECLINED = -1
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_INT = 0xFFFFFFFF
"""What the driver writes into a cell that has room for an address."""
_MOST_STREAMS = 64

_TEMPLATE = """
def bind(launch, targets, stream, context, device):
    [{targets}] = targets
    same = stream or 1
    kept = kept_events.setdefault(context, [])
    events = iter(kept.pop, None), kept.append
    {bound}
    def fast(args):
        {shared}
        try:
            {checks}
        except (MemoryError, RecursionError):
            raise
        except Exception:
            return -1
{attempts}
        return -1
    return fast
"""
_ATTEMPT = """
        if {condition}:
            try:
                slot = take{n}()
            except IndexError:
                slot = make_slot{n}()
            try:
                if not live:
                    return -1
                try:
                    {late}
                    {place}
                    pack_into{n}(slot[0], 0, {values})
                except (MemoryError, RecursionError):
                    raise
                except Exception:
                    pass
                else:
                    {launched}
            finally:
                give_back{n}(slot)
"""
_CONFIGURED = """try:
                        configured = ready{n}[stream]
                    except KeyError:
                        configured = ready{n}[stream] = configurations{n}[stream]
                        if len(ready{n}) > {most}: ready{n}.clear()
                    """


class Place:
    """What fast launches ask about contexts and GPUs.

    Attributes:
        current: `cuCtxGetCurrent`, for a launch that depends on which context is current; None if it does not.
        several: Whether there are several GPUs, and so arrays and streams may be of another one.
        call: The driver's functions that are asked about these.
        around: What launches that wait for a stream (`ordering`).
        events: `Driver.events`, for that.
    """

    __slots__ = ("around", "call", "current", "events", "several")

    def __init__(self, driver: Driver, *, one_context: bool) -> None:
        names = ("cuPointerGetAttribute", "cuStreamIsCapturing", "cuStreamGetCtx")
        self.call = {name: driver.call[name] for name in names}
        self.current = None if one_context else driver.call["cuCtxGetCurrent"]
        self.several = len(driver.devices) > 1
        self.around = ordering(driver)
        self.events = driver.events


class _Handles(dict[int, object]):
    """Handles of streams as what ctypes makes of them at every call."""

    __slots__ = ()

    def __missing__(self, handle: int) -> object:
        if len(self) >= _MOST_STREAMS:  # a program that makes streams as it goes
            self.clear()
        found = self[handle] = ctypes.c_void_p.from_param(handle)
        return found


def ordering(driver: Driver) -> Callable[..., int]:
    """The function that launches on one stream what has to wait for another one.

    It takes the handle of the other stream; whether that then has to wait for the launch, too; the launch's stream; an
    iterator that takes events of the current context out of `Driver.events`, and what puts one back; the launch's slot;
    and what `Driver.launch` takes. It gives the driver's code, with `AFTER` added where that is of what
    follows a launch; or `DECLINED` where the general path has more to say: captures have rules of their own.
    """
    is_capturing, record, wait = map(
        driver.without_types, ("cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent")
    )
    create, destroy, launch = driver.call["cuEventCreate"], driver.call["cuEventDestroy_v2"], driver.launch
    handles = _Handles()

    def around(ready: int, mutual: int, stream: int, events: Any, slot: Any, *launched: object) -> int:
        before, own, cell, answer = handles[ready], handles[stream], slot[3], slot[4]
        if is_capturing(before, answer) or cell.value & _INT or is_capturing(own, answer) or cell.value & _INT:
            return DECLINED
        event = made = None
        take, give_back = events
        try:
            try:
                # It is this launch's alone from here on. Between an iterator and its target no interrupt comes.
                for event in take:  # noqa: B007
                    break
            except IndexError:
                made = ctypes.c_void_p()
                if create(ctypes.byref(made), _NO_TIMING):
                    return DECLINED
                event = ctypes.c_void_p.from_param(made.value)
            if record(event, before) or wait(own, event, 0):  # it may be of another context
                dead, event, made = event, None, None
                destroy(dead)
                return DECLINED
            code = launch(*launched)
            if mutual and not code:
                late = record(event, own) or wait(before, event, 0)
                code = late and AFTER + late
        finally:
            if event is not None:
                give_back(event)  # the driver keeps what waits for it
            elif made is not None and made.value:  # after an interrupt
                destroy(made)
        return code

    return around


class FastPaths:
    """The fast paths in Python of the overloads of one module, as long as the same images are launched."""

    __slots__ = ("_place",)

    def __init__(self, driver: Driver, *, one_context: bool) -> None:
        """For launches on a driver's GPUs; `one_context` says that it does not matter which context is current."""
        self._place = Place(driver, one_context=one_context)

    def learn(self, group: Group, args: tuple[object, ...], *, given: bool) -> Bind | None:
        """The factory of a group's fast-path functions, made for arguments of these types; None if unsupported.

        They are for launches on a stream that was `given`, or for those on the one that is current at each launch.
        """
        found = group.fast.get(given)
        if found is None:
            found = specialise(group.overloads, args, group.live, self._place, given=given)
            if found is not None:  # another thread's arguments may be unsupported where these were not
                group.fast[given] = found
        return found


def specialise(
    overloads: Sequence[PackedOverload], args: tuple[object, ...], live: Mark, place: Place, *, given: bool = True
) -> Bind | None:
    """The factory of the fast-path functions of some overloads; None if it is unsupported for such arguments.

    That function takes `cuLaunchKernelEx`; for each overload its configurations by the stream's handle, and its kernel;
    the handle of the stream that was given, 0 if none was; and the context and the GPU that the fast function is for.

    Args:
        overloads: In the order in which they are tried; their arrays have the same dtypes and dimensions.
        args: Arguments that one of them took.
        live: Empty when the overloads' code is not loaded any more.
        place: What has to be asked about where it is launched.
        given: Whether the stream is given; otherwise it is the one that `arrays.current_stream` says.
    """
    writer = Writer(several=place.several, single=len(overloads) == 1, given=given)
    if place.current is not None:
        writer.places.append("if current(slot[4]) or slot[3].value != context: raise LookupError")
    attempts = []
    scope: dict[str, Any] = {"live": live, "current": place.current, "kept_events": place.events} | {
        f"ask_{name}": function for name, function in place.call.items()
    }
    try:
        names = writer.arguments(args)
        for n, overload in enumerate(overloads):
            writer.begin()
            for name, parameter, arg in zip(names, overload.parameters, args, strict=True):
                parameters.of(parameter).write(writer, name, parameter, arg)
            for first, second in overload.apart:
                writer.apart(*[(names[at], overload.parameters[at]) for at in (first, second)])
            condition = writer.condition()
            block, order = overload.fast_struct()
            values = writer.values if order is None else [writer.values[at] for at in order]
            handed = "slot[1], None" if overload.starts else "None, slot[1]"  # as PackedOverload.handed has it
            attempts.append((n, condition, "\n                    ".join(writer.late), ", ".join(values), handed))
            scope |= {
                f"take{n}": overload.slots.pop,
                f"give_back{n}": overload.slots.append,
                f"make_slot{n}": overload.make_slot,
                f"pack_into{n}": block.pack_into,
            }
    except Exception:  # noqa: BLE001 (GeneralOnlyError; or of an argument that tells other things than when accepted)
        return None
    writer.finish()
    if (
        place.several
    ):  # a handle that was freed may be that of another GPU's stream by now, and the driver launches there
        gone = "ask_cuStreamIsCapturing(stream, slot[4]) or ask_cuStreamGetCtx(stream, slot[4])"
        writer.places.append(f"if stream > 2 and ({gone} or slot[3].value != context): raise LookupError")
    places = "\n                    ".join(writer.places)
    launched = "return launch({configuration}, kernel{n}, {handed})"
    if writer.waits:
        scope["around"] = place.around
        launched += (
            " if not other else around(other, mutual, stream, events, slot, {configuration}, kernel{n}, {handed})"
        )
    configuration = "configuration{n}"
    if writer.asks_stream:  # of a subclass of `dict` an item takes three times as long
        configuration, launched = "configured", _CONFIGURED + launched
        writer.bound += [f"ready{n} = {{}}" for n, *_ in attempts]
    source = _TEMPLATE.format(
        targets=", ".join(f"(configurations{n}, kernel{n})" for n, *_ in attempts),
        bound="; ".join([*[f"configuration{n} = configurations{n}[stream]" for n, *_ in attempts], *writer.bound]),
        shared="nonlocal known, form" if writer.guards else "",
        checks="\n            ".join([*(["other = mutual = 0"] if writer.waits else []), *writer.checks]) or "pass",
        attempts="".join(
            _ATTEMPT.format(
                n=n,
                condition=condition,
                late=late,
                place=places,
                values=values,
                launched=launched.format(
                    configuration=configuration.format(n=n), n=n, handed=handed, most=_MOST_STREAMS
                ),
            )
            for n, condition, late, values, handed in attempts
        ),
    )
    scope |= writer.names
    # The text is made of this project's own words and of numbers; names and types of the manifest are not in it.
    exec(compile(source, f"<fast path of {overloads[0].record['symbol']}>", "exec"), scope)  # noqa: S102
    bind: Bind = scope["bind"]
    return bind


class _Array:
    """Where the fast function has what it read of an array.

    Attributes:
        address: The expression of its address.
        extents: Those of its extents; each is evaluated once.
        contiguous: The expression of whether it is contiguous in an order (`"C"`, `"F"`); "" for what always is.
        strides: A function that gives the variables of its strides in bytes, and the statement that reads them.
        readonly: The variable that says whether it is read-only; "" for what never is.
        told: Whether its strides are ints of Python's, of any size.
    """

    __slots__ = ("address", "contiguous", "extents", "readonly", "strides", "told")

    def __init__(
        self,
        address: str,
        extents: list[str],
        contiguous: dict[str, str],
        strides: Callable[[], tuple[list[str], str]],
        readonly: str = "",
    ) -> None:
        self.address = address
        self.extents = extents
        self.contiguous = contiguous
        self.strides = strides
        self.readonly = readonly
        self.told = False

    def start(self, writer: Writer) -> str:
        """The variable that has its address, which is asked for once from now on."""
        if not self.address.isidentifier():
            self.address = writer.compute("p", self.address)
        return self.address


class Writer:
    """Writes the checks of arguments, and the expressions of the numbers to pack.

    Attributes:
        checks: Statements; `return -1` is how they decline.
        places: Statements that ask the driver, and raise to decline.
        late: Statements for the overload that is being written, of which only launching it has need; they decline it by
            raising.
        values: The expressions for that overload, in the order of the parameter block.
        names: The objects that all of these refer to.
        waits: Whether a launch may have to wait for another stream.
        bound: Statements for when a function is bound, which launches then share.
    """

    def __init__(self, *, several: bool, single: bool, given: bool) -> None:
        self._given = given
        self._leader = ""  # the library whose current stream the launch is on
        self._several = several
        self._single = single
        self.checks: list[str] = []
        self.places: list[str] = []
        self.late: list[str] = []
        self.values: list[str] = []
        self.names: dict[str, object] = {}
        self.waits = False
        self.bound: list[str] = []
        self._count = 0
        self._conditions: list[str] = []
        self._arrays: dict[str, _Array] = {}
        self._addresses: dict[str, tuple[str, str]] = {}  # of arrays of which no more counts; whether read-only
        self._forms: dict[str, tuple[object, int] | None] = {}
        self._numbers: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._bounded: dict[int, list[str]] = {}
        self._products: list[str] = []
        self._small: dict[int, list[str]] = {}
        self._types: dict[str, str] = {}  # for each argument the condition that it is of another type
        self._typed = self._start = 0  # where that belongs; of what is asked of the arguments
        self._early: set[str] = set()  # arguments that nobody else's code can have changed when all of these are asked
        self._tensors: dict[str, tuple[list[str], list[str]]] = {}  # what is asked of those that a guard is for
        self._facts: list[str] = []  # the variables with their answers

    @property
    def guards(self) -> bool:
        """Whether tensors are told by a guard."""
        return bool(self._tensors)

    @property
    def asks_stream(self) -> bool:
        """Whether each launch asks a library which stream it is on."""
        return bool(self._leader)

    def begin(self) -> None:
        """Begin an overload."""
        self.late = []
        self.values = []
        self._conditions = []

    def check(self, condition: str) -> None:
        """Note what has to be true for the overload that is being written."""
        if self._single:
            self.checks.append(f"if not ({condition}): return -1")
        else:
            self._conditions.append(self.compute("f", condition))

    def condition(self) -> str:
        """What has to be true for the overload that was written; all of it was computed where it may raise."""
        return " and ".join(self._conditions) or "True"

    def compute(self, letter: str, expression: str) -> str:
        """A variable with the value of an expression."""
        name = self._fresh(letter)
        self.checks.append(f"{name} = {expression}")
        return name

    def keep(self, letter: str, value: object) -> str:
        """A name for an object."""
        name = self._fresh(letter)
        self.names[name] = value
        return name

    def pack(self, *expressions: str) -> None:
        """Note the next numbers of the overload that is being written."""
        self.values += expressions

    def finish(self) -> None:
        """Write the check that no extent is negative and no array larger than what can exist, and the tensors' guard.

        All of some numbers are below a power of two if no bit from there on is set in any; negative ones have it set.
        """
        for bits, numbers in self._bounded.items():
            self.checks.append(f"if ({' | '.join(numbers)}) >> {bits}: return -1")
        # The product without the extents that are zero is small enough if each of them is below its root.
        large = [f"({' | '.join(numbers)}) >> {bits}" for bits, numbers in self._small.items()]
        if large:
            self.checks.append(f"if not ({' and '.join(self._products)}) and ({' or '.join(large)}): return -1")
        differ = [differs for name, differs in self._types.items() if name not in self._tensors]
        if differ:
            self.checks.insert(self._typed, f"if {' or '.join(differ)}: return -1")

    def arguments(self, args: tuple[object, ...]) -> list[str]:
        """Write that the arguments are of these types, and which stream the launch is on; gives their variables."""
        names, differ = self._named("args", args)
        self._types, self._typed = dict(zip(names, differ, strict=True)), len(self.checks)
        own = [at for at, arg in enumerate(args) if _runs_code(arg)]
        self._early = set(names[: own[0]] if own else names)
        if not self._given:
            self._leader = _leader(args)
            self.checks += self._current_stream(self._leader)
        self._start = len(self.checks)
        return names

    def _current_stream(self, leader: str) -> list[str]:
        """What `arrays.current_stream` says, and the handle that stands for it in comparisons."""
        if leader == "cupy":
            self.names["cupy_stream"] = arrays.cupy_stream()
            return ["stream = cupy_stream().ptr", "same = stream or 1"]
        if leader == "torch":
            self.names["torch_stream"] = arrays.torch_stream()
            return ["stream = torch_stream(device)", "same = stream or 1"]
        return []

    def parameters(self, tuple_: str, members: list[Parameter], args: tuple[object, ...]) -> None:
        """Write a tuple, whose type is known or checked already."""
        if tuple_ not in self._members:
            self._members[tuple_] = self._taken_apart(tuple_, args)
        for name, parameter, arg in zip(self._members[tuple_], members, args, strict=True):
            parameters.of(parameter).write(self, name, parameter, arg)

    def number(self, name: str, arg: object) -> str:
        """The expression of a number that `scalars.reader` would give, or of one that `struct` takes for the same."""
        if type(arg) in scalars.PLAIN or (module_of(type(arg)) == "numpy" and scalars.kind_of(arg) != "bool"):
            return name
        if name not in self._numbers:
            read = self.keep("R", scalars.reader(arg))
            self._numbers[name] = self.compute("v", f"{read}({name}, None, 0)")
        return self._numbers[name]

    def array(self, name: str, parameter: Parameter, array: object) -> None:
        """Write an array: its dtype and dimensions, which are the same for all overloads, layout and words."""
        if name not in self._arrays:
            # What the checks compare with is what was held against the parameter, and not asked for again.
            known = self._forms[name] = arrays.identity(array)
            write = _FAMILIES.get(_family(array))
            if write is None or known is None or arrays.form(known) != (parameter["dtype"], parameter["ndim"]):
                raise aotcuda.errors.GeneralOnlyError
            found = self._arrays[name] = write(self, name, array, known[0], parameter)
            self._limit(found.extents, views.item_bytes(parameter["dtype"]))
        if arrays.form(self._forms[name]) != (parameter["dtype"], parameter["ndim"]):
            raise aotcuda.errors.GeneralOnlyError  # the member of a tuple, which overloads are not grouped by
        self._layout(parameter, self._arrays[name])

    def elements(self, name: str, parameter: Parameter, array: object) -> None:
        """Write an array of which only the address counts: of the dimensions that it has now, for any strides."""
        if name not in self._addresses:
            known = self._forms[name] = arrays.identity(array)
            write, form = _FAMILIES.get(_family(array)), arrays.form(known)
            if write is None or known is None or form is None or form[0] != parameter["dtype"]:
                raise aotcuda.errors.GeneralOnlyError
            as_array: Parameter = {**parameter, "ndim": form[1], "layout": "A", "words": ["data"]}
            found = write(self, name, array, known[0], as_array)
            self._limit(found.extents, views.item_bytes(parameter["dtype"]))
            self._addresses[name] = self.compute("p", found.address), found.readonly
            # Nobody needs its strides, but the general path asks for them, and refuses what no memory can hold.
            steps, read = found.strides()
            asked = read or found.contiguous.get("C", "")
            self.checks += [line for line in (asked, _held_to_64_bits(steps) if steps else "") if line]
        address, readonly = self._addresses[name]
        if readonly and not parameter.get("readonly", False):
            self.check(f"not {readonly}")
        if "divisor" in parameter:
            self.check(f"not {address} % {parameter['divisor']}")
        self.values.append(address)

    def _limit(self, extents: list[str], itemsize: int) -> None:
        if not extents:
            return
        bits = 63 - max(itemsize, 16).bit_length()  # one check for all arrays of plain numbers
        bounded = self._bounded.setdefault(bits, [])
        bounded += extents
        if len(extents) > 1:
            items = self.compute("m", " * ".join(extents))
            bounded.append(items)
            self._products.append(items)
            self._small.setdefault(bits // len(extents), []).extend(extents)

    def _layout(self, parameter: Parameter, found: _Array) -> None:
        layout, itemsize, extents = parameter["layout"], views.item_bytes(parameter["dtype"]), found.extents
        if found.readonly and not parameter.get("readonly", False):
            self.check(f"not {found.readonly}")
        if layout != "A":
            if layout not in found.contiguous:
                raise aotcuda.errors.GeneralOnlyError
            contiguous = found.contiguous[layout]
            if contiguous and self._single:
                self.check(contiguous)
            elif contiguous:  # asked once, whatever the number of overloads
                found.contiguous[layout] = contiguous if contiguous.isidentifier() else self.compute("f", contiguous)
                self._conditions.append(found.contiguous[layout])
            # Each stride is the product of the faster dimensions' extents.
            order = list(range(len(extents)))[:: -1 if layout == "C" else 1]
            faster = {axis: [extents[other] for other in order[:at]] for at, axis in enumerate(order)}
            elements = [" * ".join(faster[axis]) or "1" for axis in range(len(extents))]
            steps = [" * ".join([str(itemsize), *faster[axis]]) for axis in range(len(extents))]
        else:
            steps, read = found.strides()
            elements = [f"{step} // {itemsize}" for step in steps]
            if read:
                self.late.append(read)
            if found.told and steps:
                self.late.append(_held_to_64_bits(steps))
            if parameters.in_elements(parameter) and steps:
                self.late.append(f"if {' or '.join(f'{step} % {itemsize}' for step in steps)}: raise ValueError")
        if "divisor" in parameter:
            found.start(self)
        numbers = {"items": " * ".join(extents) or "1", "itemsize": str(itemsize), "data": found.address}
        numbers |= {f"shape{axis}": extent for axis, extent in enumerate(extents)}
        numbers |= {f"stride{axis}": step for axis, step in enumerate(steps)}
        numbers |= {f"step{axis}": step for axis, step in enumerate(elements)}
        self.values += [numbers[word] for word in parameter["words"] if word != "zero"]
        if "divisor" in parameter:
            self.check(f"not {found.start(self)} % {parameter['divisor']}")
        for size in parameter.get("sizes", ()):
            self._promise(size, numbers[size["word"]], late=layout == "A" and size["word"].startswith("st"))
            self.values.append(numbers[size["word"]])

    def apart(self, first: tuple[str, Parameter], second: tuple[str, Parameter]) -> None:
        """Write that two arrays do not overlap; those without elements may go the general way."""
        ends = []
        for name, parameter in (first, second):
            found = self._arrays.get(name)
            if found is None or parameter.get("layout", "A") == "A":
                raise aotcuda.errors.GeneralOnlyError
            size = " * ".join([str(views.item_bytes(parameter["dtype"])), *found.extents])
            ends.append((found.start(self), size))
        (start, size), (other, others) = ends
        self.check(f"{start} >= {other} + {others} or {other} >= {start} + {size}")

    def _promise(self, size: Size, number: str, *, late: bool) -> None:
        """Write what a size must be beyond its type's bounds; extents are never negative, nor what is made of them."""
        broken = [f"({number}) % {size['divisor']}"] if size.get("divisor", 1) > 1 else []
        if late:
            broken += [f"({number}) < 0"] if "least" in size else []
            self.late += [f"if {' or '.join(broken)}: raise ValueError"] if broken else []
        elif broken:
            self.check(f"not {broken[0]}")

    def cupy(self, name: str, array: Any, dtype: object, parameter: Parameter) -> _Array:
        """An array of CuPy's."""
        ndim, itemsize = parameter["ndim"], views.item_bytes(parameter["dtype"])
        self.checks.append(f"if {self._is_other(f'{name}.dtype', dtype)} or {name}.ndim != {ndim}: return -1")
        if self._several:
            self.checks.append(f"if {name}.data.device_id != device: return -1")
        if "cupy_stream" not in self.names and arrays.cupy_says_stream():
            self.names["cupy_stream"] = arrays.cupy_stream()
            self._wait_for("cupy_stream().ptr", mutual=True)
        own = arrays.is_of_library(array)
        self.names["tuple_of"] = _tuple_of
        extents = self._extents(name, ndim, f"len({name})" if own else "", "shape" if own else "")
        if ndim == 0:
            self.checks.append(f"if tuple_of({name}.shape) or not {name}._c_contiguous: return -1")
        orders = {"C": f"{name}._c_contiguous"}
        if own:
            orders["F"] = f"{name}._f_contiguous"
        strides = self._strides(f"tuple_of({name}.strides)", f"not {name}._c_contiguous", extents, itemsize)
        return _Array(f"{name}.data.ptr", extents, orders, strides)

    def torch(self, name: str, tensor: Any, dtype: object, parameter: Parameter) -> _Array:
        """A tensor of PyTorch's."""
        ndim, itemsize = parameter["ndim"], views.item_bytes(parameter["dtype"])
        wrong = [f"{name}.dtype is not {self.keep('D', dtype)}", f"not {name}.is_cuda"]
        if "c" in parameter["dtype"]:
            wrong.append(f"{name}.is_conj()")
        own = arrays.is_of_library(tensor)
        if ndim < 2:  # unpacking the shape tells more
            wrong.append(f"{name}.ndim != {ndim}")
        before, self.checks = self.checks, []
        # A tensor's len() is a Python function of 0.5 us; a shape is no plain tuple: unpacking it makes an iterator.
        extents = self._extents(name, ndim, f"{name}.numel()" if own else "", "shape")
        flag = self.compute("c", f"{name}.is_contiguous()") if ndim else ""
        sizes, self.checks = self.checks, before
        self.checks += [f"if {' or '.join(wrong)}: return -1", *sizes]
        if self._several:
            self.checks.append(f"if {name}.get_device() != device: return -1")
        current = arrays.torch_stream()
        if current is not None and "torch_stream" not in self.names:
            self.names["torch_stream"] = current
            self._wait_for("torch_stream(device)", mutual=False)
        orders = {"C": flag} if ndim > 1 else {"C": flag, "F": flag}
        strides = self._strides(f"[step * {itemsize} for step in {name}.stride()]", f"not {flag}", extents, itemsize)
        return _Array(f"{name}.data_ptr()", extents, orders, strides)

    def numba(self, name: str, _array: Any, dtype: object, parameter: Parameter) -> _Array:
        """An array of Numba's."""
        none = self.keep("Z", 0)
        address, shape, strides, ready = (self._fresh(letter) for letter in "pstw")
        self.checks += [
            f"{ready} = {name}.stream",  # 0 for none, an int, or a stream object
            f"if {ready} is not {none} and (int({ready}) or 1) != same: return -1",
            f"if {self._is_other(f'{name}.dtype', dtype)}: return -1",
            f"{shape} = {name}.shape",
            f"{strides} = {name}.strides",
            f"{address} = int({name}.gpu_data.device_pointer)",
        ]
        self._lies_here(address)
        found = self._described(address, shape, strides, parameter, told=True)
        found.told = True
        return found

    def interface(self, name: str, _array: Any, dtype: object, parameter: Parameter) -> _Array:
        """An array that offers `__cuda_array_interface__`."""
        if "V" in parameter["dtype"]:  # a type string does not tell the fields
            raise aotcuda.errors.GeneralOnlyError
        interface, address, readonly, shape, strides = (self._fresh(letter) for letter in "iprst")
        ready, typestr, data = self._fresh("w"), self._fresh("y"), self._fresh("g")
        held = self.keep("D", dtype)
        self.checks += [
            f"{interface} = {name}.__cuda_array_interface__",
            f"if type({interface}) is not dict: return -1",
            f"{data} = {interface}['data']",
            f"{address}, {readonly} = {data}",
            f"{typestr} = {interface}['typestr']",
            f"{shape} = {interface}['shape']",
            f"{strides} = {interface}.get('strides')",
            f"{ready} = {interface}.get('stream')",
            f"if {typestr} is not {held} and ({typestr} != {held} or type({typestr}) is not str): return -1",
            f"if not (type({shape}) is type({data}) is tuple): return -1",
            f"if {ready} is not None and (type({ready}) is not int or ({ready} or 1) != same): return -1",
            f"if {interface}.get('mask') is not None: return -1",
        ]
        if not parameter.get("readonly", False) and self._single:
            self.checks.append(f"if {readonly}: return -1")
            readonly = ""
        else:
            self.checks.append(f"{readonly} = bool({readonly})")
        self._lies_here(address)
        found = self._described(address, shape, strides, parameter, told=False)
        found.readonly, found.told = readonly, True
        return found

    def _described(self, address: str, shape: str, strides: str, parameter: Parameter, *, told: bool) -> _Array:
        """An array that says its shape, and its strides in bytes: always if they are `told`, or else perhaps None."""
        ndim, itemsize = parameter["ndim"], views.item_bytes(parameter["dtype"])
        if ndim == 0:
            nothing = f"{strides} is not None and " * (not told) + f"(type({strides}) is not tuple or {strides})"
            self.checks.append(f"if type({shape}) is not tuple or {shape} or {nothing}: return -1")
            return _Array(address, [], {"C": "", "F": ""}, lambda: ([], ""))
        if ndim == 1:
            return self._described_line(address, shape, strides, itemsize, told=told)
        extents, steps = [self._fresh("n") for _ in range(ndim)], [self._fresh("s") for _ in range(ndim)]
        given = f"{strides} is not None"
        ints = " is ".join(f"type({number})" for number in (*extents, *steps))
        self.checks += [
            f"{', '.join(extents)}, = {shape}",
            f"{', '.join(steps)}, = {strides} if {given} else ({'0, ' * ndim})",
            f"if not ({ints} is int) or {given} and type({strides}) is not tuple: return -1",
            *([f"if type({shape}) is not tuple: return -1"] if told else []),
        ]
        self.names["is_contiguous"] = views.is_contiguous
        self.names["contiguous_strides"] = views.contiguous_strides
        c = f"is_contiguous({shape}, {strides}, {itemsize}, 'C')"
        made = f"contiguous_strides({shape}, {itemsize}, 'C')"
        either = f"is_contiguous({shape}, {strides} or {made}, {itemsize}, 'F')"
        orders = {"C": f"({strides} is None or {c})", "F": either}
        # Where all extents are greater than one, strides of a contiguous array are what they are to be already.
        plain = " and ".join(f"{extent} > 1" for extent in extents)
        return _Array(
            address, extents, orders, self._strides(strides, f"{given} and ({plain} or not {c})", extents, itemsize)
        )

    def _described_line(self, address: str, shape: str, strides: str, itemsize: int, *, told: bool) -> _Array:
        """The same of one dimension. An extent that is no number does not pass the check of the sizes."""
        extent, step = self._fresh("n"), self._fresh("s")
        self.checks.append(f"{extent}, = {shape}")
        if told:
            self.checks += [
                f"{step}, = {strides}",
                f"if type({step}) is not int or not (type({strides}) is type({shape}) is tuple): return -1",
                f"if {extent} < 2: {step} = {itemsize}",
            ]
        else:  # most have none
            self.checks += [
                f"if {strides} is None: {step} = {itemsize}",
                "else:",
                f"    {step}, = {strides}",
                f"    if type({step}) is not int or type({strides}) is not tuple: return -1",
                f"    if {extent} < 2: {step} = {itemsize}",
            ]
        unit = f"{step} == {itemsize}"
        return _Array(address, [extent], {"C": unit, "F": unit}, lambda: ([step], ""))

    def _is_other(self, found: str, dtype: object) -> str:
        """The expression of whether a dtype is not this one. NumPy's makes one of whatever it is compared with.

        To it `None` and `"float64"` equal the dtype of float64, and are no dtypes of an array.
        """
        held, kind, read = self.keep("D", dtype), self.keep("T", type(dtype)), self._fresh("d")
        return f"(({read} := {found}) is not {held} and (type({read}) is not {kind} or {read} != {held}))"

    def _wait_for(self, stream: str, *, mutual: bool) -> None:
        """Note that the launch waits for a stream, if it is another one; one such stream is enough for this path."""
        ready = self._fresh("w")
        self.waits = True
        self.checks += [
            f"{ready} = {stream} or 1",
            f"if {ready} != same:",
            f"    if other and other != {ready}: return -1",
            f"    other = {ready}{'; mutual = 1' if mutual else ''}",
        ]

    def _lies_here(self, address: str) -> None:
        """Where there are several GPUs: decline an address on another one."""
        if self._several:  # the driver writes an int into the cell
            elsewhere = f"ask_cuPointerGetAttribute(slot[4], {_ORDINAL}, {address}) or slot[3].value & {_INT} != device"
            self.places.append(f"if {address} and ({elsewhere}): raise LookupError")

    def _extents(self, name: str, ndim: int, length: str, shape: str) -> list[str]:
        """Variables that hold the extents of an array of so many dimensions.

        `length` is for one dimension, `shape` an attribute that is taken as it is; without, there has to be a tuple.
        """
        if ndim == 1 and length:  # less than half the time that a shape takes
            return [self.compute("n", length)]
        extents = [self._fresh("n") for _ in range(ndim)]
        if extents:  # raises, and so declines, if they are others
            self.checks.append(f"{', '.join(extents)}, = {f'{name}.{shape}' if shape else f'tuple_of({name}.shape)'}")
        return extents

    def _strides(
        self, given: str, condition: str, extents: list[str], itemsize: int
    ) -> Callable[[], tuple[list[str], str]]:
        """What reads strides: those `given` where `condition` holds, else those of the shape."""
        made = [" * ".join([str(itemsize), *extents[axis + 1 :]]) for axis in range(len(extents))]

        def read() -> tuple[list[str], str]:
            names = [self._fresh("t") for _ in extents]
            statement = f"{', '.join(names)}, = {given} if {condition} else ({', '.join(made)},)" if names else ""
            return names, statement

        return read

    def _taken_apart(self, tuple_: str, args: tuple[object, ...]) -> list[str]:
        names, differ = self._named(tuple_, args)
        if differ:
            self.checks.append(f"if {' or '.join(differ)}: return -1")
        return names

    def _named(self, tuple_: str, args: tuple[object, ...]) -> tuple[list[str], list[str]]:
        """Variables of a tuple's members, and the conditions that these are of other types."""
        names = [self._fresh("a") for _ in args]
        if names:
            self.checks.append(f"{', '.join(names)}, = {tuple_}")  # of another length: it raises, and so declines
        else:
            self.checks.append(f"if {tuple_}: return -1")
        return names, [
            f"type({name}) is not {self.keep('T', type(arg))}" for name, arg in zip(names, args, strict=True)
        ]

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"


def _tuple_of(told: object) -> tuple[object, ...]:
    """What an array tells where a tuple belongs; it declines by raising. A dict could be taken apart as well."""
    if type(told) is not tuple:
        raise TypeError
    return told


def _held_to_64_bits(steps: list[str]) -> str:
    """The statement that strides are ints of 64 bits; it declines by raising."""
    return f"if {' or '.join(f'{step} >> 63 not in (0, -1)' for step in steps)}: raise ValueError"


def _words(text: str) -> set[str]:
    """The words of a text of Python's that are no numbers; no strings are in it."""
    words = "".join([letter if letter.isalnum() or letter == "_" else " " for letter in text]).split()
    return {word for word in words if not word.isdecimal()}


def _runs_code(arg: Any) -> bool:
    """Whether to read an argument may run code that is neither its library's nor Python's own."""
    kind = type(arg)
    if isinstance(arg, tuple):
        return kind.__iter__ is not tuple.__iter__ or any(map(_runs_code, arg))
    if isinstance(arg, scalars.PLAIN):  # read as what they hold
        return False
    found = _family(arg)
    if found in ("torch", "cupy"):
        return module_of(kind).partition(".")[0] != found
    return found == "interface" or (
        scalars.numpy_dtype(arg) is not None and module_of(kind).partition(".")[0] != "numpy"
    )


def _leader(args: tuple[object, ...]) -> str:
    """The family whose current stream is the launch's; "" if it is the default one."""
    try:
        found = arrays.leading(args)
    except Exception as error:
        raise aotcuda.errors.GeneralOnlyError from error
    return found[0] if found is not None else ""


def _family(array: object) -> str:
    try:
        return arrays.family(array) or ""
    except Exception as error:
        raise aotcuda.errors.GeneralOnlyError from error


_SYNTAX = frozenset({"if", "not", "and", "or", "return"})
_FAMILIES = {"cupy": Writer.cupy, "torch": Writer.torch, "numba": Writer.numba, "interface": Writer.interface}
