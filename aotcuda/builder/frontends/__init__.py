"""Front ends: `protocol` says what each offers to the build; aotcuda.registry lists them; each has a folder here."""
