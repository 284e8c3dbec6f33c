"""The hook itself: hands `[tool.aotcuda]` to `aotcuda.builder`, and its files to the wheel."""

from __future__ import annotations

import atexit
import os
import shutil
import sysconfig
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.builder.api import Output
    from aotcuda.builder.worker.interrupt import Guard

# Keys of the hook's table that are hatchling's own.
_HATCHLING_KEYS = {"dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features"}


class AotcudaBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling asks plugins not to subscript it
    """Compiles what `[tool.aotcuda]` names into the wheel."""

    PLUGIN_NAME = "aotcuda"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build; `version` is `standard` or `editable`."""
        if self.target_name != "wheel":
            return
        with self._in_one_line():
            self._build(build_data, editable=version == "editable")
        # Hatchling's turn, which does not expect to be interrupted and would leave a traceback and the files behind.
        self._guard.on(quietly=True)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Write the files of an editable build into the source tree; remove those that went into a wheel."""
        del version
        if folder := build_data.pop("aotcuda_folder", None):
            shutil.rmtree(folder, ignore_errors=True)
        built = build_data.pop("aotcuda_output", None)
        try:
            with self._in_one_line():
                self._install(built)
        except BaseException:
            Path(artifact_path).unlink(missing_ok=True)
            raise

    def clean(self, versions: list[str]) -> None:
        """Remove what editable builds left in the source tree (`hatch clean`)."""
        del versions
        from aotcuda.builder import source_tree as tree

        tree.clean(self._table(), Path(self.root))

    @cached_property
    def _guard(self) -> Guard:
        from aotcuda.builder.worker.interrupt import Guard

        return Guard()

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        """A block whose errors, and whose interruption, are one line and the end of the build."""
        from aotcuda.builder.worker.interrupt import Interrupted
        from aotcuda.errors import AotcudaError

        try:
            with self._guard:
                yield
        except AotcudaError as error:
            if os.environ.get("AOTCUDA_DEBUG") == "1":
                raise
            self.app.abort(f"aotcuda: {error}")
        except Interrupted as stop:
            self.app.abort(f"aotcuda: {stop}", code=stop.code)

    def _table(self) -> dict[str, Any]:
        from aotcuda.errors import ConfigError

        unknown = sorted(self.config.keys() - _HATCHLING_KEYS)
        if unknown:
            own = "aotcuda" in self.build_config.target_config.get("hooks", {})
            place = "tool.hatch.build.targets.wheel.hooks" if own else "tool.hatch.build.hooks"
            message = (
                f"{place}.aotcuda.{unknown[0]}: this table only enables the hook; configure it under [tool.aotcuda]"
            )
            raise ConfigError(message)
        table = self.metadata.config.get("tool", {}).get("aotcuda")
        if not isinstance(table, dict):
            message = (
                "pyproject.toml enables the hook aotcuda and has no [tool.aotcuda] table; add one, or drop the hook"
            )
            raise ConfigError(message)
        return table

    def _install(self, built: Output | None) -> None:
        from aotcuda.builder import source_tree as tree

        for text in tree.install(built, Path(self.root)) if built is not None else ():
            self.app.display_warning(f"aotcuda: {text}")

    def _build(self, build_data: dict[str, Any], *, editable: bool) -> None:
        from aotcuda.builder import api, output, run_time_requirement, temporary
        from aotcuda.builder import source_tree as tree

        root = Path(self.root)
        packages = [root / Path(path).parent for path in self.build_config.packages]
        of_dependencies = run_time_requirement.warnings(self.metadata.core.dependencies)
        built = api.build(self._table(), root, packages, editable=editable)
        for text in [*built.warnings, *of_dependencies]:
            self.app.display_warning(f"aotcuda: {text}")
        if editable:
            # An editable install imports from the source tree, where files of the wheel are not seen. They are written
            # when hatchling has done its part, which may fail.
            build_data["aotcuda_output"] = built
            return
        # Files of an editable build lie in the source tree, where git may not ignore them.
        config = self.build_config
        config.build_reserved_paths.update(map(config.get_distribution_path, tree.leftovers(root)))
        folder = temporary.folder()
        build_data["aotcuda_folder"] = str(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # where hatchling gives up before `finalize`
        if self._table().get("host-abi"):
            # The name that wheels for one system have that no repair tool has looked at, as hatchling's own inference.
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = build_data.get("tag") or f"py3-none-{system}"
        if build_data.get("tag") is None and build_data.get("pure_python", True) and not build_data.get("infer_tag"):
            build_data["tag"] = "py3-none-any"  # hatchling's own choice is py2.py3 where requires-python is not set
        for path in output.write(built.files, folder):
            build_data["force_include"][str(path)] = path.relative_to(folder).as_posix()
