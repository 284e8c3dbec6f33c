"""Compiled code for the kernels of rowmath. The import lets rowmath use it."""

from aotcuda import packs

packs.use(__name__)
