"""Judge what updates leave in tensors that one run has stacked, such as experts, and the other one by one.

The parts of a stack have its elements, so their norms, extremes and means make its own, after the step as before it.
Their order does not show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from matchers.ops.combine import combine
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.ops.share import Holds, Share
from matchers.ops.stacks import modules_of, parts_of_stack, singles
from matchers.ops.values import Result, as_values, result
from matchers.status import Status
from matchers.verdict.content_verdicts import ContentVerdict
from matchers.verdict.judge_values import Limits
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.slots import SlotVerdict, judge_results

__all__ = ["judge_stacks"]


class _Stack(NamedTuple):
    """A parameter of one side, a (0) or b (1), and the parameters of the other that it consists of."""

    side: int
    whole: str
    parts: tuple[str, ...]


def judge_stacks(a: LastContents, b: LastContents, limits: Limits) -> dict[str, ContentVerdict]:
    """By name, the verdict on each stack, its parts and their states; of a red one, that on the stack alone.

    Args:
        limits: of one value.
    """
    found: dict[str, ContentVerdict] = {}
    for stack in _stacks(a, b):
        mine, theirs = (a, b)[stack.side], (b, a)[stack.side]
        family = [name for name in mine.last if mine.base(name) == stack.whole and not name.endswith(GRADIENT)]
        for name in family:
            parts = [part + name[len(stack.whole) :] for part in stack.parts]
            if not all(part in theirs.last for part in parts):
                continue
            verdict = _judged(mine.left(name), [theirs.left(part) for part in parts], limits)
            if verdict is not None and verdict.status.red:
                verdict = _of_gradient(verdict, mine, theirs, stack)
            if verdict is None:
                continue
            whole, red = mine.writer(name), verdict.status.red
            for one in (name, *parts):
                # the stack alone is red: which of its parts differs, norms do not show
                row = -1 if red and one == name else theirs.writer(parts[0] if one == name else one)
                rows = (whole, row) if stack.side == 0 else (row, whole)
                told = None if red and one != name else verdict
                found[one] = ContentVerdict(one, *rows, told, alone=False, parameter=name == stack.whole)
    return found


def _of_gradient(red: SlotVerdict, mine: LastContents, theirs: LastContents, stack: _Stack) -> SlotVerdict | None:
    """The verdict on what a stack is left with, or that on its gradient, if its norm is not that of its parts'.

    None where norms of gradients are not known: nothing tells then what is to blame.
    """
    whole, parts = stack.whole + GRADIENT, [part + GRADIENT for part in stack.parts]
    if whole not in mine.last or not all(part in theirs.last for part in parts):
        return None
    total = sum(theirs.before(theirs.last[part]).l1 for part in parts)
    error = relative_difference(mine.before(mine.last[whole]).l1, total)
    if math.isnan(error):
        return None
    return red if error <= red.limit else replace(red, name=whole, error=error, bound=True)


def _judged(whole: Result, parts: Sequence[Result], limits: Limits) -> SlotVerdict | None:
    if whole.numel == 1 < len(parts):  # a counter of steps
        same = whole.digest is not None and all(part.digest == whole.digest for part in parts)
        return SlotVerdict(whole.name, Status.EQUAL, Reason.EQUAL_BITS) if same else None
    together = _together(parts, whole.shape)
    if together.numel != whole.numel:
        return None
    (verdict,) = judge_results([replace(whole, digest=None, sketch=b"", part=None)], [together], limits)
    return verdict


def _together(parts: Sequence[Result], shape: tuple[int, ...] | None) -> Result:
    """The stack of some tensors, of which nothing tells their order."""
    share = Share(Holds.SHARD, range(len(parts)), shape)
    return result(combine(as_values(parts), np.zeros(1, np.int64), [share]), 0)


def _stacks(a: LastContents, b: LastContents) -> Iterator[_Stack]:
    own = singles(a, b), singles(b, a)
    for side in (0, 1):
        left, proven = dict(own[side]), set[tuple[str, tuple[str, str]]]()
        for _ in range(2):  # the second time, what norms alone do not prove
            for name, (numel, l1) in [*left.items()]:
                if parts := parts_of_stack(name, numel, l1, own[1 - side], proven):
                    yield _Stack(side, name, parts)
                    proven.add(modules_of(name, parts))
                    del left[name]
