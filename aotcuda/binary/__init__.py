"""The formats of NVIDIA's binaries: ELF and cubins, fatbins, PTX. Inspection and the builder share them."""
