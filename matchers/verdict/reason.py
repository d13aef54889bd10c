"""Reasons for the status of a row: the one finding that decided it."""

from __future__ import annotations

from enum import auto

from matchers.status import LabelledEnum

__all__ = ["UNSIZED", "Reason"]


class Reason(LabelledEnum):
    """The finding that decided a row's status."""

    PENDING = 0
    # the numbers of the results
    EQUAL_BITS = auto()
    SAME_NUMBERS = auto()
    WITHIN_TOLERANCE = auto()
    OTHER_BITS_SAME_NORMS = auto()
    """Digests differ, and all numbers that both logs have agree."""
    INFINITE_NORM = auto()
    """One log counts infinite values, the other has a norm of all: no number can be compared."""
    BEYOND_TOLERANCE = auto()
    OTHER_WHOLE_NUMBERS = auto()
    """Integers do not round: any difference is real."""
    NOT_BITWISE = auto()
    """Bitwise equality is expected."""
    OTHER_ORDER = auto()
    """Digests differ and the numbers agree, though the inputs determine each element: elements were moved."""
    NOT_REPEATED = auto()
    """All other operations of its form repeat to the bit."""
    NON_FINITE = auto()
    NAN_IN_BOTH = auto()
    """With equal bits, and a result takes it."""
    OTHER_SHAPE = auto()
    OTHER_DTYPE = auto()
    NO_NUMBERS = auto()
    UNSIZED = auto()
    """Digests differ, and no number says by how much."""
    REARRANGED = auto()
    """Digests differ and the numbers agree: elements may be in another order, or too few differ to show."""
    TIED = auto()
    """Equal values were put in another order: the positions of both are right."""
    UNFINISHED = auto()
    # what the operation was given, or changed
    ARGUMENTS = auto()
    """The operations were asked something else on the same inputs."""
    OTHER_SCALAR = auto()
    OTHER_WEIGHT = auto()
    OTHER_DATA = auto()
    """Whole numbers that the runs were given, such as targets, differ over all micro-batches."""
    OTHER_START = auto()
    """A weight differs before the step, of which most are bitwise equal."""
    CHANGED_BY_ONE_RUN = auto()
    CHANGED_ONCE_MORE = auto()
    LAST_CONTENT = auto()
    """A tensor that the runs write in other forms differs after the last operation that writes it."""
    BEYOND_WHOLE = auto()
    """A shard exceeds its whole, which no shard can."""
    RECOMPUTED_OTHERWISE = auto()
    """A recomputed copy differs from what it repeats, in one run only."""
    COARSER_DTYPE = auto()
    """A cast that one run alone has, to a dtype coarser than all of the other run."""
    # parts and other forms
    SHARD_OF_WHOLE = auto()
    TERM_OF_SUM = auto()
    """The sides hold other terms of a sum over ranks."""
    OTHER_ARRANGEMENT = auto()
    """Data in an order that depends on the number of ranks."""
    SAME_ELEMENTS = auto()
    """Lists that hold the same elements in other tensors."""
    OTHER_LIST_LENGTH = auto()
    OTHER_TENSORS = auto()
    """Lists of other tensors, or of the same in another order."""
    OTHER_FORM = auto()
    OTHER_CHUNK = auto()
    """Scalars computed from tensors of other sizes: a whole loss, and that of a chunk."""
    REORDERED_SUM = auto()
    """A term on the way to a total that the runs add in another order."""
    MICRO_BATCH_TERM = auto()
    BATCH_STATISTICS = auto()
    """Batch statistics and random numbers depend on the size of micro-batches, as does what follows from them."""
    UNKNOWN_LAYOUT = auto()
    """Ranks compute for each other what neither log shows, so that healthy runs differ, too."""
    # differences that have an explanation
    LOSS_SCALE = auto()
    CANCELLATION = auto()
    UNREAD_OUTPUT = auto()
    ROUNDING_EXPLAINED = auto()
    ROUNDING_UNLIMITED = auto()
    """Rounding would explain nearly anything, and so judges nothing."""
    CHOSEN_OTHERWISE = auto()
    """Rounding decides a choice, such as of a token's expert, and the sides compute with what each has chosen."""
    MORE_THAN_ROUNDING = auto()
    SYSTEMATIC = auto()
    """Rounding explains the size of a difference, but not that the norm changes by so much."""
    # rows without a verdict on a pair
    ONLY_ONE_RUN = auto()
    RECOMPUTED = auto()
    RULE = auto()


UNSIZED = (Reason.UNSIZED, Reason.REARRANGED)
"""Digests differ, and no error is known."""
