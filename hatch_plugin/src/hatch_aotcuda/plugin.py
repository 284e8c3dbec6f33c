"""Pass `[tool.aotcuda]` to `aotcuda.builder.entry.backend`, and the files of the build to hatchling's wheel."""

from __future__ import annotations

import atexit
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.emit.built import Output

_HATCHLING_KEYS = {"dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features"}
"""The keys that hatchling itself reads in the hook's table."""


class AotcudaBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling asks plugins not to subscript it
    """Build the modules of `[tool.aotcuda]` into the wheel."""

    PLUGIN_NAME = "aotcuda"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build; `version` is `standard` or `editable`."""
        with self._in_one_line():
            if self.target_name == "wheel":
                self._build(build_data, editable=version == "editable")
            elif self.target_name == "sdist":
                self._add_named_files(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Write the files of an editable build into the source tree, and check the wheel of another build."""
        del version
        if staged := build_data.pop("aotcuda_staged", None):
            staged.discard()
        editable, packed = build_data.pop("aotcuda_editable", None), build_data.pop("aotcuda_packed", None)
        try:
            with self._in_one_line():
                self._install(editable)
                self._check(packed, artifact_path)
        except BaseException:
            Path(artifact_path).unlink(missing_ok=True)
            raise

    def clean(self, versions: list[str]) -> None:
        """Remove the files of editable builds from the source tree (`hatch clean`)."""
        del versions
        from aotcuda.builder.write import source_tree

        source_tree.clean(self._table(), Path(self.root))

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        try:
            from aotcuda.builder.compile import interrupt
        except KeyboardInterrupt:
            self.app.abort("aotcuda: build interrupted; nothing was written", code=130)
            raise
        with interrupt.end_in_one_line(lambda message, code: self.app.abort(message, code=code)):
            from aotcuda.builder.entry import backend
            from aotcuda.errors import AotcudaError

            try:
                yield
            except AotcudaError as error:
                names = list(self.build_config.hook_config)
                later = names[names.index(self.PLUGIN_NAME) + 1 :] if self.PLUGIN_NAME in names else []
                raise backend.with_later_steps(error, [f"the hook {name}" for name in later]) from error

    def _table(self) -> Mapping[str, object]:
        from aotcuda.builder.entry import backend

        is_for_wheels = "aotcuda" in self.build_config.target_config.get("hooks", {})
        hooks = "tool.hatch.build.targets.wheel.hooks" if is_for_wheels else "tool.hatch.build.hooks"
        backend.check_settings(self.config.keys() - _HATCHLING_KEYS, f"{hooks}.aotcuda")
        return backend.table(self.metadata.config, "hook")

    def _install(self, built: Output | None) -> None:
        from aotcuda.builder.write import source_tree

        for text in source_tree.install(built, Path(self.root)) if built is not None else ():
            self.app.display_warning(f"aotcuda: warning: {text}")

    def _check(self, built: Output | None, wheel: str) -> None:
        """Check the complete wheel, because other hooks may change its content."""
        from zipfile import ZipFile

        from aotcuda.builder.entry import backend

        if built is not None:
            with ZipFile(wheel) as archive:
                backend.check_sources(built, set(archive.namelist()), archive.read)
            for text in backend.size_warnings(built, Path(wheel)):
                self.app.display_warning(f"aotcuda: warning: {text}")

    def _add_named_files(self, build_data: dict[str, Any]) -> None:
        """Add the files that the table names to an sdist, and remove files of `aotcuda record`."""
        from aotcuda.builder.entry import backend

        root, config = Path(self.root), self.build_config
        backend.check_sdist(self._table(), root)
        config.build_reserved_paths.update(map(config.get_distribution_path, backend.NOT_FOR_SDISTS))
        included = {file.distribution_path.replace(os.sep, "/") for file in _files_of(config)}
        for name in backend.sdist_files(self._table(), root):
            if name not in included:
                build_data["force_include"][str(root / name)] = name

    def _fault_of_sdists(self) -> str | None:
        """Return the fault of sdists of this project, for which hatchling does not call a hook for wheels alone."""
        from hatchling.builders.sdist import SdistBuilder

        from aotcuda.builder.entry import backend

        root = Path(self.root)
        sdist = SdistBuilder(self.root, metadata=self.metadata).config
        if "aotcuda" in sdist.hook_config or (root / "PKG-INFO").exists():  # the project is an unpacked sdist
            return None
        included = {file.relative_path.replace(os.sep, "/") for file in _files_of(sdist)}
        missing = [name for name in backend.sdist_files(self._table(), root) if name not in included]
        needless = sorted(included.intersection(backend.NOT_FOR_SDISTS))
        facts = [f"lacks {', '.join(missing)}"] if missing else []
        facts += [f"has {', '.join(needless)}"] if needless else []
        return (
            f"pyproject.toml: an sdist of this project {' and '.join(facts)}; write [tool.hatch.build.hooks.aotcuda] "
            "in place of [tool.hatch.build.targets.wheel.hooks.aotcuda], which leaves sdists to hatchling"
            if facts
            else None
        )

    def _build(self, build_data: dict[str, Any], *, editable: bool) -> None:
        from aotcuda.builder.emit import report
        from aotcuda.builder.entry import backend
        from aotcuda.builder.write import source_tree
        from aotcuda.errors import ConfigError

        root, table, config = Path(self.root), self._table(), self.build_config
        backend.check_single_back_end(self.metadata.config, root, "hatchling")
        if fault := self._fault_of_sdists():
            if not editable:
                raise ConfigError(fault)
            self.app.display_warning(f"aotcuda: warning: {fault}")
        packages = [root / Path(path).parent for path in config.packages]
        packages += [root / path for path in config.dev_mode_dirs] if editable else []
        content = {file.distribution_path.replace(os.sep, "/"): Path(file.path) for file in _files_of(config)}
        dependencies, quiet = self.metadata.core.dependencies, self.app.verbosity < 0
        built = backend.build(
            table,
            root,
            packages,
            dependencies,
            editable=editable,
            quiet=quiet,
            content=content,
            remedy='add "{}" to tool.hatch.build.targets.wheel.packages',
        )
        for text in built.warnings:
            self.app.display_warning(f"aotcuda: warning: {text}")
        for text in built.notes:
            self.app.display_info(f"aotcuda: {text}")
        for text in report.summary(built.summary, verbose=self.app.verbosity > 0):
            self.app.display_info(f"aotcuda: {text}")
        if editable:
            # The files are written after hatchling's part of the build, which may fail.
            build_data["aotcuda_editable"] = built
            return
        build_data["aotcuda_packed"] = built
        config.build_reserved_paths.update(map(config.get_distribution_path, source_tree.leftovers(root)))
        staged = build_data["aotcuda_staged"] = backend.stage(built)
        atexit.register(staged.discard)  # if hatchling fails before `finalize`
        if tag := backend.tag(table):
            build_data["pure_python"] = False
            build_data["tag"] = build_data.get("tag") or tag
        if build_data.get("tag") is None and build_data.get("pure_python", True) and not build_data.get("infer_tag"):
            build_data["tag"] = backend.PURE_TAG  # hatchling chooses py2.py3 if requires-python is not set
        build_data.setdefault("sbom_files", []).append(str(staged.sbom))  # hatchling before 1.28 has no such argument
        for path, name in staged.files.items():
            build_data["force_include"][str(path)] = name


def _files_of(config: Any) -> list[Any]:
    """Return the files that hatchling itself packs by a target's configuration."""
    return list(config.builder.recurse_included_files())
