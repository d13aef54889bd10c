"""The operations that one rule covers by itself, regardless of the precedence of other rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from matchers.arrays import Bool, Int32
from matchers.logs.op_log import OpLog, Phase
from matchers.rules.key_index import index_of
from matchers.rules.model import (
    ApartRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RowsRule,
    Rule,
    RuleSet,
    Side,
    TemplateRule,
)
from matchers.rules.resolve import resolve

__all__ = ["Reach", "of_layout", "reach"]


class Reach(NamedTuple):
    """bool[n_a], bool[n_b]: the records that a rule covers."""

    a: Bool
    b: Bool

    def covers(self, records: Int32) -> Bool:
        """bool[n]: the pairs of records, int32[2, n] of a and of b (-1: none), that the rule covers."""
        i, j = records
        return np.asarray(((i >= 0) & self.a[i]) | ((j >= 0) & self.b[j]))


def reach(rule: Rule, a: OpLog, b: OpLog, modules: tuple[ModuleRule, ...] = ()) -> Reach:
    """The operations that a rule covers, after the renamings by `modules`.

    A module rule covers operations of a only; b already has the new names.
    """
    # one extra entry, so that -1 is a valid index
    masks = np.zeros(len(a) + 1, bool), np.zeros(len(b) + 1, bool)
    if isinstance(rule, OpRule):
        for mask, log, ops in zip(masks, (a, b), (rule.a, rule.b), strict=True):
            mask[:-1] = np.isin(log.op, [at for at, op in enumerate(log.ops) if op in ops]) & _in(log, rule.phase)
        return Reach(*masks)
    resolved = resolve(RuleSet((*modules, rule)), a, b)
    if isinstance(rule, (PairRule, TemplateRule)):
        for pair in resolved.forced:
            masks[0][list(pair.a)] = True
            masks[1][list(pair.b)] = True
    elif isinstance(rule, ApartRule):
        for i, j in resolved.apart:
            masks[0][i] = masks[1][j] = True
    elif isinstance(rule, ModuleRule):
        before = resolve(RuleSet(modules), a, b).modules_a
        renamed = [new != old for new, old in zip(resolved.modules_a, before, strict=True)]
        masks[0][:-1] = np.array([*renamed, False])[a.module]
    elif isinstance(rule, LayoutRule):
        for mask, log, side in zip(masks, (a, b), Side, strict=True):
            if rule.side in (None, side) and log.members:
                mask[:-1] = of_layout(rule, log)
    elif isinstance(rule, RowsRule):
        for mask, log in zip(masks, (a, b), strict=True):
            mask[list(log.rows_kept)] = True
    else:
        for mask, ignored, tolerance in zip(
            masks,
            (resolved.ignored_a, resolved.ignored_b),
            (resolved.tolerance_a, resolved.tolerance_b),
            strict=True,
        ):
            mask[:-1] = ignored | (tolerance == len(modules))
    return Reach(*masks)


def of_layout(rule: LayoutRule, log: OpLog) -> Bool:
    """bool[n]: the operations of a log of a rank, or of merged ranks, that the rule is about."""
    return index_of(log, log.modules).glob(rule.match) & _in(log, rule.phase)


def _in(log: OpLog, phase: Phase | None) -> Bool:
    return np.ones(len(log), bool) if phase is None else np.asarray(log.phase == phase)
