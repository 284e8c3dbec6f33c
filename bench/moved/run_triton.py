"""A program of `triton_programs.py`: `liger` or `fla`."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import triton_programs

getattr(triton_programs, sys.argv[1])(torch)
