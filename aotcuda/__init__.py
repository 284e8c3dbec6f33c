"""Ship GPU code in ordinary wheels: Python kernels compiled ahead of time, loaded and launched without a compiler."""

from __future__ import annotations
