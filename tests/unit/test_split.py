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
    """Return the parts of a kept wheel by name, such as `variants/sm80` and `providers/main`."""
    folder = tmp_path_factory.mktemp("split")
    split.run(QUICKSTART, folder)
    found = {f"variants/{label}": folder / "variants" / f"{QUICKSTART.stem}-{label}.whl" for label in LABELS}
    name = QUICKSTART.name.replace("quickstart", "quickstart_kernels_{}")
    found |= {f"providers/{label}": folder / "providers" / name.format(label) for label in LABELS}
    return {**found, "providers/main": folder / "providers" / QUICKSTART.name, "full": QUICKSTART}


@pytest.fixture
def install(cuda: StandIn) -> Iterator[Install]:
    """Return a function that installs wheels for the stand-in driver, and imports their module."""

    def imported(*wheels: Path) -> Any:
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(cuda.packages)
        importlib.invalidate_caches()
        return importlib.import_module("quickstart.kernels")

    yield imported
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def changed(wheel: Path, folder: Path, changes: Mapping[str, Callable[[bytes], bytes]]) -> Path:
    """Copy a wheel, and change the files with the given names."""
    read = wheel_archive.read(wheel)
    files = {name: changes.get(Path(name).name, bytes)(data) for name, data in read.files.items()}
    folder.mkdir(exist_ok=True)
    wheel_archive.write(folder / wheel.name, files, read)
    return folder / wheel.name


def described(**changes: object) -> Callable[[bytes], bytes]:
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


def zipped(streamed: bool = False, **options: Any) -> bytes:
    """Return a ZIP archive with a comment, a folder, an extra field and members of several kinds."""
    file = io.BytesIO()
    file.seekable = lambda: not streamed  # type: ignore[method-assign]
    with zipfile.ZipFile(file, "w", **options) as made:
        made.mkdir("a")
        info = zipfile.ZipInfo("a/stored", (2001, 2, 3, 4, 5, 6))
        info.extra = b"\x99\x99\x02\x00ab"
        made.writestr(info, b"1" * 100, zipfile.ZIP_STORED)
        made.writestr("a/empty", b"")
        made.writestr("a/long", bytes(range(256)) * 999)
        made.comment = b"said at the end"
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"compresslevel": 9}, {"streamed": True}, {"compression": 0}])
def test_archive_is_restored_from_its_description(options: dict[str, Any]) -> None:
    data = zipped(**{"compression": zipfile.ZIP_DEFLATED, **options})
    description = json.loads(json.dumps(archive.describe(data, "it")))
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        assert archive.make(description, {name: read.read(name) for name in read.namelist()}) == data


def test_archive_of_another_compressor_is_refused() -> None:
    with pytest.raises(TargetError, match=r"^it: a/empty was not compressed by the zlib [\d.]+ of this"):
        archive.describe(zipped(compression=zipfile.ZIP_BZIP2), "it")


@pytest.mark.parametrize(
    ("modules", "variants", "gpu", "held"),
    [
        (["sm_80 sm_86", "sm_80", "sm_90"], "80 86 90", (8, 6), ["sm_86", "sm_80", ""]),
        (["sm_90a"], "90", (9, 0), ["sm_90a"]),
        (["sm_100a"], "", (10, 3), [""]),  # an installer would give the variant to 10.3 too
        (["sm_100f"], "100", (10, 3), ["sm_100f"]),
        (["sm_86 sm_87 sm_89"], "86 89", (8, 9), ["sm_89"]),  # 8.7 is Tegra's
    ],
)
def test_variant_has_the_images_of_its_gpus(modules, variants, gpu, held):
    every = [tuple(map(arch.parse, targets.split())) for targets in modules]
    found: Any = [Module(folder="", manifest={}, fatbin="", targets=each) for each in every]  # type: ignore[typeddict-item]
    full: Any = FullWheel(wheel=None, name="", version="", about=None, modules=found, capabilities=())  # type: ignore[arg-type]
    capabilities = sorted({target.capability for each in every for target in each if target.kind == "sass"})
    having = [f"{major}{minor}" for major, minor in capabilities if full.has_variant((major, minor))]
    assert " ".join(having) == variants
    assert [" ".join(sorted(map(str, module.targets_for(gpu)))) for module in found] == held


def test_variantlib_reads_the_variants(parts: Parts) -> None:
    api = pytest.importorskip("variantlib.variants_json")
    dist_info = pytest.importorskip("variantlib.variant_dist_info")
    index = api.VariantsJson(json.loads((parts["variants/sm80"].parent / "quickstart-1.0-variants.json").read_bytes()))
    assert {label: [str(one.to_str()) for one in about.properties] for label, about in index.variants.items()} == {
        label: [f"nvidia :: sm_arch :: {label[2:]}_real"] for label in LABELS
    }
    for label in LABELS:
        files = wheel_archive.read(parts[f"variants/{label}"]).files
        found = dist_info.VariantDistInfo(files["quickstart-1.0.dist-info/variant.json"], label)
        assert (found.variants[label], found.providers) == (index.variants[label], index.providers)


@pytest.mark.parametrize(("gpu", "label"), [("8.0", "sm80"), ("9.0", "sm90"), ("", "")])
def test_uv_installs_the_variant_for_the_gpu(gpu, label, parts, tmp_path, monkeypatch):
    if gpu:
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_SM_ARCH", gpu)
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION", "13.0")
    where = ("--no-index", "--find-links", str(parts["variants/sm80"].parent), "--find-links", str(WHEELS))
    into = ("--target", str(tmp_path), "--no-deps", "--quiet", "--no-cache-dir")
    uv = (sys.executable, "-m", "uv", "pip", "install", "--preview-features", "wheel-variants", "--no-config")
    subprocess.run([*uv, "--python", sys.executable, *where, *into, "quickstart"], check=True)
    described = tmp_path / FOLDER / "parts.json"
    assert (json.loads(described.read_bytes())["variant"] if described.exists() else "") == label


def test_all_providers_choose_images_as_one_wheel(parts: Parts, install: Install, cuda: StandIn) -> None:
    module = install(*[path for name, path in parts.items() if name.startswith("providers")])
    files = wheel_archive.read(QUICKSTART).files
    whole = manifest.parse(files[f"{FOLDER}/manifest.json"], "it")
    for row in CAPABILITIES:
        for driver in ((12, 0), (12, 9), (13, 0)):
            chosen = module.__aotcuda__.choice_for(row.number, driver)
            assert str(chosen) == str(choose(whole, row.number, driver=driver))
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
    ("wheels", "gpu", "taken", "reason", "warnings"),
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
    wheels, gpu, taken, reason, warnings, parts, install, cuda, tmp_path, recwarn
):
    cuda.set(devices=gpu)
    older = changed(parts["providers/sm90"], tmp_path / "older", {"parts.json": described(version="0.9")})
    other = changed(parts["providers/sm90"], tmp_path / "other", {"parts.json": described(whole="0" * 64)})
    given = {**parts, "older": older, "other": other}
    choice = launch(install(*[given[name] for name in wheels.split()]), cuda)
    assert (choice.arch, choice.better) == (taken, "sm_90" if reason else None)
    assert dict(choice.rejected).get("sm_90") == reason or not reason
    said = f"quickstart.kernels runs with {taken} on {choice.gpu}, since sm_90 {reason}"
    assert [(item.category, str(item.message)) for item in recwarn] == [(FallbackWarning, said)] * warnings


NEWER = b'"floor": "9.1"'
UNREADABLE = "parts.json is not readable; it was truncated or altered. Install the package again."


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("parts.json", b"{", UNREADABLE),
        ("parts.json", b'{"format": 1, "images": [], "kernels": {"path": 3}, "elsewhere": {}}', UNREADABLE),
        ("parts.json", b'{"format": 2}', "parts.json has format 2, newer than this aotcuda reads (1); upgrade it: pip"),
        ("manifest.json", NEWER, "manifest.json needs aotcuda 9.1 or later, and this is"),
    ],
)
def test_altered_and_newer_parts_get_one_line(file, content, said, parts, install, tmp_path):
    def change(data: bytes) -> bytes:
        return data.replace(b'"floor": "0.1.0"', NEWER) if content == NEWER else content

    wheel = changed(parts["variants/sm90"], tmp_path, {file: change})
    with pytest.raises(ManifestError, match=re.escape(said)) as caught:
        install(wheel)
    assert "\n" not in str(caught.value)
    assert main(["inspect", str(wheel)]) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("variants/sm80", "the wheels lack sm_75, sm_90, sm_100, sm_120 of quickstart.kernels; name all wheels of"),
        ("providers/sm80", "is no part of a split wheel; name all wheels of"),
        ("variants/sm80 another", "are parts of different wheels; name all wheels of one of the folders"),
        ("newer", "was split by a newer aotcuda than this one; upgrade it: pip install --upgrade aotcuda"),
        ("garbled variants/sm75 variants/sm90 variants/sm100 variants/sm120", "was altered after it was split"),
        ("short variants/sm75 variants/sm90 variants/sm100 variants/sm120", "cannot be restored byte for byte: its"),
    ],
)
def test_wheels_that_cannot_be_joined_get_one_line(given: str, said: str, parts: Parts, tmp_path: Path) -> None:
    found = {**parts}
    for name, change in {
        "another": described(sha256="0" * 64),
        "newer": described(format=2),
        "garbled": described(members=7),
        "short": described(members=[], between=[0]),
    }.items():
        found[name] = changed(parts["variants/sm80"], tmp_path / name, {"aotcuda-split.json": change})
    with pytest.raises(TargetError, match=re.escape(said)) as caught:
        join.run([found[name] for name in given.split()], tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def _wheel(folder: Path, *names: str) -> None:
    with zipfile.ZipFile(folder / "a.whl", "w") as made:
        for name in names:
            made.writestr(f"a-1.dist-info/{name}", b"")


def _occupy(folder: Path, name: str) -> None:
    shutil.copy(QUICKSTART, folder / "a.whl")
    (folder / name / "file").mkdir(parents=True)


@pytest.mark.parametrize(
    ("prepare", "said"),
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
def test_wheels_that_cannot_be_split_get_one_line(prepare, said, parts, tmp_path, capsys):
    shutil.copy(parts["variants/sm80"], tmp_path / "part")
    prepare(tmp_path)
    assert main(["split", str(tmp_path / "a.whl")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
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
