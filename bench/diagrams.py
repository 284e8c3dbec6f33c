"""Draw the diagrams of the documentation."""

from __future__ import annotations

from drawing import Picture

from aotcuda.runtime.images.choice import choose

ARCH = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75")
"""The list of the tutorial and of the README."""

LATER = (99, 0)
"""A compute capability that no GPU has yet."""

GPUS = (
    ("T4, RTX 2080", (7, 5)),
    ("A100", (8, 0)),
    ("RTX 3090, A40", (8, 6)),
    ("RTX 4090, L40", (8, 9)),
    ("H100, H200", (9, 0)),
    ("B200", (10, 0)),
    ("B300", (10, 3)),
    ("Jetson Thor", (11, 0)),
    ("RTX 5090", (12, 0)),
    ("one yet to come", LATER),
)


def way() -> str:
    """Draw the steps from pyproject.toml to a launch."""
    picture = Picture(860, 340, "The way of a kernel from pyproject.toml to a launch")
    picture.text(12, 24, "Where it is built: no GPU, no driver", "strong")
    picture.text(12, 206, "Where it is installed: NVIDIA's driver, no compiler", "strong")
    table = ["pyproject.toml", "[tool.aotcuda]", "arch, signatures", "", "mypkg/_kernels.py"]
    _box(picture, (12, 38, 190, 128), table, code=5)
    compiled = ["compile", "each kernel and", "signature, by Numba,", "Triton or NVRTC"]
    _box(picture, (250, 38, 170, 128), compiled, ours=True)
    linked = ["link", "with what it calls,", "for each target:", "machine code or PTX"]
    _box(picture, (468, 38, 160, 128), linked, ours=True)
    packed = ["wheel", "py3-none-any", "kernels.fatbin", "manifest.json", "kernels.py"]
    _box(picture, (676, 38, 172, 128), packed, code=5, first=1)
    for x, to in ((202, 250), (420, 468), (628, 676)):
        picture.arrow([(x, 102), (to, 102)])
    picture.arrow([(762, 166), (762, 220)])
    picture.text(754, 196, "pip install", "code", "end")
    _box(picture, (676, 220, 172, 106), ["import mypkg.kernels", "the standard library", "alone"], code=1)
    _box(picture, (468, 220, 160, 106), ["choose", "the image for this", "GPU and driver"], ours=True)
    _box(picture, (250, 220, 170, 106), ["check", "dtypes, dimensions,", "layouts, devices"], ours=True)
    call = ["launch", "k.axpy[grid, block](", "  2.0, x, y, out)", "about 1 µs over C"]
    _box(picture, (12, 220, 190, 106), call, code=3, first=1)
    for x, to in ((676, 628), (468, 420), (250, 202)):
        picture.arrow([(x, 273), (to, 273)])
    return picture.render()


def wheel() -> str:
    """Draw the files that a wheel gains, each with its readers."""
    files = [
        ("kernels.py", "a few generated lines: they name the manifest and hold its digest", "import"),
        ("kernels.pyi", "a class for each kernel", "editors, type checkers"),
        (
            "kernels.aotcuda/manifest.json",
            "signatures, parameter layouts, images, registers, tools",
            "run time, inspect",
        ),
        ("kernels.aotcuda/kernels.fatbin", "machine code for each sm_*, PTX for each compute_*", "the driver"),
        ("kernels.aotcuda/functions.fatbin", "device functions that others can link", "nvcc, Numba, CMake"),
        ("kernels.aotcuda/mypkg_kernels.h", "their C prototypes, and the kernels' parameter blocks", "C and C++"),
        ("kernels.aotcuda/sources/", "what the JIT fallback would build from, where it is allowed", "the fallback"),
        ("*.dist-info/sboms/aotcuda.cdx.json", "what it was made with: compilers, linked code, licences", "auditors"),
    ]
    picture = Picture(860, 60 + 30 * len(files), "What is in a wheel")
    picture.text(12, 24, "mypkg-1.0-py3-none-any.whl", "code strong")
    picture.text(290, 24, "what it is", "faint small")
    picture.text(848, 24, "who reads it", "faint small", "end")
    for number, (name, what, reader) in enumerate(files):
        y = 52 + 30 * number
        picture.line([(12, y - 18), (848, y - 18)], "rule")
        picture.text(12, y + 2, name, "code")
        picture.text(290, y + 2, what)
        picture.text(848, y + 2, reader, "", "end")
    return picture.render()


def choice() -> str:
    """Draw the image that each GPU takes, by the run time's own choice."""
    images = [
        {
            "arch": name,
            "kind": "ptx" if name.startswith("compute") else "sass",
            "cuda": "13.0",
            "bytes": 0,
            "sha256": "",
        }
        for name in ARCH
    ]
    manifest = {"toolchain": {"cuda": "13.0"}, "images": images, "min_driver": None}
    picture = Picture(860, 96 + 27 * len(GPUS), "Which image which GPU takes")
    picture.text(12, 24, "Which image which GPU takes", "strong")
    left, step = 250, 100
    for column, name in enumerate(ARCH):
        picture.text(left + column * step + step / 2, 52, name, "code", "middle")
    for row, (name, capability) in enumerate(GPUS):
        y = 62 + 27 * row
        picture.text(12, y + 17, name)
        number = "later" if capability == LATER else f"{capability[0]}.{capability[1]}"
        picture.text(left - 24, y + 17, number, "faint", "end")
        taken = choose(manifest, capability)  # type: ignore[arg-type]
        rejected = dict(taken.rejected)
        for column, image in enumerate(ARCH):
            x = left + column * step
            if image == taken.arch:
                kind = "base" if taken.kind == "ptx" else "own"
                picture.rectangle(x + 8, y + 2, step - 16, 22, kind, radius=4)
            elif "would also run" in rejected[image]:
                picture.rectangle(x + 8, y + 2, step - 16, 22, "box", radius=4)
    y = 62 + 27 * len(GPUS) + 14
    legend = (("own", "machine code, taken"), ("base", "PTX, compiled by the driver"), ("box", "would run too"))
    for column, (kind, text) in enumerate(legend):
        picture.rectangle(12 + column * 220, y - 11, 22, 14, kind, radius=3)
        picture.text(42 + column * 220, y, text, "faint small")
    return picture.render()


def in_place() -> str:
    """Draw which `cuda` an in-place module gets."""
    steps = [
        ("AOTCUDA_IN_PLACE=0, or Numba's simulator is on?", "numba.cuda itself"),
        ("Does a build import the module?", "the front end itself"),
        ("Was the module never built?", "numba.cuda itself"),
        ("Is the install editable, and a source edited?", "the JIT fallback"),
        ("None of these", "the packaged kernels"),
    ]
    return _questions("Which cuda a module in place gets", steps)


def extras() -> str:
    """Draw which extra a project takes."""
    steps = [
        ("Users: does the wheel fit all their GPUs and types?", "aotcuda"),
        ("Users: JIT fallback with a library for CUDA 13", "aotcuda[jit-cu13]"),
        ("Users: JIT fallback with a library for CUDA 12", "aotcuda[jit-cu12]"),
        ("Builds: do all users have driver 580 or newer?", "aotcuda[cu13]"),
        ("Builds: older drivers, or a P100 or V100", "aotcuda[cu12]"),
        ("Builds: those, and the newest GPUs too", "aotcuda[wide]"),
    ]
    return _questions("Which extra to take", steps)


def fallback() -> str:
    """Draw where the code of a launch comes from."""
    steps = [
        ("Machine code for this GPU's compute capability", "exact"),
        ("Machine code for an earlier one of its major version", "same-major"),
        ("PTX, which the driver compiles once", "ptx"),
        ("Code in the JIT cache, or compiled now with a warning", "jit"),
        ("Nothing of these", "an error that says why"),
    ]
    return _questions("Where the code of a launch comes from: the first that fits", steps)


def _questions(title: str, steps: list[tuple[str, str]]) -> str:
    """Draw questions below each other; the first that is answered by yes leads to the box at its side."""
    picture = Picture(560, 44 + 52 * len(steps), title)
    picture.text(12, 24, title, "strong")
    for number, (question, answer) in enumerate(steps):
        y = 40 + 52 * number
        picture.rectangle(12, y, 340, 34, "box", radius=8)
        picture.text(24, y + 22, question)
        picture.arrow([(352, y + 17), (384, y + 17)])
        picture.rectangle(384, y, 164, 34, "box ours", radius=8)
        picture.text(396, y + 22, answer, "code")
        if number + 1 < len(steps):
            picture.arrow([(182, y + 34), (182, y + 52)])
    return picture.render()


def _box(
    picture: Picture,
    place: tuple[float, float, float, float],
    lines: list[str],
    *,
    ours: bool = False,
    code: int = 0,
    first: int = 0,
) -> None:
    """Draw a box with a heading and lines; lines from `first` up to `code` are set as code."""
    x, y, width, height = place
    picture.rectangle(x, y, width, height, "box ours" if ours else "box", radius=8)
    for number, line in enumerate(lines):
        kind = " ".join(["code"] * (first <= number < code) + ["strong"] * (number == 0))
        picture.text(x + 12, y + 24 + number * 20, line, kind)
