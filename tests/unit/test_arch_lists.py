"""Read lists of targets in the notations of nvcc, PyTorch and CMake."""

from __future__ import annotations

import itertools
import random

import jsonschema
import pytest

from aotcuda.arch import parse
from aotcuda.builder import failures
from aotcuda.builder.config import parser
from aotcuda.builder.config.keys import Key
from aotcuda.builder.config.target_list import TargetList
from aotcuda.builder.plan import toolchain, toolkits
from aotcuda.errors import ConfigError
from aotcuda.runtime import driver

KEY = Key("tool.aotcuda.arch", "arch", "write for example ...")
CUDA_12_9 = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121)


def read(*items: object) -> list[str]:
    return [str(target) for target in TargetList().read(list(items), KEY)]


def refusal(*items: object) -> str:
    with pytest.raises(ConfigError) as caught:
        TargetList().read(list(items), KEY)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("8.0;9.0a+PTX", "sm_80 sm_90a compute_90a"),
        ("10.0f+PTX", "sm_100f compute_100f"),
        ("80-real;90-virtual;90a", "sm_80 compute_90 sm_90a compute_90a"),
        ("75-real,100f-real", "sm_75 sm_100f"),
        ("120-virtual", "compute_120"),
        ("sm_80;8.6+PTX;89-real", "sm_80 sm_86 compute_86 sm_89"),
    ],
)
def test_a_list_in_each_way_of_writing(text, targets):
    assert read(text) == targets.split()
    assert read(*text.replace(",", ";").split(";")) == targets.split()
    for variable in (text, f" {text.replace(';', ' ')} "):  # PyTorch's spaces, in the variable
        assert [str(target) for target in parser.targets(variable)] == targets.split()


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (["90"], '"90" alone may mean machine code, PTX or both; write "sm_90", "compute_90" or both'),
        (["9.0"], '"9.0" alone may mean machine code, PTX or both; write "sm_90", "compute_90" or both'),
        (["sm90"], 'write "sm_90"'),
        (["compute-75"], 'write "compute_75"'),
        (["lto_90"], 'write "sm_90"'),
        (["90+PTX"], 'write "sm_90" for machine code, "compute_90" for PTX'),
        (["All"], 'write "all"'),
        ([90], 'found the integer 90; write "sm_90" for machine code'),
        (["sm_101"], '"sm_101" is what CUDA 12.8 and 12.9 called sm_110; write "sm_110"'),
        (["sm_90", "90-real"], 'sm_90 is listed twice, as "sm_90" and as "90-real"; leave one of them out'),
        (["Hopper"], "expected sm_XY (machine code) or compute_XY (PTX)"),
    ],
)
def test_ambiguous_target_is_refused_with_its_correction(items, says):
    assert says in refusal(*items)


def test_corrections_of_targets_are_accepted():
    """For each misspelling of a number, the error names targets with this number."""
    forms = ("sm{}", "SM_{}", "sm-{}", "sm {}", "compute{}", "Compute_{}", "{}", "{}.", "lto_{}", "{}+ptx", "{}-Real")
    for form, number in itertools.product(forms, ("75", "90a", "100", "100f", "120")):
        text = form.format(number)
        says = refusal(text)
        if "; write for example" in says:
            continue
        corrections = says.split("; ")[-1].split('"')[1::2]
        assert corrections, text
        assert {target.partition("_")[2] for target in corrections} == {number}
        assert read(*corrections) == corrections


def test_any_text_is_a_list_or_one_line():
    """The schema accepts each list that the reader accepts."""
    schema = jsonschema.Draft7Validator(TargetList().schema())
    pieces = [
        *("sm_", "compute_", "9", "0", "7", "5", "10", ".", "a", "f"),
        *("-real", "-virtual", "+PTX", ";", ",", " ", "é"),
    ]
    chance = random.Random(15)
    accepted, refused = 0, []
    for _ in range(2_000):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 6)))
        try:
            targets = TargetList().read([text], KEY)
        except ConfigError as error:
            refused.append(str(error))
            continue
        accepted += 1
        assert targets
        assert schema.is_valid([text]), text
    assert accepted > 10
    assert not [text for text in refused if len(text.splitlines()) != 1]


def test_all_has_every_target_of_the_toolchain_and_ptx():
    targets = [f"sm_{major}{minor}" for major, minor in toolchain.supported_capabilities()]
    assert read("all") == [*targets, "compute_120"]
    assert read("all-major") == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120"]


def test_all_excludes_gpus_before_turing_and_renamed_targets(monkeypatch):
    monkeypatch.setattr(toolkits, "installed", tuple)  # this leaves the machine's toolkit
    monkeypatch.setattr(toolchain, "supported_capabilities", lambda: [divmod(number, 10) for number in CUDA_12_9])
    assert read("all") == [*(f"sm_{number}" for number in CUDA_12_9 if number >= 75 and number != 101), "compute_120"]
    assert read("all-major") == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120"]


def test_native_is_the_gpus_of_this_machine(cuda, monkeypatch):
    cuda.set(devices="9.0,7.5,9.0")
    assert read("native") == ["sm_75", "sm_90"]
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    monkeypatch.setattr(driver, "_driver", None)
    error = refusal("native")
    assert error.startswith('tool.aotcuda.arch[0]: "native" means the GPUs of this machine, and none was found: ')
    assert error.endswith('; name the targets, such as "sm_90"')


@pytest.mark.parametrize(
    ("target", "front_end", "remedy"),
    [
        ("sm_107", "numba-cuda", "; sm_107 needs CUDA 13.4 or newer: install aotcuda[wide]"),
        ("sm_107", "numba-cuda-mlir", ": install aotcuda[mlir-wide]"),
        ("sm_101", "numba-cuda", "; sm_101 needs CUDA 12.8 to 12.9: install aotcuda[cu12]"),
        ("sm_107a", "numba-cuda", ", which no extra of aotcuda brings"),
        ("sm_91", "numba-cuda", "; write sm_90, or install newer compilers and a newer aotcuda"),
        ("compute_200", "triton", "; write compute_121, or install newer compilers and a newer aotcuda"),
        ("sm_35", "cuda-cpp", "; the lowest is sm_75"),
    ],
)
def test_unknown_target_is_refused_with_the_toolchain_that_knows_it(target, front_end, remedy):
    with pytest.raises(toolchain.ToolchainError, match=r"is not known to the CUDA 13\.0 toolchain") as caught:
        toolchain.check_target(parse(target), "tool.aotcuda.arch", front_end)
    assert str(caught.value).endswith(remedy)


def test_target_that_several_front_ends_refuse_is_reported_once():
    tools = {"Triton 3.6.0": ["sm_80", "sm_90"], "tileiras 13.3": ["sm_90", "sm_100"]}
    refused = [toolchain.unknown_target("sm_91", "tool.aotcuda.arch", tool, names) for tool, names in tools.items()]
    assert str(failures.join(refused)) == (
        "tool.aotcuda.arch: sm_91 is not known to Triton 3.6.0, which builds for sm_80, sm_90; write sm_90, or install "
        "newer compilers and a newer aotcuda; the same error occurs for 1 more front end"
    )
