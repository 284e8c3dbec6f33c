"""Which tier each overload of each kernel takes on each GPU, and why not a better one: what `Module.tiers` tells."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Manifest
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.module import Module


class Tier:
    """What one overload takes on one GPU.

    Attributes:
        signature: The overload's signature.
        tier: `"exact"` for machine code for exactly this GPU, `"same-major"` for machine code of a lower minor version,
            `"ptx"` for PTX that the driver compiles, `"jit"` for the JIT fallback, None if nothing fits.
        choice: The image, why it is taken, and why each of the others is not.
    """

    __slots__ = ("choice", "signature", "tier")

    def __init__(self, signature: str, choice: Choice) -> None:
        self.signature = signature
        self.choice = choice
        major, minor = choice.capability
        exact = (choice.arch or "").rstrip("af") == f"sm_{major}{minor}"
        self.tier = ("exact" if exact else "same-major") if choice.kind == "sass" else choice.kind

    def __repr__(self) -> str:
        return f"<Tier {self.tier or 'none'}: {self.signature}: {self.choice}>"


def of(module: Module, fallback: Fallback | None) -> dict[str, list[Tier]]:
    """The tiers of every kernel of a module.

    Args:
        module: The module.
        fallback: Its JIT fallback, if it was ever asked.
    """
    whole = fallback.replacement if fallback is not None else None
    manifest: Manifest = module.manifest if whole is None else whole.artifact.manifest
    found: dict[str, list[Tier]] = {kernel["name"]: [] for kernel in manifest["kernels"]}
    for choice in module.chosen.values():
        taken = choice
        if choice.arch is None and fallback is not None:
            late = fallback.loaded.get(((None, None), choice.capability))
            taken = late.choice if late is not None else choice
        for kernel in manifest["kernels"]:
            found[kernel["name"]] += [Tier(overload["signature"], taken) for overload in kernel["overloads"]]
    for ((name, signature), _), late in fallback.loaded.items() if fallback is not None else ():
        if name is not None and signature is not None:
            found.setdefault(name, []).append(Tier(signature, late.choice))
    return found
