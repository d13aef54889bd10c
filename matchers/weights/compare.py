"""Compare two logs of weights over steps, and find where they diverge first.

States of the same tensor after the same step are compared. Differences are ordered as a step produces its tensors
(gradients, then weights and optimizer state; parameters in model order), so that the first one is where to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from matchers.weights.log import Key, TensorState, WeightLog

__all__ = [
    "Divergence",
    "Kind",
    "Outcome",
    "StepSummary",
    "WeightsComparison",
    "compare_weights",
    "differences_at",
]


class Outcome(IntEnum):
    """Result of comparing one tensor of two runs."""

    EQUAL = 0
    """The digests are equal; without digests, every number is."""
    DIFFERENT = 1
    NOT_COMPARABLE = 2
    """The shapes differ, or the shards of one tensor do: the logged numbers cannot tell."""


class Kind(Enum):
    """Role of a tensor in training."""

    GRADIENT = "gradient"
    PARAMETER = "parameter"
    OPTIMIZER_STATE = "optimizer state"
    BUFFER = "buffer"
    AVERAGED_COPY = "averaged copy"
    """A weight that changes although no optimizer owns it; also of a target network."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A tensor that differs. `error` estimates ‖a − b‖ / ‖b‖, a ratio; NaN if unknown."""

    step: int
    parameter: str
    part: str
    error: float
    a: TensorState
    b: TensorState
    kind: Kind


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One step that both logs have.

    Attributes:
        compared: number of parameters with at least one compared part.
        different: number of those with a part that differs.
        tensors: number of compared tensors.
        different_tensors: number of those that differ.
        uncompared: number of tensors that only one log has, or that these logs cannot compare.
        first: the first difference in the order of a step, None without one.
        largest: the difference with the largest error, None without one.
    """

    step: int
    compared: int
    different: int
    tensors: int
    different_tensors: int
    uncompared: int
    first: Divergence | None
    largest: Divergence | None


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """The differences between two logs of weights.

    Attributes:
        first: the first difference, None if there is none.
        steps: the common steps, ascending.
        not_comparable: (step, parameter, part) of tensors that these logs cannot compare.
        only_a, only_b: parameters that only one log has. steps_only_a, steps_only_b: steps.
        starts_differ: parameters whose digests before the first step differ, by the headers; None without these
            digests.
    """

    a: WeightLog
    b: WeightLog
    first: Divergence | None
    steps: tuple[StepSummary, ...]
    not_comparable: tuple[Key, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    steps_only_a: tuple[int, ...]
    steps_only_b: tuple[int, ...]
    starts_differ: tuple[str, ...] | None


def compare_weights(a: WeightLog, b: WeightLog) -> WeightsComparison:
    """Compare the states of the same tensors at the same steps in two logs."""
    known_a, known_b = set(a.parameters), set(b.parameters)
    not_comparable: list[Key] = []
    per_step: dict[int, _Tally] = {step: _Tally() for step in sorted(set(a.steps) & set(b.steps))}
    for key in a.states.keys() ^ b.states.keys():
        if key[0] in per_step:
            per_step[key[0]].uncompared += 1
    for key in _in_order(a, b):
        outcome, error = _judge(a.states[key], b.states[key])
        tally = per_step[key[0]]
        if outcome is Outcome.NOT_COMPARABLE:
            not_comparable.append(key)
            tally.uncompared += 1
            continue
        tally.tensors += 1
        tally.compared.add(key[1])
        if outcome is Outcome.DIFFERENT:
            tally.add(_divergence(a, b, key, error))
    return WeightsComparison(
        a=a,
        b=b,
        first=next((tally.first for tally in per_step.values() if tally.first is not None), None),
        steps=tuple(tally.summary(step) for step, tally in per_step.items()),
        not_comparable=tuple(not_comparable),
        only_a=tuple(name for name in a.parameters if name not in known_b),
        only_b=tuple(name for name in b.parameters if name not in known_a),
        steps_only_a=tuple(sorted(set(a.steps) - set(b.steps))),
        steps_only_b=tuple(sorted(set(b.steps) - set(a.steps))),
        starts_differ=_starts(a, b),
    )


def differences_at(a: WeightLog, b: WeightLog, step: int) -> list[Divergence]:
    """Return the differences after one step, the first one first."""
    found = []
    for key in _in_order(a, b, step):
        outcome, error = _judge(a.states[key], b.states[key])
        if outcome is Outcome.DIFFERENT:
            found.append(_divergence(a, b, key, error))
    return found


def _in_order(a: WeightLog, b: WeightLog, step: int | None = None) -> Iterator[Key]:
    """Yield the tensors of both logs as a step produces them."""
    order = {name: i for i, name in enumerate(dict.fromkeys([*a.parameters, *b.parameters]))}
    common = (key for key in a.states if (step is None or key[0] == step) and key in b.states)
    yield from sorted(common, key=lambda key: (key[0], key[2] != "grad", order[key[1]]))


_KINDS = {"grad": Kind.GRADIENT, "weight": Kind.PARAMETER, "buffer": Kind.BUFFER}


def _divergence(a: WeightLog, b: WeightLog, key: Key, error: float) -> Divergence:
    kind = _KINDS.get(key[2], Kind.OPTIMIZER_STATE)
    if kind is Kind.PARAMETER and (key[1] in a.averaged or key[1] in b.averaged):
        kind = Kind.AVERAGED_COPY
    return Divergence(*key, error, a.states[key], b.states[key], kind)


@dataclass(slots=True)
class _Tally:
    """Counters of one step."""

    compared: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)
    tensors: int = 0
    different_tensors: int = 0
    uncompared: int = 0
    first: Divergence | None = None
    largest: Divergence | None = None

    def summary(self, step: int) -> StepSummary:
        return StepSummary(
            step,
            len(self.compared),
            len(self.different),
            self.tensors,
            self.different_tensors,
            self.uncompared,
            self.first,
            self.largest,
        )

    def add(self, found: Divergence) -> None:
        self.first = self.first or found
        self.different_tensors += 1
        self.different.add(found.parameter)
        if self.largest is None or _size(found) > _size(self.largest):
            self.largest = found


def _size(found: Divergence) -> float:
    return math.inf if math.isnan(found.error) else found.error


def _judge(a: TensorState, b: TensorState) -> tuple[Outcome, float]:
    if a.shape != b.shape or a.placement != b.placement:
        return Outcome.NOT_COMPARABLE, math.nan
    same_kind = a.dtype == b.dtype
    if same_kind and a.digest is not None and b.digest is not None:
        if a.digest == b.digest:
            return Outcome.EQUAL, 0.0
        return Outcome.DIFFERENT, _error(a, b)
    # digests of different dtypes are not comparable; equal numbers are, to their precision
    error = _error(a, b)
    if math.isnan(error) and a.l2 is None and b.l2 is None and a.counts == b.counts:
        return Outcome.EQUAL, 0.0
    return (Outcome.EQUAL if error == 0 and (a.l1, a.counts) == (b.l1, b.counts) else Outcome.DIFFERENT), error


def _error(a: TensorState, b: TensorState) -> float:
    """Estimate of ‖a − b‖ / ‖b‖ over the finite values; relative difference of the norms without sketches."""
    if a.counts is not None and b.counts is not None and a.counts[1:3] != b.counts[1:3]:
        return math.inf  # NaN or infinity on one side
    if a.l2 is None or b.l2 is None:
        return math.nan
    if a.sketch is not None and b.sketch is not None:
        # root mean square of the differences of the projections
        distance = math.dist(a.sketch, b.sketch) / math.sqrt(len(a.sketch))
    else:
        distance = abs(a.l2 - b.l2)
    if distance == 0:
        return 0.0
    return distance / b.l2 if b.l2 else math.inf


def _starts(a: WeightLog, b: WeightLog) -> tuple[str, ...] | None:
    """Parameters that differ before the first step, by the run infos."""
    of_a, of_b = (log.run.get("parameter_digests") for log in (a, b))
    if not isinstance(of_a, dict) or not isinstance(of_b, dict):
        return None
    return tuple(name for name, digest in of_a.items() if name in of_b and of_b[name] != digest)
