"""The noise floor: differences between runs of the same configuration.

The third log is paired with the one whose run it repeats, by the usual matching. Its error at an operation is the
effect of repeating the run, or of perturbing it by one ε (`python -m capture --perturb`). What several perturbed runs
show is kept beside their reference (`floor_file.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.columns import KeyColumn
from matchers.logs.op_log import OpLog
from matchers.ops.commands import after_capture
from matchers.pairing.pairing import Pairing
from matchers.verdict.relative_error import relative

__all__ = ["NoiseFloor", "measure_noise", "repeats_b"]


@dataclass(frozen=True)
class NoiseFloor:
    """Noise per record of one log (`side`, a or b).

    Attributes:
        path: the third log, or the file in which the noise was kept.
        keys: of the log that was measured; a comparison may have folded its records.
        error: float64[n], relative error against the third run; NaN where unpaired or not comparable.
        norm: float64[n], the relative error of the norms alone.
        unsteady: records with different results from bitwise equal inputs: non-deterministic operations. Empty for a
            perturbed run.
        perturbed: the third run was perturbed on purpose.
        complete: the third log is not known to be cut off.
        other_batch: the third run computed some of the rows alone, or others beside them.
        runs: number of perturbed runs of a floor that was kept; 0 for a third log.
    """

    path: str
    side: str
    keys: KeyColumn
    error: Float64
    norm: Float64
    unsteady: tuple[int, ...]
    perturbed: bool
    complete: bool
    runs: int = 0
    other_batch: bool = False

    @property
    def source(self) -> str:
        """`a third run`, or `2 perturbed runs`."""
        if self.other_batch:
            return "a run at another batch size"
        return f"{self.runs:,} perturbed run{'s' * (self.runs != 1)}" if self.runs else "a third run"

    @property
    def option(self) -> tuple[str, ...]:
        """The equivalent command-line option."""
        return ("--floor",) if self.runs else ("--noise", self.path)

    @property
    def silent(self) -> bool:
        """True if the third run is bitwise equal and shows no noise at all."""
        return not bool((self.error > 0).any())

    def of(self, pairing: Pairing, log: OpLog) -> tuple[Float64, Float64]:
        """float64[p] each, the noise of the pairs, and that of their norms; `log`: of this side, as it was paired."""
        rows = pairing.lead_a if self.side == "a" else pairing.lead_b
        if log.keys is not self.keys:
            at = {key: record for record, key in enumerate(self.keys)}
            rows = np.array([at.get(key, len(at)) for key in log.keys], np.int64)[rows]
        return np.append(self.error, np.nan)[rows], np.append(self.norm, np.nan)[rows]


def repeats_b(a: OpLog, b: OpLog, c: OpLog) -> bool:
    """True if a third log repeats the run of b rather than that of a, by its operation keys.

    Of logs that tell rows, which may be of another batch, the words of their commands decide before. If both share as
    many keys, the closer results decide: the noise of the wrong run would hide the difference between a and b.
    """
    if all(len(log.texts("Rows")) for log in (a, b, c)):
        # the operations of a prefill are those of the other run's prefill, and not of the own decode step
        words = [set(commands) for log in (a, b, c) if (commands := _command(log))]
        if len(words) == 3 and (apart := [len(words[2] ^ of) for of in words[:2]])[0] != apart[1]:
            return apart[1] < apart[0]
    keys = set(c.keys)
    shared = [len(keys & set(log.keys)) / max(len(keys | set(log.keys)), 1) for log in (a, b)]
    if shared[0] != shared[1]:
        return shared[1] > shared[0]
    return _distance(b, c) < _distance(a, c)


def _command(log: OpLog) -> tuple[str, ...]:
    command = log.header.run.get("command")
    return tuple(map(str, after_capture(command))) if isinstance(command, list) else ()


def _distance(log: OpLog, third: OpLog) -> float:
    """Mean relative difference of the results under equal keys; NaN or Inf against a number counts as 1."""
    of = {key: record for record, key in enumerate(third.keys)}
    pairs = [(i, of[key]) for i, key in enumerate(log.keys) if key in of]
    if not pairs:
        return 1.0
    i, j = np.array(pairs).T
    x, y = log.outputs.first(i), third.outputs.first(j)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    return float(np.mean(np.where(alike, 0.0, np.nan_to_num(relative(x, y), nan=1.0, posinf=1.0))))


def measure_noise(
    log: OpLog, third: OpLog, side: str, i: Int64, j: Int64, error: Float64, inputs_equal: Bool
) -> NoiseFloor:
    """Measure the noise of `log`, which is side `side`, from its pairs (i[k], j[k]) with the third log.

    Args:
        error, inputs_equal: of these pairs, as in `matchers.comparison.Comparison`.
    """
    errors, norms = np.full(len(log), np.nan), np.full(len(log), np.nan)
    errors[i] = np.where(np.isfinite(error), error, np.nan)
    change = np.fmax(
        relative(log.outputs.first(i), third.outputs.first(j)), relative(log.stats[1][i], third.stats[1][j])
    )
    norms[i] = np.where(np.isfinite(change), change, 0.0)
    perturbed = _perturbed(third) != _perturbed(log)
    unsteady = () if perturbed else tuple(i[inputs_equal & (error > 0)].tolist())
    whole, other_batch = third.complete is not False, bool(log.rows_compared)
    return NoiseFloor(third.path, side, log.keys, errors, norms, unsteady, perturbed, whole, other_batch=other_batch)


def _perturbed(log: OpLog) -> Any:
    settings = log.header.run.get("settings")
    return settings.get("perturb") if isinstance(settings, dict) else None
