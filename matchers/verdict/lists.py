"""Lists of tensors that two runs order, name or cut differently: the same elements in other tensors.

A model with one weight for queries, keys and values gives its optimizer shorter lists than one with three. What a list
holds in all does not depend on that: tensors of one name are compared by name, others with one that has the same
numbers, and the elements of all that remain together. L1 norms and squares of L2 norms add up, minimum and maximum are
those of all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from matchers.arrays import Float64
from matchers.laws.law import Form
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.ops.module_path import canonical
from matchers.ops.values import Result, parameter_name, results, together
from matchers.status import AGREE
from matchers.verdict.judge_values import Limits
from matchers.verdict.slots import SlotVerdict, judge_results, worst
from matchers.verdict.tolerance import EPSILON, MOST_ALLOWED

__all__ = ["ALIKE", "in_one_order", "judge_lists", "reordered"]

ALIKE = 1e-3
"""Largest relative difference of numbers that are the same in two layouts."""

Kind = tuple[str, str, bool]
"""The state that tensors are of ("" for parameters), their dtype, and whether they are scalars."""


def judge_lists(a: OpLog, b: OpLog, i: int, j: int, limits: Limits) -> SlotVerdict | None:
    """The verdict on two records that hold the same number of elements in other tensors, or in another order.

    None where they hold other elements, and where the tensors of both are in one order, by name and shape.
    """
    limits = replace(limits, ordered=False)
    one, other = _results(a, i), _results(b, j)
    if not (one or other):  # of lists of one length, what was read tells more than its sum
        if len(a.inputs[i]) == len(b.inputs[j]):
            return None
        (read,) = judge_results([_all_read(a, i)], [_all_read(b, j)], limits)
        return read if read.status in AGREE else None  # one run may pass a factor as a tensor
    if [(name, x.shape) for name, x in one] == [(name, y.shape) for name, y in other]:
        return None
    named, others = ({name: tensor for name, tensor in tensors if name} for tensors in (one, other))
    shared = named.keys() & others.keys()
    left, right = _of_kinds(one, shared), _of_kinds(other, shared)
    of_a, of_b = ([_unordered(of[name]) for name in sorted(shared)] for of in (named, others))
    found = judge_results(of_a, of_b, limits)
    for kind in left.keys() | right.keys():
        verdict = _judge_kind(left.get(kind, []), right.get(kind, []), limits, kind, law_of(a, i).form is Form.NORM)
        if verdict is None:
            return None
        found.append(verdict)
    return worst(found)


def in_one_order(a: OpLog, b: OpLog, i: int, j: int) -> bool:
    """True if the results of two records have the same shapes, one by one, and no other order shows."""
    if [x.shape for x in results(a, i)] != [y.shape for y in results(b, j)]:
        return False
    return not reordered(a.outputs[i], b.outputs[j], a.dtype_text(i))


def reordered(x: Float64, y: Float64, dtype: str) -> bool:
    """True if some norms are the same ones, but at other places; those that are rounding beside the largest aside."""
    rounding = EPSILON.get(dtype, 0.0) * float(np.nan_to_num(x).max(initial=0.0))
    if len(x) != len(y) or np.allclose(x, y, ALIKE, rounding):
        return False
    return np.allclose(np.sort(x), np.sort(y), ALIKE, rounding)


def _results(log: OpLog, row: int) -> list[tuple[str, Result]]:
    """The results of a record, and the names of the parameters or states that they are, or are made of; "": unknown."""
    out = []
    for k, found in enumerate(results(log, row)):
        name = parameter_name(log, row, k) if found.name.startswith("output ") else found.name
        out.append(("" if name.startswith("input ") else canonical(name), found))
    return out


def _all_read(log: OpLog, row: int) -> Result:
    """The inputs of a record together, whose shapes are unknown."""
    return Result(parameter_name(log, row, 0), l1=math.fsum(log.inputs[row]))


def _unordered(tensor: Result) -> Result:
    """The facts about a tensor whatever its layout: a weight may be stored transposed."""
    return replace(tensor, sketch=b"", shape=None if tensor.shape is None else tuple(sorted(tensor.shape)))


def _of_kinds(tensors: Sequence[tuple[str, Result]], shared: Collection[str]) -> dict[Kind, list[Result]]:
    """The tensors that are not shared."""
    names = {name for name, _ in tensors}
    out: dict[Kind, list[Result]] = {}
    for name, tensor in tensors:
        if name not in shared:
            head, _, state = name.rpartition(".")
            kind = state if head and head in names else "", tensor.dtype, tensor.shape == ()
            out.setdefault(kind, []).append(_unordered(tensor))
    return out


def _judge_kind(x: list[Result], y: list[Result], limits: Limits, kind: Kind, norms: bool) -> SlotVerdict | None:
    """The verdict on tensors of one kind; None if one side has more elements."""
    if sum(map(_size, x)) == sum(map(_size, y)):
        least = EPSILON.get(kind[1], 0.0) * together(x).l2 if norms else 0.0
        x, y, found = _without_alike(x, y, limits)
        # norms of gradients that are rounding vanish beside the others
        if x and y and not max(together(x).l2, together(y).l2) <= least:
            found += judge_results([together(x)], [together(y)], limits)
        return worst(found)
    if not (x and y and kind[2]):
        return None
    one, other = together(x), together(y)
    if norms:  # of each tensor: together that of all
        one, other = (replace(norm, l1=norm.l2, min=norm.l2, max=norm.l2) for norm in (one, other))
    else:  # numbers that all tensors share: the count of steps
        one, other = (replace(steps, l1=math.nan, l2=math.nan) for steps in (one, other))
    return judge_results([one], [other], limits)[0]


def _without_alike(
    x: list[Result], y: list[Result], limits: Limits
) -> tuple[list[Result], list[Result], list[SlotVerdict]]:
    """The tensors of which the other side has none with the same numbers, and the verdicts on the others."""
    left, right = (sorted(tensors, key=_rank) for tensors in (x, y))
    verdicts = _verdicts(left, right, limits)
    rest: tuple[list[Result], list[Result]] = [], []
    found: list[SlotVerdict] = []
    while left and right:
        verdict = verdicts.get((len(left) - 1, len(right) - 1))
        if verdict is not None and verdict.status in AGREE:
            found.append(verdict)
            left.pop(), right.pop()
        elif _rank(left[-1]) > _rank(right[-1]):
            rest[0].append(left.pop())
        else:
            rest[1].append(right.pop())
    return rest[0] + left, rest[1] + right, found


def _verdicts(x: Sequence[Result], y: Sequence[Result], limits: Limits) -> dict[tuple[int, int], SlotVerdict]:
    """The verdicts on the pairs of tensors of one size that may have the same numbers."""
    (size_x, l1_x), (size_y, l1_y) = (np.array([_rank(tensor) for tensor in of]).reshape(-1, 2).T for of in (x, y))
    with np.errstate(invalid="ignore"):
        far = np.abs(l1_x[:, None] - l1_y) > MOST_ALLOWED * np.maximum(l1_x[:, None], l1_y)
    i, j = np.nonzero((size_x[:, None] == size_y) & ~far)
    pairs = list(zip(i.tolist(), j.tolist(), strict=True))
    of_pairs = [replace(x[k], shape=None) for k, _ in pairs], [y[k] for _, k in pairs]
    return dict(zip(pairs, judge_results(*of_pairs, limits), strict=True))


def _size(tensor: Result) -> int:
    return math.prod(tensor.shape or ())


def _rank(tensor: Result) -> tuple[int, float]:
    return _size(tensor), tensor.l1
