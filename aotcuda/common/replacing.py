"""Write files that are whole or as they were."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which takes the place and permissions of `path` in the end, without an error."""
    path = path.resolve()  # where a link leads to
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        if path.exists():
            partial.chmod(path.stat().st_mode & 0o7777)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
