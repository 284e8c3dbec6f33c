"""Front ends whose compilers are not installed."""

from __future__ import annotations

import pytest

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
