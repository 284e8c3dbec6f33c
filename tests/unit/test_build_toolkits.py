"""Find the installed toolkits, and choose one for each target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.arch import parse
from aotcuda.builder.config import parser
from aotcuda.builder.entry import jit
from aotcuda.builder.plan import plan, toolchain, toolkits
from aotcuda.common.jit_build import Request
from aotcuda.errors import ToolchainError
from support.toolkits import toolkit

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.builder.plan.toolkits import Toolkit


@pytest.fixture
def wide(tmp_path: Path) -> tuple[Toolkit, ...]:
    toolkit(tmp_path, 13, "13.0.88", linker="13.5.37")
    toolkit(tmp_path, 12, "12.9.86")
    return toolkits.installed([str(tmp_path)])


def test_toolkits_are_sorted_with_versions_and_files(wide: tuple[Toolkit, ...], tmp_path: Path) -> None:
    old, new = wide
    assert (old.cuda, old.linker, new.cuda, new.linker) == ((12, 9), (12, 9), (13, 0), (13, 5))
    folder = tmp_path / "nvidia"
    assert old.libraries["nvjitlink"] == str(folder / "nvjitlink/lib/libnvJitLink.so.12")
    assert new.include_dirs == (str(folder / "cu13/include"), str(folder / "cu13/include/cccl"))
    assert old.libdevice == str(folder / "cuda_nvcc/nvvm/libdevice/libdevice.10.bc")


def test_libraries_without_compilers_are_not_a_toolkit(tmp_path: Path) -> None:
    toolkit(tmp_path / "libraries", 13, "13.1.1", without="nvvm")
    toolkit(tmp_path / "whole", 13, "13.0.88")
    paths = ["", str(tmp_path / "nowhere"), str(tmp_path / "libraries"), str(tmp_path / "whole")]
    assert [item.cuda for item in toolkits.installed(paths)] == [(13, 0)]
    assert toolkits.installed(paths[:3]) == ()


@pytest.mark.parametrize(
    ("target", "maker"),
    [
        *((text, 12) for text in ("sm_75", "sm_121", "sm_90a", "sm_100f", "compute_120", "sm_70", "sm_95", "sm_107a")),
        *((text, 13) for text in ("sm_88", "sm_107", "compute_110", "sm_110a")),
    ],
)
def test_oldest_toolkit_that_knows_a_target_builds_it(target: str, maker: int, wide: tuple[Toolkit, ...]) -> None:
    chosen = toolkits.choose(parse(target), wide)
    assert chosen is not None
    assert chosen.cuda[0] == maker


def test_newer_linker_uses_code_of_the_nearest_lower_gpu(wide: tuple[Toolkit, ...]) -> None:
    old, new = wide
    assert new.code_target(parse("sm_107")) == parse("sm_103")
    assert new.code_target(parse("compute_107")) == parse("sm_103")
    assert new.code_target(parse("sm_110")) == parse("sm_110")
    assert [item.code_target(parse("sm_107a")) for item in wide] == [None, None]
    assert [old.code_target(parse(f"sm_{number}")) for number in (88, 107, 110)] == [None, None, None]


def plans(*targets: str) -> tuple[plan.ModulePlan, ...]:
    table = {
        "arch": list(targets),
        "modules": {
            "pkg.both": {"source": "pkg._s", "kernels": {"k": "void(int32)"}, "functions": {"f": "int32(int32)"}},
            "pkg.kernels": {"source": "pkg._s", "kernels": {"k": "void(int32)"}},
        },
    }
    return plan.make(parser.parse(table, environ={}))


def rows_of(parts: tuple[plan.ModulePlan, ...]) -> list[tuple[str, str, str, str]]:
    def words(items: object) -> str:
        return " ".join(map(str, items))  # type: ignore[call-overload]

    return [
        (part.config.name, words(unit.name for unit in part.units), words(part.targets), words(part.ltoir_targets))
        for part in parts
    ]


def test_kernels_are_divided_and_functions_built_by_each_toolkit(wide: tuple[Toolkit, ...]) -> None:
    old, new = wide
    (first, new_plans), (second, old_plans) = plan.share(plans("sm_75", "sm_107", "compute_75"), wide)
    assert (first, second) == (new, old)
    assert rows_of(new_plans) == [
        ("pkg.both", "k f", "sm_107", "sm_75 sm_103"),
        ("pkg.kernels", "k", "sm_107", "sm_75 sm_103"),
    ]
    assert rows_of(old_plans) == [
        ("pkg.both", "k f", "sm_75 compute_75", "sm_75"),
        ("pkg.kernels", "k", "sm_75 compute_75", "sm_75"),
    ]
    (kernel, function) = new_plans[0].units
    assert new_plans[0].compiled_for(kernel) == (parse("sm_103"),)
    assert new_plans[0].compiled_for(function) == (parse("sm_75"), parse("sm_103"))
    (_, new_plans), _ = plan.share(plans("sm_90"), wide)
    assert rows_of(new_plans) == [("pkg.both", "f", "", "sm_90")], "functions alone"


def jit_toolkit(target: str, driver: tuple[int, int]) -> Toolkit | None:
    table = {"arch": [target], "modules": {"pkg.k": {"source": "pkg._s", "kernels": {"k": "void(int32)"}}}}
    settings = parser.parse(table, environ={})
    request = Request("pkg.k", table, "", "").case(None, None, parse(target).capability, driver)
    return jit._toolkit(settings, request)


def test_jit_build_uses_a_toolkit_that_the_driver_supports(
    monkeypatch: pytest.MonkeyPatch, wide: tuple[Toolkit, ...]
) -> None:
    old, new = wide
    monkeypatch.setattr(toolkits, "installed", lambda: wide)
    assert jit_toolkit("sm_90", (12, 2)) == jit_toolkit("sm_90", (13, 0)) == old
    assert jit_toolkit("sm_110", (13, 0)) == new
    monkeypatch.setattr(toolkits, "installed", lambda: wide[1:])
    assert jit_toolkit("sm_90", (13, 0)) == new
    with pytest.raises(ToolchainError) as caught:
        jit_toolkit("sm_90", (12, 2))
    assert str(caught.value) == (
        "the compilers that are installed are CUDA 13's, and the driver supports CUDA 12.2: install aotcuda[jit-cu12] "
        "in their place, or update the driver"
    )
    monkeypatch.setattr(toolkits, "installed", tuple)
    assert jit_toolkit("sm_90", (12, 2)) is None


def test_library_of_another_toolkit_is_refused(monkeypatch: pytest.MonkeyPatch, wide: tuple[Toolkit, ...]) -> None:
    monkeypatch.setattr(toolchain, "_loaded", [wide[0]])
    with pytest.raises(ToolchainError, match=r"is to use NVRTC 12\.9, and 13\.0 is loaded; run it in a fresh env"):
        toolchain.check_loaded()
    assert toolchain.include_dirs() == wide[0].include_dirs
