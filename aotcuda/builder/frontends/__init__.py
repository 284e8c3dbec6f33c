"""Front ends: `protocol` defines their interface, aotcuda.registry lists them, and each has a folder here."""
