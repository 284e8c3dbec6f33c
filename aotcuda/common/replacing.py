"""Replace files atomically."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces `path` and gets its permissions if the block raises no error."""
    path = path.resolve()  # replace the target of a symbolic link
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        if path.exists():
            partial.chmod(path.stat().st_mode & 0o7777)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
