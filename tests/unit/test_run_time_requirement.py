"""Test the comparison of a project's dependency on aotcuda with the oldest run time that reads the wheel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from aotcuda.builder.project import run_time_requirement
from aotcuda.errors import ConfigError


@pytest.mark.parametrize("dependencies", [[], ["numpy"], ["aotcuda-tools", "my.aotcuda"]])
def test_missing_dependency_is_named(dependencies):
    (first,) = run_time_requirement.warnings(dependencies, "0.1.0")
    assert first.endswith('add "aotcuda" to it')
    (later,) = run_time_requirement.warnings(dependencies, "0.3.0")
    assert later.endswith('add "aotcuda>=0.3.0" to it')


@pytest.mark.parametrize(
    "dependency",
    [
        "aotcuda>=0.3",
        "AOTCUDA >= 0.3.0, < 1",
        "aotcuda[fast]~=0.3.1; python_version >= '3.8'",
        "aotcuda==0.4.*",
        "aotcuda>0.2,!=0.2.*",
        "aotcuda>=0.2,!=0.2.*,!=0.3.0.*,>=0.3",
        "aotcuda @ https://example.org/aotcuda.whl",
    ],
)
def test_lower_bound_from_the_floor_on_gets_no_warning(dependency):
    assert run_time_requirement.warnings([dependency, "numpy"], "0.3.0") == []


@pytest.mark.parametrize(
    "dependency", ["aotcuda", "aotcuda>=0.2", "aotcuda>0.2.0", "aotcuda!=0.1.*", "aotcuda<1,>=0.2.9", "aotcuda[fast]"]
)
def test_dependency_that_admits_an_older_run_time_gets_a_warning(dependency):
    (message,) = run_time_requirement.warnings(["numpy", dependency], "0.3.0")
    assert message == (
        f'project.dependencies: "{Requirement(dependency)}" admits run times older than 0.3.0, the oldest that reads '
        'this wheel; write "aotcuda>=0.3.0"'
    )


def test_warning_names_the_place_of_the_dependencies():
    (message,) = run_time_requirement.warnings(["numpy"], "0.3.0", key="install_requires")
    assert message.startswith("install_requires does not name aotcuda, ")
    with pytest.raises(ConfigError, match=r'^install_requires: "aotcuda<0.3" allows no '):
        run_time_requirement.warnings(["aotcuda<0.3"], "0.3.0", key="install_requires")


def test_no_lower_bound_is_needed_if_every_run_time_reads_the_wheel():
    assert run_time_requirement.warnings(["aotcuda"]) == []


@pytest.mark.parametrize("dependency", ["aotcuda<0.3", "aotcuda==0.2.1", "aotcuda~=0.1.0", "aotcuda>2,<1"])
def test_dependency_that_admits_no_run_time_is_refused(dependency):
    with pytest.raises(ConfigError, match=r'allows no aotcuda that can read the .*; write "aotcuda>=0.3"$'):
        run_time_requirement.warnings([dependency], "0.3")


@pytest.mark.parametrize(
    ("dependencies", "modules", "count"),
    [
        (["aotcuda"], ["m.a", "m.b"], 2),
        (["aotcuda", "cuda-core-tools"], ["m.a"], 1),
        (["aotcuda", "cuda.core[cu13]>=1"], ["m.a"], 0),
        (["aotcuda", "numba-cuda[cu12]"], ["m.a"], 0),
        (["aotcuda"], [], 0),
    ],
)
def test_callbacks_without_cuda_core_get_a_warning(dependencies, modules, count):
    messages = run_time_requirement.callback_warnings(dependencies, modules, key="install_requires")
    assert len(messages) == count
    for module, message in zip(modules, messages, strict=False):
        assert message.startswith("install_requires does not name cuda-core, which the callbacks of " + module)


@pytest.mark.parametrize(
    "clause", ["==0.3.0", ">=0.3.0,<=0.3.0", ">=0.3.0,<0.3.0.1", "===0.3.0", "==0.3.0.*", ">=0.3.0,!=0.3.*"]
)
def test_dependency_on_the_floor_alone_gets_no_warning(clause):
    assert run_time_requirement.warnings([f"aotcuda{clause}"], "0.3.0") == []


def test_dependency_on_the_first_release_alone_gets_no_warning():
    assert run_time_requirement.warnings(["aotcuda==0.1.0"], "0.1.0") == []


@given(
    st.lists(
        st.tuples(st.sampled_from([">=", ">", "<", "<=", "!=", "==", "~="]), st.sampled_from(range(10))), max_size=3
    )
)
@settings(max_examples=300)
def test_warning_appears_if_an_older_version_is_admitted(clauses):
    """Compare with a list of many versions; the floor is in its middle."""
    names = [f"0.{minor}.{micro}" for minor in (1, 2, 3, 4) for micro in (0, 1, 2)]
    requirement = Requirement("aotcuda" + ",".join(f"{operator}{names[number]}" for operator, number in clauses))
    versions = [Version(f"{name}{suffix}") for name in names for suffix in ("", ".0.1")] + [Version("0.9")]
    admitted = [version for version in versions if version in requirement.specifier]
    if not any(version >= Version("0.3.0") for version in admitted):
        with pytest.raises(ConfigError):
            run_time_requirement.warnings([str(requirement)], "0.3.0")
    else:
        shown = run_time_requirement.warnings([str(requirement)], "0.3.0")
        assert bool(shown) == any(version < Version("0.3.0") for version in admitted)
