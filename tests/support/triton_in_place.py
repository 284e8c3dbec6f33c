"""Write Triton modules that are packaged in place, as a build does, with images without code."""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import manifest as manifests
from support import grids, in_place
from support import manifests as generated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS = [
    {"name": "num_warps", "default": 4, "keyword": True},
    {"name": "num_ctas", "default": 1, "keyword": True},
    {"name": "num_stages", "default": 3, "keyword": True},
    {"name": "maxnreg", "default": None, "keyword": True},
    {"name": "enable_fp_fusion", "default": None, "keyword": True},
    {"name": "launch_pdl", "default": False, "keyword": True},
    {"name": "launch_cooperative_grid", "default": False, "keyword": True},
]


_ELEMENTS = {"fp32": "<f4", "fp16": "<f2", "bf16": "bfloat16", "i32": "<i4", "i64": "<i8", "u1": "|b1"}
_NUMBERS = {"i8": "b", "i32": "i", "i64": "q", "u64": "Q", "fp32": "f", "fp64": "d", "i1": "?", "u1": "?"}


def record(name: str, arguments: list[dict[str, Any]], *variants: dict[str, Any]) -> dict[str, Any]:
    """Return a kernel's record.

    Args:
        name: The name of the kernel in the source.
        arguments: Its arguments in the form of the manifest.
        variants: For each variant, values by name: the value of a constexpr or option, or the type of an argument
            (`*fp32`, `i32:16` if it is divisible by 16, `tensordesc<fp32[32, 64]>`, or None).
    """
    overloads = []
    for number, values in enumerate(variants):
        offset, parameters = 0, []
        for argument in [*arguments, *OPTIONS]:
            parameter: dict[str, Any] = {"name": argument["name"], "type": argument["name"]}
            value = values.get(argument["name"], argument.get("default"))
            kind, _, hint = value.partition(":") if isinstance(value, str) else ("", "", "")
            if kind.startswith("tensordesc"):
                parameter |= descriptor(kind, offset)
                offset = parameter["places"][-1] + 8
            elif kind.removeprefix("*") in (_ELEMENTS if kind.startswith("*") else _NUMBERS):
                form = _NUMBERS.get(kind, "Q")
                offset += -offset % struct.calcsize(form)
                parameter |= {"type": value, "offset": offset, **({"divisor": 16} if hint else {})}
                parameter |= (
                    {"kind": "elements", "dtype": _ELEMENTS[kind[1:]]}
                    if kind.startswith("*")
                    else {"kind": "number", "format": form}
                )
                offset += struct.calcsize(form)
            else:
                parameter |= {"kind": "constant", "offset": 0, "value": value}
            parameters.append(parameter)
        overload = grids.variant(f"{name}__{number}", 128)
        overload |= {"signature": f"void({', '.join(map(str, values.values()))})", "parameters": parameters}
        offset += -offset % 8
        overload["parameter_bytes"] = offset + 16  # and two scratch pointers
        if any(each["kind"] == "descriptor" for each in parameters):
            overload |= {"one_by_one": True, "reserved": [offset, offset + 8]}
        overloads.append(overload)
    kernel = {"name": name, "origin": "", "overloads": overloads, "arguments": [*arguments, *OPTIONS], "exact": True}
    heuristics = [item["name"] for item in arguments if "is_none" in item or "is_not_none" in item]
    return kernel | ({"heuristics": heuristics} if heuristics else {})


def descriptor(kind: str, offset: int) -> dict[str, Any]:
    """Return the keys of a parameter for a tensor descriptor that becomes a tensor map, at an offset or later."""
    block = [int(each) for each in kind.partition("[")[2].rstrip("]>").split(",")]
    rank, start = len(block), offset + -offset % 64
    places = [start, *[start + 128 + 4 * at for at in range(rank)]]
    strides = places[-1] + 4 + (rank % 2) * 4
    places += [strides + 8 * at for at in range(rank)]
    tensor_map = {"element": 7, "bytes": 4, "swizzle": 3, "box": block, "padded": False}
    form = {"kind": "descriptor", "type": kind, "dtype": "<f4", "block": block, "places": places}
    return {**form, "offset": start, "tensor_map": tensor_map}


def write(
    root: Path,
    text: str,
    *records: dict[str, Any],
    name: str = "mypkg.ops",
    editable: bool = False,
    tuning: dict[str, Any] | str | None = None,
    **changes: object,
) -> Path:
    """Write a source and the files of its build; return the data folder.

    Args:
        root: A folder of `sys.path`.
        text: The source.
        records: Its kernels; each has the name of its function or variable.
        name: The module's name.
        editable: True for an editable install.
        tuning: The kernels of the tuning file, or the text of the whole file.
        changes: Keys of the manifest.
    """
    lines = in_place.first_lines(text)
    for item in records:
        function = item.pop("function", item["name"])
        item |= {"origin": f"{name}:{item['name']}", "defined": f"{name}:{function}:{lines.get(function, 0)}"}
    path = f"{name.replace('.', '/')}.py"
    listed = [{"path": path, "sha256": manifests.digest(text.encode())}]
    options: dict[str, Any] = {
        "name": name,
        "load": "first-use",
        "in_place": True,
        "by_grid": True,
        "frontend": "triton",
        "fallback": "jit",
        "sources": listed,
        **changes,
    }
    folder = generated.write(root, list(records), **options)
    if tuning is not None:
        content = {"format": "aotcuda tuning", "version": 1, "source": name, "kernels": tuning}
        data = (tuning if isinstance(tuning, str) else json.dumps(content)).encode()
        (folder / "tuning.json").write_bytes(data)
        manifest = json.loads((folder / manifests.FILE_NAME).read_bytes())
        manifest["files"]["tuning"] = generated.file("tuning.json", data)
        (folder / manifests.FILE_NAME).write_bytes(manifests.dump(manifest))
    (root / path).write_text(text)
    in_place.mark(folder, {name: folder / manifests.FILE_NAME}, editable=editable)
    importlib.invalidate_caches()
    return folder


@contextmanager
def both(installed: Path, name: str) -> Iterator[SimpleNamespace]:
    """Yield a module of the wheel `tritonops`, the module of the same source for Triton's JIT, and PyTorch."""
    torch = pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    if not (installed / "tritonops").is_dir():
        pytest.skip("there is no wheel of tritonops (python tests/gpu/prepare.py FOLDER, where Triton is installed)")
    sys.path.insert(0, str(installed / "tritonops"))
    modules = []
    for value in ("0", "1"):
        os.environ["AOTCUDA_IN_PLACE"] = value
        modules.append(importlib.import_module(name))
        for each in [each for each in sys.modules if each.partition(".")[0] == "tritonops"]:
            del sys.modules[each]
    del os.environ["AOTCUDA_IN_PLACE"]
    unpackaged, packaged = modules
    sys.modules[name] = packaged
    assert unpackaged.triton is triton is not packaged.triton
    same = packaged.__aotcuda__.manifest["toolchain"]["triton"] == triton.__version__
    yield SimpleNamespace(torch=torch, triton=triton, packaged=packaged, own=unpackaged, same=same)
    sys.path.remove(str(installed / "tritonops"))


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the names of the kernels that Triton compiles are appended."""
    import triton

    names: list[str] = []
    original = triton.runtime.jit.JITFunction._do_compile

    def compile_and_record(self: Any, *args: Any, **named: Any) -> Any:
        names.append(self.__name__)
        return original(self, *args, **named)

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "_do_compile", compile_and_record)
    return names
