"""Make csrc/generated: a function for each kind of linkable file, compiled by NVIDIA's tools.

Run in the project's folder with the path of nvcc: `python make_binaries.py nvcc`.
"""

import subprocess
import sys
from pathlib import Path

KINDS = {
    "from_ptx": ("ptx", ["-rdc=true", "-arch=sm_90", "-ptx"]),
    "from_cubin": ("cubin", ["-rdc=true", "-arch=sm_90", "-cubin"]),
    "from_fatbin": (
        "fatbin",
        ["-rdc=true", "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90", "-fatbin"],
    ),
    "from_ltoir": ("ltoir", ["-gencode=arch=compute_80,code=lto_80", "-dc", "-ltoir"]),
    "from_o": ("o", ["-gencode=arch=compute_90,code=sm_90", "-dc"]),
    "from_a": ("o", ["-gencode=arch=compute_90,code=sm_90", "-dc"]),
}


def main(nvcc: str) -> None:
    folder = Path("csrc/generated")
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (suffix, options)) in enumerate(KINDS.items(), start=1):
        source = folder / f"{name}.cu"
        source.write_text(f'extern "C" __device__ float {name}(float x) {{ return 2.0f * x + {number}.0f; }}\n')
        subprocess.run([nvcc, *options, str(source), "-o", str(folder / f"{name}.{suffix}")], check=True)
        source.unlink()
    member = folder / "from_a.o"
    subprocess.run(["ar", "rcsD", str(folder / "libfrom_a.a"), str(member)], check=True)
    member.unlink()


if __name__ == "__main__":
    main(sys.argv[1])
