"""A small package in a flat layout."""
