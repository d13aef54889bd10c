"""Operations that need no partner where one of the logs is that of a call of a model."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.run_info import call_extent, of_call
from matchers.ops.start import known_digests
from matchers.rows import Rows

__all__ = ["around_call", "made_of_result"]


def around_call(log: OpLog, other: OpLog) -> Bool:
    """bool[n]: records around the call of the log, or, if the other log is that of a call, around the forward pass."""
    around = np.zeros(len(log), bool)
    if (call := call_extent(log.header.run)) is not None:
        around[: call[0]] = around[call[1] :] = True
    if of_call(other.header.run):
        around |= (log.phase != Phase.FORWARD) & ~np.isin(log.phase, other.phase)
    return around


def made_of_result(c: Rows, side: int, left: Bool, compared: Bool) -> Bool:
    """bool[n]: records of a step that make its loss of what the call, the other log, ends with.

    Nothing that the forward pass computes besides reads them, no module with parameters has a part in them, and what
    they begin with is compared and is, in the call, the end.

    Args:
        side: the log of the step: 0 for a, 1 for b.
        left, compared: bool[r], rows that nothing vouches for; rows that were compared.
    """
    (log, at), (other, of_call_at) = ((c.a, c.at_a), (c.b, c.at_b))[:: 1 - 2 * side]
    none = np.zeros(len(log), bool)
    call, owners = call_extent(other.header.run), _owners(log)
    if call is None or of_call(log.header.run) or not owners:
        return none
    flow, forward = log.producers, log.phase == Phase.FORWARD  # also of records whose numbers are of other rows
    tail = forward & left[at] & ~log.updates
    tail &= ~upstream(_read_by(flow, forward), forward & ~tail, forward)
    of_model = [row for row in np.flatnonzero(tail).tolist() if log.module_name(row) in owners]
    tail &= ~downstream(flow, marked(of_model, len(log)), tail)
    begins = marked(flow.value[tail[flow.row] & (flow.value >= 0)], len(log)) & ~tail
    partner = (c.pairing.of_a, c.pairing.of_b)[side][begins]
    inside = np.zeros(len(other), bool)
    inside[call[0] : call[1]] = True
    goes_on = _read_by(other.producers, inside & ~compared[of_call_at])
    if not (compared[at][begins] & (partner >= 0)).all() or np.isin(partner, goes_on.value).any():
        return none
    found = tail & downstream(flow, begins, tail)
    return tail & upstream(flow, found, tail)  # with what it is compared to or divided by


def _owners(log: OpLog) -> set[str]:
    """The paths of the modules that have parameters in them; not of the model itself, whose path is empty."""
    names = (name.split(".")[:-1] for name in known_digests(log.header.run, "parameter_digests"))
    return {".".join(path[:depth]) for path in names for depth in range(1, len(path) + 1)}


def _read_by(flow: Ragged, rows: Bool) -> Ragged:
    """The data flow into some records alone."""
    return Ragged(flow.start, np.where(rows[flow.row], flow.value, -1))
