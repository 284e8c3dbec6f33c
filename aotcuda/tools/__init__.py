"""Commands of `aotcuda` for developers: each folder or module here is one command."""
