"""Give a command that executes no launch a home folder of its own, so that packages keep no timings of launches.

Packages store tuned configs and caches in the user's home, and would believe them later. Data that a program may need,
such as downloaded models, is linked into the command's home.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_DATA = (
    ".aws", ".config", ".docker", ".git-credentials", ".gitconfig", ".kaggle", ".local", ".netrc", ".pypirc", ".ssh",
)  # fmt: skip
"""Hidden entries of a home folder that programs read."""

_CACHES = ("huggingface", "torch", "modelscope", "pip", "uv", "clip", "whisper", "matplotlib", "fontconfig")
"""Caches of downloads and of files that no launch changes."""


def variables(folder: Path) -> dict[str, str]:
    """Make a home folder in `folder`, and return the variables that name it and its caches."""
    home, own = Path(os.path.expanduser("~")), folder / "home"  # noqa: PTH111 (it raises no error without a home)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    with contextlib.suppress(OSError):
        for entry in home.iterdir():
            if not entry.name.startswith(".") or entry.name in _DATA:
                _link(own / entry.name, entry)
    for name in _CACHES:
        if (cache / name).exists():
            _link(own / ".cache" / name, cache / name)
    (own / ".cache").mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(own),
        "XDG_CACHE_HOME": str(own / ".cache"),
        "XDG_STATE_HOME": str(own / ".state"),
        "AOTCUDA_RECORD_HOME": str(home),
    }


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
