"""The reasons that each status may have, the usual one first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.reason import Reason

__all__ = ["FITS", "check_reasons"]

_PARTS = (Reason.SHARD_OF_WHOLE, Reason.TERM_OF_SUM, Reason.OTHER_ARRANGEMENT, Reason.OTHER_LIST_LENGTH)

FITS: Mapping[Status, tuple[Reason, ...]] = {
    Status.PENDING: (Reason.PENDING,),
    Status.EQUAL: (Reason.EQUAL_BITS,),
    Status.SAME_PRINT: (Reason.SAME_NUMBERS,),
    Status.CLOSE: (
        Reason.WITHIN_TOLERANCE,
        Reason.OTHER_BITS_SAME_NORMS,
        Reason.INFINITE_NORM,
        Reason.SAME_ELEMENTS,
        Reason.LOSS_SCALE,
        Reason.CANCELLATION,
        Reason.UNREAD_OUTPUT,
        Reason.ROUNDING_EXPLAINED,
    ),
    Status.SHARDED: _PARTS,
    Status.UNFINISHED: (Reason.UNFINISHED,),
    Status.PARTIAL: (Reason.REORDERED_SUM,),
    Status.NO_VALUES: (Reason.NO_NUMBERS,),
    Status.NOT_JUDGED: (
        Reason.UNSIZED,
        Reason.REARRANGED,
        Reason.TIED,
        Reason.OTHER_FORM,
        Reason.OTHER_LIST_LENGTH,
        Reason.OTHER_TENSORS,
        Reason.OTHER_CHUNK,
        Reason.REORDERED_SUM,
        Reason.MICRO_BATCH_TERM,
        Reason.BATCH_STATISTICS,
        Reason.CANCELLATION,
        Reason.ROUNDING_UNLIMITED,
        Reason.CHOSEN_OTHERWISE,
        Reason.UNKNOWN_LAYOUT,
    ),
    Status.RECOMPUTE: (Reason.RECOMPUTED,),
    Status.IGNORED: (Reason.RULE,),
    Status.ONLY_A: (Reason.ONLY_ONE_RUN, Reason.CHOSEN_OTHERWISE),
    Status.ONLY_B: (Reason.ONLY_ONE_RUN, Reason.CHOSEN_OTHERWISE),
    Status.SHAPE: (Reason.OTHER_SHAPE, Reason.OTHER_DTYPE, Reason.OTHER_LIST_LENGTH, Reason.ARGUMENTS),
    Status.DIVERGED: (
        Reason.BEYOND_TOLERANCE,
        Reason.OTHER_WHOLE_NUMBERS,
        Reason.NOT_BITWISE,
        Reason.NOT_REPEATED,
        Reason.ARGUMENTS,
        Reason.OTHER_ORDER,
        Reason.OTHER_SCALAR,
        Reason.OTHER_WEIGHT,
        Reason.OTHER_START,
        Reason.CHANGED_BY_ONE_RUN,
        Reason.CHANGED_ONCE_MORE,
        Reason.LAST_CONTENT,
        Reason.BEYOND_WHOLE,
        Reason.RECOMPUTED_OTHERWISE,
        Reason.COARSER_DTYPE,
        Reason.MORE_THAN_ROUNDING,
        Reason.SYSTEMATIC,
    ),
    Status.NAN: (Reason.NON_FINITE, Reason.NAN_IN_BOTH, Reason.LAST_CONTENT, Reason.ARGUMENTS),
}


def check_reasons(c: Rows) -> None:
    """Every row, and every slot that decides one, has a reason that fits its status."""
    fits = np.zeros((len(Status), len(Reason)), bool)
    for status, reasons in FITS.items():
        fits[status, list(reasons)] = True
    odd = np.flatnonzero(~fits[c.status, c.reason])
    assert [(Status(c.status[row]).label, Reason(c.reason[row]).label) for row in odd.tolist()] == []
    for slot in c.slots.values():
        assert fits[slot.status, slot.reason], (slot.status.label, slot.reason.label)
