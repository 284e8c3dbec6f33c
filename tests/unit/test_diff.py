"""Test that `aotcuda diff` reports every change, and marks those that break users of the old build."""

from __future__ import annotations

import copy
import itertools
import json

import pytest

from aotcuda.binary.fatbin import Entry
from aotcuda.binary.limit import Limit
from aotcuda.cli import main
from aotcuda.tools import diff
from aotcuda.tools.inspect import collect
from aotcuda.tools.inspect.images import Image
from aotcuda.tools.inspect.report import Report, SymbolImage
from support import manifests, modules

AXPY = "void(float32, float32[::1])"
LEFT_OUT = {"kernel": "axpy", "signature": AXPY, "target": "sm_80", "reason": "too large"}
RECIPE = {"table": {}, "names": {}, "root": "mypkg/kernels.aotcuda/sources", "files": []}


@pytest.fixture
def content(tmp_path):
    """Return a manifest with kernels, functions, callbacks, images of all kinds and settings."""
    kernels = [
        manifests.kernel("axpy", AXPY, "void(float64, float64[::1])"),
        manifests.kernel("tiled", "void((int32, float32), complex64)", launch_bounds=[256, 2, 0], carveout=50),
    ]
    folder = manifests.write(
        tmp_path / "one",
        kernels,
        targets=("sm_80", "sm_90", "compute_75"),
        functions=("add",),
        fallback="jit",
        rebuild=RECIPE,
        options={"fastmath": False},
        files={"functions": manifests.file("functions.fatbin", b"LTOIR")},
        linked=[{"name": "table.cu", "symbols": ["table"]}],
        callbacks=[{"setup": "mypkg._hooks:upload", "teardown": None, "origin": "table.cu"}],
        ltoir=[manifests.image("sm_80")[0] | {"kind": "ltoir"}, manifests.image("compute_75")[0]],
    )
    return json.loads((folder / "manifest.json").read_bytes())


class Described:
    """A packaged module whose images have what its manifest says."""

    where, files, limit = "mypkg", {}, Limit(0)

    def __init__(self, manifest):
        self.manifest = manifest

    def images(self, _module, _key, _file, listed):
        missing = {(item["kernel"], item["signature"], item["target"]) for item in self.manifest.get("left_out", ())}
        for item in listed:
            arch, kind, size = item["arch"], item["kind"], item["bytes"]
            symbols = {
                overload["symbol"]: SymbolImage(arch=arch, kind=kind, size=1)
                for kernel in self.manifest["kernels"]
                for overload in kernel["overloads"]
                if (kernel["name"], overload["signature"], arch) not in missing
            }
            entry = Entry(arch=arch, kind=kind, name="", size=size, packed=size, content=b"")
            yield Image(entry=entry, kernels=symbols, functions=())


def changes_of(old, new):
    """Return the changes between two manifests; tests of the command read images."""
    sides = []
    for manifest in (old, new):
        module = Described(manifest)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collect, "_images", lambda *arguments, module=module: [*module.images(*arguments)])
            sides.append(json.loads(json.dumps(Report(modules=(collect.module_report(module),)).json())))
    (changes,) = diff.compare(*sides).values()
    return changes


def with_launches(content):
    """Return the manifest with launch configurations for the images that have axpy for float32 after `LEFT_OUT`."""
    content = copy.deepcopy(content)
    launches = {target: {"threads": 128, "shared": 0} for target in ("sm_90", "compute_75")}
    content["kernels"][0]["overloads"][0]["launches"] = launches
    return content


def leaves(value, path=()):
    """Yield the path to each value without inner values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


UNREPORTED = {"origin", "sha256", "generator", "module", "resources", "rebuild", "sources", "path"}
"""Keys that no user depends on, or whose effect is reported instead."""

UNREPORTED_PAIRS = {("images", "kind"), ("ltoir", "kind"), ("file", "bytes"), ("files", "bytes")}
"""An outer key and the innermost key of further values. Sizes of images are reported instead of files."""


OTHERS = {"C": "A", "jit": "error", "ptx": "ltoir", "ltoir": "ptx"}
OTHERS |= {"sm_80": "sm_86", "sm_90": "sm_90a", "compute_75": "compute_80"}


def change_of(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 8
    if isinstance(value, str):
        return OTHERS.get(value, "12.0" if value[:1].isdigit() else f"{value}_")
    return [7] if isinstance(value, list) else "other"


def test_each_change_of_a_manifest_is_reported(content):
    assert changes_of(content, content) == []
    count = 0
    for path in leaves(content):
        if UNREPORTED & set(path) or any(pair in UNREPORTED_PAIRS for pair in itertools.product(path[:-1], path[-1:])):
            continue
        new = copy.deepcopy(content)
        holder = new
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = change_of(holder[path[-1]])
        assert changes_of(content, new), path
        assert changes_of(new, content), path
        count += 1
    assert count > 80


def test_removals_break_and_additions_do_not(content):
    for key in ("kernels", "functions"):
        for index in range(len(content[key])):
            fewer = copy.deepcopy(content)
            del fewer[key][index]
            assert [change.change for change in changes_of(content, fewer) if change.breaks] == ["removed"]
            assert not [change for change in changes_of(fewer, content) if change.breaks]
    fewer = copy.deepcopy(content)
    del fewer["kernels"][0]["overloads"][1]
    assert [change.breaks for change in changes_of(content, fewer)] == [True]
    assert [change.breaks for change in changes_of(fewer, content)] == [False]
    content = with_launches(content)
    fewer = {**content, "left_out": [LEFT_OUT]}
    assert [(change.change, change.breaks) for change in changes_of(fewer, content)] == [
        ("the image for sm_80 has gained it", False)
    ]
    assert (
        changes_of(content, {**content, "left_out": [{**LEFT_OUT, "target": "sm_86"}]}) == []
    )  # OLD had no such image


def images_of(manifest):
    return manifest["fatbins"][0]["images"]


def axpy(manifest):
    return manifest["kernels"][0]["overloads"][0]


@pytest.mark.parametrize(
    ("change", "breaks", "text"),
    [
        (lambda m: axpy(m).update(symbol="axpy__7"), True, "its symbol was axpy_0 and is axpy__7"),
        (lambda m: axpy(m)["parameters"][1].update(offset=16), True, "offset of b was 8 and is 16"),
        (lambda m: axpy(m)["parameters"][1].update(name="x"), False, "were called a, b and are called a, x"),
        (lambda m: axpy(m).update(cooperative=True), True, "its grid must fit the GPU at once"),
        (lambda m: axpy(m).update(launch_bounds=[128, 0, 0]), True, "had 1024 threads at most, and have 128"),
        (lambda m: m["functions"][0].update(prototype="double add(int a)"), True, "its prototype was int32_t add"),
        (lambda m: images_of(m).pop(0), False, "with driver 580.65 to 615, sm_80 was loaded and compute_75 is"),
        (lambda m: images_of(m).pop(2), True, "with driver 580.65 to 615, compute_75 ran and nothing does"),
        (lambda m: images_of(m)[0].update(absent="is elsewhere"), False, "image sm_80: removed"),
        (lambda m: images_of(m)[2].update(absent="is elsewhere"), True, "compute_75 ran and nothing does"),
        (lambda m: m.update(left_out=[LEFT_OUT]), True, f"axpy {AXPY}: the image for sm_80 has lost it: too large;"),
        (lambda m: m["ltoir"].pop(0), True, "links for compute capability 8.0 found code, and find none"),
        (lambda m: m.update(toolchain={"cuda": "13.2"}), True, "linkers of CUDA 13.0 refuse LTOIR of CUDA 13.2"),
        (lambda m: m.update(min_driver="595.45"), True, "the lowest was 580.65 and is 595.45"),
        (lambda m: m.update(fallback="error"), True, "fallback: was jit and is error"),
        (lambda m: m.pop("rebuild"), True, "the build table was removed"),
        (lambda m: m.update(floor="9.10"), True, "oldest run time: was 0.1.0 and is 9.10; an older"),
        (lambda m: images_of(m)[0].update(bytes=1), False, "size kernels: "),
    ],
)  # fmt: skip
def test_breaking_changes_are_marked(content, change, breaks, text):
    content = with_launches(content)
    new = copy.deepcopy(content)
    change(new)
    changes = changes_of(content, new)
    (line,) = [change for change in changes if text in f"{change.kind} {change.name}: {change.change}"][:1]
    assert line.breaks is breaks
    assert any(change.breaks for change in changes) is breaks


@pytest.fixture
def wheels(tmp_path):
    def write(change=lambda content: None, *names):
        old = modules.write_wheel(tmp_path / "old", *names)
        content, fatbins = modules.contents()
        change(content)
        modules.write(tmp_path / "new", content, fatbins)
        return str(old), str(tmp_path / "new")

    return write


def run(capsys, *arguments):
    code = main(["diff", *arguments])
    output = capsys.readouterr()
    assert len(output.err.splitlines()) == code
    return code, output.out, output.err


def test_equal_builds_have_no_differences(wheels, capsys):
    assert run(capsys, *wheels()) == (0, "mypkg.kernels\n    no differences\n", "")


def test_breaking_changes_are_first_and_fail_the_command(wheels, capsys):
    def change(content):
        content["load"] = "first-use"
        content["kernels"] = content["kernels"][:1]

    code, out, error = run(capsys, *wheels(change))
    assert code == 1
    assert out.splitlines()[1:] == ["  ! kernel axpy: removed", "    setting load: was import and is first-use"]
    assert error == "aotcuda: users of the old build would break: mypkg.kernels: kernel axpy: removed\n"


def test_removed_module_breaks_and_new_module_does_not(wheels, capsys):
    old, new = wheels(lambda content: None, "mypkg.a", "mypkg.kernels")
    code, out, error = run(capsys, old, new)
    assert code == 1
    assert "mypkg.a\n  ! module mypkg.a: removed\n" in out
    assert run(capsys, new, old)[0] == 0
    assert error.endswith("module mypkg.a: removed\n")


def test_json_has_each_change_with_both_values(wheels, capsys):
    code, out, _ = run(capsys, *wheels(lambda content: content.update(fallback="error")), "--json")
    assert code == 1
    report = json.loads(out)
    assert report["breaks"] is True
    change = {"kind": "setting", "name": "fallback", "change": "was jit and is error", "breaks": True}
    assert report["modules"][0]["changes"] == [{**change, "old": "jit", "new": "error"}]


@pytest.mark.parametrize(("more", "breaks"), [(2, False), (100, True)])
def test_registers_are_read_from_the_images(tmp_path, capsys, monkeypatch, more, breaks):
    """Launches of 1,024 threads break if their registers exceed the registers of a block."""
    old = modules.write_wheel(tmp_path / "old")
    original = modules.images.numba_cubin
    monkeypatch.setattr(modules.images, "numba_cubin", lambda arch: _with_more_registers(original(arch), more))
    new = modules.write_wheel(tmp_path / "new")
    code, out, _ = run(capsys, str(old), str(new))
    assert code == int(breaks)
    lines = " ".join(out.split())
    assert "resources of axpy void(float32, float32[::1], float32[::1]) on sm_90: registers " in lines
    assert ("blocks of 1024 threads fitted, and 512 do now" in lines) is breaks


def _with_more_registers(cubin: bytes, more: int) -> bytes:
    """Return the cubin, with more registers in each kernel's attribute (EIATTR_REGCOUNT) in `.nv.info`."""
    data = bytearray(cubin)
    at = 0
    while (at := data.find(b"\x04\x2f\x08\x00", at)) >= 0:
        data[at + 8] += more
        at += 12
    return bytes(data)


def test_targets_without_manifest_cannot_be_compared(wheels, capsys, tmp_path):
    old, _ = wheels()
    fatbin = next((tmp_path / "new").rglob("kernels.fatbin"))
    code, out, error = run(capsys, old, str(fatbin))
    assert (code, out) == (1, "")
    assert "is an image without a manifest to compare; name a wheel, module or folder" in error
    assert run(capsys, old, "nothing.at.all")[0] == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.update(format=m["format"] - 1), "manifest format: was"),
        (lambda m: m.update(floor="0.0.9"), "oldest run time: was 0.1.0 and is 0.0.9"),
        (lambda m: m.update(min_driver="570.0"), "the lowest was 580.65 and is 570.0"),
        (lambda m: m.update(min_driver=None), "the lowest was 580.65 and is unknown"),
        (lambda m: m.update(toolchain={**m["toolchain"], "cuda": "12.9"}), "is 12.9"),
    ],
)  # fmt: skip
def test_looser_requirements_do_not_break(content, change, text):
    new = copy.deepcopy(content)
    change(new)
    found = [each for each in changes_of(content, new) if text in f"{each.name}: {each.change}"]
    assert found
    assert not any(each.breaks for each in found)


@pytest.mark.parametrize(
    ("before", "after", "breaks"),
    [
        ("13.0", "13.0", False),
        ("13.1", "13.0", False),
        ("13.0", "13.1", True),
        ("13.0", "12.9", True),
        ("12.9", "13.0", True),
    ],
)
def test_ltoir_links_by_linkers_of_its_version_and_later_ones(content, before, after, breaks):
    old, new = ({**content, "toolchain": {"cuda": version}} for version in (before, after))
    links = [change for change in changes_of(old, new) if "linkers of CUDA" in change.change]
    assert [change.breaks for change in links] == [True] * breaks


def test_another_fallback_than_error_does_not_break(content):
    old = {**content, "fallback": "error"}
    (change,) = [change for change in changes_of(old, content) if change.name == "fallback"]
    assert change.breaks is False


@pytest.mark.parametrize(
    ("registers", "threads"),
    [
        (32, 2048),
        (33, 1536),
        (40, 1536),
        (41, 1280),
        (64, 1024),
        (65, 896),
        (128, 512),
        (168, 384),
        (255, 256),
    ],
)
def test_threads_of_a_block_by_registers_equal_nvidias_table(registers, threads):
    assert diff.most_threads(registers) == threads
