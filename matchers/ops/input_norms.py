"""Norms of inputs of one kind: those that other tools log need not be comparable with those of a capture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog

__all__ = ["same_inputs", "tell_inputs"]


def tell_inputs(a: OpLog, b: OpLog) -> bool:
    """True if both logs tell norms of what operations read, and of one kind."""
    return a.tells.inputs == b.tells.inputs != ""


def same_inputs(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """The logs, without the norms of inputs where one has L1 and the other L2 norms, or none."""
    if a.tells.inputs == b.tells.inputs:
        return a, b
    return _unread(a), _unread(b)


def _unread(log: OpLog) -> OpLog:
    return replace(log, inputs=Ragged(log.inputs.start, np.full(len(log.inputs.value), np.nan)))
