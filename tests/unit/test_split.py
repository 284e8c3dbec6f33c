"""Test the parts that `aotcuda split` makes, launches with some of them, and refused wheels."""

from __future__ import annotations

import importlib
import json
import os
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
from aotcuda.errors import BuildError, FallbackWarning, ManifestError
from aotcuda.gpus import CAPABILITIES
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.choice import choose
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import split
from aotcuda.tools.split.wheel import FullWheel, Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.stand_in import StandIn

    Parts = dict[str, Path]
    Install = Callable[..., Any]

WHEELS = Path(__file__).parents[1] / "data" / "wheels"
QUICKSTART = WHEELS / "quickstart-1.0-py3-none-any.whl"
pytestmark = pytest.mark.needs("lz4")

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
def test_parts_hold_the_full_wheel(wheel: Path, folder: str, tmp_path: Path) -> None:
    split.run(wheel, tmp_path)
    full = wheel_archive.read(wheel)
    parts = [wheel_archive.read(path) for path in (tmp_path / folder).glob("*.whl")]
    for name, data in full.files.items():
        if not name.endswith("/manifest.json"):
            continue
        content = manifest.parse(data, name)
        for listed in content["fatbins"]:
            kernels, archs = listed["file"], [image["arch"] for image in listed["images"]]
            ends = (f"{name.rpartition('/')[0]}/{kernels['path']}", f"/{content['module']}/{kernels['path']}")
            fatbins = [data for part in parts for inside, data in part.files.items() if inside.endswith(ends)]
            assert manifest.digest(subset.only(fatbins, archs, name)) == kernels["sha256"]
    changed = re.compile(r".*\.fatbin|.*/parts\.json|.*\.dist-info/(RECORD|METADATA|variant\.json)")
    for part in parts:
        if part.name == full.name:
            assert {
                name
                for name, data in part.files.items()
                if full.files.get(name) != data and not changed.fullmatch(name)
            } == set()
            assert part.files.keys() >= full.files.keys()


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
    made: Any = [Module(folder="", manifest={}, targets=each) for each in parsed]  # type: ignore[typeddict-item]
    full: Any = FullWheel(wheel=None, modules=made, capabilities=())  # type: ignore[arg-type]
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
        ("parts.json", b'{"format": 2, "images": [], "fatbins": [{"path": 3}], "elsewhere": {}}', UNREADABLE),
        ("parts.json", b'{"format": 3}', "parts.json has format 3, newer than this aotcuda reads (2); upgrade it: pip"),
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


NAME = "quickstart-1.0-py3-none-any.whl"
INFO = "quickstart-1.0.dist-info"
Files = dict[str, bytes]


def changed_wheel(folder: Path, change: Callable[[Files], Any], name: str = NAME, *, record: bool = True) -> Path:
    """Write a copy of the quickstart's wheel with other files, and with a RECORD that agrees with them if `record`."""
    files = dict(wheel_archive.read(QUICKSTART).files)
    change(files)
    if record:
        files[f"{INFO}/RECORD"] = wheel_archive._record(files, f"{INFO}/RECORD")
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
    return folder / name


def metadata(old: bytes, new: bytes) -> Callable[[Files], Any]:
    return lambda files: files.update({f"{INFO}/METADATA": files[f"{INFO}/METADATA"].replace(old, new)})


def fill(files: Files) -> None:
    files["quickstart/zeros"] = bytes(300 << 20)


NO_PATH = "has a file whose name is no path inside it"
LISTS = "is not the file that its RECORD lists"


@pytest.mark.parametrize("command", ["split", "rebundle"])
@pytest.mark.parametrize(
    ("change", "record", "problem"),
    [
        (metadata(b"Name: quickstart", b"Name: /tmp/x"), True, "has a METADATA whose Name is '/tmp/x'"),
        (metadata(b"Name: quickstart", b"Name: ../x"), True, "has a METADATA whose Name is '../x'"),
        (metadata(b"Name: quickstart", b"Name: other"), True, "is not called like a wheel of other 1.0"),
        (metadata(b"Name: quickstart", b"Name: quickstart\nName: x"), True, "Name is 'quickstart' and 'x'"),
        (metadata(b"Name: quickstart", b"Nom: quickstart"), True, "Name is nothing"),
        (metadata(b"Version: 1.0", b"Version: 1.0/../../x"), True, "Version is '1.0/../../x'"),
        (metadata(b"Version: 1.0", b"Version: 2.0"), True, "is not called like a wheel of quickstart 2.0"),
        (metadata(b"Version: 1.0", b"Version: 1.0\nSummary: \xff"), True, "has a METADATA that is not UTF-8"),
        (lambda files: files.update({"../x": b""}), True, NO_PATH),
        (lambda files: files.update({"/tmp/x": b""}), True, NO_PATH),
        (lambda files: files.update({"quickstart/./x": b""}), True, NO_PATH),
        (lambda files: files.update({"c:/x": b""}), True, NO_PATH),
        (lambda files: files.update({"a\\..\\x": b""}), True, NO_PATH),
        (lambda files: files.update({"quickstart/a\x1b[2J": b""}), True, NO_PATH),
        (lambda files: files.update({"quickstart/__INIT__.py": b""}), True, "whose names differ in case or in"),
        (lambda files: files.update({"x/caf\xe9.py": b"", "x/cafe\u0301.py": b""}), True, "in Unicode's form alone"),
        (lambda files: files.update({"x/\xc9.py": b"", "x/e\u0301.py": b""}), True, "in Unicode's form alone"),
        (lambda files: files.update({"Quickstart/x.py": b""}), True, "has quickstart and Quickstart, whose"),
        (lambda files: files.update({"x-1.dist-info/METADATA": b""}), True, "it has 2 folders of metadata"),
        (lambda files: files.pop(f"{INFO}/RECORD"), False, "it has no RECORD"),
        (lambda files: files.pop(f"{INFO}/METADATA"), True, "it has no METADATA"),
        (lambda files: files.update({"quickstart/__init__.py": b"evil"}), False, LISTS),
        (lambda files: files.update({"quickstart/more.py": b"evil"}), False, "which its RECORD does not list"),
        (lambda files: files.pop("quickstart/__init__.py"), False, "lacks quickstart/__init__.py, which its RECORD"),
        (lambda files: files.update({f"{INFO}/RECORD": b"\xff"}), False, "has a RECORD that is no list of names"),
        (lambda files: files.update({f"{INFO}/RECORD": b"a,b\n"}), False, "has a RECORD that is no list of names"),
        (
            lambda files: files.update({f"{INFO}/RECORD": files[f"{INFO}/RECORD"].replace(b"sha256=", b"md5=")}),
            False,
            "has a RECORD without a SHA-256 of",
        ),
        (
            lambda files: files.update({f"{INFO}/RECORD": files[f"{INFO}/RECORD"] * 2}),
            False,
            "has a RECORD that lists a file twice",
        ),
        (fill, True, "holds more than 268,435,456 bytes when it is unpacked"),
    ],
)  # fmt: skip
def test_altered_wheels_get_one_line_and_write_nothing(command, change, record, problem, tmp_path, capsys):
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = changed_wheel(folder, change, record=record)
    before = manifest.digest(wheel.read_bytes())
    assert main([command, str(wheel)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert [path.name for path in folder.iterdir()] == [NAME]
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]
    assert manifest.digest(wheel.read_bytes()) == before


@pytest.mark.parametrize("command", ["split", "rebundle"])
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "is a pipe, not a regular file"),
        (os.mkdir, "is a folder, not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a regular file"),
        (lambda path: None, "cannot be read (No such file or directory)"),
    ],
)
def test_paths_without_a_regular_file_get_one_line(command, make, problem, tmp_path, capsys):
    make(tmp_path / NAME)
    assert main([command, str(tmp_path / NAME)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_metadata_of_any_text_survive_a_split(end: bytes, tmp_path: Path) -> None:
    lines = ["Summary: Größe 大", "License: Zwei", "        Zeilen é", "Provides-Extra: sm75", "", "# Über", "", "Ende"]
    text = "\n".join(["Metadata-Version: 2.1", "Name: quickstart", "Version: 1.0", *lines]).encode()
    data = text.replace(b"\n", end)
    wheel = changed_wheel(tmp_path, lambda files: files.update({f"{INFO}/METADATA": data}))
    by_name = {
        path.name.partition("-")[0]: path for path in split.run(wheel, tmp_path / "out") if "providers" in path.parts
    }
    main_data = wheel_archive.read(by_name["quickstart"]).files[f"{INFO}/METADATA"]
    head, _, body = data.partition(end * 2)
    assert main_data.startswith(head + end + b"Requires-Dist: quickstart-kernels-sm75==1.0; extra == 'sm75'" + end)
    assert main_data.endswith(end * 2 + body)
    assert main_data.count(b"Provides-Extra: sm75") == 1
    assert main_data.count(b"\n") == main_data.count(end)
    about = wheel_archive.read(by_name["quickstart_kernels_sm80"]).about
    assert about["License"] == "Zwei\n        Zeilen é"
    assert about["Summary"].startswith("Machine code of quickstart 1.0 for compute capability 8.0")


def test_wheels_of_other_names_are_split(tmp_path: Path) -> None:
    """Names in METADATA, in file names and in folders differ in case and in separators."""
    other = "Quick_Start.x-1.0-1-py3-none-any.whl"
    files = {
        name.replace(INFO, "quick_start_x-1.0.dist-info"): data
        for name, data in wheel_archive.read(QUICKSTART).files.items()
    }
    info = "quick_start_x-1.0.dist-info"
    files[f"{info}/METADATA"] = files[f"{info}/METADATA"].replace(b"Name: quickstart", b"Name: Quick-Start.x")
    files[f"{info}/RECORD"] = wheel_archive._record(files, f"{info}/RECORD")
    with zipfile.ZipFile(tmp_path / other, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    written = split.run(tmp_path / other, None)
    assert {path.name for path in written} >= {other, "quick_start_x_kernels_sm80-1.0-1-py3-none-any.whl"}
    for path in written:
        if path.suffix == ".whl":
            wheel_archive.read(path)


def _occupy(folder: Path, name: str) -> None:
    shutil.copy(QUICKSTART, folder / NAME)
    (folder / name / "file").mkdir(parents=True)


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (lambda folder: folder.joinpath(NAME).write_bytes(b"PK"), f"{NAME} is no readable wheel"),
        (lambda folder: shutil.copy(QUICKSTART, folder / "a.whl"), "a.whl is not called like a wheel of quickstart"),
        (
            lambda folder: changed_wheel(
                folder, lambda files: [files.pop(name) for name in [*files] if "aotcuda/" in name]
            ),
            "holds no module that aotcuda built",
        ),
        (lambda folder: shutil.copy(folder / "part", folder / NAME), "is a part of a wheel that was split"),
        (lambda folder: shutil.copy(folder / "main", folder / NAME), "is a part of a wheel that was split"),
        (
            lambda folder: changed_wheel(folder, lambda files: files.update({f"{FOLDER}/kernels.fatbin": b"x"})),
            "kernels.fatbin has 1 bytes where the manifest says",
        ),
        (lambda folder: _occupy(folder, "variants"), "variants is not empty; empty it, or name another folder: --out"),
        (lambda folder: _occupy(folder, "providers"), "providers is not empty; empty it, or name another folder"),
    ],
)
def test_wheels_that_cannot_be_split_get_one_line(prepare, problem, parts, tmp_path, capsys):
    shutil.copy(parts["variants/sm80"], tmp_path / "part")
    shutil.copy(parts["providers/main"], tmp_path / "main")
    prepare(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert main(["split", str(wheel)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert not [*tmp_path.glob("*/*.whl")]


@pytest.mark.parametrize("existing", [True, False])
def test_failed_split_leaves_no_files(existing: bool, tmp_path: Path) -> None:
    if existing:
        (tmp_path / "variants").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(BuildError, match=r"cannot be written \(File too large\)"):
            split.run(QUICKSTART, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.rglob("*")] == ([tmp_path / "variants"] if existing else [])
