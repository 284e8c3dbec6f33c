"""Packaged device functions inside other compilers. Each module of this package belongs to one of them."""
