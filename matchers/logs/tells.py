"""Facts about a log besides its numbers, which depend on who wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["EVERYTHING", "IMPORTED", "NUMBERS_ALONE", "Tells", "coarser"]


class Tells(NamedTuple):
    """The facts on which the other rooms may rely.

    Attributes:
        exact: numbers round-trip; else they have about seven digits.
        copies: recomputed operations are marked; else any operation of the backward pass may be one.
        awaited: collectives have the values that their waits bring, and their phase.
        unread: an input without a number is one that was not read; else the number is missing.
        makers: inputs name the operation that made them, also where a view lies between.
        whole: an operation that is not in the log did not run.
        phases: every operation has its phase; else some have none (`Phase.OTHER`).
        inputs: the norm that is told of inputs; empty: none is, and each record has one input without a number.
        modules: an operation is a call of a module, or a tensor with its name.
        digests: the kind of digest; those of two kinds are never equal.
        resolution: relative difference that the printing of numbers without a digest may make, where it exceeds what
            dtypes round.
        numbers: the numbers that tensors are compared by where there are no digests.
        misses: what these do not show where they are equal.
        magnitudes: extremes and means of complex tensors are those of magnitudes; else of real and imaginary parts.
        functions: an operation is a call of a function, whose result may be shaped otherwise than that of what it
            dispatches.
        ordered: operations are in the order in which they ran.
    """

    exact: bool
    copies: bool
    awaited: bool
    unread: bool
    makers: bool
    whole: bool
    phases: bool = True
    inputs: str = "L1"
    modules: bool = False
    digests: str = "numtui"
    resolution: float = 0.0
    numbers: str = "printed norms"
    misses: str = "reordering, sign flips (L1, L2) and changes below 5e-7"
    magnitudes: bool = False
    functions: bool = False
    ordered: bool = True


EVERYTHING = Tells(exact=True, copies=True, awaited=True, unread=True, makers=True, whole=True)
"""Logs of our own capture."""
NUMBERS_ALONE = Tells(exact=False, copies=False, awaited=False, unread=False, makers=False, whole=False)
"""torchtitan's."""
_OF_OTHERS = NUMBERS_ALONE._replace(exact=True, phases=False)
_DUMPED = _OF_OTHERS._replace(unread=True, numbers="norms, extremes and means", misses="reordering")
_RESULTS = _DUMPED._replace(inputs="")
_DEBUG_MODE = _OF_OTHERS._replace(
    numbers="L1 norms", misses="reordering, sign flips and changes that cancel in the sum"
)
_MEGATRON = _RESULTS._replace(modules=True, digests="sha256", numbers="L2 norms, extremes and means")
_STATISTICS = _OF_OTHERS._replace(
    unread=True,
    inputs="L2",
    numbers="L2 norms, extremes and means in each tensor's dtype",
    misses="reordering and changes below its resolution",
    magnitudes=True,
    functions=True,
)
_CHECKSUMS = "CRC-32, L2 norms, extremes and means", "what leaves the 32 bits of a checksum equal"
_MSPROBE: Final[Mapping[str, Tells]] = {
    "statistics": _STATISTICS,
    "md5": _STATISTICS._replace(numbers=_CHECKSUMS[0], misses=_CHECKSUMS[1]),
    "xor": _STATISTICS._replace(numbers="XORs of bits", misses="reordering and changes that cancel"),
    "tensors": _DUMPED._replace(functions=True),
}
_FIVE_DIGITS = "five digits of standard deviation, mean and extremes"
IMPORTED: Final[Mapping[str, Tells]] = {
    "torch DebugMode (save_logs)": _DEBUG_MODE,
    "torch DebugMode (dump_tensor_hashes)": _DEBUG_MODE,
    "torch DebugMode (debug_string)": _DEBUG_MODE,
    "Megatron determinism trace": _MEGATRON,
    "Megatron determinism trace (full)": _MEGATRON,
    "Megatron determinism trace (summary)": _MEGATRON,
    "Megatron determinism trace (sampled)": _MEGATRON._replace(
        numbers="hashes of up to 256 elements", misses="all other elements"
    ),
    "Megatron determinism trace (metadata)": _MEGATRON._replace(numbers="shapes and dtypes", misses="all values"),
    "Megatron routing trace": _DUMPED._replace(numbers="chosen experts", misses="nothing of these"),
    **{f"msprobe ({what})": tells for what, tells in _MSPROBE.items()},
    **{f"msprobe ({what}, modules)": tells._replace(modules=True) for what, tells in _MSPROBE.items()},
    "transformers debug tree": _DUMPED._replace(modules=True, resolution=1e-4),
    "transformers debug tree (printed numbers)": _RESULTS._replace(
        modules=True, exact=False, resolution=1e-4, numbers=_FIVE_DIGITS, misses="reordering and changes below 1e-4"
    ),
    "torch.save (SGLang dumper)": _DUMPED._replace(modules=True),
    "torch.save": _RESULTS._replace(modules=True),
    "safetensors": _RESULTS._replace(modules=True),
    "safetensors (order of names)": _RESULTS._replace(modules=True, ordered=False),
}
"""Other tools', by the format of the header."""


def coarser(one: Tells, other: Tells) -> Tells:
    """The one of two logs whose numbers tell less: two are compared by these."""
    return min(one, other)
