"""`aotcuda record` of commands that launch nothing, and `aotcuda record --merge`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from aotcuda import cli
from aotcuda.tools.record import command, dry, records
from aotcuda.tools.record.records import Choice, Record, Recorded

SETTINGS = """
[project]
name = "my-pack"
[tool.aotcuda]
arch = ["sm_90"]
[tool.aotcuda.modules."mypkg.ops"]
source = ["mypkg.ops"]
frontend = "triton"
variants = "ops.variants.json"
"""
PACK = """
[tool.aotcuda.modules."my_pack.ops"]
source = "foreign.ops"
frontend = "triton"
variants = "my_pack/ops.variants.json"
pack = true
"""
VARIANT = {"types": ["*fp32", "i32"], "constexprs": {"BLOCK": 64}}
OTHER = {"types": ["*fp32", "i32"], "constexprs": {"BLOCK": 128}}
CONFIGS = [{"kwargs": {"BLOCK": 64}, "num_warps": 2}, {"kwargs": {"BLOCK": 128}, "num_warps": 4}]


def variants_file(*variants: object, **more: object) -> dict[str, Any]:
    kernels = {"scale": {"parameters": ["x", "n", "BLOCK"], "variants": [*variants]}}
    return {"format": "aotcuda variants", "version": 1, "source": "mypkg.ops", "kernels": kernels, **more}


def tuning_file(configs: list[Any], gpus: dict[str, Any], **more: object) -> dict[str, Any]:
    kernels = {"scale": {"keys": ["n"], "configs": configs, "gpus": gpus}}
    return {"format": "aotcuda tuning", "version": 1, "source": "mypkg.ops", "kernels": kernels, **more}


def gpu(default: object, *choices: object) -> dict[str, Any]:
    return {"capability": "9.0", "default": default, "choices": [*choices]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a variants file and a tuning file; it is the current folder."""
    folder = tmp_path / "project"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "ops.py").touch()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(dry, "has_gpu", lambda: False)  # another test may have loaded the stand-in driver
    for name in ("NUMBA_ENABLE_CUDASIM", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    Path("pyproject.toml").write_text(SETTINGS)
    Path("ops.variants.json").write_text(json.dumps(variants_file(VARIANT)))
    Path("ops.tuning.json").write_text(json.dumps(tuning_file(CONFIGS[:1], {"H100": gpu(0, [[4096, "float32"], 0])})))
    return folder


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(name).read_text())
    return content["kernels"]["scale"]


def merge(tmp_path: Path, *contents: object) -> None:
    """Merge files of these contents."""
    paths = []
    for number, content in enumerate(contents):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(content if isinstance(content, str) else json.dumps(content))
    command.merge(paths)


@pytest.mark.usefixtures("project")
def test_variants_and_choices_are_merged_once(tmp_path: Path) -> None:
    h100, a100 = gpu(1, [[64, "float32"], 0]), gpu(0, [[64, "float32"], 0])
    for _ in range(2):
        merge(tmp_path, variants_file(OTHER, VARIANT), tuning_file(CONFIGS[::-1], {"A100": a100, "H100": h100}))
        assert read("ops.variants.json")["variants"] == [VARIANT, OTHER]
        assert read("ops.tuning.json")["configs"] == CONFIGS
        assert read("ops.tuning.json")["gpus"] == {
            "A100": gpu(1, [[64, "float32"], 1]),
            "H100": gpu(0, [[4096, "float32"], 0], [[64, "float32"], 1]),
        }


@pytest.mark.usefixtures("project")
def test_entries_of_other_parameters_and_keys_are_replaced(tmp_path: Path) -> None:
    kernel = {"parameters": ["x"], "variants": [OTHER]}
    tuned = {"keys": ["m"], "configs": CONFIGS[1:], "gpus": {}}
    merge(tmp_path, variants_file(kernels={"scale": kernel}), tuning_file([], {}, kernels={"scale": tuned}))
    assert read("ops.variants.json") == kernel
    assert read("ops.tuning.json") == tuned


DAMAGED: dict[str, tuple[object, str]] = {
    "no JSON": ("[", "cannot be read as a record"),
    "no known format": ({}, "cannot be read as a record"),
    "another version": (variants_file(version=9), "is no file of variants of version 1; remove it, or restore it"),
    "another source": (variants_file(source="other"), "no module of"),
    "no source": (variants_file(source=None), "is no file of variants"),
    "no kernels": (variants_file(kernels=3), "is no file of variants"),
    "no parameters": (variants_file(kernels={"scale": {"variants": []}}), "is no file of variants"),
    "no variants": (variants_file(kernels={"scale": {"parameters": []}}), "is no file of variants"),
    "a variant that is no object": (variants_file(3), "is no file of variants"),
    "no configs": (tuning_file(3, {}), "is no file of tuning"),  # type: ignore[arg-type]
    "no keys": (tuning_file([], {}, kernels={"scale": {"configs": [], "gpus": {}}}), "is no file of tuning"),
    "a default outside the configs": (tuning_file(CONFIGS, {"H100": gpu(2)}), "is no file of tuning"),
    "a choice outside the configs": (tuning_file(CONFIGS, {"H100": gpu(0, [[1], -1])}), "is no file of tuning"),
    "a choice without a config": (tuning_file(CONFIGS, {"H100": gpu(0, [[1]])}), "is no file of tuning"),
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_refused_in_one_line(
    name: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = DAMAGED[name]
    (tmp_path / "bad.json").write_text(content if isinstance(content, str) else json.dumps(content))
    before = {path.name: path.read_bytes() for path in project.glob("*.*")}
    assert cli.main(["record", "--merge", str(tmp_path / "bad.json")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in project.glob("*.*")} == before


def launch(module: str, **constants: object) -> Record:
    options = {"parameters": [*dict.fromkeys(["x", "n", "BLOCK", *constants])], "types": VARIANT["types"]}
    options |= {"constants": {**VARIANT["constexprs"], **constants}, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    facts: dict[str, Any] = {"frontend": "triton", "kind": "kernel", "module": module, "function": "scale"}
    facts |= {"path": "scale", "file": "/site-packages/foreign/ops.py", "line": 1, "launches": {"H100": 1}}
    return Record(**facts, signature="void(*fp32, i32; BLOCK=64)", options=options)


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize(("settings", "packages"), [(SETTINGS + PACK, []), (SETTINGS, ["--packages", "foreign"])])
def test_records_of_other_packages_are_merged_into_a_pack(
    settings: str, packages: list[str], project: Path, tmp_path: Path
) -> None:
    (project / "pyproject.toml").write_text(settings)
    (project / "my_pack").mkdir()
    records.add(tmp_path / "record.json", Recorded(records=[launch("foreign.ops")], runs=1))
    assert cli.main(["record", *packages, "--merge", str(tmp_path / "record.json")]) == 0
    modules = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]["modules"]
    (file,) = [module["variants"] for module in modules.values() if module.get("pack")]
    assert json.loads((project / file).read_text())["kernels"]["scale"]["variants"] == [VARIANT]
    assert records.load(project / records.FILE_NAME).runs == 1


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("module", ["foreign.ops", "mypkg.ops"])
@pytest.mark.parametrize("has_torch", [True, False])
def test_a_merged_pack_requires_torch_if_it_is_installed(
    module: str, has_torch: bool, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"torch": ["torch"]} if has_torch else {})
    build = '[build-system]\nrequires = ["hatchling"]\n'
    (project / "pyproject.toml").write_text(SETTINGS + (PACK if module == "foreign.ops" else "") + build)
    (project / "my_pack").mkdir()
    records.add(tmp_path / "record.json", Recorded(records=[launch(module)], runs=1))
    assert cli.main(["record", "--merge", str(tmp_path / "record.json")]) == 0
    required = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["requires"]
    names = {item.partition("=")[0] for item in required}
    assert ("torch" in names) == (has_torch and module == "foreign.ops")


MARKERS = ["helper>=1; python_version < '3.12'", "helper>=2; python_version >= '3.12'"]
REQUIREMENTS: dict[str, tuple[str, list[str]]] = {
    "no distribution is known": ("foreign.ops", []),
    "the distribution is installed": ("_pytest.ops", [f"pytest=={pytest.__version__}"]),
    "one distribution for each Python": ("mypkg.ops", MARKERS),
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("name", REQUIREMENTS)
def test_build_requires_what_the_kernels_import(name: str, project: Path, tmp_path: Path) -> None:
    module, added = REQUIREMENTS[name]
    settings = SETTINGS.replace("[tool.aotcuda]", f"dependencies = {json.dumps(MARKERS)}\n[tool.aotcuda]")
    pack = "" if module == "mypkg.ops" else PACK.replace("foreign.ops", module)
    build = '[build-system]\nrequires = ["triton", "foreign-core"]\n'
    (project / "pyproject.toml").write_text(settings + pack + build)
    (project / "mypkg" / "__init__.py").write_text("import helper\n")
    (project / "my_pack").mkdir()
    records.add(tmp_path / "record.json", Recorded(records=[launch(module)], runs=1))
    assert cli.main(["record", "--merge", str(tmp_path / "record.json")]) == 0
    requires = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["requires"]
    assert requires == ["triton", "foreign-core", *added]


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        (
            (),
            {"NUMBA_ENABLE_CUDASIM": "1"},
            "aotcuda: NUMBA_ENABLE_CUDASIM is unset for the command: a simulator launches nothing",
        ),
        (
            ("--dry",),
            {"TRITON_INTERPRET": "1"},
            "aotcuda: TRITON_INTERPRET is unset for the command: a simulator launches nothing",
        ),
        (("--dry",), {}, "for NVIDIA H100 80GB HBM3 of compute capability 9.0"),
        (("--gpu", "sm_80"), {}, "for NVIDIA A100-SXM4-80GB of compute capability 8.0"),
        (("--gpu", "H1000"), {}, "no GPU is known by the name 'H1000'"),
    ],
)
@pytest.mark.usefixtures("project")
def test_first_lines_say_if_launches_are_executed(
    options: tuple[str, ...],
    environ: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"AOTCUDA_IN_PLACE": "1", **environ}.items():
        monkeypatch.setenv(name, value)
    code = "import os; print(os.environ.get('NUMBA_ENABLE_CUDASIM'), os.environ['AOTCUDA_IN_PLACE'])"
    cli.main(["record", *options, "--", sys.executable, "-c", code])
    output = capfd.readouterr()
    assert message in output.err.splitlines()[1 if environ else 0]
    assert output.out.strip() == ("" if "H1000" in message else "None 0")


PYTHON = [sys.executable, "-c"]
SHELL = ["--", "sh", "-c"]
COMMANDS: dict[str, tuple[list[str], int, str]] = {
    "no launch": (["--check", "--", *PYTHON, "pass"], 0, "no kernel was launched, so nothing was recorded"),
    "isolated": (
        ["--check", "--", *PYTHON[:1], "-Ic", "pass"],
        1,
        "no Python process of the command could be recorded",
    ),
    "exit": (["--", *PYTHON, "raise SystemExit(4)"], 4, "with exit status 4, as programs may that need results"),
    "SIGKILL": ([*SHELL, "kill -KILL $$"], 137, "with exit status 137, as programs may that need results"),
    "no folder": ([*SHELL, 'rm -r "$AOTCUDA_RECORD_FOLDER"; : > "$AOTCUDA_RECORD_FOLDER"'], 0, "no Python process"),
    "no program": (["--", "no-such-program"], 127, "no-such-program cannot be run: No such file or directory"),
    "no executable": (["--", "./pyproject.toml"], 126, "./pyproject.toml cannot be run: Permission denied"),
    "no command": ([], 2, "name the command to record, after --"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("project")
def test_command_without_launches_is_reported(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, status, message = COMMANDS[name]
    try:
        result = cli.main(["record", *arguments])
    except SystemExit as end:
        result = end.code
    assert result == status
    error = capfd.readouterr().err
    assert message in error
    assert "every signature" not in error


@pytest.mark.needs("tomlkit")
def test_run_without_launches_writes_records_of_earlier_runs(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "ops.variants.json").unlink()
    assert cli.main(["record", "--write", "--", "true"]) == 0
    message = f"so there is nothing to write into {project / 'pyproject.toml'}; run a command that launches the kernels"
    assert f"aotcuda: no kernel of the project was launched, {message}" in capfd.readouterr().err
    records.add(project / records.FILE_NAME, Recorded(records=[launch("mypkg.ops")], runs=1))
    for message in ("added to ops.variants.json: 1 variant of 1 kernel", "has every signature that was recorded"):
        assert cli.main(["record", "--write", "--", "true"]) == 0
        assert message in capfd.readouterr().err
        assert read("ops.variants.json")["variants"] == [VARIANT]
        assert (project / "pyproject.toml").read_text() == SETTINGS


def test_tables_of_one_module_with_two_front_ends_are_printed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "mypkg"\n')
    facts: dict[str, Any] = {"frontend": "numba-cuda", "kind": "kernel", "module": "mypkg.ops", "function": "add"}
    facts |= {"path": "add", "file": "mypkg/ops.py", "line": 1, "signature": "void(float32[::1])", "options": {}}
    recorded = [Record(**facts, launches={"H100": 1}), launch("mypkg.ops")]
    records.add(project / records.FILE_NAME, Recorded(records=recorded, runs=1))
    assert cli.main(["record", "--", "true"]) == 0
    numba, triton = capfd.readouterr().out.split('[tool.aotcuda.modules."mypkg.ops"]\n')[1:]
    assert tomllib.loads(numba)["tool"]["aotcuda"]["modules"]["mypkg.ops"]["kernels"] == {"add": ["void(float32[::1])"]}
    assert tomllib.loads(triton)["frontend"] == "triton"


@pytest.mark.needs("tomlkit")
def test_variants_of_a_table_are_extended_by_hand(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables = SETTINGS.replace('variants = "ops.variants.json"', "").replace('ops"]', 'tri"]', 1)
    tables += 'kernels.scale = { signature = "*fp32:16, i32", constexprs = { BLOCK = 64 } }\n'
    (project / "pyproject.toml").write_text(tables)
    records.add(project / records.FILE_NAME, Recorded(records=[launch("mypkg.ops")], runs=1))
    assert cli.main(["record", "--write", "--", "true"]) == 0
    assert (project / "pyproject.toml").read_text() == tables
    message = 'scale was launched with more than tool.aotcuda.modules."mypkg.tri".kernels.scale has; add the variants'
    (line,) = [line for line in capfd.readouterr().err.splitlines() if message in line]
    assert 'signature = "*fp32, i32"' in line
    assert line.endswith("or remove the key: --write then writes a variants file")


@pytest.mark.needs("tomlkit")
def test_records_before_an_edit_of_a_kernel_are_ignored(project: Path, tmp_path: Path) -> None:
    old, new = launch("mypkg.ops"), launch("mypkg.ops", EVEN=True)
    chosen: dict[str, Any] = {"module": "mypkg.ops", "function": "scale", "path": "scale", "launches": {"H100": 1}}
    old_choice = Choice(**chosen, keys=["n"], key=[7], config=CONFIGS[0])
    new_choice = Choice(**chosen, keys=["m", "n"], key=[8, 7], config=CONFIGS[1])
    records.add(project / records.FILE_NAME, Recorded(records=[old], choices=[old_choice], runs=1))
    records.add(tmp_path / "record.json", Recorded(records=[new], choices=[new_choice], runs=1))
    assert cli.main(["record", "--write", "--", "true"]) == 0
    assert read("ops.variants.json")["variants"] == [VARIANT]
    assert cli.main(["record", "--merge", str(tmp_path / "record.json")]) == 0
    for _ in range(2):
        kernel = {
            "parameters": ["x", "n", "BLOCK", "EVEN"],
            "variants": [{**VARIANT, "constexprs": {"BLOCK": 64, "EVEN": True}}],
        }
        assert read("ops.variants.json") == kernel
        assert (read("ops.tuning.json")["keys"], read("ops.tuning.json")["configs"]) == (["m", "n"], CONFIGS[1:])
        assert cli.main(["record", "--write", "--", "true"]) == 0


def test_a_pyproject_that_does_not_parse_is_left_alone(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = project / "pyproject.toml"
    path.write_text('[project\nname = "x"\n')
    assert cli.main(["record", "--write", "--", "touch", "ran"]) == 1
    assert capfd.readouterr().err.startswith(f"aotcuda: {path} is not valid TOML: ")
    assert not (project / "ran").exists()
    assert path.read_text() == '[project\nname = "x"\n'
    assert cli.main(["record", "--", "true"]) == 0, "nothing is merged into it"


def test_the_environments_own_sitecustomize_still_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = project / "sitecustomize.py"
    own.write_text("import sys\nsys.own_was_here = __file__\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project), str(project / "other")]))
    code = "import sys; print(sys.own_was_here, sys.modules['sitecustomize'].__file__, "
    code += "[path for path in sys.path if 'inject' in path])"
    assert cli.main(["record", "--", sys.executable, "-c", code]) == 0
    assert capfd.readouterr().out == f"{own} {own} []\n"
