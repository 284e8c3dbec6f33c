"""A package like those that exist."""
