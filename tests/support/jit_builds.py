"""Stand in for JIT builds: record the requests, and return an image without code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests
from aotcuda.common.jit_build import CUBIN, Result
from aotcuda.runtime.jit import compile as jit_compile
from support.manifests import fatbin, file, image, kernel, make

if TYPE_CHECKING:
    import pytest

    from aotcuda.common.jit_build import Request

TABLE = {"arch": ["sm_80"], "modules": {"mypkg.kernels": {"source": "mypkg._kernels", "kernels": {}}}}


def manifest(kernels: list[dict[str, Any]], target: str = "sm_90", **changes: object) -> tuple[Any, bytes]:
    """Return the manifest of a JIT build, and its image."""
    record, entry = image(target)
    data = fatbin([entry])
    complete = make(fatbins=[{"file": file(CUBIN, data), "images": [record]}], kernels=kernels)
    return complete | changes, data


class Builder:
    """Stand in for `aotcuda.builder.entry.jit.build`.

    Attributes:
        requests: The requests of builds.
        module_kernels: The kernels that the build of a module returns.
        images: The kernels of each image that is built alone.
        failure: The error that a build raises, or None.
        changes: Keys that replace those of the returned manifest.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.module_kernels: list[dict[str, Any]] = []
        self.images: list[list[dict[str, Any]]] = []
        self.failure: Exception | None = None
        self.changes: dict[str, Any] = {}

    def __call__(self, request: Request) -> Result:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        kernels = (
            [kernel(request.kernel, request.signature)] if request.kernel and request.signature else self.module_kernels
        )
        if request.image is not None:
            kernels = self.images[request.image]
        sources = [
            {"path": str(path.relative_to(request.package_root)), "sha256": manifests.digest(path.read_bytes())}
            for path in sorted(Path(request.package_root).rglob("*.py"))
            if path.name.startswith("_") and path.name != "__init__.py"
        ]
        record, data = manifest(kernels, request.target, **{"sources": sources, **self.changes})
        return Result(record, data)


def forget_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear this process's state of the cache, as in a new process."""
    monkeypatch.setattr(jit_compile, "_caches", {})
    monkeypatch.setattr(jit_compile, "_warned", set())


def rebuild(root: str = "mypkg/kernels.aotcuda/sources") -> dict[str, Any]:
    """Return the `rebuild` object of a packaged module for the JIT fallback."""
    return {"table": TABLE, "names": {"mypkg.kernels": []}, "root": root, "files": []}
