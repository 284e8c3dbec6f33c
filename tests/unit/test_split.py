"""`aotcuda split` and `join`: the parts of a wheel, what the run time makes of them, and the full wheel made again."""

from __future__ import annotations

import importlib
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import manifest
from aotcuda.cli import main
from aotcuda.errors import FallbackWarning, ManifestError, NoImageError, TargetError
from aotcuda.gpus import CAPABILITIES
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.choice import choose
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive, join, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.stand_in import StandIn

WHEELS = Path(__file__).parents[1] / "data" / "wheels"
QUICKSTART = WHEELS / "quickstart-1.0-py3-none-any.whl"
LABELS = ("sm75", "sm80", "sm90", "sm100", "sm120")
PROVIDER = "quickstart_kernels_{}-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `variants` and `providers` of the kept wheel, which has machine code for five GPUs, and PTX."""
    folder = tmp_path_factory.mktemp("split")
    split.run(QUICKSTART, folder)
    return folder


@pytest.fixture
def install(cuda: StandIn) -> Iterator[Callable[..., Any]]:
    """Install wheels of the kept package where the stand-in driver's packages are, and import its module."""

    def imported(*wheels: Path) -> Any:
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(cuda.packages)
        importlib.invalidate_caches()
        return importlib.import_module("quickstart.kernels")

    yield imported
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def changed(wheel: Path, folder: Path, changes: Mapping[str, Callable[[bytes], bytes]]) -> Path:
    """A copy of a wheel with other content of some members."""
    folder.mkdir(exist_ok=True)
    files, infos = wheel_archive.read(wheel)
    for name, change in changes.items():
        files[name] = change(files[name])
    wheel_archive.write(folder / wheel.name, files, infos, str(wheel_archive.metadata_folder(files)))
    return folder / wheel.name


def launch(module: Any, cuda: StandIn) -> None:
    module.axpy[1, 32](2.0, cuda.array(8), cuda.array(8), cuda.array(8))


@pytest.mark.parametrize("folder", ["variants", "providers"])
@pytest.mark.parametrize("wheel", sorted(WHEELS.glob("*.whl")), ids=lambda wheel: wheel.name.partition("-")[0])
def test_full_wheel_comes_back_byte_for_byte(
    wheel: Path, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["split", str(wheel), "--out", str(tmp_path)]) == 0
    assert f"{tmp_path / folder}" in capsys.readouterr().out
    wheels = sorted(map(str, tmp_path.glob(f"{folder}/*.whl")), reverse=True)
    assert main(["join", *wheels, "--out", str(tmp_path / "full")]) == 0
    assert (tmp_path / "full" / wheel.name).read_bytes() == wheel.read_bytes()


def zipped(streamed: bool = False, **options: Any) -> bytes:
    """A ZIP archive with a comment, a folder, an extra field and members of several kinds."""

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return not streamed

    file = Stream()
    with zipfile.ZipFile(file, "w", **options) as made:
        made.mkdir("a")
        info = zipfile.ZipInfo("a/stored", (2001, 2, 3, 4, 5, 6))
        info.extra = b"\x99\x99\x02\x00ab"
        made.writestr(info, b"1" * 100, zipfile.ZIP_STORED)
        made.writestr("a/empty", b"")
        made.writestr("a/long", bytes(range(256)) * 999)
        made.comment = b"said at the end"
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        zipped(),
        zipped(compression=zipfile.ZIP_DEFLATED),
        zipped(compression=zipfile.ZIP_DEFLATED, compresslevel=9),
        zipped(compression=zipfile.ZIP_DEFLATED, compresslevel=1),
        zipped(compression=zipfile.ZIP_DEFLATED, streamed=True),
    ],
    ids=["stored", "default", "level 9", "level 1", "streamed"],
)
def test_archive_is_made_again_from_its_description(data: bytes) -> None:
    described = json.loads(json.dumps(archive.describe(data, "it")))
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        assert archive.make(described, {name: read.read(name) for name in read.namelist()}) == data


def test_archive_of_another_compressor_is_refused() -> None:
    with pytest.raises(TargetError, match=r"^it: a/empty was compressed in another way than by zlib [\d.]+ of this"):
        archive.describe(zipped(compression=zipfile.ZIP_BZIP2), "it")


def test_metadata_of_the_parts_fits_together(parts: Path) -> None:
    names = {path.name for path in parts.glob("providers/*")}
    assert names == {QUICKSTART.name, *(PROVIDER.format(label) for label in LABELS)}
    files, _ = wheel_archive.read(parts / "providers" / QUICKSTART.name)
    about = files["quickstart-1.0.dist-info/METADATA"].decode()
    assert "\nRequires-Dist: quickstart-kernels-sm90==1.0; extra == 'sm90'\n" in about.partition("\n\n")[0]
    files, _ = wheel_archive.read(parts / "providers" / PROVIDER.format("sm90"))
    about = files["quickstart_kernels_sm90-1.0.dist-info/METADATA"].decode()
    assert "\nName: quickstart-kernels-sm90\n" in about
    assert "\nRequires-Dist: quickstart==1.0\n" in about
    assert len(files["quickstart_kernels_sm90/quickstart.kernels.fatbin"]) < 2000


def test_variantlib_reads_the_variants(parts: Path) -> None:
    api = pytest.importorskip("variantlib.variants_json")
    dist_info = pytest.importorskip("variantlib.variant_dist_info")
    index = api.VariantsJson(json.loads((parts / "variants" / "quickstart-1.0-variants.json").read_bytes()))
    assert {label: [str(one.to_str()) for one in about.properties] for label, about in index.variants.items()} == {
        label: [f"nvidia :: sm_arch :: {label[2:]}_real"] for label in LABELS
    }
    for label in LABELS:
        files, _ = wheel_archive.read(parts / "variants" / f"{QUICKSTART.stem}-{label}.whl")
        found = dist_info.VariantDistInfo(files["quickstart-1.0.dist-info/variant.json"], label)
        assert found.variants[label] == index.variants[label]
        assert found.providers == index.providers


@pytest.mark.parametrize(("gpu", "label"), [("8.0", "sm80"), ("9.0", "sm90"), ("", "")])
def test_uv_takes_the_variant_for_the_gpu(
    gpu: str, label: str, parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    if gpu:
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_SM_ARCH", gpu)
        monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION", "13.0")
    where = ("--no-config", "--find-links", str(parts / "variants"), "--find-links", str(WHEELS), "--no-index")
    into = ("--target", str(tmp_path), "--python", sys.executable, "--no-cache", "--no-deps", "--quiet")
    command = [uv, "pip", "install", "--preview-features", "wheel-variants", *where, *into, "quickstart"]
    subprocess.run(command, check=True, capture_output=True)
    installed = tmp_path / "quickstart" / "kernels.aotcuda" / "parts.json"
    assert (json.loads(installed.read_bytes())["variant"] if installed.exists() else "") == label


@pytest.mark.matrix
def test_pip_takes_the_full_wheel(parts: Path, tmp_path: Path) -> None:
    where = ("--find-links", str(parts / "variants"), "--find-links", str(WHEELS), "--no-index", "--no-deps")
    into = ("--isolated", "--disable-pip-version-check", "--quiet", "--target", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", "install", *where, *into, "quickstart"], check=True)
    assert not (tmp_path / "quickstart" / "kernels.aotcuda" / "parts.json").exists()


def test_all_providers_choose_as_one_wheel(parts: Path, install: Callable[..., Any], cuda: StandIn) -> None:
    module = install(*parts.glob("providers/*.whl")).__aotcuda__
    files, _ = wheel_archive.read(QUICKSTART)
    whole = manifest.parse(files["quickstart/kernels.aotcuda/manifest.json"], "it")
    for row in CAPABILITIES:
        for driver in ((12, 0), (12, 9), (13, 0)):
            assert str(module.choice_for(row.number, driver)) == str(choose(whole, row.number, driver=driver))
    launch(sys.modules[module.name], cuda)
    (call,) = cuda.calls("cuLibraryLoadData")
    assert call["bytes"] == len(files["quickstart/kernels.aotcuda/kernels.fatbin"])


NEED = "is in quickstart-kernels-sm90, which is not installed: pip install quickstart-kernels-sm90==1.0"
VARIANT = (
    "is not in variant sm80 of quickstart 1.0: install the variant for this GPU, or the wheel for all, "
    "pip install --force-reinstall quickstart==1.0"
)
OLDER = "is in quickstart-kernels-sm90 0.9, and quickstart is 1.0: pip install quickstart-kernels-sm90==1.0"
OTHER = (
    "is in quickstart-kernels-sm90 1.0, which belongs to another build of quickstart 1.0: "
    "pip install --force-reinstall quickstart==1.0 quickstart-kernels-sm90==1.0"
)


def described(module: dict[str, object] | None = None, **changes: object) -> Callable[[bytes], bytes]:
    """A change of keys in a JSON file, and of those of the module in `provider.json`."""

    def change(data: bytes) -> bytes:
        found = json.loads(data)
        if module is not None:
            found["modules"]["quickstart.kernels"].update(module)
        return json.dumps({**found, **changes}).encode()

    return change


@pytest.mark.parametrize(
    ("wheels", "gpu", "taken", "reason", "warns"),
    [
        (["providers/main", "providers/sm90"], "9.0", "sm_90", "", False),
        (["providers/main", "providers/sm80"], "8.6", "sm_80", "", False),
        (["providers/main"], "9.0", "compute_75", NEED, False),
        (["providers/main", "older"], "9.0", "compute_75", OLDER, True),
        (["providers/main", "other"], "9.0", "compute_75", OTHER, True),
        (["variants/sm90"], "9.0", "sm_90", "", False),
        (["variants/sm80"], "8.6", "sm_80", "", False),
        (["variants/sm80"], "9.0", "compute_75", VARIANT, True),
    ],
)
def test_run_time_takes_what_is_installed_and_names_the_rest(
    wheels: list[str],
    gpu: str,
    taken: str,
    reason: str,
    warns: bool,
    parts: Path,
    install: Callable[..., Any],
    cuda: StandIn,
    tmp_path: Path,
) -> None:
    cuda.set(devices=gpu)
    given = {f"variants/{label}": parts / "variants" / f"{QUICKSTART.stem}-{label}.whl" for label in LABELS}
    given |= {f"providers/{label}": parts / "providers" / PROVIDER.format(label) for label in LABELS}
    given["providers/main"] = parts / "providers" / QUICKSTART.name
    for name, change in {"older": described(version="0.9"), "other": described({"whole": "0" * 64})}.items():
        changes = {"quickstart_kernels_sm90/provider.json": change}
        given[name] = changed(given["providers/sm90"], tmp_path / name, changes)
    paths = [given[name] for name in wheels]
    if warns:
        with pytest.warns(FallbackWarning) as caught:
            module = install(*paths)
        (text,) = [str(item.message) for item in caught]
        assert text == f"quickstart.kernels runs with {taken} on {gpu_name(module)}, since sm_90 {reason}"
    else:
        module = install(*paths)
    launch(module, cuda)
    (choice,) = module.__aotcuda__.chosen.values()
    assert (choice.arch, choice.better) == (taken, "sm_90" if reason else None)
    assert not reason or dict(choice.rejected)["sm_90"] == reason


def gpu_name(module: Any) -> str:
    (choice,) = module.__aotcuda__.chosen.values()
    return str(choice.gpu)


def test_launch_without_any_image_names_the_part_to_install(
    parts: Path, install: Callable[..., Any], cuda: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    folder = "quickstart/kernels.aotcuda"
    wheel = parts / "variants" / f"{QUICKSTART.stem}-sm80.whl"
    files, _ = wheel_archive.read(wheel)
    fatbin = subset.only([files[f"{folder}/kernels.fatbin"]], ["sm_80"], "it")
    file = {"path": "kernels.fatbin", "bytes": len(fatbin), "sha256": manifest.digest(fatbin)}
    elsewhere = dict.fromkeys(["sm_75", "sm_90", "sm_100", "sm_120", "compute_75"])
    part = described(images=["sm_80"], elsewhere=elsewhere, kernels=file)
    changes = {f"{folder}/kernels.fatbin": lambda _: fatbin, f"{folder}/parts.json": part}
    module = install(changed(wheel, tmp_path / "changed", changes))
    with pytest.raises(NoImageError) as caught:
        launch(module, cuda)
    assert re.match(
        rf"quickstart.kernels has no image for .*: sm_90 {re.escape(VARIANT)} \(sm_75 is ", str(caught.value)
    )
    assert "it runs here if it is built with" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "parts.json is not readable; it was truncated or altered. Install the package again."),
        (b'{"format": 1}', "parts.json is not readable; it was truncated or altered. Install the package again."),
        (b'{"format": 2}', "parts.json has format 2, newer than this aotcuda reads (1); upgrade it: pip install"),
    ],
)
def test_altered_and_newer_descriptions_are_said_in_one_line(
    content: bytes, said: str, parts: Path, install: Callable[..., Any], tmp_path: Path
) -> None:
    changes = {"quickstart/kernels.aotcuda/parts.json": lambda _: content}
    wheel = changed(parts / "variants" / f"{QUICKSTART.stem}-sm90.whl", tmp_path / "changed", changes)
    with pytest.raises(ManifestError, match=re.escape(said)) as caught:
        install(wheel)
    assert "\n" not in str(caught.value)
    assert main(["inspect", str(wheel)]) == 1


def test_older_run_time_than_the_manifest_needs_is_named(
    parts: Path, install: Callable[..., Any], tmp_path: Path
) -> None:
    folder = "quickstart/kernels.aotcuda"
    wheel = parts / "variants" / f"{QUICKSTART.stem}-sm90.whl"
    changes = {f"{folder}/manifest.json": lambda data: data.replace(b'"floor": "0.1.0"', b'"floor": "9.1"')}
    with pytest.raises(ManifestError, match=r"needs aotcuda 9\.1 or later, and this is .*; upgrade it: pip install"):
        install(changed(wheel, tmp_path / "changed", changes))


def test_commands_show_what_a_part_holds(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variant = str(parts / "variants" / f"{QUICKSTART.stem}-sm80.whl")
    assert main(["inspect", variant, "--json"]) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    axpy = next(symbol for symbol in module["symbols"] if symbol["name"] == "axpy")
    assert {image["arch"] for image in axpy["images"]} == {"sm_80", "compute_75"}
    assert main(["check", variant, "--gpu", "H100", "--driver", "580.65"]) == 0
    assert f"sm_90 {VARIANT}" in " ".join(capsys.readouterr().out.split())
    main_wheel = str(parts / "providers" / QUICKSTART.name)
    assert main(["check", main_wheel, "--gpu", "H100", "--driver", "580.65"]) == 0
    said = "sm_90 is in quickstart-kernels-sm90: pip install quickstart-kernels-sm90==1.0"
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["variants/sm80"], "the wheels lack sm_75, sm_90, sm_100, sm_120 of quickstart.kernels; name all wheels"),
        (["providers/main"], "the wheels lack sm_75, sm_80, sm_90, sm_100, sm_120 of quickstart.kernels"),
        (["providers/sm80"], "is no part of a wheel from which the full one can be made; name all wheels of one of"),
        (["full"], "is no part of a wheel from which the full one can be made"),
        (["variants/sm80", "another"], "are parts of different wheels; name all wheels of one of the folders"),
        (["providers/main", "another/sm80"], "are parts of different wheels; name all wheels of one of the folders"),
        (["newer"], "was split by a newer aotcuda than this one; upgrade it: pip install --upgrade aotcuda"),
        (["garbled", "variants"], "was altered after it was split; name all wheels"),
        (["other zlib", "variants"], "does not come back byte for byte: its parts were altered, or zlib "),
    ],
)
def test_wheels_that_cannot_be_joined_are_said_in_one_line(
    given: list[str], said: str, parts: Path, tmp_path: Path
) -> None:
    restore = "quickstart-1.0.dist-info/aotcuda-split.json"
    variants = {label: parts / "variants" / f"{QUICKSTART.stem}-{label}.whl" for label in LABELS}
    found = {f"variants/{label}": [path] for label, path in variants.items()}
    found |= {"providers/main": [parts / "providers" / QUICKSTART.name], "full": [QUICKSTART]}
    found["providers/sm80"] = [parts / "providers" / PROVIDER.format("sm80")]
    found["variants"] = [variants[label] for label in LABELS if label != "sm80"]
    other = {"quickstart_kernels_sm80/provider.json": described({"whole": "0" * 64})}
    found["another/sm80"] = [changed(found["providers/sm80"][0], tmp_path / "another", other)]
    for name, change in {
        "another": described(sha256="0" * 64),
        "newer": described(format=2),
        "garbled": described(members=7),
        "other zlib": described(members=[["quickstart/py.typed", None]], between=[0, 0]),
    }.items():
        found[name] = [changed(variants["sm80"], tmp_path / name, {restore: change})]
    wheels = [path for name in given for path in found[name]]
    with pytest.raises(TargetError, match=re.escape(said)) as caught:
        join.run(wheels, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


_METADATA = ("a-1.dist-info/RECORD", "a-1.dist-info/METADATA")


def _wheel(folder: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / "a.whl", "w") as made:
        for name, data in files.items():
            made.writestr(name, data)


def _occupied(folder: Path) -> None:
    shutil.copy(QUICKSTART, folder / "a.whl")
    (folder / "variants").mkdir()
    (folder / "variants" / "kept").touch()


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: folder.joinpath("a.whl").write_bytes(b"PK"), "a.whl cannot be read as a wheel"),
        (lambda folder: _wheel(folder, {"a-1.dist-info/RECORD": b""}), "it has no METADATA; name a .whl file"),
        (lambda folder: _wheel(folder, dict.fromkeys(_METADATA, b"")), "a.whl has no machine code to split by"),
        (lambda folder: shutil.copy(folder / "part", folder / "a.whl"), "a.whl is a part of a wheel that was split"),
        (_occupied, "variants is not empty; empty it, or name another folder: --out DIR"),
    ],
)
def test_wheels_that_cannot_be_split_are_said_in_one_line(
    prepare: Callable[[Path], object], said: str, parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(parts / "variants" / f"{QUICKSTART.stem}-sm80.whl", tmp_path / "part")
    prepare(tmp_path)
    assert main(["split", str(tmp_path / "a.whl")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
