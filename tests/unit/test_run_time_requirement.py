"""Test what a project's dependencies say of aotcuda, beside the oldest run time that reads the wheel."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from aotcuda.builder import run_time_requirement
from aotcuda.errors import ConfigError


@pytest.mark.parametrize("dependencies", [[], ["numpy"], ["aotcuda-tools", "my.aotcuda"]])
def test_a_project_that_does_not_name_aotcuda_is_told_what_to_add(dependencies):
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
        "aotcuda @ https://example.org/aotcuda.whl",
    ],
)
def test_a_lower_bound_at_the_floor_or_above_it_is_right(dependency):
    assert run_time_requirement.warnings([dependency, "numpy"], "0.3.0") == []


@pytest.mark.parametrize(
    "dependency", ["aotcuda", "aotcuda>=0.2", "aotcuda>0.2.0", "aotcuda!=0.1.*", "aotcuda<1,>=0.2.9", "aotcuda[fast]"]
)
def test_dependencies_that_admit_an_older_run_time_are_warned_of(dependency):
    (said,) = run_time_requirement.warnings(["numpy", dependency], "0.3.0")
    assert said == (
        f'project.dependencies: "{Requirement(dependency)}" admits run times older than 0.3.0, the oldest that reads '
        'this wheel; write "aotcuda>=0.3.0"'
    )


def test_warning_names_the_place_of_the_dependencies():
    (said,) = run_time_requirement.warnings(["numpy"], "0.3.0", key="install_requires")
    assert said.startswith("install_requires does not name aotcuda, ")
    with pytest.raises(ConfigError, match=r'^install_requires: "aotcuda<0.3" allows no '):
        run_time_requirement.warnings(["aotcuda<0.3"], "0.3.0", key="install_requires")


def test_a_project_without_a_lower_bound_is_right_as_long_as_every_run_time_reads_it():
    assert run_time_requirement.warnings(["aotcuda"]) == []


@pytest.mark.parametrize("dependency", ["aotcuda<0.3", "aotcuda==0.2.1", "aotcuda~=0.1.0", "aotcuda>2,<1"])
def test_dependencies_that_admit_no_run_time_of_the_wheel_are_refused(dependency):
    with pytest.raises(ConfigError, match=r'allows no aotcuda that can read the .*; write "aotcuda>=0.3"$'):
        run_time_requirement.warnings([dependency], "0.3")


_NUMBERS = st.integers(0, 3)
_VERSIONS = st.builds("{}.{}.{}".format, _NUMBERS, _NUMBERS, _NUMBERS) | st.builds("{}.{}".format, _NUMBERS, _NUMBERS)
_PLAIN = st.builds("{}{}".format, st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]), _VERSIONS)
_SPECIFIERS = _PLAIN | st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), _VERSIONS)
_ALL = [Version(".".join(map(str, each))) for each in itertools.product(range(5), range(5), range(5), range(2))]


@settings(max_examples=100, deadline=None)
@given(st.lists(_SPECIFIERS, max_size=4), _VERSIONS.filter(lambda text: Version(text) >= Version("0.1.0")))
def test_warning_agrees_with_a_search_of_all_versions(specifiers, floor):
    specifier = SpecifierSet(",".join(specifiers))
    admitted = [version for version in _ALL if version >= Version("0.1.0") and version in specifier]
    try:
        said = run_time_requirement.warnings([f"aotcuda{specifier}"], floor)
    except ConfigError:
        assert not [version for version in admitted if version >= Version(floor)]
    else:
        assert bool(said) >= bool([version for version in admitted if version < Version(floor)])
        assert [version for version in admitted if version >= Version(floor)] or _admits_between(specifier, floor)


def _admits_between(specifier, floor):
    """Return True if something between the versions of the list is admitted that is no older than the floor."""
    between = [Version(f"{version}.0.1") for version in _ALL]
    return any(version in specifier for version in between if version >= Version(floor))
