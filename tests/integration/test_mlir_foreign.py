"""Foreign code with the second front end: the tests of the first one's, over the same sources."""

from __future__ import annotations

import pytest

from integration import test_foreign
from support.front_ends import again

pytestmark = pytest.mark.usefixtures("mlir")

globals().update(again(test_foreign, {}))


@pytest.fixture(autouse=True, scope="module")
def _made_for_it(mlir: None) -> None:
    """Before the module's own fixtures build anything."""
