"""Build aotcuda's own wheels, with the fast path of launches as an extension in C if it can be compiled.

If it cannot be compiled, a warning reports the reason, and the wheel is pure: launches take the general path.
`AOTCUDA_EXTENSION=0` requests the pure wheel. With `AOTCUDA_EXTENSION=1` an extension that cannot be compiled is an
error.

With `_PYTHON_HOST_PLATFORM=win-amd64` and `CC=x86_64-w64-mingw32-gcc` the wheel is for Windows (`tools/wheels.py`).

Each wheel has a bill of materials (PEP 770), which lists only this project, without dependencies.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "AOTCUDA_EXTENSION"
MODULE = "aotcuda.runtime.launch.fast._launch"
SOURCES = "aotcuda/runtime/launch/fast"  # all .c files in this folder are compiled into one extension

# Pythons without the GIL have no stable ABI, so an extension for them is for one version.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
FOR_WINDOWS = sysconfig.get_platform() == "win-amd64"
SUFFIX = ".pyd" if FOR_WINDOWS else ".abi3.so" if STABLE else str(sysconfig.get_config_var("EXT_SUFFIX"))

# The definitions of pyconfig.h for Windows that the headers of the stable ABI read, in place of this Python's file.
WINDOWS_CONFIGURATION = (
    *("Py_PYCONFIG_H", "MS_WINDOWS", "MS_WIN64", "Py_ENABLE_SHARED", "HAVE_DECLSPEC_DLL", "HAVE_SSIZE_T"),
    *("SIZEOF_VOID_P=8", "SIZEOF_SIZE_T=8", "SIZEOF_LONG=4", "SIZEOF_LONG_LONG=8", "SIZEOF_INT=4", "SIZEOF_SHORT=2"),
    *("SIZEOF_WCHAR_T=2", "ALIGNOF_MAX_ALIGN_T=8", "DOUBLE_IS_LITTLE_ENDIAN_IEEE754"),
)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that compiles the extension into wheels and, for an editable install, into the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the extension; `version` is `standard` or `editable`."""
        value = os.environ.get(VARIABLE, "")
        if value not in ("", "0", "1"):
            self.app.abort(
                f"aotcuda: {VARIABLE} is {value!r}; write '0' for the pure wheel, '1' for the one with the extension"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="aotcuda-extension-")  # hatchling copies from it later
        if version != "editable":
            bill = Path(self._folder.name, "aotcuda.cdx.json")
            bill.write_text(_bill(self.metadata.name, self.metadata.version, self.metadata.core.license_expression))
            build_data["sbom_files"].append(str(bill))
        place = Path(self.root, SOURCES, f"_launch{SUFFIX}")
        if version == "editable":
            place.unlink(missing_ok=True)  # the file of an earlier build
        if value == "0":
            return
        try:
            extension = _compile(Path(self.root), Path(self._folder.name))
        except _NotCompiledError as problem:
            message = f"aotcuda: the fast path was not compiled, because {problem}"
            if value == "1":
                self._folder.cleanup()
                self.app.abort(message)
            self.app.display_warning(f"{message}; this is the pure wheel, which launches by Python")
            return
        if version == "editable":
            shutil.copyfile(extension, partial := place.with_suffix(f".{os.getpid()}"))
            partial.replace(place)
        else:
            build_data["force_include"][str(extension)] = f"{SOURCES}/{place.name}"
        build_data["pure_python"] = False
        build_data["tag"] = _tag()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 (hatchling's)
        """Remove the temporary folder."""
        self._folder.cleanup()


def _bill(name: str, version: str, licence: str) -> str:
    """Return the bill of materials, CycloneDX 1.6; the same version gives the same bytes."""
    ref = f"pkg:pypi/{name}@{version}"
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": ref,
                "name": name,
                "version": version,
                "licenses": [{"expression": licence}],
                "purl": ref,
            },
        },
        "dependencies": [{"ref": ref, "dependsOn": []}],
        "compositions": [{"aggregate": "complete", "dependencies": [ref]}],  # no dependency is left out
    }
    return json.dumps(content, indent=1) + "\n"


class _NotCompiledError(Exception):
    """The extension cannot be compiled."""


def _compile(root: Path, folder: Path) -> Path:
    """Compile the extension into `folder`; the bytes do not depend on the folders.

    Raises:
        _NotCompiledError: It cannot be compiled.
    """
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        message = f"it is for CPython on Linux, and this is {sys.implementation.name} on {sys.platform}"
        raise _NotCompiledError(message)
    extension = folder / f"_launch{SUFFIX}"
    command = [
        *_compiler(),
        *("-shared", "-fPIC", "-pthread", "-O2", "-fvisibility=hidden", "-DNDEBUG"),
        *(["-DPy_LIMITED_API=0x030B0000"] if STABLE else []),
        *(f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")),
        *_words("CFLAGS"),
        # Without paths and unused symbols, the bytes depend on source and compiler alone.
        *("-g0", "-Wl,--strip-all"),
        # The linker for Windows would write the time, and an address that depends on the file's path.
        "-Wl,--no-insert-timestamp,--disable-auto-image-base" if FOR_WINDOWS else "-Wl,--build-id=none",
        *_words("LDFLAGS"),
        *("-o", str(extension)),
        *sorted(f"{SOURCES}/{path.name}" for path in Path(root, SOURCES).glob("*.c")),
    ]
    if FOR_WINDOWS:
        command += [*(f"-D{name}" for name in WINDOWS_CONFIGURATION), _import_library(Path(root, SOURCES), folder)]
    try:
        done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        message = f"{command[0]} cannot be run: {error.strerror}"
        raise _NotCompiledError(message) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        first = next((line for line in lines if "error" in line.lower()), f"exit status {done.returncode}")
        message = f"{command[0]} fails: {' '.join(first.split())}"
        raise _NotCompiledError(message)
    if not extension.is_file():
        message = f"{command[0]} reported success and wrote no file"
        raise _NotCompiledError(message)
    return extension


def _import_library(sources: Path, folder: Path) -> str:
    """Make the library with which a linker finds functions in python3.dll.

    It has all names in Python's headers and in the sources; the linker uses the names that the extension needs.
    """
    texts = [path.read_text() for top in (Path(sysconfig.get_path("include")), sources) for path in top.rglob("*.[ch]")]
    names = sorted({name for text in texts for name in re.findall(r"\b_?Py\w+", text)})
    definition, library = folder / "python3.def", folder / "libpython3.a"
    definition.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *names]))
    dlltool = _compiler()[0].removesuffix("gcc") + "dlltool"
    try:
        subprocess.run([dlltool, "-d", definition, "-l", library], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        message = f"{dlltool} cannot make an import library: {error}"
        raise _NotCompiledError(message) from error
    return str(library)


def _words(variable: str) -> list[str]:
    """Return the words of an environment variable, split as by a shell."""
    value = os.environ.get(variable, "")
    try:
        return shlex.split(value)
    except ValueError as error:
        message = f"{variable} is {value!r}, which cannot be split like a shell command: {error}"
        raise _NotCompiledError(message) from error


def _compiler() -> list[str]:
    """Return the command of the C compiler: from `CC`, the one that built this Python, or the system's."""
    if words := _words("CC"):
        return words
    for candidate in (str(sysconfig.get_config_var("CC") or ""), "cc", "gcc", "clang"):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    message = "there is no C compiler"
    raise _NotCompiledError(message)


def _tag() -> str:
    """Return the wheel's tag for this machine; releases replace `linux` by the oldest Linux that can use the wheel."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    python = "cp311-abi3" if STABLE else f"{version}-{version}t"
    return f"{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
