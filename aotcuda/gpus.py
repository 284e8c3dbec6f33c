"""List the compute capabilities of NVIDIA's GPUs: names, limits, and the toolkits and drivers that support them.

A new GPU generation is a new row here. `common/drivers.toml` has drivers and toolkits.

Sources, read on 21 and 25 November 2026; a missing value is unknown:

- names: README of NVIDIA's open kernel modules 595.45.04, "Compatible GPUs"; developer.nvidia.com/cuda-gpus, and its
  page of legacy GPUs for 6.0 to 7.2
- first_cuda, last_cuda: NVIDIA Data Center Drivers, "CUDA Toolkit, Driver, and Architecture Matrix"; PTX ISA, "Release
  History"; release notes of CUDA 13.0
- last_driver: NVIDIA's Unix graphics feature deprecation schedule (the 580 series is the last for Pascal and Volta)
- family: CUDA Programming Guide 13.4, 5.1.2.3, table 28 "Family-Specific Compatibility"
- limits: CUDA Programming Guide, "Technical Specifications per Compute Capability"; CCCL, `cuda/__device/arch_traits.h`
- tegra: CUDA C++ Programming Guide, 6.1.2 "Binary Compatibility": machine code is not compatible between Tegra and
  desktop GPUs, nor between Tegra GPUs
"""

from __future__ import annotations

_KIB = 1024


class Limits:
    """Sizes that depend on the compute capability.

    Attributes:
        threads: The most resident threads of a multiprocessor.
        shared: Bytes of shared memory of a multiprocessor.
        shared_block: The most bytes of shared memory that a block can opt in to.
        registers_block: The most 32-bit registers of a block.
    """

    __slots__ = ("registers_block", "shared", "shared_block", "threads")

    def __init__(self, threads: int, shared: int, shared_block: int, registers_block: int = 65536) -> None:
        """Store the limits; shared memory is in KiB."""
        self.threads = threads
        self.shared = shared * _KIB
        self.shared_block = shared_block * _KIB
        self.registers_block = registers_block


class Capability:
    """A compute capability.

    Attributes:
        number: `(9, 0)`.
        architecture: `Hopper`.
        first_cuda: The first CUDA version whose toolkit builds for it and whose driver supports its GPUs.
        last_cuda: The last toolkit that builds for it; None if no toolkit has dropped it.
        last_driver: The last driver branch for its GPUs; None if no branch has dropped them.
        renamed: The number in later toolkits; None if it is the same.
        tegra: True for Tegra GPUs.
        family: A number that capabilities with the same family-specific features share; None without a family.
        limits: The limits; None if they are unknown.
        examples: Short names for tables; empty if NVIDIA names no GPU.
        names: All known names, as the driver and NVIDIA's pages have them.
    """

    __slots__ = (
        "architecture",
        "examples",
        "family",
        "first_cuda",
        "last_cuda",
        "last_driver",
        "limits",
        "names",
        "number",
        "renamed",
        "tegra",
    )

    def __init__(
        self,
        number: tuple[int, int],
        architecture: str,
        *,
        first_cuda: tuple[int, int],
        last_cuda: tuple[int, int] | None = None,
        last_driver: int | None = None,
        renamed: tuple[int, int] | None = None,
        tegra: bool = False,
        family: int | None = None,
        limits: Limits | None = None,
        examples: tuple[str, ...] = (),
        names: str = "",
    ) -> None:
        """Store the properties; `names` is one text, separated by commas."""
        self.number = number
        self.architecture = architecture
        self.first_cuda = first_cuda
        self.last_cuda = last_cuda
        self.last_driver = last_driver
        self.renamed = renamed
        self.tegra = tegra
        self.family = family
        self.limits = limits
        self.examples = examples
        self.names = tuple(names.split(", ")) if names else ()

    @property
    def is_current(self) -> bool:
        """Return True if no toolkit has dropped it."""
        return self.last_cuda is None

    def known_to(self, cuda: tuple[int, int]) -> bool:
        """Return True if the toolkit of a CUDA version builds for it."""
        return self.first_cuda <= cuda <= (self.last_cuda or cuda)


CAPABILITIES = (
    Capability(
        (6, 0),
        "Pascal",
        first_cuda=(8, 0),
        last_cuda=(12, 9),
        last_driver=580,
        limits=Limits(2048, 64, 48),
        examples=("P100",),
        names="Quadro GP100, Tesla P100-PCIE-12GB, Tesla P100-PCIE-16GB, Tesla P100-SXM2-16GB",
    ),
    Capability(
        (6, 1),
        "Pascal",
        first_cuda=(8, 0),
        last_cuda=(12, 9),
        last_driver=580,
        limits=Limits(2048, 96, 48),
        examples=("P40", "GTX 1080"),
        names=(
            "NVIDIA GeForce GT 1030, NVIDIA GeForce GTX 1050, NVIDIA GeForce GTX 1050 Ti, NVIDIA GeForce GTX 1060, "
            "NVIDIA GeForce GTX 1060 3GB, NVIDIA GeForce GTX 1060 6GB, NVIDIA GeForce GTX 1070, "
            "NVIDIA GeForce GTX 1070 Ti, NVIDIA GeForce GTX 1080, NVIDIA GeForce GTX 1080 Ti, NVIDIA GeForce MX150, "
            "NVIDIA GeForce MX250, NVIDIA GeForce MX350, NVIDIA TITAN X (Pascal), NVIDIA TITAN Xp, Quadro P1000, "
            "Quadro P2000, Quadro P2200, Quadro P400, Quadro P4000, Quadro P5000, Quadro P600, Quadro P6000, "
            "Quadro P620, Tesla P4, Tesla P40, Tesla P6"
        ),
    ),
    Capability(
        (6, 2),
        "Pascal",
        first_cuda=(8, 0),
        last_cuda=(12, 9),
        last_driver=580,
        tegra=True,
        limits=Limits(2048, 64, 48, 32768),
        examples=("Jetson TX2",),
        names="Jetson TX2",
    ),
    Capability(
        (7, 0),
        "Volta",
        first_cuda=(9, 0),
        last_cuda=(12, 9),
        last_driver=580,
        limits=Limits(2048, 96, 96),
        examples=("V100",),
        names=(
            "NVIDIA TITAN V, Quadro GV100, Tesla V100-DGXS-16GB, Tesla V100-DGXS-32GB, Tesla V100-FHHL-16GB, "
            "Tesla V100-PCIE-16GB, Tesla V100-PCIE-32GB, Tesla V100-SXM2-16GB, Tesla V100-SXM2-32GB, "
            "Tesla V100-SXM3-32GB, Tesla V100S-PCIE-32GB"
        ),
    ),
    Capability(
        (7, 2),
        "Volta",
        first_cuda=(9, 1),
        last_cuda=(12, 9),
        last_driver=580,
        tegra=True,
        limits=Limits(2048, 96, 96),
        examples=("Jetson AGX Xavier",),
        names="Jetson AGX Xavier, Jetson Xavier NX",
    ),
    Capability(
        (7, 5),
        "Turing",
        first_cuda=(10, 0),
        limits=Limits(1024, 64, 64),
        examples=("T4", "RTX 2080"),
        names=(
            "NVIDIA CMP 30HX, NVIDIA CMP 40HX, NVIDIA CMP 50HX, NVIDIA GeForce GTX 1630, NVIDIA GeForce GTX 1650, "
            "NVIDIA GeForce GTX 1650 SUPER, NVIDIA GeForce GTX 1650 Ti, "
            "NVIDIA GeForce GTX 1650 Ti with Max-Q Design, NVIDIA GeForce GTX 1650 with Max-Q Design, "
            "NVIDIA GeForce GTX 1660, NVIDIA GeForce GTX 1660 SUPER, NVIDIA GeForce GTX 1660 Ti, "
            "NVIDIA GeForce GTX 1660 Ti with Max-Q Design, NVIDIA GeForce MX450, NVIDIA GeForce MX550, "
            "NVIDIA GeForce RTX 2060, NVIDIA GeForce RTX 2060 SUPER, NVIDIA GeForce RTX 2060 with Max-Q Design, "
            "NVIDIA GeForce RTX 2070, NVIDIA GeForce RTX 2070 SUPER, "
            "NVIDIA GeForce RTX 2070 Super with Max-Q Design, NVIDIA GeForce RTX 2070 with Max-Q Design, "
            "NVIDIA GeForce RTX 2080, NVIDIA GeForce RTX 2080 SUPER, "
            "NVIDIA GeForce RTX 2080 Super with Max-Q Design, NVIDIA GeForce RTX 2080 Ti, "
            "NVIDIA GeForce RTX 2080 with Max-Q Design, NVIDIA T1000, NVIDIA T1000 8GB, NVIDIA T1200 Laptop GPU, "
            "NVIDIA T4, NVIDIA T400, NVIDIA T400 4GB, NVIDIA T400E, NVIDIA T500, NVIDIA T550 Laptop GPU, "
            "NVIDIA T600, NVIDIA T600 Laptop GPU, NVIDIA TITAN RTX, Quadro RTX 3000, "
            "Quadro RTX 3000 with Max-Q Design, Quadro RTX 4000, Quadro RTX 4000 with Max-Q Design, Quadro RTX 5000, "
            "Quadro RTX 5000 with Max-Q Design, Quadro RTX 6000, Quadro RTX 8000, Quadro T1000, "
            "Quadro T1000 with Max-Q Design, Quadro T2000, Quadro T2000 with Max-Q Design, Tesla T4"
        ),
    ),
    Capability(
        (8, 0),
        "Ampere",
        first_cuda=(11, 0),
        limits=Limits(2048, 164, 163),
        examples=("A100", "A30"),
        names=(
            "NVIDIA A100, NVIDIA A100 80GB PCIe, NVIDIA A100-PCIE-40GB, NVIDIA A100-SXM-64GB, NVIDIA A100-SXM4-40GB, "
            "NVIDIA A100-SXM4-80GB, NVIDIA A30, NVIDIA A800 40GB Active, NVIDIA A800 80GB PCIe, "
            "NVIDIA A800 80GB PCIe LC, NVIDIA A800-SXM4-40GB, NVIDIA A800-SXM4-80GB, NVIDIA AX800"
        ),
    ),
    Capability(
        (8, 6),
        "Ampere",
        first_cuda=(11, 1),
        limits=Limits(1536, 100, 99),
        examples=("A10", "A40", "RTX 3090"),
        names=(
            "NVIDIA A10, NVIDIA A10G, NVIDIA A10M, NVIDIA A16, NVIDIA A2, NVIDIA A40, NVIDIA CMP 70HX, "
            "NVIDIA CMP 90HX, NVIDIA GeForce MX570, NVIDIA GeForce MX570 A, NVIDIA GeForce RTX 2050, "
            "NVIDIA GeForce RTX 3050, NVIDIA GeForce RTX 3050 4GB Laptop GPU, "
            "NVIDIA GeForce RTX 3050 6GB Laptop GPU, NVIDIA GeForce RTX 3050 Laptop GPU, "
            "NVIDIA GeForce RTX 3050 OEM, NVIDIA GeForce RTX 3050 Ti Laptop GPU, NVIDIA GeForce RTX 3060, "
            "NVIDIA GeForce RTX 3060 Laptop GPU, NVIDIA GeForce RTX 3060 Ti, NVIDIA GeForce RTX 3070, "
            "NVIDIA GeForce RTX 3070 Laptop GPU, NVIDIA GeForce RTX 3070 Ti, NVIDIA GeForce RTX 3070 Ti Laptop GPU, "
            "NVIDIA GeForce RTX 3080, NVIDIA GeForce RTX 3080 Laptop GPU, NVIDIA GeForce RTX 3080 Ti, "
            "NVIDIA GeForce RTX 3080 Ti Laptop GPU, NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090 Ti, "
            "NVIDIA RTX A1000, NVIDIA RTX A1000 6GB Laptop GPU, NVIDIA RTX A1000 Embedded GPU, "
            "NVIDIA RTX A1000 Laptop GPU, NVIDIA RTX A2000, NVIDIA RTX A2000 12GB, NVIDIA RTX A2000 8GB Laptop GPU, "
            "NVIDIA RTX A2000 Embedded GPU, NVIDIA RTX A2000 Laptop GPU, NVIDIA RTX A3000, "
            "NVIDIA RTX A3000 12GB Laptop GPU, NVIDIA RTX A3000 Laptop GPU, NVIDIA RTX A400, NVIDIA RTX A4000, "
            "NVIDIA RTX A4000 Laptop GPU, NVIDIA RTX A4000H, NVIDIA RTX A4500, NVIDIA RTX A4500 Embedded GPU, "
            "NVIDIA RTX A4500 Laptop GPU, NVIDIA RTX A500 Embedded GPU, NVIDIA RTX A500 Laptop GPU, "
            "NVIDIA RTX A5000, NVIDIA RTX A5000 Laptop GPU, NVIDIA RTX A5500, NVIDIA RTX A5500 Laptop GPU, "
            "NVIDIA RTX A6000"
        ),
    ),
    Capability(
        (8, 7),
        "Ampere",
        first_cuda=(11, 4),
        tegra=True,
        limits=Limits(1536, 164, 163),
        examples=("Jetson AGX Orin",),
        names="Jetson AGX Orin, Jetson Orin Nano, Jetson Orin NX",
    ),
    # NVIDIA's compilers have 8.8, and NVIDIA's pages name no GPU with it. It counts as Tegra, because NVIDIA does not
    # promise that code for other GPUs runs on it.
    Capability((8, 8), "Ampere", first_cuda=(13, 0), tegra=True, limits=Limits(1536, 100, 99)),
    Capability(
        (8, 9),
        "Ada",
        first_cuda=(11, 8),
        limits=Limits(1536, 100, 99),
        examples=("L4", "L40S", "RTX 4090"),
        names=(
            "NVIDIA GeForce RTX 3050 A Laptop GPU, NVIDIA GeForce RTX 4050, NVIDIA GeForce RTX 4050 Laptop GPU, "
            "NVIDIA GeForce RTX 4060, NVIDIA GeForce RTX 4060 Laptop GPU, NVIDIA GeForce RTX 4060 Ti, "
            "NVIDIA GeForce RTX 4070, NVIDIA GeForce RTX 4070 Laptop GPU, NVIDIA GeForce RTX 4070 SUPER, "
            "NVIDIA GeForce RTX 4070 Ti, NVIDIA GeForce RTX 4070 Ti SUPER, NVIDIA GeForce RTX 4080, "
            "NVIDIA GeForce RTX 4080 Laptop GPU, NVIDIA GeForce RTX 4080 SUPER, NVIDIA GeForce RTX 4090, "
            "NVIDIA GeForce RTX 4090 D, NVIDIA GeForce RTX 4090 Laptop GPU, NVIDIA L2, NVIDIA L20, NVIDIA L4, "
            "NVIDIA L40, NVIDIA L40S, NVIDIA RTX 1000 Ada Generation Laptop GPU, NVIDIA RTX 2000 Ada, "
            "NVIDIA RTX 2000 Ada Generation, NVIDIA RTX 2000 Ada Generation Embedded GPU, "
            "NVIDIA RTX 2000 Ada Generation Laptop GPU, NVIDIA RTX 2000E Ada Generation, "
            "NVIDIA RTX 3000 Ada Generation Laptop GPU, NVIDIA RTX 3500 Ada Generation Embedded GPU, "
            "NVIDIA RTX 3500 Ada Generation Laptop GPU, NVIDIA RTX 4000 Ada, NVIDIA RTX 4000 Ada Generation, "
            "NVIDIA RTX 4000 Ada Generation Laptop GPU, NVIDIA RTX 4000 SFF Ada, NVIDIA RTX 4000 SFF Ada Generation, "
            "NVIDIA RTX 4500 Ada, NVIDIA RTX 4500 Ada Generation, NVIDIA RTX 500 Ada Generation Laptop GPU, "
            "NVIDIA RTX 5000 Ada, NVIDIA RTX 5000 Ada Generation, NVIDIA RTX 5000 Ada Generation Embedded GPU, "
            "NVIDIA RTX 5000 Ada Generation Laptop GPU, NVIDIA RTX 5880 Ada Generation, NVIDIA RTX 6000 Ada, "
            "NVIDIA RTX 6000 Ada Generation"
        ),
    ),
    Capability(
        (9, 0),
        "Hopper",
        first_cuda=(11, 8),
        limits=Limits(2048, 228, 227),
        examples=("H100", "H200", "GH200"),
        names=(
            "NVIDIA GH200, NVIDIA GH200 120GB, NVIDIA GH200 144G HBM3e, NVIDIA GH200 480GB, NVIDIA H100, "
            "NVIDIA H100 80GB HBM3, NVIDIA H100 NVL, NVIDIA H100 PCIe, NVIDIA H20, NVIDIA H20 NVL16, NVIDIA H20-3e, "
            "NVIDIA H200, NVIDIA H200 NVL, NVIDIA H800, NVIDIA H800 NVL, NVIDIA H800 PCIe"
        ),
    ),
    Capability(
        (10, 0),
        "Blackwell",
        first_cuda=(12, 8),
        family=10,
        limits=Limits(2048, 228, 227),
        examples=("B200", "GB200"),
        names="NVIDIA B200, NVIDIA GB200",
    ),
    # The number of 11.0 in CUDA 12.8 and 12.9 ("SM101 has been renumbered as SM110", release notes of CUDA 13.0).
    Capability((10, 1), "Blackwell", first_cuda=(12, 8), last_cuda=(12, 9), renamed=(11, 0), tegra=True),
    Capability(
        (10, 3),
        "Blackwell",
        first_cuda=(12, 9),
        family=10,
        limits=Limits(2048, 228, 227),
        examples=("B300", "GB300"),
        names="NVIDIA B300, NVIDIA B300 SXM6 AC, NVIDIA GB300",
    ),
    # The page of CUDA GPUs did not have 10.7; the names are from NVIDIA's libraries (FlashInfer, cuDNN front end,
    # CUTLASS).
    Capability((10, 7), "Rubin", first_cuda=(13, 4), family=10, examples=("R200",), names="NVIDIA R200, NVIDIA VR200"),
    # Jetson AGX Thor is the developer kit of T5000.
    Capability(
        (11, 0),
        "Blackwell",
        first_cuda=(13, 0),
        tegra=True,
        family=11,
        limits=Limits(1536, 228, 227),
        examples=("Jetson T5000",),
        names="Jetson AGX Thor, Jetson T4000, Jetson T5000",
    ),
    Capability(
        (12, 0),
        "Blackwell",
        first_cuda=(12, 8),
        family=12,
        limits=Limits(1536, 100, 99),
        examples=("RTX 5090", "RTX PRO 6000"),
        names=(
            "NVIDIA GeForce RTX 5050, NVIDIA GeForce RTX 5050 Laptop GPU, NVIDIA GeForce RTX 5060, "
            "NVIDIA GeForce RTX 5060 Laptop GPU, NVIDIA GeForce RTX 5060 Ti, NVIDIA GeForce RTX 5070, "
            "NVIDIA GeForce RTX 5070 Laptop GPU, NVIDIA GeForce RTX 5070 Ti, NVIDIA GeForce RTX 5070 Ti Laptop GPU, "
            "NVIDIA GeForce RTX 5080, NVIDIA GeForce RTX 5080 Laptop GPU, NVIDIA GeForce RTX 5090, "
            "NVIDIA GeForce RTX 5090 D, NVIDIA GeForce RTX 5090 D v2, NVIDIA GeForce RTX 5090 Laptop GPU, "
            "NVIDIA RTX 6000D, NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU, NVIDIA RTX PRO 2000 Blackwell, "
            "NVIDIA RTX PRO 2000 Blackwell Embedded GPU, NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU, "
            "NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU, NVIDIA RTX PRO 4000 Blackwell, "
            "NVIDIA RTX PRO 4000 Blackwell Embedded GPU, NVIDIA RTX PRO 4000 Blackwell Generation Laptop GPU, "
            "NVIDIA RTX PRO 4000 Blackwell SFF Edition, NVIDIA RTX PRO 4500 Blackwell, "
            "NVIDIA RTX PRO 4500 Blackwell Server Edition, NVIDIA RTX PRO 500 Blackwell Embedded GPU, "
            "NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU, NVIDIA RTX PRO 5000 72GB Blackwell, "
            "NVIDIA RTX PRO 5000 Blackwell, NVIDIA RTX PRO 5000 Blackwell Embedded GPU, "
            "NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU, "
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, NVIDIA RTX PRO 6000 Blackwell Server Edition, "
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
        ),
    ),
    Capability(
        (12, 1),
        "Blackwell",
        first_cuda=(12, 9),
        family=12,
        limits=Limits(1536, 100, 99),
        examples=("GB10",),
        names="NVIDIA DGX Spark, NVIDIA GB10",
    ),
)
"""The compute capabilities, lowest first."""

BY_NUMBER = {row.number: row for row in CAPABILITIES}

_BRANDS = ("nvidia", "geforce", "tesla", "gpu", "generation")


def key_of_name(name: str) -> str:
    """Return the letters and digits of a name without brands: `rtx5090` for `NVIDIA RTX 5090`."""
    key = "".join([char for char in name.lower() if char.isascii() and char.isalnum()])
    for brand in _BRANDS:
        key = key.replace(brand, "")
    return key


def by_name(name: str) -> Capability | None:
    """Return the compute capability of a GPU by any of its names, or None; brands, case and spaces do not matter."""
    key = key_of_name(name)
    return next(
        (row for row in CAPABILITIES for known in (*row.names, *row.examples) if key and key_of_name(known) == key),
        None,
    )


_USUAL = {
    "p100": "Tesla P100-SXM2-16GB",
    "v100": "Tesla V100-SXM2-32GB",
    "t4": "Tesla T4",
    "a100": "NVIDIA A100-SXM4-80GB",
    "a800": "NVIDIA A800-SXM4-80GB",
    "h100": "NVIDIA H100 80GB HBM3",
    "gh200": "NVIDIA GH200 480GB",
    "b300": "NVIDIA B300 SXM6 AC",
    "rtxpro6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
"""The driver's name of the usual board of a GPU with several, by `key_of_name`: packages choose configs by it."""


def driver_name(name: str) -> str:
    """Return the name by which the driver calls a GPU: `NVIDIA H100 80GB HBM3` for `H100`; `name` if it is unknown."""
    key = key_of_name(name)
    known = (full for row in CAPABILITIES for full in row.names if key_of_name(full) == key)
    return _USUAL.get(key) or next(known, name)


def example(capability: tuple[int, int]) -> str:
    """Return the name of a GPU with a compute capability, which sources see while they are imported for a target."""
    row = BY_NUMBER.get(capability)
    if row is None or not row.examples:
        return "NVIDIA GPU {}.{}".format(*capability)
    return driver_name(row.examples[0])


MULTIPROCESSORS = {
    (6, 0): 56, (6, 1): 30, (6, 2): 2, (7, 0): 80, (7, 2): 8, (7, 5): 40, (8, 0): 108, (8, 6): 72, (8, 7): 16,
    (8, 9): 58, (9, 0): 132, (10, 0): 148, (10, 3): 148, (11, 0): 20, (12, 0): 170, (12, 1): 48,
}  # fmt: skip
"""The multiprocessors of each row's first example; for H100 of the SXM5 board.

Sources: NVIDIA's whitepapers of P100, V100, Turing, A100, Ada, H100 and RTX Blackwell; data sheets of the boards and
Jetson modules, which count CUDA cores; NVIDIA's technical blog on DGX Spark for GB10 and B200. A B300 reports 148 to
CUDA; its chip has 160.
"""

TEGRA = frozenset([(5, 3), *(row.number for row in CAPABILITIES if row.tegra)])
"""The compute capabilities of Tegra GPUs."""

FIRST_CURRENT = next(row.number for row in CAPABILITIES if row.is_current)
"""The lowest compute capability that the newest toolkits build for. CUDA 12 also builds for lower ones."""

MOST_LOCAL = (512 << 10) - 512
"""The most bytes of local memory of a thread, on every GPU.

The limit is 512 KiB ("Technical Specifications per Compute Capability"). An H200 launched kernels with 523,600 bytes
and refused 523,800.
"""

FIRST_WITH = {"": (0, 0), "a": (9, 0), "f": (10, 0)}
"""The first compute capability with each suffix (CUDA C++ Programming Guide, Feature Set Compiler Targets)."""

EVERYWHERE = {
    "WARP_SIZE": 32,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * _KIB,
    "TOTAL_CONSTANT_MEMORY": 64 * _KIB,
}
"""Limits that are equal for all these GPUs, by the names of CUDA's device attributes."""


_BY_LIMIT = {
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "shared",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "shared_block",
    "MAX_THREADS_PER_MULTIPROCESSOR": "threads",
    "MAX_REGISTERS_PER_BLOCK": "registers_block",
}
"""The attributes of `Limits`, by the names of CUDA's device attributes."""


_ZERO = ("KERNEL_EXEC_TIMEOUT", "COMPUTE_MODE", "PCI_BUS_ID", "PCI_DEVICE_ID", "PCI_DOMAIN_ID", "MULTI_GPU_BOARD")


def describe(capability: tuple[int, int], name: str = "") -> dict[str, object]:
    """Return the facts of a GPU that is not there: `name`, `capability`, `attributes` and those that are equal for all.

    Dry runs, builds and `aotcuda check` answer programs by these facts. Values that differ among the GPUs of a compute
    capability are those of the row's first example, such as the multiprocessors of an H100. A capability whose limits
    are not known has those of the next lower one.
    """
    row = BY_NUMBER.get(capability)
    known = [row.limits for row in CAPABILITIES if row.limits and row.number <= capability] or [Limits(2048, 96, 96)]
    return {
        "name": name or example(capability),
        "capability": capability,
        "same": [*EVERYWHERE, *_ZERO],
        "attributes": {
            **EVERYWHERE,
            "COMPUTE_CAPABILITY_MAJOR": capability[0],
            "COMPUTE_CAPABILITY_MINOR": capability[1],
            "MULTIPROCESSOR_COUNT": MULTIPROCESSORS.get(capability, 32),
            "MAX_REGISTERS_PER_BLOCK": 65536,
            "L2_CACHE_SIZE": 50 << 20,
            "CLOCK_RATE": 1_500_000,
            "MEMORY_CLOCK_RATE": 2_619_000,
            "GLOBAL_MEMORY_BUS_WIDTH": 5120,
            "INTEGRATED": int(row is not None and row.tegra),
            **dict.fromkeys(_ZERO, 0),
            **{key: getattr(known[-1], value) for key, value in _BY_LIMIT.items()},
        },
    }


def default_targets(cuda: tuple[int, int]) -> tuple[str, ...]:
    """Return targets for a new project: machine code for each desktop generation, and PTX for future GPUs.

    `cuda` is the version of the project's toolkit; generations that this toolkit cannot build for are left out.
    """
    rows = [row for row in CAPABILITIES if row.is_current and row.known_to(cuda) and not row.tegra]
    numbers = [row.number for row in rows if row is rows[0] or row.number[1] == 0]
    return (*(f"sm_{major}{minor}" for major, minor in numbers), "compute_{}{}".format(*numbers[0]))
