"""Compare recorded kernels of published packages with the kernels of their sources; write the table in docs/moving.md.

    python bench/moved_packages.py [NAME...] [--table]

Each package is downloaded and unpacked into its own project, where only imports are edited. `aotcuda record --dry
--write` records it without a GPU, by a program of `moved/` or by the package's tests. The interpreter needs aotcuda
with the extras `cu13` and `record`, and for speechbrain, liger-kernel and fla-core PyTorch (its build for the CPU is
enough) and Triton. `--path` adds folders with both. Other dependencies are installed into a folder below `--work`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results" / "moved_packages.json"
PAGE = HERE.parent / "docs" / "moving.md"
BEGIN, END = "<!-- moved packages begin -->", "<!-- moved packages end -->"


_PRELUDE = """from importlib.util import find_spec

from aotcuda.testing import stand_in

for name in ("cupy", "cupyx"):
    if find_spec(name) is None:
        stand_in(name)
"""
"""Code that a build runs before it imports the sources, which may import CuPy."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A published package.

    Attributes:
        requirement: Its release.
        source: Its folder in the archive.
        command: The arguments of Python; `{moved}` is the folder of programs.
        needs: Further distributions, separated by spaces, which are installed without their dependencies.
        kernel: A pattern of the first lines of kernels; empty where only launched kernels are counted.
        unused: The number of kernels that nothing in the package launches.
        stand_ins: A folder of stand-ins for further libraries that need a GPU.
        sdist: Take the sdist, which has the tests.
        edit: A file and the text that is appended to it after recording, for launches without `cuda.jit`.
        aim: The most seconds that the recording should take.
    """

    requirement: str
    source: str
    command: str
    needs: str = ""
    kernel: str = r"^\s*@(nb\.)?cuda\.jit(?!.*device=True)"
    unused: int = 0
    stand_ins: str = ""
    sdist: bool = False
    edit: tuple[str, str] = ("", "")
    aim: int


PACKAGES = {
    "fbpic": Package(
        requirement="fbpic==0.27.1",
        source="fbpic",
        command="{moved}/run_fbpic.py",
        kernel=r"^\s*@(compile_cupy|cuda\.jit)$",
        needs="scipy h5py pyfftw python-dateutil six",
        edit=("fbpic/utils/cuda.py", "\nif numba_cuda_installed:\n    compile_cupy = cuda.jit\n"),
        aim=120,
    ),
    "stumpy": Package(
        requirement="stumpy==1.14.1",
        source="stumpy",
        sdist=True,
        needs="scipy pandas pytz tzdata",
        aim=60,
        command="-m pytest -q -x --maxfail=1000 -p no:cacheprovider tests/test_gpu_stump.py tests/test_gpu_aamp.py",
    ),
    "xarray-spatial": Package(
        requirement="xarray-spatial",
        source="xrspatial",
        aim=300,
        needs="scipy xarray pandas datashader param pyct colorcet multipledispatch dask toolz",
        command="-m pytest -q -p no:cacheprovider -k 'cupy or gpu or rtx' xrspatial/tests --tb=no",
        stand_ins="examples/xarray_spatial/stand_ins",
    ),
    "pylops": Package(
        requirement="pylops==2.8.0", source="pylops", command="{moved}/run_pylops.py", needs="scipy", aim=120
    ),
    "raystrack": Package(
        requirement="raystrack==2.0.0", source="raystrack", command="{moved}/run_raystrack.py", unused=15, aim=120
    ),
    "speechbrain": Package(
        requirement="speechbrain==1.1.2",
        source="speechbrain",
        command="{moved}/run_speechbrain.py",
        aim=120,
        needs="hyperpyyaml ruamel.yaml joblib sentencepiece tqdm huggingface_hub requests scipy soundfile cffi "
        "pycparser",
    ),
    "liger-kernel": Package(
        requirement="liger-kernel==0.8.5",
        source="liger_kernel",
        command="{moved}/run_triton.py liger",
        kernel="",
        aim=180,
    ),
    "fla-core": Package(
        requirement="fla-core==0.6.0",
        source="fla",
        command="{moved}/run_triton.py fla",
        kernel="",
        aim=180,
        needs="flash-linear-attention==0.6.0 einops",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="packages (default: all)")
    parser.add_argument("--work", type=Path, default=HERE / "work" / "moved", help="folder for projects")
    parser.add_argument("--path", nargs="*", default=[], help="folders with PyTorch and Triton")
    parser.add_argument("--table", action="store_true", help="write the table of all results, and record nothing")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [] if arguments.table else arguments.names or PACKAGES:
        results[name] = record(PACKAGES[name], arguments.work.resolve() / name, arguments.path)
        print(name, results[name], flush=True)
        results = {**(json.loads(RESULTS.read_text()) if RESULTS.exists() else {}), name: results[name]}
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    head, _, tail = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(results)}{END}{tail.partition(END)[2]}")


def record(package: Package, folder: Path, path: list[str]) -> dict[str, object]:
    """Record a package; return its figures."""
    project, libraries = folder / "project", folder / "libraries"
    shutil.rmtree(project, ignore_errors=True)
    release = unpack(package, folder, project)
    for name in package.needs.split():
        if not libraries.exists() or name not in json.loads((libraries / "have.json").read_text()):
            pip("install", "--no-deps", "--target", libraries, name)
            have = json.loads((libraries / "have.json").read_text()) if (libraries / "have.json").exists() else []
            (libraries / "have.json").write_text(json.dumps([*have, name]))
    if (libraries / package.source).exists():  # another part of the package, as fla's layers are
        shutil.copytree(libraries / package.source, project / package.source, dirs_exist_ok=True)
    total = sum(len(re.findall(package.kernel, file.read_text(), re.MULTILINE)) for file in sources(project, package))
    change_imports(project, package)
    more = [str(HERE.parent / package.stand_ins)] if package.stand_ins else []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(libraries), *path, *more])}
    command = package.command.format(moved=HERE / "moved")
    words = [sys.executable, "-m", "aotcuda", "record", "--dry", "--gpu", "H100", "--write", "--"]
    words += [sys.executable, "-W", "ignore"]
    begin = time.monotonic()
    done = subprocess.run(
        [*words, *shlex.split(command)], cwd=project, env=environ, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    if package.edit[0]:
        with (project / package.edit[0]).open("a") as file:
            file.write(package.edit[1])
    record_file = project / ".aotcuda-record.json"
    functions = json.loads(record_file.read_text())["functions"] if record_file.exists() else []
    launched = [
        item
        for item in functions
        if item["kind"] == "kernel" and item["launches"] and item["module"].startswith(package.source)
    ]
    kernels = {(item["module"], item["function"]) for item in launched}
    ending = re.search(r"the command ended with exit status ([0-9]+)", done.stderr)
    return {
        "release": release,
        "kernels": len(kernels),
        "of": total - package.unused if package.kernel else None,
        "unused": package.unused,
        "signatures": len({(item["module"], item["function"], item["signature"]) for item in launched}),
        "launches": sum(sum(item["launches"].values()) for item in launched),
        "seconds": round(seconds, 1),
        "aim": package.aim,
        "status": int(ending[1]) if ending else done.returncode,
    }


def unpack(package: Package, folder: Path, project: Path) -> str:
    """Unpack a package into the project; return its release."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = ("--no-binary", ":all:") if package.sdist else ("--only-binary", ":all:")
    archives = sorted(folder.glob("*.tar.gz" if package.sdist else "*.whl"))
    if not archives:
        pip("download", "--no-deps", *kind, "--dest", folder, package.requirement)
        archives = sorted(folder.glob("*.tar.gz" if package.sdist else "*.whl"))
    archive = archives[0]
    project.mkdir()
    if package.sdist:
        with tarfile.open(archive) as packed:
            packed.extractall(project, filter="data")
        (inner,) = project.iterdir()
        for item in inner.iterdir():
            item.rename(project / item.name)
    else:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(project)
    name, _, version = archive.name.removesuffix(".tar.gz").partition("-")
    version = version.partition("-")[0]
    (project / "pyproject.toml").write_text(
        f'[build-system]\nrequires = ["hatchling", "aotcuda[cu13]"]\nbuild-backend = "hatchling.build"\n\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n\n'
        f'[tool.hatch.build.targets.wheel]\npackages = ["{package.source}"]\n\n'
        '[tool.hatch.build.hooks.aotcuda]\n\n[tool.aotcuda]\narch = ["sm_90"]\nprelude = "_stand_ins"\n'
    )
    (project / "_stand_ins.py").write_text(_PRELUDE)
    return version


def change_imports(project: Path, package: Package) -> None:
    """Change imports of `cuda`, and uses of `nb.cuda`, to `aotcuda.numba`."""
    for file in sources(project, package):
        text = file.read_text()
        if "/tests/" not in str(file):
            text = re.sub(
                r"^(\s*)from numba import cuda\b", r"\1from aotcuda.numba import cuda", text, flags=re.MULTILINE
            )
            if "nb.cuda." in text:
                plain = re.compile("^import numba as nb$", re.MULTILINE)
                text = plain.sub("import numba as nb\\nfrom aotcuda.numba import cuda", text)
                text = text.replace("nb.cuda.", "cuda.")
            file.write_text(text)


def sources(project: Path, package: Package) -> list[Path]:
    return sorted((project / package.source).rglob("*.py"))


def pip(*arguments: object) -> None:
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments[:1]), "--quiet"]
    subprocess.run([*words, *map(str, arguments[1:])], check=True)


def table(results: dict[str, dict[str, object]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| package | kernels | signatures or variants | seconds (aim) | the command's exit status |",
        "|---|---|---|---|---|",
    ]
    for name, item in sorted(results.items(), key=lambda pair: list(PACKAGES).index(pair[0])):
        total = f" of {item['of']}" if item["of"] is not None else ""
        total += f" ({item['unused']} more have no caller)" if item.get("unused") else ""
        lines.append(
            f"| {name} {item['release']} | {item['kernels']}{total} | {item['signatures']} | "
            f"{item['seconds']} ({item['aim']}) | {item['status']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
