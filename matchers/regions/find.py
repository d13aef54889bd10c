"""Regions: what lies between values that are paired and judged, in two runs that compute it in other ways.

A region is a set of operations of one phase without a judged partner that the data flow connects: of either run, and of
both where they feed the same input of a pair. Pairs whose results differ in shape, or that cannot be judged, belong to
it. Constants, such as a mask of all layers, connect nothing. What a forward pass keeps for the backward pass does not
connect them either: a gradient that differs says little about forward results that agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, columns, marked, numbered, one_of
from matchers.graph import Lists, between, connected, lists, spread
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase, once_per_pair
from matchers.ops.dataflow import DataFlow, whole_numbers
from matchers.ops.laws import rows_where
from matchers.ops.training_scalars import backward_begins, training_scalars
from matchers.pairing.pairing import Pairing
from matchers.status import AGREE, LabelledEnum, Status

__all__ = ["OPEN", "Kind", "Regions", "find_regions"]

OPEN = np.isin(
    np.arange(len(Status)),
    (
        Status.NOT_JUDGED,
        Status.NO_VALUES,
        Status.SHARDED,
        Status.UNFINISHED,
        Status.PARTIAL,
        Status.SHAPE,
        Status.ONLY_A,
        Status.ONLY_B,
    ),
)
"""Statuses that leave open whether two results are the same value."""


_LOSS = 2.0**-16
"""Relative difference up to which two losses are the same: the rounding of float32 sums."""


class Kind(LabelledEnum):
    """The evidence of the values around a region.

    COVERED: its results agree, reached in another way; what another phase makes of them may differ. FIRST_CAUSE: what
    it reads agrees, its results differ. CONSEQUENCE: both differ. NOT_UNDERSTOOD: it belongs to a layout that is not
    merged, and its results do not agree. UNKNOWN: no judged value tells.
    """

    COVERED = 0
    FIRST_CAUSE = 1
    CONSEQUENCE = 2
    NOT_UNDERSTOOD = 3
    UNKNOWN = 4


@columns
class Regions:
    """The regions of a comparison, in the order of dispatch.

    Attributes:
        of_a, of_b: int64[n_a], int64[n_b], the region of each record; -1 for none.
        kind: int8[k] of `Kind`.
        inputs, outputs: of [k], the judged pairs that it reads, and those that read it.
    """

    of_a: Int64
    of_b: Int64
    kind: NDArray[np.int8]
    inputs: Ragged
    outputs: Ragged

    def __len__(self) -> int:
        return len(self.kind)

    def covered(self, side: str) -> Bool:
        """bool[n], the record is in a region whose results agree."""
        of = self.of_a if side == "a" else self.of_b
        return np.append(self.kind, np.int8(-1))[of] == Kind.COVERED

    def members(self, region: int) -> tuple[Int64, Int64]:
        """The records of a and of b in a region."""
        return np.flatnonzero(self.of_a == region), np.flatnonzero(self.of_b == region)


def find_regions(
    a: OpLog, b: OpLog, pairing: Pairing, status: NDArray[np.int8], flow: DataFlow, *, understood: bool = True
) -> Regions:
    """Find the regions of two logs.

    Args:
        status: int8[p], the verdict of each pair.
        understood: False if ranks compute for each other what neither log shows.
    """
    at = _nodes(flow, pairing)
    node_a, node_b, runs, pair = at.a, at.b, at.runs, at.pair
    opens = [np.append(OPEN[status], True)[of] & ~log.recompute for log, of in ((a, pairing.of_a), (b, pairing.of_b))]
    is_open = np.concatenate(opens) & at.used
    connects, constant = is_open & at.depends, is_open & ~at.depends
    phase = at.phase
    leads, none = (pairing.lead_a, pairing.lead_b), np.int8(-1)
    region = connected(np.where(connects, phase, none), *leads, *runs)
    if constant.any():
        # a constant belongs to the first region that reads it, or constants made of it; else positions are one of
        # their own
        while len((found := between(runs, constant & (region < 0), region >= 0))[0]):
            region[found[0][::-1]] = region[found[1][::-1]]
        left = constant & (region < 0) & np.concatenate([whole_numbers(log) for log in (a, b)])
        region[left] = connected(np.where(left, phase, none), *leads, *runs)[left]
        connects |= left
    inside = region >= 0
    region[inside], many = numbered(region[inside])
    phase_of = np.zeros(many, np.int8)
    phase_of[region[connects]] = phase[connects]

    judged = ~is_open & (pair >= 0)
    maker, reader = between(runs, judged, inside)
    inputs = Ragged.distinct(region[reader], pair[maker], many)
    maker, reader = between(runs, inside, judged & ~at.blind)
    outputs = Ragged.distinct(region[maker], pair[reader], many)
    red = judged & np.append(status >= Status.SHAPE, False)[pair]
    maker, reader = between(runs, red, judged)
    follows = marked(pair[reader[pair[maker] != pair[reader]]], len(status))
    shown = a.phase[pairing.lead_a[outputs.value]]
    tells = (shown == phase_of[outputs.row]) | ~(follows[outputs.value] | (shown == Phase.BACKWARD))
    return Regions(
        region[node_a],
        region[node_b],
        _kinds(inputs, outputs, tells, status, follows, understood=understood),
        inputs,
        outputs,
    )


@columns
class _Nodes:
    """The operations of both logs, a pair as one node: the number of its record in a.

    Attributes:
        a, b: int64[n_a], int64[n_b], the node of each record.
        used: bool[n_a + n_b], there is such a node; so by node are all others.
        depends: it reads in a run what no operation made, or what such a node made.
        blind: what reads it tells nothing of its values.
        pair: int64, of each record.
    """

    a: Int64
    b: Int64
    runs: tuple[Lists, Lists]
    used: Bool
    depends: Bool
    phase: NDArray[np.int8]
    blind: Bool
    pair: Int64


@once_per_pair
def _nodes(flow: DataFlow, pairing: Pairing) -> _Nodes:
    """The nodes, which a comparison asks for several times."""
    a, b = flow.logs
    n_a, n_b = len(a), len(b)
    node_a, node_b = np.arange(n_a), np.arange(n_a, n_a + n_b)
    for node, of in ((node_a, pairing.of_a), (node_b, pairing.of_b)):
        node[of >= 0] = pairing.lead_a[of[of >= 0]]
    runs = (flow.a.start, flow.a.value, node_a), (flow.b.start, flow.b.value, node_b)
    begins = marked(np.concatenate((node_a[flow.depends_a], node_b[flow.depends_b])), n_a + n_b)
    # what reads a shape alone tells nothing of the values, but the losses are known
    blind = np.concatenate([rows_where(log, lambda law: law.blind) for log in (a, b)])
    if _same_losses(a, b):
        blind[np.concatenate((backward_begins(a), n_a + backward_begins(b)))] = False
    return _Nodes(
        node_a,
        node_b,
        runs,
        marked(np.concatenate((node_a, node_b)), n_a + n_b),
        _depending(runs, begins),
        np.concatenate((a.phase, b.phase)),
        blind,
        np.concatenate((pairing.of_a, pairing.of_b)),
    )


def _same_losses(a: OpLog, b: OpLog) -> bool:
    """True if both runs tell their losses, which agree."""
    one, other = (training_scalars(log).losses for log in (a, b))
    alike = (math.isclose(x, y, rel_tol=_LOSS) for x, y in zip(one, other, strict=False))
    return 0 < len(one) == len(other) and all(alike)


def _kinds(
    inputs: Ragged, outputs: Ragged, tells: Bool, status: NDArray[np.int8], follows: Bool, *, understood: bool
) -> NDArray[np.int8]:
    """int8 of `Kind` by region.

    Args:
        tells: bool, outputs that speak against their region where they are red: not where they follow from what else is
            in another phase, nor in the backward pass, which reads what a forward pass keeps beside gradients.
        follows: bool[p], a red pair made another input of the pair.
    """

    def have(pairs: Ragged, such: Bool) -> Bool:
        return np.bincount(pairs.row[such], minlength=len(pairs)) > 0

    red, agrees = status >= Status.SHAPE, one_of(status, AGREE)
    read, shown = inputs.value, outputs.value
    kind = np.full(len(inputs), Kind.UNKNOWN, np.int8)
    kind[have(outputs, (red & ~follows)[shown])] = Kind.FIRST_CAUSE
    kind[have(outputs, red[shown]) & have(inputs, red[read])] = Kind.CONSEQUENCE
    kind[have(outputs, agrees[shown]) & ~have(outputs, red[shown] & tells)] = Kind.COVERED
    if not understood:
        kind[kind != Kind.COVERED] = Kind.NOT_UNDERSTOOD
    return kind


def _depending(runs: Sequence[Lists], depends: Bool) -> Bool:
    """bool[n]: nodes that read in a run what no operation made, or what such a node made.

    Args:
        depends: those of them that are known from the data flow of a run by itself.
    """
    maker, reader = between(runs, np.ones(len(depends), bool), ~depends)
    return spread(*lists(reader, maker, len(depends)), depends, np.ones(len(depends), bool), rounds=len(depends))
