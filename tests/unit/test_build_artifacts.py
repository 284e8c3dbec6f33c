"""Check the content of manifests: imports that agree, memory, parameter blocks, drivers, inputs of the fallback."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import arch
from aotcuda.builder.compile import code_warnings
from aotcuda.builder.config import parser
from aotcuda.builder.config.model import Options
from aotcuda.builder.emit import assembly, wheel_files
from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, Launch, ParameterBlock, Unit
from aotcuda.builder.link.images import Image, KernelCode, make_image
from aotcuda.builder.plan import consistency, plan
from aotcuda.errors import CompileError, LinkError
from support import images

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
arch = ["sm_75"]
[modules."pkg.k"]
source = "pkg._k"
kernels.axpy = "void(float32, float32[::1], float32[::1])"
"""
# One float, then two arrays of seven words each, on their natural boundaries.
LAYOUT = ((0, 4), *((8 + 8 * index, 8) for index in range(14)))


def check(layout: tuple[tuple[int, int], ...], parameter_bytes: int, *, one_by_one: bool = False) -> KernelCode:
    """Compare a layout with the kernel of a real image; return the kernel."""
    (module_plan,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    target = arch.parse("sm_75")
    kernel = make_image(target, images.numba_cubin("sm_75"), (13, 0)).kernels["axpy"]
    description = ParameterBlock(layout=layout, size=parameter_bytes, one_by_one=one_by_one)
    wheel_files._check_layout(module_plan.units[0], description, kernel, target)
    return kernel


def test_equal_layout_is_accepted() -> None:
    assert check(LAYOUT, 120).layout == LAYOUT


def test_offsets_do_not_matter_for_separate_arguments() -> None:
    layout = tuple((offset + 32, size) for offset, size in LAYOUT)
    assert check(layout, 152, one_by_one=True)
    with pytest.raises(LinkError):
        check(tuple((offset, size + 1) for offset, size in LAYOUT), 120, one_by_one=True)


@pytest.mark.parametrize(
    ("layout", "parameter_bytes"),
    [
        pytest.param(LAYOUT[:-1], 112, id="missing word"),
        pytest.param((*LAYOUT, (120, 8)), 128, id="additional word"),
        pytest.param(((0, 8), *LAYOUT[1:]), 120, id="another size"),
        pytest.param(((4, 4), *LAYOUT[1:]), 120, id="another offset"),
        pytest.param(LAYOUT, 128, id="another size of the block"),
    ],
)
def test_different_layout_is_refused(layout: tuple[tuple[int, int], ...], parameter_bytes: int) -> None:
    with pytest.raises(LinkError) as caught:
        check(layout, parameter_bytes)
    message = str(caught.value)
    assert message.startswith('tool.aotcuda.modules."pkg.k".kernels.axpy: void(float32, float32[::1], float32[::1]): ')
    assert f"takes its parameters as {LAYOUT}, and the front end expects {layout}; " in message


@pytest.mark.parametrize(
    ("cuda", "module_driver", "image_drivers"),
    [
        ("13.0", "580.65", ["580.65", "580.65", "580.65"]),
        ("12.9", "525.60", ["525.60", "570.26", "575.51"]),
        ("14.1", None, [None, None, None]),
    ],
)
def test_manifest_has_the_lowest_driver_of_module_and_images(
    cuda: str, module_driver: str | None, image_drivers: list[str | None]
) -> None:
    (module_plan,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    targets = [arch.parse(text) for text in ("sm_75", "sm_120", "compute_75")]
    empty = {"kernels": (), "functions": (), "callbacks": (), "foreign": (), "carried": (), "left_out": ()}
    empty |= {"general_left_out": ()}
    lone_plan = replace(module_plan, units=())
    version = tuple(map(int, cuda.split(".")))
    made_images = [Image(target, b"", version, version) for target in targets]
    module = SimpleNamespace(plan=lone_plan, images=made_images, ltoir=[], pack=None, **empty)
    result = SimpleNamespace(toolchain={"cuda": cuda, "nvjitlink": cuda})
    # The images have no machine code with resources.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel_files, "_resources", lambda module, sizes: {})
        settings = parser.parse(tomllib.loads(TABLE), environ={})
        document = wheel_files.describe(settings, module, result)
        functions = [(target, b"") for target in targets]
        functions_alone = SimpleNamespace(**{**vars(module), "images": [], "ltoir": functions})
        without_images = wheel_files.describe(settings, functions_alone, result)
    assert document["min_driver"] == without_images["min_driver"] == module_driver
    assert [image["min_driver"] for image in document["fatbins"][0]["images"]] == image_drivers


KERNEL, FUNCTION, OTHER = (
    Unit(
        kind=kind,
        module="pkg.k",
        name=name,
        symbol=name,
        options=Options(),
        signature=signature,
        origin="pkg._k:f",
        key=f"kernels.{name}",
        signature_key=f"kernels.{name}",
    )
    for kind, name, signature in (
        ("kernel", "f", "void(int64)"),
        ("function", "g", "int64(int64)"),
        ("kernel", "h", "void(int32)"),
    )
)


def compiled_unit(threads: int = 128) -> Any:
    return SimpleNamespace(signature="void(int64)", launch=Launch(launch_bounds=(threads,)))


def import_for(target: str, *units: tuple[Unit, str, Any]) -> consistency.Import:
    results = {(unit, arch.parse(text)): item for unit, text, item in units}
    return consistency.Import(arch.parse(target), frozenset(unit for unit, _, _ in units), results)


def test_units_must_agree_with_the_first_import() -> None:
    """Functions are compiled for more targets than kernels, and by toolkits that make no kernels."""
    consistency.check(
        [
            import_for("sm_75", (FUNCTION, "sm_75", compiled_unit(1))),
            import_for("sm_110", (KERNEL, "sm_110", compiled_unit()), (FUNCTION, "sm_110", compiled_unit(1))),
            import_for("sm_90", (KERNEL, "sm_90", compiled_unit()), (FUNCTION, "sm_75", compiled_unit(1))),
        ]
    )
    with pytest.raises(CompileError) as caught:
        consistency.check(
            [
                import_for("sm_75", (FUNCTION, "sm_75", compiled_unit(1))),
                import_for("sm_110", (FUNCTION, "sm_75", compiled_unit(1)), (KERNEL, "sm_110", compiled_unit(256))),
                import_for("sm_75", (KERNEL, "sm_75", compiled_unit())),
            ]
        )
    assert str(caught.value) == (
        "kernels.f: pkg._k:f has another launch bounds when it is imported for sm_75 ((128,)) than for sm_110 "
        "((256,)), and a module has one for all GPUs; make them the same"
    )


def test_compared_properties_are_attributes_of_compiled_units() -> None:
    kernel = CompiledKernel(code=(), signature="", parameters=(), parameter_block=ParameterBlock(size=0, layout=()))
    function = CompiledFunction(ir=b"", signature="", result="", parameters=())
    for name in consistency._SHARED:
        attrgetter(name)(function if name == "result" else kernel)


def test_units_that_only_one_import_has_are_refused() -> None:
    with pytest.raises(
        CompileError, match=r"^kernels\.h: pkg\._k:f has other signatures .* for sm_90 than for sm_75; "
    ):
        consistency.check(
            [
                import_for("sm_75", (KERNEL, "sm_75", compiled_unit())),
                import_for("sm_90", (KERNEL, "sm_90", compiled_unit()), (OTHER, "sm_90", compiled_unit())),
            ]
        )


MOST = 523_776


def kernel(name: str, *overloads: dict[str, int | None]) -> Any:
    resources = [{target: {"local": local} for target, local in overload.items()} for overload in overloads]
    return {"name": name, "overloads": [{"resources": item} for item in resources]}


def test_too_much_local_memory_gives_one_warning_for_each_kernel() -> None:
    fits = [kernel("k", {"sm_75": MOST, "sm_90a": 0}, {"sm_80": None}), kernel("n")]
    assert code_warnings.local_memory("m", fits) == []
    problem = "more local memory for a thread than the 523776 bytes that GPUs have, and cannot be launched"
    advice = "have smaller local arrays, or arrays in global memory"
    kernels = [
        kernel("one", {"sm_90": MOST + 8, "sm_80": MOST}),
        kernel("two", {"sm_90": MOST + 16, "sm_80": 600_000}, {"sm_90": 700_000, "sm_80": 0}, {"sm_90": 8}),
    ]
    assert code_warnings.local_memory("pkg.m", kernels) == [
        f"pkg.m.one: it needs {problem}: 523784 bytes for sm_90; {advice}",
        f"pkg.m.two: 2 of its 3 signatures need {problem}: 600000 bytes for sm_80, 700000 bytes for sm_90; {advice}",
    ]


KIB = 1024


def unit_and_kernel(key: str, **launches: int) -> tuple[Any, Any]:
    pairs = tuple((arch, {"threads": 128, "shared": shared}) for arch, shared in launches.items())
    return SimpleNamespace(key=key), SimpleNamespace(launches=pairs)


def test_too_much_shared_memory_gives_one_warning_for_each_kernel() -> None:
    largest = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_90a": 227, "compute_80": 163, "sm_120a": 99, "sm_199": 999}
    fits = unit_and_kernel("k", **{name: at * KIB for name, at in largest.items()})
    assert code_warnings.shared_memory([fits]) == []
    assert code_warnings.shared_memory([unit_and_kernel("k")]) == []
    kernels = [
        unit_and_kernel("one", sm_80=163 * KIB + 1, sm_90a=200 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=100 * KIB),
        unit_and_kernel("two", sm_80=200 * KIB, sm_120a=256 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=1),
    ]
    problem = "more shared memory for a block than there is, and cannot be launched there"
    advice = "have smaller tiles or fewer stages"
    needs = "262144 bytes for sm_120a, which has 101376, 204800 bytes for sm_80, which has 166912"
    assert code_warnings.shared_memory(kernels) == [
        f"one: it needs {problem}: 166913 bytes for sm_80, which has 166912; {advice}",
        f"two: 2 of its 3 variants need {problem}: {needs}; {advice}",
    ]


@pytest.mark.parametrize(
    ("folder", "inside"),
    [("src", ["mypkg/data/*.csv", "/etc/tables"]), (".", ["src/mypkg/data/*.csv", "data/**/*.h5", "/etc/tables"])],
)
def test_watched_files_are_relative_to_the_folder_of_the_package(
    tmp_path: Path, folder: str, inside: list[str]
) -> None:
    """Files outside that folder are not in the wheel."""
    table = {"watch": ["src/mypkg/data/*.csv", "data/**/*.h5", "/etc/tables"]}
    installed = assembly._with_relative_globs(table, tmp_path, tmp_path / folder)
    assert installed == {"watch": inside}
    assert assembly._with_relative_globs({}, tmp_path, tmp_path / folder) == {}
