"""Find GPUs and drivers by the names, compute capabilities and versions that users write."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from aotcuda import arch, gpus
from aotcuda.common import gpu_facts
from aotcuda.errors import TargetError
from aotcuda.gpus import BY_NUMBER, CAPABILITIES

_WORDS = re.compile(r"[a-z]+|[0-9]+")

_MOST_AHEAD = 100
"""The largest distance of an unknown driver branch from the newest known one. Branches grow by about 40 a year."""


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
            kind = "older than all known GPUs" if target.capability < first else "no GPU"
            message = f"{name!r} is {kind}; write a compute capability, one of {_numbers()}, or a GPU's name"
            raise TargetError(message)
        return Gpu(name, row.renamed or row.number)
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]", name) and gpu_facts.pair(name) in BY_NUMBER:
        return Gpu(name, gpu_facts.pair(name))
    found = gpus.by_name(name)
    if found is not None:
        return Gpu(name, found.number)
    near = _nearest_names(name)
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
    branches = gpu_facts.branches()
    oldest, newest = branches[0], branches[-1]
    if re.fullmatch(r"[0-9]{3}(\.[0-9]{1,3}){0,2}", number) and int(number[:3]) <= newest.number + _MOST_AHEAD:
        return _driver_of_version(name, gpu_facts.version(number))
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]{1,2}", number):
        cuda = gpu_facts.pair(number)
        if any(branch.cuda == cuda for branch in branches):
            return Driver(name, cuda)
        if cuda < oldest.cuda:
            return Driver(name, cuda, f"older than CUDA {gpu_facts.dotted(oldest.cuda)}")
    message = (
        f"{name!r} is no known driver version; write a branch such as {oldest.number} or {newest.number}, a driver "
        "such as 580.65.06, or the CUDA version that it supports, "
        f"{gpu_facts.dotted(oldest.cuda)} to {gpu_facts.dotted(newest.cuda)}"
    )
    raise TargetError(message)


def _driver_of_version(name: str, version: gpu_facts.Version) -> Driver:
    branches = gpu_facts.branches()
    branch = next((branch for branch in reversed(branches) if branch.number <= version[0]), None)
    if branch is None:
        return Driver(name, (11, 8), f"older than {branches[0]}, the first driver for CUDA 12")
    if branch is branches[-1] and version[0] > branch.number:
        note = f"newer than {branch.number}, the newest known branch; assumed to support CUDA "
        return Driver(name, branch.cuda, note + gpu_facts.dotted(branch.cuda))
    if version[0] != branch.number:
        return Driver(name, branch.cuda, f"no known branch; assumed to support the CUDA of {branch.number}")
    if len(version) > 1 and version < branch.first:
        first = ".".join(f"{part:02}" for part in branch.first)
        note = f"older than {first}, the first driver that is known to support CUDA {gpu_facts.dotted(branch.cuda)}"
        return Driver(name, branch.cuda, note)
    return Driver(name, branch.cuda)


def _nearest_names(text: str) -> list[str]:
    """Return at most three names that resemble a text; names with all of its words come first."""
    words = set(_WORDS.findall(text.lower()))
    names = [name for row in CAPABILITIES for name in (*row.examples, *row.names)]
    with_words = [name for name in names if words and words <= set(_WORDS.findall(name.lower()))]
    by_key = {gpus.key_of_name(name): name for name in reversed(names)}
    close = [by_key[key] for key in difflib.get_close_matches(gpus.key_of_name(text), by_key, n=3, cutoff=0.6)]
    return list(dict.fromkeys([*with_words, *close]))[:3]


def _numbers() -> str:
    return ", ".join(f"sm_{row.number[0]}{row.number[1]}" for row in CAPABILITIES if row.renamed is None)
