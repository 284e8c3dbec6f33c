"""What aotcuda and NVIDIA's compilers wrote, read: wheels and data folders, ELF and cubins, fatbins, PTX.

Inspection and the builder share it.
"""
