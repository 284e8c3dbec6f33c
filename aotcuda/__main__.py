"""`python -m aotcuda`: the same as the command `aotcuda`."""

from __future__ import annotations

import sys

from aotcuda.cli import main

sys.exit(main())
