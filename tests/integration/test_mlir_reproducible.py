"""Reproducible builds with the second front end: the tests of the first one's, over the same packages."""

from __future__ import annotations

import pytest

from integration import test_reproducible
from support.front_ends import again

pytestmark = pytest.mark.usefixtures("mlir")

globals().update(again(test_reproducible, {}))
