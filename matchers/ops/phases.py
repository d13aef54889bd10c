"""Phases that two logs have in common: older captures and torchtitan's know three of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.logs.op_log import OpLog, Phase

__all__ = ["same_phases"]

_COARSER = np.arange(len(Phase), dtype=np.int8)
_COARSER[[Phase.PREPARE, Phase.GRADIENTS, Phase.AFTER]] = Phase.FORWARD, Phase.OPTIMIZER, Phase.OPTIMIZER


def same_phases(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """Return the logs, in the three phases that both know if one of them knows no others."""
    if ("phases" in a.header.run) == ("phases" in b.header.run):
        return a, b
    return _coarser(a), _coarser(b)


def _coarser(log: OpLog) -> OpLog:
    return replace(log, phase=_COARSER[log.phase])
