"""Run the LLVM IR of a kernel for compute capability 10.0 on the CPU, one thread after another.

libNVVM reads the dialect of a recent LLVM for these GPUs, which llvmlite compiles for the host. Registers of the GPU
become variables, and libdevice's functions those of the C library.

`python -m slow.conformance.host` reads the output of `lowering.py texts`. It prints the name of each case before the
case runs, since a fault may end the process, and then a JSON list of the wrong cases.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import binding as llvm

from slow.conformance import outcome
from slow.conformance.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slow.conformance.case import Case

_TARGET = re.compile(r"^target (?:datalayout|triple) .*\n|\bptx_kernel (?=void)", re.MULTILINE)
_REGISTER = re.compile(r"^declare .*@llvm\.nvvm\.read\.ptx\.sreg\.([\w.]+)\(\).*$", re.MULTILINE)
_READ = "@{0} = global i32 0\ndefine i32 @get.{0}() {{\n  %v = load i32, ptr @{0}\n  ret i32 %v\n}}"
_ADD = re.compile(r'call (float|double) asm sideeffect "atom\.global\.add[^"]*", "[^"]*"\((.*? %\d+), \1 (%\d+)\)')
_IS_NAN = re.compile(r"^declare .*@__nv_isnand\(double\).*$", re.MULTILINE)
_NAN = "define i32 @isnand(double %x) {\n  %n = fcmp uno double %x, %x\n  %i = zext i1 %n to i32\n  ret i32 %i\n}"


def main() -> None:
    kernels = json.load(sys.stdin)
    wrong = []
    for case in [case for case in CASES.values() if case.kernel in kernels]:
        print(case.name, flush=True)
        try:
            arrays = run_case(case, kernels[case.kernel])
        except outcome.FaultError:
            wrong.append(case.name)
        else:
            if outcome.differences(case, arrays, outcome.expected(case)):
                wrong.append(case.name)
    print(json.dumps(wrong))


def run_case(case: Case, kernel: Mapping[str, Any]) -> outcome.Arrays:
    """Run a case without `gpu` on the CPU, and return its arrays.

    Args:
        case: The case.
        kernel: The output of `lowering.py texts` for its kernel.

    Raises:
        outcome.FaultError: The kernel writes into the memory around its arrays.
    """
    block = bytearray(kernel["bytes"])
    placed = []
    for parameter, (name, value) in zip(kernel["parameters"], case.arguments.items(), strict=True):
        if isinstance(value, np.ndarray):
            content, start = outcome.flatten(value)
            guarded = outcome.add_guards(content)
            placed.append((name, guarded, start, value))
            outcome.place_array(block, parameter, value, guarded.ctypes.data + outcome.GUARD + start)
        else:
            data = value.tobytes()
            block[parameter["offset"] : parameter["offset"] + len(data)] = data
    blocks, size = case.launch
    _run(kernel, bytes(block), threads=range(case.first, blocks * size), size=size)
    return {name: outcome.remove_guards(name, guarded, start, value) for name, guarded, start, value in placed}


def _run(kernel: Mapping[str, Any], block: bytes, *, threads: Iterable[int], size: int) -> None:
    """Run the threads with these numbers, in blocks of `size` threads, with a parameter block."""
    text = _TARGET.sub("", kernel["text"])
    registers = _REGISTER.findall(text)
    text = _REGISTER.sub(lambda found: _READ.format(found[1]), text)
    text = _IS_NAN.sub(_NAN, text).replace("@llvm.nvvm.read.ptx.sreg.", "@get.").replace("@__nv_", "@")
    module = llvm.parse_assembly(_ADD.sub(r"atomicrmw fadd \2, \1 \3 monotonic", text))
    types = [str(argument.type) for argument in module.get_function(kernel["symbol"]).arguments]
    module.link_in(llvm.parse_assembly(_launcher(kernel, types)))
    module.verify()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    launch = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(engine.get_function_address("launch"))
    places = {name: ctypes.c_int32.from_address(engine.get_global_value_address(name)) for name in registers}
    for number in threads:
        values = {"tid.x": number % size, "ntid.x": size, "ctaid.x": number // size}
        for name, place in places.items():
            place.value = values[name]
        launch(bytes(block))


def _launcher(kernel: Mapping[str, Any], types: list[str]) -> str:
    """Return a function that loads the parameters from a block and calls the kernel."""
    lines = [f"declare void @{kernel['symbol']}({', '.join(types)})", "define void @launch(ptr %block) {"]
    for number, (ty, (offset, _)) in enumerate(zip(types, kernel["fields"], strict=True)):
        lines.append(f"  %p{number} = getelementptr i8, ptr %block, i64 {offset}")
        lines.append(f"  %v{number} = load {ty}, ptr %p{number}")
    arguments = ", ".join(f"{ty} %v{number}" for number, ty in enumerate(types))
    return "\n".join([*lines, f"  call void @{kernel['symbol']}({arguments})", "  ret void", "}"])


if __name__ == "__main__":
    main()
