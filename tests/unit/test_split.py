"""Test the parts that `aotcuda split` makes, launches with some of them, and the full wheel that `join` restores."""

from __future__ import annotations

import importlib
import io
import json
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import arch, manifest
from aotcuda.cli import main
from aotcuda.errors import BuildError, FallbackWarning, ManifestError, TargetError
from aotcuda.gpus import CAPABILITIES
from aotcuda.runtime.images.choice import choose
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive, join, split
from aotcuda.tools.split.wheel import FullWheel, Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.stand_in import StandIn

    Parts = dict[str, Path]
    Install = Callable[..., Any]

WHEELS = Path(__file__).parents[1] / "data" / "wheels"
QUICKSTART = WHEELS / "quickstart-1.0-py3-none-any.whl"
LABELS = ("sm75", "sm80", "sm90", "sm100", "sm120")
FOLDER = "quickstart/kernels.aotcuda"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Return the parts of the quickstart's wheel by name, such as `variants/sm80` and `providers/main`."""
    folder = tmp_path_factory.mktemp("split")
    split.run(QUICKSTART, folder)
    wheels = {f"variants/{label}": folder / "variants" / f"{QUICKSTART.stem}-{label}.whl" for label in LABELS}
    name = QUICKSTART.name.replace("quickstart", "quickstart_kernels_{}")
    wheels |= {f"providers/{label}": folder / "providers" / name.format(label) for label in LABELS}
    return {**wheels, "providers/main": folder / "providers" / QUICKSTART.name, "full": QUICKSTART}


@pytest.fixture
def install(cuda: StandIn) -> Iterator[Install]:
    """Return a function that installs wheels for the stand-in driver, and imports their module."""

    def install_and_import(*wheels: Path) -> Any:
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(cuda.packages)
        importlib.invalidate_caches()
        return importlib.import_module("quickstart.kernels")

    yield install_and_import
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def copy(wheel: Path, folder: Path, changes: Mapping[str, Callable[[bytes], bytes]]) -> Path:
    """Copy a wheel with changes to files, by their names."""
    original = wheel_archive.read(wheel)
    files = {name: changes.get(Path(name).name, bytes)(data) for name, data in original.files.items()}
    folder.mkdir(exist_ok=True)
    wheel_archive.write(folder / wheel.name, files, original)
    return folder / wheel.name


def update(**changes: object) -> Callable[[bytes], bytes]:
    """Return a function that changes keys of a JSON file."""
    return lambda data: json.dumps({**json.loads(data), **changes}).encode()


def launch(module: Any, cuda: StandIn) -> Any:
    """Launch a kernel, and return the choice of the image."""
    module.axpy[1, 32](2.0, cuda.array(8), cuda.array(8), cuda.array(8))
    (choice,) = module.__aotcuda__.chosen.values()
    return choice


@pytest.mark.parametrize("folder", ["variants", "providers"])
@pytest.mark.parametrize("wheel", sorted(WHEELS.glob("*.whl")), ids=lambda wheel: wheel.name.partition("-")[0])
def test_full_wheel_is_restored_byte_for_byte(wheel, folder, tmp_path, capsys):
    assert main(["split", str(wheel), "--out", str(tmp_path)]) == 0
    wheels = [line for line in capsys.readouterr().out.splitlines() if f"/{folder}/" in line and ".whl" in line]
    assert main(["join", *reversed(wheels), "--out", str(tmp_path / "full")]) == 0
    assert (tmp_path / "full" / wheel.name).read_bytes() == wheel.read_bytes()


def make_archive(streamed: bool = False, **options: Any) -> bytes:
    """Return a ZIP archive with a comment, a folder, an extra field and members of several kinds."""
    file = io.BytesIO()
    file.seekable = lambda: not streamed  # type: ignore[method-assign]
    with zipfile.ZipFile(file, "w", **options) as writer:
        writer.mkdir("a")
        info = zipfile.ZipInfo("a/stored", (2001, 2, 3, 4, 5, 6))
        info.extra = b"\x99\x99\x02\x00ab"
        writer.writestr(info, b"1" * 100, zipfile.ZIP_STORED)
        writer.writestr("a/empty", b"")
        writer.writestr("a/long", bytes(range(256)) * 999)
        writer.comment = b"a comment"
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"compresslevel": 9}, {"streamed": True}, {"compression": 0}])
def test_archive_is_restored_from_its_description(options: dict[str, Any]) -> None:
    data = make_archive(**{"compression": zipfile.ZIP_DEFLATED, **options})
    description = json.loads(json.dumps(archive.describe(data, "it")))
    with zipfile.ZipFile(io.BytesIO(data)) as reader:
        assert archive.make(description, {name: reader.read(name) for name in reader.namelist()}) == data


def test_archive_of_another_compressor_is_refused() -> None:
    with pytest.raises(TargetError, match=r"^it: a/empty was not compressed by the zlib [\d.]+ of this"):
        archive.describe(make_archive(compression=zipfile.ZIP_BZIP2), "it")


@pytest.mark.parametrize(
    ("modules", "variants", "gpu", "targets"),
    [
        (["sm_80 sm_86", "sm_80", "sm_90"], "80 86 90", (8, 6), ["sm_86", "sm_80", ""]),
        (["sm_90a"], "90", (9, 0), ["sm_90a"]),
        (["sm_100a"], "", (10, 3), [""]),  # an installer would give the variant to 10.3 too
        (["sm_100f"], "100", (10, 3), ["sm_100f"]),
        (["sm_86 sm_87 sm_89"], "86 89", (8, 9), ["sm_89"]),  # 8.7 is Tegra's
    ],
)
def test_variant_has_the_images_of_its_gpus(modules, variants, gpu, targets):
    parsed = [tuple(map(arch.parse, text.split())) for text in modules]
    made: Any = [Module(folder="", manifest={}, fatbin="", targets=each) for each in parsed]  # type: ignore[typeddict-item]
    full: Any = FullWheel(wheel=None, name="", version="", about=None, modules=made, capabilities=())  # type: ignore[arg-type]
    capabilities = sorted({target.capability for each in parsed for target in each if target.kind == "sass"})
    with_variant = [f"{major}{minor}" for major, minor in capabilities if full.has_variant((major, minor))]
    assert " ".join(with_variant) == variants
    assert [" ".join(sorted(map(str, module.targets_for(gpu)))) for module in made] == targets


def test_variantlib_reads_the_variants(parts: Parts) -> None:
    api = pytest.importorskip("variantlib.variants_json")
    dist_info = pytest.importorskip("variantlib.variant_dist_info")
    index = api.VariantsJson(json.loads((parts["variants/sm80"].parent / "quickstart-1.0-variants.json").read_bytes()))
    properties = {label: [item.to_str() for item in about.properties] for label, about in index.variants.items()}
    assert properties == {label: [f"nvidia :: sm_arch :: {label[2:]}_real"] for label in LABELS}
    for label in LABELS:
        files = wheel_archive.read(parts[f"variants/{label}"]).files
        info = dist_info.VariantDistInfo(files["quickstart-1.0.dist-info/variant.json"], label)
        assert (info.variants[label], info.providers) == (index.variants[label], index.providers)


@pytest.mark.parametrize(("gpu", "label"), [("8.0", "sm80"), ("9.0", "sm90"), ("", "")])
def test_uv_installs_the_variant_for_the_gpu(gpu, label, parts, tmp_path, monkeypatch):
    if gpu:
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_SM_ARCH", gpu)
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION", "13.0")
    sources = ("--no-index", "--find-links", str(parts["variants/sm80"].parent), "--find-links", str(WHEELS))
    options = ("--target", str(tmp_path), "--no-deps", "--quiet", "--no-cache-dir")
    uv = (sys.executable, "-m", "uv", "pip", "install", "--preview-features", "wheel-variants", "--no-config")
    subprocess.run([*uv, "--python", sys.executable, *sources, *options, "quickstart"], check=True)
    file = tmp_path / FOLDER / "parts.json"
    assert (json.loads(file.read_bytes())["variant"] if file.exists() else "") == label


def test_all_providers_choose_images_as_one_wheel(parts: Parts, install: Install, cuda: StandIn) -> None:
    module = install(*[path for name, path in parts.items() if name.startswith("providers")])
    files = wheel_archive.read(QUICKSTART).files
    content = manifest.parse(files[f"{FOLDER}/manifest.json"], "it")
    for row in CAPABILITIES:
        for driver in ((12, 0), (12, 9), (13, 0)):
            chosen = module.__aotcuda__.choice_for(row.number, driver)
            assert str(chosen) == str(choose(content, row.number, driver=driver))
    launch(module, cuda)
    (call,) = cuda.calls("cuLibraryLoadData")
    assert call["bytes"] == len(files[f"{FOLDER}/kernels.fatbin"])


NEED = "is in quickstart-kernels-sm90, which is not installed: pip install quickstart-kernels-sm90==1.0"
OLDER = "is in quickstart-kernels-sm90 0.9, and quickstart is 1.0: pip install quickstart-kernels-sm90==1.0"
OTHER = (
    "is in quickstart-kernels-sm90 1.0, which belongs to another build of quickstart 1.0: "
    "pip install --force-reinstall quickstart==1.0 quickstart-kernels-sm90==1.0"
)
VARIANT = (
    "is not in variant sm80 of quickstart 1.0: install the variant for this GPU, or the wheel for all, "
    "pip install --force-reinstall quickstart==1.0"
)


@pytest.mark.parametrize(
    ("wheels", "gpu", "target", "reason", "warnings"),
    [
        ("providers/main providers/sm90", "9.0", "sm_90", "", 0),
        ("providers/main", "9.0", "compute_75", NEED, 0),
        ("providers/main older", "9.0", "compute_75", OLDER, 1),
        ("providers/main other", "9.0", "compute_75", OTHER, 1),
        ("variants/sm80", "8.6", "sm_80", "", 0),
        ("variants/sm80", "9.0", "compute_75", VARIANT, 1),
    ],
)
def test_run_time_uses_installed_parts_and_names_missing_ones(
    wheels, gpu, target, reason, warnings, parts, install, cuda, tmp_path, recwarn
):
    cuda.set(devices=gpu)
    older = copy(parts["providers/sm90"], tmp_path / "older", {"parts.json": update(version="0.9")})
    other = copy(parts["providers/sm90"], tmp_path / "other", {"parts.json": update(whole="0" * 64)})
    available = {**parts, "older": older, "other": other}
    choice = launch(install(*[available[name] for name in wheels.split()]), cuda)
    assert (choice.arch, choice.better) == (target, "sm_90" if reason else None)
    assert dict(choice.rejected).get("sm_90") == reason or not reason
    message = f"quickstart.kernels runs with {target} on {choice.gpu}, since sm_90 {reason}"
    assert [(item.category, str(item.message)) for item in recwarn] == [(FallbackWarning, message)] * warnings


NEWER = b'"floor": "9.1"'
UNREADABLE = "parts.json is not readable; it was truncated or altered. Install the package again."


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("parts.json", b"{", UNREADABLE),
        ("parts.json", b'{"format": 1, "images": [], "kernels": {"path": 3}, "elsewhere": {}}', UNREADABLE),
        ("parts.json", b'{"format": 2}', "parts.json has format 2, newer than this aotcuda reads (1); upgrade it: pip"),
        ("manifest.json", NEWER, "manifest.json needs aotcuda 9.1 or later, and this is"),
    ],
)
def test_altered_and_newer_parts_get_one_line(file, content, problem, parts, install, tmp_path):
    def change(data: bytes) -> bytes:
        return data.replace(b'"floor": "0.1.0"', NEWER) if content == NEWER else content

    wheel = copy(parts["variants/sm90"], tmp_path, {file: change})
    with pytest.raises(ManifestError, match=re.escape(problem)) as caught:
        install(wheel)
    assert "\n" not in str(caught.value)
    assert main(["inspect", str(wheel)]) == 1


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("variants/sm80", "the wheels lack sm_75, sm_90, sm_100, sm_120 of quickstart.kernels; name all wheels of"),
        ("providers/sm80", "is no part of a split wheel; name all wheels of"),
        ("variants/sm80 another", "are parts of different wheels; name all wheels of one of the folders"),
        ("newer", "was split by a newer aotcuda than this one; upgrade it: pip install --upgrade aotcuda"),
        ("garbled variants/sm75 variants/sm90 variants/sm100 variants/sm120", "was altered after it was split"),
        ("short variants/sm75 variants/sm90 variants/sm100 variants/sm120", "cannot be restored byte for byte: its"),
    ],
)
def test_wheels_that_cannot_be_joined_get_one_line(names: str, problem: str, parts: Parts, tmp_path: Path) -> None:
    wheels = {**parts}
    for name, change in {
        "another": update(sha256="0" * 64),
        "newer": update(format=2),
        "garbled": update(members=7),
        "short": update(members=[], between=[0]),
    }.items():
        wheels[name] = copy(parts["variants/sm80"], tmp_path / name, {"aotcuda-split.json": change})
    with pytest.raises(TargetError, match=re.escape(problem)) as caught:
        join.run([wheels[name] for name in names.split()], tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def _wheel(folder: Path, *names: str) -> None:
    with zipfile.ZipFile(folder / "a.whl", "w") as archive:
        for name in names:
            archive.writestr(f"a-1.dist-info/{name}", b"")


def _occupy(folder: Path, name: str) -> None:
    shutil.copy(QUICKSTART, folder / "a.whl")
    (folder / name / "file").mkdir(parents=True)


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (lambda folder: folder.joinpath("a.whl").write_bytes(b"PK"), "a.whl cannot be read as a wheel"),
        (lambda folder: _wheel(folder, "RECORD"), "it has no METADATA; name a .whl file"),
        (lambda folder: _wheel(folder, "RECORD", "METADATA"), "a.whl has no machine code to split by architecture"),
        (lambda folder: shutil.copy(folder / "part", folder / "a.whl"), "a.whl is a part of a wheel that was split"),
        (
            lambda folder: _occupy(folder, "variants"),
            "variants is not empty; empty it, or name another folder: --out DIR",
        ),
        (
            lambda folder: _occupy(folder, "providers"),
            "providers is not empty; empty it, or name another folder: --out",
        ),
    ],
)
def test_wheels_that_cannot_be_split_get_one_line(prepare, problem, parts, tmp_path, capsys):
    shutil.copy(parts["variants/sm80"], tmp_path / "part")
    prepare(tmp_path)
    assert main(["split", str(tmp_path / "a.whl")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert not [*tmp_path.glob("*/*.whl")]


def test_failed_split_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(split, "_with_extras", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        split.run(QUICKSTART, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_failed_join_leaves_no_file(parts, tmp_path):
    """A part of a wheel would look like a wheel, and be refused by the next join."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(BuildError, match=r"cannot be written \(File too large\); name another folder: --out DIR"):
            join.run([parts[f"variants/{label}"] for label in LABELS], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [*tmp_path.iterdir()]
