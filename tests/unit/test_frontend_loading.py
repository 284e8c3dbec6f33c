"""Front ends whose compilers are not installed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aotcuda.builder.compile import main
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.protocol import Session
from aotcuda.errors import ToolchainError


class _Needy:
    def prepare(self, session):
        message = f"No module named {session.root!r}"
        raise ModuleNotFoundError(message)


@pytest.mark.parametrize("name", ["triton", "cutile"])
def test_missing_compiler_names_the_extra(name):
    with pytest.raises(ToolchainError) as caught:
        loading.prepare(_Needy(), Session(root="it", cache=None), name, "tool.aotcuda.frontend: the front end of pkg.k")
    assert str(caught.value) == (
        f"tool.aotcuda.frontend: the front end of pkg.k, {name}, cannot be imported (No module named 'it'); add "
        f"'aotcuda[{name}]' to build-system.requires, or, in a build without isolation, install it with: pip install "
        f"'aotcuda[{name}]'"
    )


@pytest.mark.parametrize(
    ("count", "named"),
    [(1, "m0"), (3, "m0, m1, m2"), (4, "m0, m1 and 2 more modules"), (90, "m0, m1 and 88 more modules")],
)
def test_errors_of_a_front_end_name_few_of_its_modules(count, named):
    plans = [SimpleNamespace(frontend_key="key", config=SimpleNamespace(name=f"m{number}")) for number in range(count)]
    assert main._front_end_key(SimpleNamespace(plans=plans)) == f"key: the front end of {named}"
