"""`aotcuda doctor`: report on this machine and this installation, for launches and builds."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

import aotcuda
from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.builder.plan import toolkits
from aotcuda.cache import compilers, folder
from aotcuda.common import gpu_facts, stamp, variables
from aotcuda.common.foreign import excerpt
from aotcuda.errors import AotcudaError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.launch import fast as extension
from aotcuda.tools import installed_modules, packs
from aotcuda.tools.cache import listing
from aotcuda.tools.check import gpus, predict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.tools.installed_modules import InstalledModule

VERSION = 1
"""The version of the JSON object. It grows when a key is removed or changes its meaning; new keys may come."""

_RELEASE = "/proc/driver/nvidia/version"
"""The file in which the driver's kernel module states its version: `... x86_64  580.95.05  ...`."""

_PACKAGES = (
    *("hatchling", "setuptools", "cuda-bindings", "cuda-core", "numba", "llvmlite", "numpy"),
    *("cupy-cuda12x", "cupy-cuda13x", "torch", "jax"),
    *("rich", "backports-zstd", "lz4", "tomlkit"),
)
"""Packages whose versions belong in a bug report: build back ends, array libraries, packages of the extras."""

_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "CUDA_CACHE_DISABLE", "CUDA_FORCE_PTX_JIT"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH"),
)
"""Variables that change builds or launches, in addition to `AOTCUDA_*` and the compilers' own."""


def examine() -> dict[str, Any]:
    """Return the findings, as `aotcuda doctor --json` prints them. A missing part is no error."""
    problem = extension.why_not()
    driver = _driver()
    modules = installed_modules.find()
    manifests = [item.packaged.manifest for item in modules if item.packaged]
    return {
        "version": VERSION,
        "aotcuda": {"version": aotcuda.__version__, "path": str(Path(aotcuda.__file__).parent)},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(),
        },
        "fast_path": {
            "in": "C" if problem is None else None,
            "path": extension.in_use().__file__ if problem is None else None,
            "why_not_c": problem,
        },
        "driver": driver,
        "front_ends": {name: _installed(front_end.package) for name, front_end in registry.BUILT_IN.items()},
        "tested": {name: list(item.tested) for name, item in registry.BUILT_IN.items() if item.tested},
        "toolkits": [_toolkit(toolkit) for toolkit in toolkits.installed()],
        "machine_toolkits": compilers.machine_toolkits(),
        "packages": {name: version for name in _PACKAGES if (version := _installed(name))},
        "cache": folder.folder(),
        "caches": listing.totals(),
        "environment": dict(sorted((name, _public(value)) for name, value in os.environ.items() if _is_listed(name))),
        "modules": [_module(module, driver) for module in modules],
        "packs": [packs.status(name, manifests) for name in packs.names(manifests)],
    }


def render(findings: dict[str, Any]) -> str:
    """Return the findings as text for a bug report, with the home folder as `~`."""
    aotcuda_facts, python, fast, driver = (findings[name] for name in ("aotcuda", "python", "fast_path", "driver"))
    cuda = int((driver["cuda"] or f"{registry.CUDA}.0").partition(".")[0])
    release = f", release {driver['release']}" if driver.get("release") else ""
    rows = [
        ("aotcuda", f"{aotcuda_facts['version']}, in {aotcuda_facts['path']}"),
        ("Python", f"{python['version']}, {python['implementation']} on {python['platform']}"),
        ("fast path", f"in C: {fast['path']}" if fast["path"] else f"none: {fast['why_not_c']}"),
        ("driver", driver["problem"] or f"for CUDA {driver['cuda']}{release}"),
        *((f"GPU {gpu['index']}", f"{gpu['name']}, compute capability {gpu['capability']}") for gpu in driver["gpus"]),
        *(("toolkit", _toolkit_text(toolkit)) for toolkit in findings["toolkits"]),
        *(("toolkit", f"of this machine, in {path}") for path in findings["machine_toolkits"]),
    ]
    if not (findings["toolkits"] or findings["machine_toolkits"]):
        rows.append(("toolkit", "none is installed: packaged kernels can be launched, and nothing can be compiled"))
    rows += [
        (name, _front_end_text(registry.BUILT_IN[name], version, findings["tested"].get(name, []), cuda))
        for name, version in findings["front_ends"].items()
    ]
    packages = ", ".join(f"{name} {version}" for name, version in findings["packages"].items())
    rows += [("packages", packages)] if packages else []
    no_cache = "none: there is no home folder, and AOTCUDA_CACHE_DIR names none"
    rows.append(("cache", _cache_text(findings["caches"]["fallback"]) if findings["cache"] else no_cache))
    builds = findings["caches"]["builds"]
    rows.append(("build cache", _cache_text(builds) if builds["folder"] else "none"))
    rows += [
        ("environment", f"{name}={value}{_remark(name, value)}") for name, value in findings["environment"].items()
    ]
    rows += [("module", text) for module in findings["modules"] for text in _module_lines(module, driver)]
    rows += [("pack", excerpt(line)) for pack in findings["packs"] for line in packs.render(pack)]
    if not findings["modules"]:
        rows.append(("module", "none that aotcuda built is installed"))
    width = max(len(name) for name, _ in rows)
    return _without_home("\n".join(f"{name.ljust(width)}  {text}" for name, text in rows))


def _without_home(text: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.home raises an error for a user without a home folder)
    return re.sub(rf"{re.escape(home)}(?=[/\\\s:,;]|$)", "~", text) if len(home) > 1 else text


def _front_end_text(front_end: registry.Registration, version: str | None, tested: list[str], cuda: int) -> str:
    if version is None:
        return f"not installed: pip install {front_end.requirement(cuda=cuda)!r}"
    package = front_end.package.replace("_", "-")
    text = version if package == front_end.name else f"{package} {version}"
    if not tested:
        return text
    releases = f"tested: {tested[0]} to {tested[-1]}"
    return (
        f"{text} ({releases})" if version in tested else f"{text}, which was not tested: builds refuse it ({releases})"
    )


def _toolkit_text(toolkit: dict[str, Any]) -> str:
    linker = f", linker {toolkit['linker']}" if toolkit["linker"] != toolkit["cuda"] else ""
    return (
        f"CUDA {toolkit['cuda']}{linker}, for {toolkit['targets'][0]} to {toolkit['targets'][-1]}, in {toolkit['path']}"
    )


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["problem"]:
        return str(cache["problem"])
    return f"{cache['folder']}, {listing.entry_count(cache['entries'])}, {listing.size_text(cache['bytes'])}"


def _module_lines(module: dict[str, Any], driver: dict[str, Any]) -> list[str]:
    editable = ", editable" if module["editable"] else ""
    head = f"{excerpt(module['name'])} ({excerpt(module['distribution'])}{editable})"
    if module["problem"]:
        return [f"{head}: {excerpt(module['problem'])}"]
    if module["changed"]:
        return [
            f"{head}: out of date: it was built before {excerpt(module['changed'])}; build it again: pip install -e ."
        ]
    if not module["images"]:
        return [f"{head}: has only device functions, which other modules link"]
    takes = module["takes"]
    if not takes:
        missing = "driver" if driver["problem"] else "GPU"
        return [f"{head}: has images for {', '.join(module['images'])}; this machine has no {missing}"]
    return [
        f"{head}: GPU {item['gpu']} takes {item['image'] or item['takes']}: {excerpt(item['why'])}" for item in takes
    ]


def _module(module: InstalledModule, driver: dict[str, Any]) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": module.name,
        "distribution": module.distribution,
        "editable": module.editable,
        "problem": module.problem or None,
        "changed": None,
        "images": [],
        "takes": [],
    }
    if module.packaged is None:
        return description
    manifest, path = module.packaged.manifest, module.packaged.path
    if module.editable and path is not None:
        description["changed"] = stamp.from_manifest(manifest, str(path.parents[module.name.count(".")])).changed()
    description["images"] = list(
        dict.fromkeys(image["arch"] for image in manifests.kernel_images(manifest) if "absent" not in image)
    )
    for gpu in driver["gpus"] if manifest["kernels"] else ():
        cuda = gpus.Driver(driver["cuda"], gpu_facts.pair(driver["cuda"]))
        cell = predict.predict(manifest, gpus.Gpu(gpu["name"], gpu_facts.pair(gpu["capability"])), cuda)
        description["takes"].append({"gpu": gpu["index"], "takes": cell.takes, "image": cell.image, "why": cell.why})
    return description


def _toolkit(toolkit: toolkits.Toolkit) -> dict[str, Any]:
    targets = [f"sm_{major}{minor}" for major, minor in toolkits.capabilities([toolkit])]
    cuda, linker = gpu_facts.dotted(toolkit.cuda), gpu_facts.dotted(toolkit.linker)
    return {"cuda": cuda, "linker": linker, "path": toolkit.home, "targets": targets}


def _driver() -> dict[str, Any]:
    try:
        driver = drivers.get()
    except AotcudaError as error:
        return {"cuda": None, "release": _release(), "gpus": [], "problem": str(error)}
    devices = [
        {"index": device.index, "name": device.name, "capability": gpu_facts.dotted(device.capability)}
        for device in driver.devices
    ]
    return {"cuda": gpu_facts.dotted(driver.version), "release": _release(), "gpus": devices, "problem": None}


def _release() -> str | None:
    """Return the driver's version; None if its kernel module is not loaded."""
    try:
        text = Path(_RELEASE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"Kernel Module\b.*?\s(\d{3,}(?:\.\d+)+)\s", text)
    return match[1] if match else None


def _remark(name: str, value: str) -> str:
    """Return a remark on a wrong value, or on an unknown variable that begins with AOTCUDA_; else an empty text."""
    if (problem := variables.problem(name, value)) is not None:
        return f" ({problem})"
    text = variables.remark(name)
    return f" ({text})" if text else ""


def _is_listed(name: str) -> bool:
    compilers = [prefix for item in registry.BUILT_IN.values() for prefix in item.variables.prefixes]
    return name in _VARIABLES or name.upper().startswith(("AOTCUDA_", "AOT_CUDA", *compilers))


def _public(value: str) -> str:
    """Return a variable's value. User, query and fragment of a URL are removed, because they may be secrets."""
    if "://" not in value:
        return value
    return re.sub("://[^/]*@", "://", re.split("[?#]", value)[0])


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
