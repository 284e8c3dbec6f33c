"""Front ends: `protocol` says what each offers to the build; aotcuda.frontends lists them; each has a folder here."""
