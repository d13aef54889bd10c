"""Phases that two logs have in common: older captures and torchtitan's know three, other tools' lack some."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Int64, distinct
from matchers.logs.op_log import OpLog, Phase

__all__ = ["comparable_phases", "same_phases"]

_COARSER = np.arange(len(Phase), dtype=np.int8)
_COARSER[[Phase.PREPARE, Phase.GRADIENTS, Phase.AFTER]] = Phase.FORWARD, Phase.OPTIMIZER, Phase.OPTIMIZER


def same_phases(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """Return the logs, in the three phases that both know if one of them knows no others."""
    if ("phases" in a.header.run) == ("phases" in b.header.run) or not (a.tells.phases and b.tells.phases):
        return a, b
    return _coarser(a), _coarser(b)


def comparable_phases(a: OpLog, b: OpLog) -> Int64:
    """For each phase the one that its rows count to in pairs: where a log has phases of some rows only, what both tell.

    That is the optimizer's at most, and not where a log counts clipping to it.
    """
    phases = np.arange(len(Phase))
    known_a, known_b = (set(distinct(log.phase).tolist()) for log in (a, b))
    if known_a != known_b and not (a.tells.phases and b.tells.phases):
        phases[:] = Phase.OTHER
        coarse = any(log.tells.phases and "phases" not in log.header.run for log in (a, b))
        if Phase.OPTIMIZER in known_a & known_b and not coarse:
            phases[Phase.OPTIMIZER] = Phase.OPTIMIZER
    return phases


def _coarser(log: OpLog) -> OpLog:
    return replace(log, phase=_COARSER[log.phase])
