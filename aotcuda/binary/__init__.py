"""Readers of wheels and data folders, ELF and cubins, fatbins, PTX.

Inspection and the builder share it.
"""
