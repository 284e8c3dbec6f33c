"""Find GPUs and drivers by the names, compute capabilities and versions that users write."""

from __future__ import annotations

import difflib
import functools
import re
from typing import NamedTuple

from aotcuda import arch
from aotcuda.common import gpu_facts
from aotcuda.errors import TargetError
from aotcuda.gpus import BY_NUMBER, CAPABILITIES

_BRANDS = re.compile("nvidia|geforce|tesla|gpu|generation")
"""Words that users omit. `Quadro` is not among them, since an RTX 6000 may be Quadro, Ada or Blackwell."""

_WORDS = re.compile(r"[a-z]+|[0-9]+")

_NEWER = 100
"""The distance from the newest known branch up to which a number is a driver branch. They grow by some 40 a year."""


class Gpu(NamedTuple):
    """A GPU with its name as written, and its compute capability."""

    name: str
    capability: tuple[int, int]


class Driver(NamedTuple):
    """A requested driver.

    Attributes:
        name: The name as written.
        cuda: The CUDA version that it supports.
        note: A reason to doubt that version; empty without one.
    """

    name: str
    cuda: tuple[int, int]
    note: str = ""


def gpu(text: str) -> Gpu:
    """Return the GPU that `text` names: `RTX 5090`, `sm_90`, or the driver's name.

    Raises:
        TargetError: No GPU has this name. The message has the nearest names.
    """
    name = text.strip()
    if name.startswith(("sm_", "compute_", "lto_")):
        try:
            target = arch.parse(name)
        except ValueError as error:
            raise TargetError(str(error)) from None
        row = BY_NUMBER.get(target.capability)
        first = CAPABILITIES[0].number
        if row is None or target.kind != "sass" or target.suffix:
            kind = "older than the GPUs that are known" if target.capability < first else "no GPU"
            message = f"{name!r} is {kind}; write a compute capability, one of {_numbers()}, or a GPU's name"
            raise TargetError(message)
        return Gpu(name, (row.renamed or row.number))
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]", name) and gpu_facts.pair(name) in BY_NUMBER:
        return Gpu(name, gpu_facts.pair(name))
    found = _names().get(_key(name))
    if found is not None:
        return Gpu(name, found)
    near = _near(name)
    hint = f"the nearest names are {', '.join(near)}" if near else "write a name such as 'RTX 4090', 'H100' or 'sm_90'"
    message = f"no GPU is known by the name {name!r}, from {CAPABILITIES[0].architecture} on; {hint}"
    raise TargetError(message)


def driver(text: str) -> Driver:
    """Return the driver that `text` names: `535`, `580.65.06`, or the CUDA version that it supports, `12.2`.

    Raises:
        TargetError: It is no driver's version, and no CUDA version.
    """
    name = text.strip()
    number = re.sub("^(cuda *|r)", "", name, flags=re.IGNORECASE)
    newest = gpu_facts.branches()[-1]
    if re.fullmatch(r"[0-9]{3}(\.[0-9]{1,3}){0,2}", number) and int(number[:3]) <= newest.number + _NEWER:
        return _driver_of_version(name, gpu_facts.version(number))
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]{1,2}", number):
        cuda = gpu_facts.pair(number)
        if any(branch.cuda == cuda for branch in gpu_facts.branches()):
            return Driver(name, cuda)
        if cuda < gpu_facts.branches()[0].cuda:
            return Driver(name, cuda, f"older than CUDA {gpu_facts.dotted(gpu_facts.branches()[0].cuda)}")
    known = gpu_facts.branches()
    message = (
        f"{name!r} is no driver version that is known; write a branch such as {known[0].number} or "
        f"{known[-1].number}, a driver such as 580.65.06, or the CUDA version that it supports, "
        f"{gpu_facts.dotted(known[0].cuda)} to {gpu_facts.dotted(known[-1].cuda)}"
    )
    raise TargetError(message)


def _driver_of_version(name: str, version: gpu_facts.Version) -> Driver:
    known = gpu_facts.branches()
    below = [branch for branch in known if branch.number <= version[0]]
    if not below:
        first = gpu_facts.short(known[0].first)
        return Driver(name, (11, 8), f"older than {first}, the first driver for CUDA 12")
    branch = below[-1]
    if branch is known[-1] and version[0] > branch.number:
        note = f"newer than {branch.number}, the newest known branch; assumed to support CUDA "
        return Driver(name, branch.cuda, note + gpu_facts.dotted(branch.cuda))
    if version[0] != branch.number:
        return Driver(name, branch.cuda, f"no known branch; assumed to support the CUDA of {branch.number}")
    if len(version) > 1 and version < branch.first:
        first = ".".join(f"{part:02}" for part in branch.first)
        return Driver(name, branch.cuda, f"older than {first}, the first driver that is known to support CUDA")
    return Driver(name, branch.cuda)


@functools.cache
def _names() -> dict[str, tuple[int, int]]:
    """Return the compute capability by a name's key."""
    rows = CAPABILITIES
    return {_key(name): row.number for row in rows for name in (*row.names, *row.examples)}


def _key(name: str) -> str:
    """Return the letters and digits of a name without brands; `RTX5090` is `NVIDIA RTX 5090`."""
    return _BRANDS.sub("", "".join(_WORDS.findall(name.lower())))


def _near(name: str) -> list[str]:
    """Return names that resemble `name`. Names with all of its words come first."""
    wanted = set(_WORDS.findall(name.lower()))
    names = [one for row in CAPABILITIES for one in (*row.examples, *row.names)]
    holding = [one for one in names if wanted and wanted <= set(_WORDS.findall(one.lower()))]
    by_key = {_key(one): one for one in reversed(names)}
    close = [by_key[key] for key in difflib.get_close_matches(_key(name), by_key, n=3, cutoff=0.6)]
    return list(dict.fromkeys([*holding, *close]))[:3]


def _numbers() -> str:
    return ", ".join(f"sm_{row.number[0]}{row.number[1]}" for row in CAPABILITIES if row.renamed is None)
