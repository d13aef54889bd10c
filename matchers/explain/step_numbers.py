"""The loss and the gradient norm of both runs in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from matchers.ops.training_scalars import training_scalars

__all__ = ["step_numbers"]

_FEWEST, _MOST = 5, 17
"""Significant digits: as many as show a difference."""


def step_numbers(c: Comparison) -> list[str]:
    """Return `loss 3.3202 | 3.3204` and `gradient norm 1.8231 in both`, as far as both logs tell them."""
    return [*_numbers(c)]


def _numbers(c: Comparison) -> Iterator[str]:
    logs = [log for _, log in c.logs]
    losses = [training_scalars(log).losses for log in logs]
    if all(losses) and len({_ranks(log) for log in logs}) == 1:
        many = [len(of) for of in losses]
        summed = "" if len(set(many)) == 1 else f" (sums of {many[0]:,} | {many[1]:,})"
        name = "loss" if summed or many[0] == 1 else f"sum of {many[0]:,} losses"
        yield f"{name} {_beside([sum(of) for of in losses])}{summed}"
    norms = [norm for log in logs if (norm := training_scalars(log).gradient_norm) is not None]
    if len(norms) == len(logs):
        yield f"gradient norm {_beside(norms)}"


def _ranks(log: OpLog) -> object:
    """Return the number of ranks of which a log is one: each may compute the loss of a part of the batch."""
    return 1 if log.members else log.header.run.get("world_size", 1)


def _beside(numbers: Sequence[float]) -> str:
    """Return one number, `3.3202 in both`, or two, with as many digits as show their difference."""
    texts = [""]
    for digits in range(_FEWEST, _MOST + 1):
        texts = [f"{number:#.{digits}g}".replace("nan", "NaN").replace("inf", "Inf") for number in numbers]
        if len(set(numbers)) == 1 or len(set(texts)) > 1:
            break
    return " | ".join(texts) if len(set(texts)) > 1 else texts[0] + " in both" * (len(texts) > 1)
