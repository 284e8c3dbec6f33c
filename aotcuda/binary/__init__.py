"""Readers of wheels and data folders, ELF, cubins, fatbins and PTX, for the tools and the builder."""
