"""Run the PTX of small kernels on the CPU, one thread after another.

    program = ptx.Program(text)                         # as `cuobjdump -ptx` prints it
    memory = ptx.Memory()
    address = memory.add(bytearray(...))
    program.run("kernel", parameters, memory, threads=range(8), block=8)

An access outside of the memory that was added is a `FaultError`, and so is an access to an address that another thread
writes without an atomic operation. Barriers, textures and warp-wide instructions are not supported: `UnsupportedError`.
NVIDIA's "PTX ISA", chapter 9, describes the instructions. Registers hold bits; each instruction's type says what they
mean.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class FaultError(Exception):
    """A kernel reads or writes outside of its memory, or two of its threads race."""


class UnsupportedError(Exception):
    """The kernel has an instruction that this interpreter does not have."""


_STEPS = 200_000
"""The most instructions of one thread; more are taken for an endless loop."""

_GAP = 1 << 20
"""Bytes between two pieces of memory, so that a short way outside of one is not inside of another."""

_SEVERAL = -1
"""Stands for the numbers of two threads or more."""


class Memory:
    """The global memory of a GPU, in pieces; the constants, shared and local memory of kernels are pieces of it too."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, bytearray]] = []
        self._next = 0x7F00_0000_0000
        self._accesses: dict[int, dict[str, int]] = {}
        self.thread = 0
        """The thread that reads and writes."""

    def add(self, content: bytearray) -> int:
        """Add a piece; returns its address."""
        address = self._next
        self._pieces.append((address, content))
        self._next = (address + len(content) + _GAP + 255) // 256 * 256
        return address

    def load(self, address: int, size: int, how: str = "read") -> int:
        """Read a number of so many bytes."""
        piece, offset = self._find(address, size)
        self._record(address, size, how)
        return int.from_bytes(piece[offset : offset + size], "little")

    def store(self, address: int, size: int, value: int, how: str = "write") -> None:
        """Write a number of so many bytes."""
        piece, offset = self._find(address, size)
        self._record(address, size, how)
        piece[offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _record(self, address: int, size: int, how: str) -> None:
        """Fail if two threads access the bytes, and one of them writes other than atomically."""
        for byte in range(address, address + size):
            threads = self._accesses.setdefault(byte, {})
            for other, thread in threads.items():
                if thread != self.thread and "write" in (how, other):
                    message = f"thread {self.thread} races with another: {how} after {other} of {size} bytes"
                    raise FaultError(message)
            threads[how] = self.thread if threads.get(how, self.thread) == self.thread else _SEVERAL

    def _find(self, address: int, size: int) -> tuple[bytearray, int]:
        for start, piece in self._pieces:
            if start <= address and address + size <= start + len(piece):
                if address % size:
                    message = f"{size} bytes at an address that is no multiple of {size}"
                    raise FaultError(message)
                return piece, address - start
        start, piece = min(self._pieces, key=lambda one: abs(one[0] - address))
        message = f"{size} bytes at {address - start:+d} bytes from the start of {len(piece)} bytes"
        raise FaultError(message)


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One instruction with its predicate, the parts of its name, and its operands."""

    predicate: str
    negated: bool
    name: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass(slots=True)
class _Function:
    """A kernel or a function."""

    parameters: dict[str, int]
    results: dict[str, int]
    parameter_bytes: int
    code: list[_Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)


_FUNCTION = re.compile(
    r"^(?:\.(?:visible|weak) )?\.(?:entry|func)\s+(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$]+)\((?P<parameters>.*?)\)"
    r"[^{;]*\n\{",
    re.MULTILINE | re.DOTALL,
)
_VARIABLE = re.compile(
    r"^(?:\.(?:visible|weak|extern) )?\.(?:global|const|shared) \.align \d+ \.[a-z](?P<bits>\d+) (?P<name>[\w$]+)"
    r"(?:\[(?P<count>\d*)\])?(?: = \{?(?P<values>[^};]*)\}?)?;",
    re.MULTILINE,
)
_LOCAL = re.compile(r"\.local \.align \d+ \.b8\s+([\w$]+)\[(\d+)\];")
_SHARED = re.compile(r"\.shared \.align \d+ \.b8\s+([\w$]+)\[(\d+)\];")
_PARAMETER = re.compile(
    r"\.param (?:\.align (\d+) )?\.([a-z])(\d+)(?: \.ptr[^%\n]*?)? ([A-Za-z_$][\w$]*)(?:\[(\d+)\])?"
)


class Program:
    """The functions of a PTX text."""

    def __init__(self, text: str) -> None:
        self._functions = {match["name"]: _function(match, text) for match in _FUNCTION.finditer(text)}
        self._variables = [match.groupdict() for match in _VARIABLE.finditer(text)]
        self._shared = {match[1]: int(match[2]) for match in _SHARED.finditer(text)}

    def run(
        self, name: str, parameters: bytes, memory: Memory, *, threads: Iterable[int], block: int, blocks: int = 1 << 30
    ) -> None:
        """Run a kernel by the threads of these numbers, of blocks of `block` threads.

        Raises:
            FaultError: The kernel reads or writes outside of the memory, or two threads race.
            UnsupportedError: The kernel has an instruction that is not supported.
        """
        function = self._functions[name]
        symbols = {item["name"]: memory.add(_content(item)) for item in self._variables}
        symbols |= {name: memory.add(bytearray(size)) for name, size in self._shared.items() if name not in symbols}
        for number in threads:
            memory.thread = number
            special = {"%tid.x": number % block, "%ntid.x": block, "%ctaid.x": number // block, "%nctaid.x": blocks}
            special |= {"%laneid": number % block % 32, "%warpid": number % block // 32}
            _Thread(self._functions, memory, symbols, special).run(function, parameters)


def _content(variable: dict[str, str | None]) -> bytearray:
    size = int(variable["bits"] or 8) // 8
    values = [int(value, 0) for value in (variable["values"] or "").split(",") if value.strip()]
    count = int(variable["count"] or 1)
    return bytearray(b"".join(value.to_bytes(size, "little") for value in values).ljust(size * count, b"\0"))


def _function(match: re.Match[str], text: str) -> _Function:
    parameters, size = _places(match["parameters"])
    results, _ = _places(match["results"] or "")
    found = _Function(parameters, results, size)
    body = re.sub(r"//.*", "", _block(text, match.end()))
    found.local = {name: int(size) for name, size in _LOCAL.findall(body)}
    for piece in body.split(";"):
        line = " ".join(piece.split()).lstrip("{} ")  # blocks of declarations; no instruction begins with a brace
        while label := re.match(r"([\w$]+):(?!:)\s*", line):
            found.labels[label[1]] = len(found.code)
            line = line[label.end() :].lstrip("{} ")
        if line and not line.startswith("."):
            found.code.append(_instruction(line))
    return found


def _block(text: str, start: int) -> str:
    """Return what stands between a brace and the one that closes it."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.start()]
    return text[start:]


def _places(text: str) -> tuple[dict[str, int], int]:
    """Where parameters lie, by their names, as the PTX ABI lays them out; and the size of all."""
    places, end = {}, 0
    for alignment, _, bits, name, count in _PARAMETER.findall(text):
        size = int(bits) // 8
        step = int(alignment or size)
        end = (end + step - 1) // step * step
        places[name] = end
        end += size * int(count or 1)
    return places, end


def _instruction(line: str) -> _Instruction:
    match = re.match(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)$", line)
    if match is None:
        message = f"cannot read {line!r}"
        raise UnsupportedError(message)
    name, *parts = match[3].split(".")
    operands = tuple(item.strip() for item in re.split(r",(?![^{(]*[})])", match[4]) if item.strip())
    return _Instruction(match[2] or "", match[1] == "!", name, tuple(parts), operands)


def _bits_of(kind: str) -> int:
    return int(re.sub(r"\D", "", kind) or 1)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_FORMATS = {"f16": "e", "f32": "f", "f64": "d"}


def _decode(value: int, kind: str) -> Any:
    """Return a number of this type by its bits."""
    bits = _bits_of(kind)
    if kind in _FORMATS:
        return struct.unpack(f"<{_FORMATS[kind]}", (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little"))[0]
    if kind == "bf16":
        return _decode(value << 16, "f32")
    return _signed(value, bits) if kind[0] == "s" else value & ((1 << bits) - 1)


def _encode(number: Any, kind: str) -> int:
    """Return the bits of a number of this type; a real number is rounded to the nearest, or from a `Fraction` once."""
    bits = _bits_of(kind)
    if kind not in _FORMATS:
        return int(number) & ((1 << bits) - 1)
    if isinstance(number, Fraction):
        number = _once(number, kind)
    try:
        return int.from_bytes(struct.pack(f"<{_FORMATS[kind]}", number), "little")
    except OverflowError:
        return int.from_bytes(struct.pack(f"<{_FORMATS[kind]}", math.copysign(math.inf, number)), "little")


def _once(number: Fraction, kind: str) -> float:
    """Return a double that a second rounding takes to the right number of the type: rounded to odd where inexact."""
    try:
        near = float(number)
    except OverflowError:
        return math.copysign(math.inf, number)
    if kind == "f64" or not math.isfinite(near) or Fraction(near) == number:
        return near
    below = near if Fraction(near) < number else math.nextafter(near, -math.inf)
    odd = struct.unpack("<Q", struct.pack("<d", below))[0] & 1
    return below if odd else math.nextafter(below, math.inf)


class _Thread:
    """One thread and its registers."""

    def __init__(
        self, functions: dict[str, _Function], memory: Memory, symbols: dict[str, int], special: dict[str, int]
    ) -> None:
        self.functions = functions
        self.memory = memory
        self.symbols = dict(symbols)
        self.special = special
        self.registers: dict[str, int] = {}
        self.arguments: dict[str, bytearray] = {}
        self.steps = 0

    def run(self, function: _Function, parameters: bytes) -> bytes:
        """Run a function from its start; returns its result's bytes."""
        own = bytearray(parameters.ljust(function.parameter_bytes + 8, b"\0"))
        result = bytearray(64)
        spaces = {name: (own, offset) for name, offset in function.parameters.items()}
        spaces |= {name: (result, offset) for name, offset in function.results.items()}
        self.symbols |= {name: self.memory.add(bytearray(size)) for name, size in function.local.items()}
        position = 0
        while position < len(function.code):
            self.steps += 1
            if self.steps > _STEPS:
                message = f"more than {_STEPS} instructions in one thread"
                raise UnsupportedError(message)
            one = function.code[position]
            position += 1
            if one.predicate and bool(self.registers.get(one.predicate, 0)) == one.negated:
                continue
            if one.name in ("ret", "exit"):
                break
            if one.name == "bra":
                position = function.labels[one.operands[-1]]
            elif one.name == "call":
                self._call(one)
            elif one.name in ("ld", "st") and one.parts[0].startswith("param"):
                self._parameter(one, spaces)
            else:
                self._step(one)
        return bytes(result)

    def _call(self, one: _Instruction) -> None:
        # call.uni (retval0), name, (param0, param1);   each is a variable of the parameter space
        name = next(item for item in one.operands if item in self.functions)
        groups = [re.findall(r"[\w$]+", item) for item in one.operands if item.startswith("(")]
        results = groups[0] if one.operands[0].startswith("(") else []
        given = groups[-1] if len(groups) > bool(results) else []
        function = self.functions[name]
        block = bytearray(function.parameter_bytes)
        for place, argument in zip(function.parameters.values(), given, strict=True):
            data = self.arguments.get(argument, bytearray(8))
            block[place : place + len(data)] = data[: len(block) - place]
        kept, self.registers = self.registers, {}
        made = self.run(function, bytes(block))
        self.registers = kept
        for result in results:
            self.arguments[result] = bytearray(made)

    def _parameter(self, one: _Instruction, spaces: dict[str, tuple[bytearray, int]]) -> None:
        load, kind = one.name == "ld", one.parts[-1]
        place, others = (one.operands[1], one.operands[0]) if load else one.operands[:2]
        match = re.fullmatch(r"\[([\w$]+)(?:\+(\d+))?\]", place)
        if match is None:
            message = f"cannot read {place!r}"
            raise UnsupportedError(message)
        block, start = spaces.get(match[1]) or (self.arguments.setdefault(match[1], bytearray(64)), 0)
        size = _bits_of(kind) // 8
        for number, register in enumerate(_each(others)):
            at = start + int(match[2] or 0) + number * size
            if load:
                self._set(register, _decode(int.from_bytes(block[at : at + size], "little"), _plain(kind)), kind)
            else:
                block[at : at + size] = _encode(self._get(register), f"b{8 * size}").to_bytes(size, "little")

    def _step(self, one: _Instruction) -> None:
        step = _STEPS_OF.get(one.name)
        if step is None:
            message = f"no instruction {'.'.join([one.name, *one.parts])}"
            raise UnsupportedError(message)
        step(self, one)

    def _get(self, operand: str) -> int:
        """Return the bits of an operand."""
        if operand in self.special:
            return self.special[operand]
        if re.match(r"%(n?tid|n?ctaid)\.[yz]$", operand):
            return int(operand[1] == "n")
        if operand.startswith("%"):
            return self.registers.get(operand, 0)
        if operand in self.symbols:
            return self.symbols[operand]
        if operand[:2] in ("0d", "0f", "0D", "0F"):
            return int(f"0x{operand[2:]}", 16)
        return int(operand, 0)

    def number(self, operand: str, kind: str) -> Any:
        """Return an operand as a number of this type."""
        return _decode(self._get(operand), _plain(kind))

    def _set(self, register: str, value: Any, kind: str) -> None:
        """Give a register a number of this type; integers fill a wider register by their sign."""
        kind = _plain(kind)
        real = kind in _FORMATS
        bits = _encode(value, kind)
        self.registers[register] = bits if real else (int(value) if kind[0] == "s" else bits) & _width(register)

    def address(self, operand: str) -> int:
        """Return what `[%rd1+8]` stands for."""
        match = re.fullmatch(r"\[([\w$%.]+)(?:\+(-?\d+))?\]", operand)
        if match is None:
            message = f"cannot read {operand!r}"
            raise UnsupportedError(message)
        return (self._get(match[1]) + int(match[2] or 0)) & (1 << 64) - 1


def _each(operand: str) -> list[str]:
    return [item.strip() for item in operand.strip("{}").split(",")]


def _plain(kind: str) -> str:
    return "u" + kind[1:] if kind[0] == "b" and kind != "bf16" else "u1" if kind == "pred" else kind


def _width(register: str) -> int:
    """Return the mask of a register, by the name that NVIDIA's compilers give it."""
    name = re.sub(r"[\d_].*", "", register)
    bits = {"%rd": 64, "%rs": 16, "%p": 1, "%fd": 64, "%SP": 64, "%SPL": 64, "%rh": 16, "%rc": 8}.get(name, 32)
    return (1 << bits) - 1


# The instructions.


def _move(thread: _Thread, one: _Instruction) -> None:
    target, source = one.operands
    if target.startswith("{"):
        registers, value = _each(target), thread._get(source)
        bits = _bits_of(one.parts[-1]) // len(registers)
        for number, register in enumerate(registers):
            if register != "_":
                thread.registers[register] = value >> bits * number & (1 << bits) - 1
    elif source.startswith("{"):
        pieces = _each(source)
        bits = _bits_of(one.parts[-1]) // len(pieces)
        mask = (1 << bits) - 1
        thread.registers[target] = sum((thread._get(piece) & mask) << bits * n for n, piece in enumerate(pieces))
    else:
        thread._set(target, thread.number(source, one.parts[-1]), one.parts[-1])


def _load(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    size, address = _bits_of(kind) // 8, thread.address(one.operands[1])
    for number, register in enumerate(_each(one.operands[0])):
        thread._set(register, _decode(thread.memory.load(address + number * size, size), _plain(kind)), kind)


def _store(thread: _Thread, one: _Instruction) -> None:
    size, address = _bits_of(one.parts[-1]) // 8, thread.address(one.operands[0])
    for number, register in enumerate(_each(one.operands[1])):
        thread.memory.store(address + number * size, size, thread._get(register))


_TO_INTEGER: dict[str, Callable[[float], int]] = {"rni": round, "rmi": math.floor, "rpi": math.ceil, "rzi": math.trunc}


def _convert(thread: _Thread, one: _Instruction) -> None:
    target, source = one.parts[-2:]
    value = thread.number(one.operands[1], source)
    mode = next((part for part in one.parts if part in _TO_INTEGER), "")
    if "sat" in one.parts and target in _FORMATS:
        value = 0.0 if math.isnan(value) else min(1.0, max(0.0, value))
    elif target in _FORMATS and source in _FORMATS and mode and math.isfinite(value):
        value = math.copysign(float(_TO_INTEGER[mode](value)), value)
    elif target not in _FORMATS and source in _FORMATS:
        value = _saturated(value, target, mode)
    elif "sat" in one.parts:
        value = _clamped(value, target)
    elif target in _FORMATS and source not in _FORMATS:
        value = Fraction(value)
    elif target not in _FORMATS:
        value = _decode(value, target)
    thread._set(one.operands[0], value, target)


def _clamped(value: int, kind: str) -> int:
    bits = _bits_of(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def _saturated(value: float, kind: str, mode: str) -> int:
    """Return a real number as an integer: what is out of range becomes the nearest one, NaN becomes 0."""
    if math.isnan(value):
        return 0
    return _clamped(_TO_INTEGER[mode](value) if math.isfinite(value) else int(math.copysign(1 << 80, value)), kind)


def _divided(x: Any, y: Any) -> Any:
    if isinstance(x, float):
        if y == 0 or not (math.isfinite(x) and math.isfinite(y)):
            return _odd_quotient(x, y)
        quotient = Fraction(x) / Fraction(y)
        return quotient or math.copysign(0.0, x) * math.copysign(1.0, y)
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _odd_quotient(x: float, y: float) -> float:
    sign = math.copysign(1.0, x) * math.copysign(1.0, y)
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    return sign * (math.inf if y == 0 or math.isinf(x) else 0.0)


def _remainder(x: Any, y: Any) -> Any:
    return x if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


def _least(x: Any, y: Any, *, nan: bool = False) -> Any:
    if math.isnan(x) or math.isnan(y):
        return math.nan if nan or (math.isnan(x) and math.isnan(y)) else y if math.isnan(x) else x
    return min(x, y) if x != y or math.copysign(1.0, x) < 0 else y


def _greatest(x: Any, y: Any, *, nan: bool = False) -> Any:
    if isinstance(x, float):
        return -_least(-x, -y, nan=nan)
    return max(x, y)


def _sum(x: Any, y: Any) -> Any:
    return x + y


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divided,
    "rem": _remainder,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _binary(thread: _Thread, one: _Instruction) -> None:
    target, *sources = one.operands
    kind = one.parts[-1]
    x, y = (thread.number(source, kind) for source in sources[:2])
    if one.name in ("min", "max"):
        nan = {"nan": "NaN" in one.parts} if kind in _FORMATS else {}
        value = (_least if one.name == "min" else _greatest)(x, y, **nan) if kind in _FORMATS else _extreme(one, x, y)
    else:
        value = _BINARY[one.name](x, y)
    if "wide" in one.parts:
        kind = f"{kind[0]}{2 * _bits_of(kind)}"
    elif "hi" in one.parts:
        value >>= _bits_of(kind)
    thread._set(target, _flushed(value, one), kind)


def _extreme(one: _Instruction, x: int, y: int) -> int:
    return min(x, y) if one.name == "min" else max(x, y)


def _flushed(value: Any, one: _Instruction) -> Any:
    """Return a result whose subnormal numbers become zero where the instruction says so."""
    if "ftz" in one.parts and one.parts[-1] == "f32" and isinstance(value, float | Fraction):
        small = math.isfinite(value) and abs(value) < 2.0**-126
        return math.copysign(0.0, value) if small else value
    return value


def _fused(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    wide = f"{kind[0]}{2 * _bits_of(kind)}" if "wide" in one.parts else kind
    x, y = (thread.number(source, kind) for source in one.operands[1:3])
    z = thread.number(one.operands[3], wide)
    if kind not in _FORMATS:
        product = x * y >> _bits_of(kind) if "hi" in one.parts else x * y
        thread._set(one.operands[0], product + z, wide)
        return
    if all(map(math.isfinite, (x, y, z))):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        value = exact or x * y + z  # which has the sign of a zero
    else:
        value = x * y + z
    thread._set(one.operands[0], _flushed(value, one), kind)


def _root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _power_of_two(x: float) -> float:
    try:
        return 2.0**x
    except OverflowError:
        return math.inf


def _logarithm(x: float) -> float:
    return math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan


def _leading(x: int, bits: int) -> int:
    return bits - (x & (1 << bits) - 1).bit_length()


_REAL: dict[str, Callable[[float], float]] = {
    "sqrt": _root,
    "rsqrt": lambda x: _divided(1.0, _root(x)),
    "rcp": partial(_divided, 1.0),
    "ex2": _power_of_two,
    "lg2": _logarithm,
    "sin": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "cos": lambda x: math.cos(x) if math.isfinite(x) else math.nan,
    "tanh": math.tanh,
}


def _unary(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    x = thread.number(one.operands[1], kind)
    if one.name in _REAL:
        value: Any = _REAL[one.name](x)
    elif one.name in ("popc", "clz", "brev", "bfind"):
        bits = _bits_of(kind)
        value = {
            "popc": (x & (1 << bits) - 1).bit_count,
            "clz": lambda: _leading(x, bits),
            "brev": lambda: int(f"{x & (1 << bits) - 1:0{bits}b}"[::-1], 2),
            "bfind": lambda: bits - 1 - _leading(~x if x < 0 else x, bits),
        }[one.name]()
        kind = kind if one.name == "brev" else "s32"
    else:
        value = {"neg": operator.neg, "abs": abs, "not": operator.invert}[one.name](x)
    thread._set(one.operands[0], _flushed(value, one), kind)


def _shift(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    bits, x = _bits_of(kind), thread.number(one.operands[1], kind)
    by = min(thread.number(one.operands[2], "u32"), bits)
    thread._set(one.operands[0], x << by if one.name == "shl" else x >> by, kind)


def _funnel(thread: _Thread, one: _Instruction) -> None:
    low, high, by = (thread.number(operand, "u32") for operand in one.operands[1:4])
    by = min(by, 32) if "clamp" in one.parts else by % 32
    both = high << 32 | low
    thread._set(one.operands[0], both << by >> 32 if "l" in one.parts else both >> by, "b32")


def _permute(thread: _Thread, one: _Instruction) -> None:
    low, high, choice = (thread.number(operand, "u32") for operand in one.operands[1:4])
    both = (high << 32 | low).to_bytes(8, "little")
    value = 0
    for number in range(4):
        one_choice = choice >> 4 * number & 15
        byte = both[one_choice & 7]
        value |= ((0xFF if byte >> 7 else 0) if one_choice & 8 else byte) << 8 * number
    thread._set(one.operands[0], value, "b32")


def _field(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    if one.name == "bfe":
        x = thread._get(one.operands[1])
        start, length = (thread.number(operand, "u32") & 255 for operand in one.operands[2:4])
        value = x >> start & (1 << length) - 1
        thread._set(one.operands[0], _signed(value, length) if kind[0] == "s" and length else value, kind)
        return
    source, into = thread._get(one.operands[1]), thread._get(one.operands[2])
    start, length = (thread.number(operand, "u32") & 255 for operand in one.operands[3:5])
    mask = (1 << length) - 1 << start
    thread._set(one.operands[0], into & ~mask | source << start & mask, kind)


def _lookup(thread: _Thread, one: _Instruction) -> None:
    a, b, c, table = (thread.number(operand, "u32") for operand in one.operands[1:5])
    value = 0
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        value |= (table >> row & 1) << bit
    thread._set(one.operands[0], value, "b32")


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


def _compared(thread: _Thread, one: _Instruction) -> bool:
    kind, name = one.parts[-1], one.parts[0]
    x, y = (thread.number(operand, kind) for operand in one.operands[1:3])
    ordered = not (math.isnan(x) or math.isnan(y))
    if name in ("num", "nan"):
        return ordered == (name == "num")
    if kind in _FORMATS and not ordered:
        return name.endswith("u")
    return _COMPARISONS[name[:2]](x, y)


def _set_predicate(thread: _Thread, one: _Instruction) -> None:
    value = _compared(thread, one)
    if len(one.operands) > 3:
        other = one.operands[3]
        given = bool(thread._get(other.lstrip("!"))) != other.startswith("!")
        value = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[one.parts[1]](value, given)
    first, *second = one.operands[0].split("|")
    thread.registers[first.strip()] = int(value)
    for register in second:
        thread.registers[register.strip()] = int(not value)


def _select(thread: _Thread, one: _Instruction) -> None:
    target, yes, no, condition = one.operands
    kind = one.parts[-1]
    thread._set(target, thread.number(yes if thread._get(condition) else no, kind), kind)


def _copy_sign(thread: _Thread, one: _Instruction) -> None:
    kind = one.parts[-1]
    sign, size = (thread.number(operand, kind) for operand in one.operands[1:3])
    thread._set(one.operands[0], math.copysign(size, sign), kind)


def _test(thread: _Thread, one: _Instruction) -> None:
    x = thread.number(one.operands[1], one.parts[-1])
    tests = {"finite": math.isfinite, "infinite": math.isinf, "notanumber": math.isnan}
    thread.registers[one.operands[0]] = int(tests[one.parts[0]](x))


_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": _sum,
    "exch": lambda _, x: x,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "inc": lambda old, x: 0 if old >= x else old + 1,
    "dec": lambda old, x: x if old == 0 or old > x else old - 1,
}


def _atomic(thread: _Thread, one: _Instruction) -> None:
    operands = one.operands if one.name == "atom" else ("%none", *one.operands)
    kind = one.parts[-1]
    size, address = _bits_of(kind) // 8, thread.address(operands[1])
    operation = next(part for part in one.parts if part in _ATOMIC or part in ("cas", "min", "max"))
    old, x = _decode(thread.memory.load(address, size, "atomic"), _plain(kind)), thread.number(operands[2], kind)
    if operation == "cas":
        new = thread.number(operands[3], kind) if old == x else old
    elif operation in ("min", "max"):
        new = min(old, x) if operation == "min" else max(old, x)
    else:
        new = _ATOMIC[operation](old, x)
    thread.memory.store(address, size, _encode(new, _plain(kind)), "atomic")
    thread._set(operands[0], old, kind)


def _nothing(thread: _Thread, one: _Instruction) -> None:
    del thread, one


def _address(thread: _Thread, one: _Instruction) -> None:
    thread.registers[one.operands[0]] = thread._get(one.operands[1])


_STEPS_OF: dict[str, Callable[[_Thread, _Instruction], None]] = {
    "mov": _move,
    "cvta": _address,
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "cvt": _convert,
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor"), _binary),
    **dict.fromkeys(("mad", "fma"), _fused),
    **dict.fromkeys((*_REAL, "neg", "abs", "not", "popc", "clz", "brev", "bfind"), _unary),
    **dict.fromkeys(("shl", "shr"), _shift),
    "shf": _funnel,
    "prmt": _permute,
    **dict.fromkeys(("bfe", "bfi"), _field),
    "lop3": _lookup,
    "setp": _set_predicate,
    "selp": _select,
    "copysign": _copy_sign,
    "testp": _test,
    **dict.fromkeys(("atom", "red"), _atomic),
    **dict.fromkeys(("membar", "fence", "pragma"), _nothing),
}
