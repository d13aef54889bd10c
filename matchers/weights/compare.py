"""Compare two logs of weights over steps, and find where they diverge first.

States of the same tensor after the same step are compared. Differences are ordered as a step produces its tensors
(gradients, then weights and optimizer state; parameters in model order), so that the first one is where to look.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import groupby

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
    alone = Counter(step for step, _, _ in a.states.keys() ^ b.states.keys())
    judged = {step: list(found) for step, found in groupby(_judged(a, b), lambda found: found[0][0])}
    steps = tuple(
        _summary(a, b, step, judged.get(step, []), alone[step]) for step in sorted(set(a.steps) & set(b.steps))
    )
    return WeightsComparison(
        a=a,
        b=b,
        first=next((step.first for step in steps if step.first is not None), None),
        steps=steps,
        not_comparable=tuple(
            key for found in judged.values() for key, outcome, _ in found if outcome is Outcome.NOT_COMPARABLE
        ),
        only_a=tuple(name for name in a.parameters if name not in known_b),
        only_b=tuple(name for name in b.parameters if name not in known_a),
        steps_only_a=tuple(sorted(set(a.steps) - set(b.steps))),
        steps_only_b=tuple(sorted(set(b.steps) - set(a.steps))),
        starts_differ=_starts(a, b),
    )


def differences_at(a: WeightLog, b: WeightLog, step: int) -> list[Divergence]:
    """Return the differences after one step, the first one first."""
    return _differences(a, b, _judged(a, b, step))


_Judged = tuple[Key, Outcome, float]
"""A tensor of both logs, and what comparing it gave."""


def _judged(a: WeightLog, b: WeightLog, step: int | None = None) -> Iterator[_Judged]:
    """Judge the tensors of both logs, as a step produces them."""
    order = {name: i for i, name in enumerate(dict.fromkeys([*a.parameters, *b.parameters]))}
    common = (key for key in a.states if (step is None or key[0] == step) and key in b.states)
    for key in sorted(common, key=lambda key: (key[0], key[2] != "grad", order[key[1]])):
        yield key, *_judge(a.states[key], b.states[key])


def _differences(a: WeightLog, b: WeightLog, judged: Iterable[_Judged]) -> list[Divergence]:
    return [_divergence(a, b, key, error) for key, outcome, error in judged if outcome is Outcome.DIFFERENT]


def _summary(a: WeightLog, b: WeightLog, step: int, judged: Sequence[_Judged], alone: int) -> StepSummary:
    """Sum up a step; `alone`: number of its tensors that only one log has."""
    compared = [key for key, outcome, _ in judged if outcome is not Outcome.NOT_COMPARABLE]
    found = _differences(a, b, judged)
    return StepSummary(
        step,
        compared=len({name for _, name, _ in compared}),
        different=len({one.parameter for one in found}),
        tensors=len(compared),
        different_tensors=len(found),
        uncompared=alone + len(judged) - len(compared),
        first=next(iter(found), None),
        largest=max(found, key=_size, default=None),
    )


_KINDS = {"grad": Kind.GRADIENT, "weight": Kind.PARAMETER, "buffer": Kind.BUFFER}


def _divergence(a: WeightLog, b: WeightLog, key: Key, error: float) -> Divergence:
    kind = _KINDS.get(key[2], Kind.OPTIMIZER_STATE)
    if kind is Kind.PARAMETER and (key[1] in a.averaged or key[1] in b.averaged):
        kind = Kind.AVERAGED_COPY
    return Divergence(*key, error, a.states[key], b.states[key], kind)


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
