"""Packaged code under names and inside compilers of other libraries."""
