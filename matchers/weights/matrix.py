"""Compare the weight logs of several runs with one of them: a matrix of runs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from matchers.weights.compare import (
    Divergence,
    Kind,
    StepSummary,
    WeightsComparison,
    compare_weights,
    differences_at,
)
from matchers.weights.log import WeightLog

__all__ = ["Matrix", "compare_runs"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Several runs compared with a reference, step by step.

    Attributes:
        names: of the runs, all different.
        reference: index of the run that the others are compared with.
        comparisons: by run, with the reference as `a`; None for the reference itself.
        cells: by run, its compared steps.
        steps: the steps of all logs, ascending.
        references: by run, the one that it is compared with, where each has its own; else empty.
        equal: indices of runs that are equal to each other bit for bit, in all steps; only groups of two or more.
    """

    names: tuple[str, ...]
    logs: tuple[WeightLog, ...]
    reference: int
    comparisons: tuple[WeightsComparison | None, ...]
    cells: tuple[Mapping[int, StepSummary], ...]
    steps: tuple[int, ...]
    equal: tuple[tuple[int, ...], ...]
    references: Mapping[int, int] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[int, ...]:
        """Indices of the runs that are compared with the reference, or with their own."""
        return tuple(run for run, c in enumerate(self.comparisons) if c is not None)

    def reference_of(self, run: int) -> int:
        """Index of the run that a run is compared with."""
        return self.references.get(run, self.reference)

    @property
    def divergences(self) -> list[tuple[int, Divergence]]:
        """The first difference of every run that diverges: the earliest step first, gradients before the rest."""
        found = [(run, c.first) for run, c in enumerate(self.comparisons) if c is not None and c.first is not None]
        return sorted(found, key=lambda of: (of[1].step, of[1].kind is not Kind.GRADIENT))

    @property
    def first(self) -> tuple[int, Divergence] | None:
        """The run that diverges first, and its first difference."""
        return next(iter(self.divergences), None)

    @property
    def not_compared(self) -> tuple[int, ...]:
        """Indices of the runs of which nothing was compared."""
        return tuple(run for run in self.runs if not any(cell.tensors for cell in self.cells[run].values()))

    def differences(self, run: int, step: int) -> list[Divergence]:
        """Return the differences of a cell, the first one first."""
        return differences_at(self.logs[self.reference_of(run)], self.logs[run], step)


def compare_runs(
    logs: Sequence[WeightLog], names: Sequence[str], reference: int = 0, references: Mapping[int, int] | None = None
) -> Matrix:
    """Compare all logs with the reference, or some of them each with its own."""
    pairs = {i: reference for i in range(len(logs)) if i != reference} if references is None else references
    comparisons = [compare_weights(logs[pairs[i]], log) if i in pairs else None for i, log in enumerate(logs)]
    return Matrix(
        names=tuple(names),
        logs=tuple(logs),
        reference=reference,
        comparisons=tuple(comparisons),
        cells=tuple({} if c is None else {summary.step: summary for summary in c.steps} for c in comparisons),
        steps=tuple(sorted({step for log in logs for step in log.steps})),
        equal=_equal(logs),
        references=references or {},
    )


def _equal(logs: Sequence[WeightLog]) -> tuple[tuple[int, ...], ...]:
    groups: dict[bytes, list[int]] = {}
    for i, log in enumerate(logs):
        if log.states and all(state.digest is not None for state in log.states.values()):
            groups.setdefault(_fingerprint(log), []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _fingerprint(log: WeightLog) -> bytes:
    """Return a hash of all bits of a log's tensors."""
    whole = blake2b(digest_size=16)
    for key in sorted(log.states):
        state = log.states[key]
        whole.update(repr((key, state.shape, state.dtype, state.placement, state.digest)).encode("utf-8", "replace"))
    return whole.digest()
