"""Describe the GPU that programs see, and the properties of that GPU as each library names them."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEMORY = 64 << 30
"""The bytes of memory, on every GPU."""

UUID = "GPU-00000000-0000-0000-0000-000000000000"
DRIVER = (13, 0)
"""The CUDA version of the driver."""

_TORCH = {
    "total_memory": "",
    "is_multi_gpu_board": "MULTI_GPU_BOARD",
    "is_integrated": "INTEGRATED",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "warp_size": "WARP_SIZE",
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "pci_bus_id": "PCI_BUS_ID",
    "pci_device_id": "PCI_DEVICE_ID",
    "pci_domain_id": "PCI_DOMAIN_ID",
}
"""CUDA's names of attributes by PyTorch's names."""

_TRITON = {
    "max_shared_mem": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "max_num_regs": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "multiprocessor_count": "MULTIPROCESSOR_COUNT",
    "warpSize": "WARP_SIZE",
    "sm_clock_rate": "CLOCK_RATE",
    "mem_clock_rate": "MEMORY_CLOCK_RATE",
    "mem_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
}
"""CUDA's names of attributes by Triton's names."""

_CUPY = {
    "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "warpSize": "WARP_SIZE",
    "maxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "sharedMemPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "sharedMemPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "sharedMemPerMultiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "regsPerBlock": "MAX_REGISTERS_PER_BLOCK",
    "regsPerMultiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "clockRate": "CLOCK_RATE",
    "memoryClockRate": "MEMORY_CLOCK_RATE",
    "memoryBusWidth": "GLOBAL_MEMORY_BUS_WIDTH",
    "l2CacheSize": "L2_CACHE_SIZE",
    "maxThreadsPerMultiProcessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "concurrentKernels": "CONCURRENT_KERNELS",
    "cooperativeLaunch": "COOPERATIVE_LAUNCH",
    "integrated": "INTEGRATED",
    "pciBusID": "PCI_BUS_ID",
    "pciDeviceID": "PCI_DEVICE_ID",
}
"""CUDA's names of attributes by CuPy's names."""

_NUMBA_SINCE = {"supports_float16": (5, 3), "supports_bfloat16": (8, 0), "supports_fp8": (8, 9)}
"""Features by Numba's names, and the first compute capability with each."""


class Gpu:
    """The GPU that programs see.

    Attributes:
        name: `NVIDIA H100 80GB HBM3`.
        capability: `(9, 0)`.
        memory: The size of its memory in bytes.
        attributes: CUDA's device attributes by name.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        """Store the facts of `aotcuda.gpus.describe`."""
        self.name: str = facts["name"]
        self.capability: tuple[int, int] = (facts["capability"][0], facts["capability"][1])
        self.memory = MEMORY
        self.attributes: dict[str, int] = facts["attributes"]
        self._same = frozenset(["", "uuid", *facts["same"]])

    @classmethod
    def from_text(cls, text: str) -> Gpu:
        """Return the GPU whose facts are written as JSON."""
        return cls(json.loads(text))

    def attribute(self, name: str) -> int:
        """Return a device attribute by CUDA's name in capitals; 1, as for a feature, if it is unknown."""
        return self.attributes.get(name, 1)

    def answered(
        self,
        query: str,
        answer: Any,
        *,
        depends_on_target: bool = False,
        presence: bool = False,
        is_error: bool = False,
    ) -> Any:
        """Return an answer; builds override this method to record the queries of sources.

        Args:
            query: The queried function or property, by the name that sources use.
            answer: The answer, or the reason for an error.
            depends_on_target: GPUs of other targets would give other answers.
            presence: The answer says only that there is a GPU.
            is_error: The query raises an error.
        """
        del query, depends_on_target, presence, is_error
        return answer

    def differs(self, name: str) -> bool:
        """Return True if GPUs of other targets give another answer for a property, by the name of any library."""
        return _TORCH.get(name, _TRITON.get(name, name)) not in self._same

    def numba_attribute(self, name: str) -> Any:
        """Return an attribute of Numba's object for a device.

        Raises:
            AttributeError: There is no such attribute.
        """
        if name in _NUMBA_SINCE:
            return self.capability >= _NUMBA_SINCE[name]
        if name in ("compute_capability", "name", "uuid"):
            return {"compute_capability": self.capability, "name": self.name, "uuid": UUID}[name]
        if not name.isupper():
            message = f"a GPU has no {name}"
            raise AttributeError(message)
        return self.attribute(name)

    def torch_properties(self) -> dict[str, object]:
        """Return the attributes of PyTorch's object with device properties, by name."""
        return {
            "name": self.name,
            "gcnArchName": self.name,  # PyTorch for CUDA has the name here
            "major": self.capability[0],
            "minor": self.capability[1],
            "uuid": UUID,
            **{name: self.attribute(cuda) if cuda else self.memory for name, cuda in _TORCH.items()},
        }

    def triton_properties(self) -> dict[str, int]:
        """Return the device properties that Triton's driver has, by Triton's names."""
        return {name: self.attribute(cuda) for name, cuda in _TRITON.items()}

    def cupy_properties(self) -> dict[str, object]:
        """Return what CuPy's `getDeviceProperties` returns."""
        sizes = ("X", "Y", "Z")
        return {
            "name": self.name.encode(),
            "uuid": bytes(16),
            "major": self.capability[0],
            "minor": self.capability[1],
            "totalGlobalMem": self.memory,
            "maxThreadsDim": tuple(self.attribute(f"MAX_BLOCK_DIM_{size}") for size in sizes),
            "maxGridSize": tuple(self.attribute(f"MAX_GRID_DIM_{size}") for size in sizes),
            **{name: self.attribute(cuda) for name, cuda in _CUPY.items()},
        }
