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
        digests: the kind of digest; those of two kinds are never equal.
        resolution: relative difference that the printing of numbers alone may make, where it exceeds what dtypes round.
        numbers: the numbers that tensors are compared by where there are no digests.
        misses: what these do not show where they are equal.
    """

    exact: bool
    copies: bool
    awaited: bool
    unread: bool
    makers: bool
    whole: bool
    phases: bool = True
    inputs: str = "L1"
    digests: str = "numtui"
    resolution: float = 0.0
    numbers: str = "printed norms"
    misses: str = "reordering, sign flips (L1, L2) and changes below 5e-7"


EVERYTHING = Tells(exact=True, copies=True, awaited=True, unread=True, makers=True, whole=True)
"""Logs of our own capture."""
NUMBERS_ALONE = Tells(exact=False, copies=False, awaited=False, unread=False, makers=False, whole=False)
"""torchtitan's."""
_OF_OTHERS = NUMBERS_ALONE._replace(exact=True, phases=False)
_RESULTS_ALONE = _OF_OTHERS._replace(unread=True, inputs="")
_MSPROBE = _OF_OTHERS._replace(
    unread=True,
    inputs="L2",
    numbers="L2 norms, extremes and means in each tensor's dtype",
    misses="reordering and changes below its resolution",
)
_MEASURED = "norms, extremes and means"
_MEGATRON = _RESULTS_ALONE._replace(digests="sha256", numbers="L2 norms, extremes and means", misses="reordering")
IMPORTED: Final[Mapping[str, Tells]] = {
    **dict.fromkeys(
        (f"torch DebugMode ({form})" for form in ("save_logs", "dump_tensor_hashes", "debug_string")),
        _OF_OTHERS._replace(numbers="L1 norms", misses="reordering, sign flips and changes that cancel in the sum"),
    ),
    "Megatron determinism trace": _MEGATRON,
    "Megatron determinism trace (full)": _MEGATRON,
    "Megatron determinism trace (summary)": _MEGATRON,
    "Megatron determinism trace (sampled)": _MEGATRON._replace(
        numbers="hashes of up to 256 elements", misses="all other elements"
    ),
    "Megatron determinism trace (metadata)": _MEGATRON._replace(numbers="shapes and dtypes", misses="all values"),
    "Megatron routing trace": _OF_OTHERS._replace(unread=True, numbers="chosen experts", misses="nothing of these"),
    "msprobe (statistics)": _MSPROBE,
    "msprobe (md5)": _MSPROBE._replace(
        numbers="CRC-32, L2 norms, extremes and means", misses="what leaves the 32 bits of a checksum equal"
    ),
    "msprobe (xor)": _MSPROBE._replace(numbers="XORs of bits", misses="reordering and changes that cancel"),
    "msprobe (tensors)": _OF_OTHERS._replace(unread=True, numbers=_MEASURED, misses="reordering"),
    "transformers debug tree": _OF_OTHERS._replace(unread=True, numbers=_MEASURED, misses="reordering"),
    "transformers debug tree (printed numbers)": _RESULTS_ALONE._replace(
        exact=False,
        resolution=1e-4,
        numbers="five digits of standard deviation, mean and extremes",
        misses="reordering and changes below 1e-4",
    ),
    "torch.save (SGLang dumper)": _OF_OTHERS._replace(unread=True, numbers=_MEASURED, misses="reordering"),
    "torch.save": _RESULTS_ALONE._replace(numbers=_MEASURED, misses="reordering"),
    "safetensors": _RESULTS_ALONE._replace(numbers=_MEASURED, misses="reordering"),
}
"""Other tools', by the format of the header."""


def coarser(one: Tells, other: Tells) -> Tells:
    """The one of two logs whose numbers tell less: two are compared by these."""
    return min(one, other)
