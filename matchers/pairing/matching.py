"""The automatic matching of two logs, its reuse when rules rename modules, and its conversion to pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matchers.arrays import Int64, columns
from matchers.logs.op_log import OpLog
from matchers.ops.collectives import Chain
from matchers.ops.module_path import canonical
from matchers.ops.shards import Shards
from matchers.pairing.align import Alignment, align
from matchers.pairing.assignment import State
from matchers.pairing.features import Features
from matchers.pairing.pairing import Method, Pairing
from matchers.pairing.rematch import ForcedPair, realigned
from matchers.rules.resolve import Resolved

__all__ = ["Matching", "NameRules", "paired_by"]

_MAX_RENAMED = 1 / 8
"""Maximum share of renamed rows that updates the existing alignment; a larger rename aligns all rows anew."""


@columns
class Matching:
    """The part of a comparison that does not depend on rules about single operations.

    Computed once and shared by all comparisons of two logs under the same module and op rules. `plain` is the matching
    without module rules, None if it was not needed.
    """

    names: NameRules
    features: Features
    alignment: Alignment
    plain: Matching | None = None

    @classmethod
    def of(cls, a: OpLog, b: OpLog, names: NameRules, shards: Shards, before: Matching | None) -> Matching:
        """The matching under these names; `before` is one of the same logs under any names."""
        if before is not None and before.names == names:
            return before
        plain = before if before is None or before.plain is None else before.plain
        if plain is not None and (plain.names.modules_a != tuple(a.modules) or not plain.names.same_ops(names)):
            plain = None
        changed = [
            at
            for at, (name, old) in enumerate(zip(names.modules_a, a.modules, strict=True))
            if name != old and canonical(name) != canonical(old)
        ]
        renamed = np.isin(a.module, changed)
        if np.count_nonzero(renamed) > _MAX_RENAMED * len(a):
            return cls(names, features := names.features(a, b, shards), align(features), plain)
        if plain is None:
            unnamed = replace(names, modules_a=tuple(a.modules))
            plain = cls(unnamed, features := unnamed.features(a, b, shards), align(features))
        if not changed:
            return plain if names == plain.names else cls(names, plain.features, plain.alignment, plain)
        features = plain.features.renamed(names.modules_a, changed)
        return cls(names, features, realigned(features, plain.alignment, renamed), plain)


@dataclass(frozen=True, slots=True)
class NameRules:
    """The rules that rename throughout: module names and chains of ops."""

    modules_a: tuple[str, ...]
    modules_b: tuple[str, ...]
    chains_a: tuple[Chain, ...]
    chains_b: tuple[Chain, ...]

    @classmethod
    def of(cls, resolved: Resolved) -> NameRules:
        chains_a, chains_b = [], []
        for group in resolved.op_groups:
            if len(group.a) == 1:
                chains_b.append(Chain(group.b, group.a[0], phase=group.phase))
            else:
                chains_a.append(Chain(group.a, group.b[0], phase=group.phase))
        return cls(resolved.modules_a, resolved.modules_b, tuple(chains_a), tuple(chains_b))

    def same_ops(self, other: NameRules) -> bool:
        """True if the rules about ops are the same."""
        return (self.chains_a, self.chains_b) == (other.chains_a, other.chains_b)

    def features(self, a: OpLog, b: OpLog, shards: Shards) -> Features:
        """The features of two logs under these names."""
        return Features(a, b, shards, (self.modules_a, self.modules_b), (self.chains_a, self.chains_b))


def paired_by(f: Features, state: State, forced: Sequence[ForcedPair], apart: Sequence[tuple[int, int]]) -> Pairing:
    """Convert partners to pairs, including the other members of groups."""
    lead_a = np.flatnonzero(state.of_a >= 0)
    lead_b = state.of_a[lead_a]
    of_a = np.full(len(f.a), -1, np.int64)
    of_b = np.full(len(f.b), -1, np.int64)
    of_a[lead_a] = np.arange(len(lead_a))
    of_b[lead_b] = np.arange(len(lead_a))
    in_parts = np.append(state.method[lead_a] == Method.PARTS, False)
    for side, of, part in ((f.a, of_a, state.part_a), (f.b, of_b, state.part_b)):
        _join(np.where(in_parts[of[part]], part, side.lead), of)
    for i, j in apart:  # a rule keeps this step of a chain apart from the chain's partner
        if of_a[i] >= 0 and of_a[i] == of_b[j]:
            (of_a if f.a.lead[i] >= 0 else of_b)[i if f.a.lead[i] >= 0 else j] = -1
    for group in forced:
        k = of_a[group.a[-1]]
        if k >= 0 and (len(group.a) > 1 or len(group.b) > 1):
            of_a[list(group.a)], of_b[list(group.b)] = k, k
    assembled = _size(of_a, of_b, len(lead_a)) > 2
    for log, of in ((f.a.log, of_a), (f.b.log, of_b)):
        _join(log.joined, of)
    return Pairing(
        of_a=of_a,
        of_b=of_b,
        lead_a=lead_a,
        lead_b=lead_b,
        method=state.method[lead_a],
        confidence=state.confidence[lead_a].astype(np.float32),
        runner_up=state.runner_up[lead_a].astype(np.int32),
        runner_up_score=state.runner_up_score[lead_a].astype(np.float32),
        grouped=_size(of_a, of_b, len(lead_a)) > 2,
        assembled=assembled,
    )


def _join(into: Int64, of: Int64) -> None:
    """Enter records into the pair of the record that stands for them (-1 for none), in place."""
    step = np.flatnonzero(into >= 0)
    pair = of[into[step]]
    joins = (pair >= 0) & (of[step] < 0)
    of[step[joins]] = pair[joins]


def _size(of_a: Int64, of_b: Int64, pairs: int) -> Int64:
    """Number of records of each pair."""
    return np.asarray(sum(np.bincount(of[of >= 0], minlength=pairs) for of in (of_a, of_b)))
