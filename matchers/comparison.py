"""The comparison of two logs: the one object that the screen, the reports and the exit code read.

`compare(a, b, rules)` pairs the operations, judges every pair and finds the first causes. The result is frozen
columns, one row per line of the screen: the operations of a in the order they were dispatched, with those that only
b has in their place between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from matchers.align import Alignment, State, align
from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.collectives import Chain
from matchers.comparability import Comparability, comparability
from matchers.consequences import Consequences, consequences, still_felt
from matchers.dataflow import DataFlow
from matchers.expectation import Expectation
from matchers.features import Features
from matchers.gathered import without_parts
from matchers.growth import Arithmetic
from matchers.hygiene import with_hints
from matchers.judged import Judged
from matchers.judgement import Judgement, judge_all
from matchers.noise import NoiseFloor, measure_noise, repeats_b
from matchers.op_key import canonical
from matchers.op_log import OpLog
from matchers.origin import Origins, find_origins
from matchers.pairing import Method, Pairing
from matchers.partial_sums import partial_sums
from matchers.rename import realigned
from matchers.repair import ForcedPair, apply_rules
from matchers.resolve import Resolved, RuleUsage, resolve
from matchers.rules import RuleSet
from matchers.slots import SlotVerdict
from matchers.status import Role, Status
from matchers.verdict import Verdicts

__all__ = ["Comparison", "Kept", "Progress", "compare", "noise_floor", "preview"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it (0 to 1). May raise to cancel."""


_FEW = 8
"""A rename of up to one row in so many is worked into the alignment that there is; after others all is aligned anew."""


@dataclass(frozen=True, slots=True)
class Matching:
    """What does not depend on the rules about single operations: computed once and shared by all comparisons of two
    logs under the same module and op rules.

    `plain` is the one without module rules, None where it was not needed.
    """

    names: _Names
    features: Features
    alignment: Alignment
    plain: Matching | None = None

    @classmethod
    def of(cls, a: OpLog, b: OpLog, names: _Names, before: Matching | None) -> Matching:
        """The matching under these names; `before` is one of the same logs under any."""
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
        if np.count_nonzero(renamed) * _FEW > len(a):
            return cls(names, features := names.features(a, b), align(features), plain)
        if plain is None:
            unnamed = replace(names, modules_a=tuple(a.modules))
            plain = cls(unnamed, features := unnamed.features(a, b), align(features))
        if not changed:
            return plain if names == plain.names else cls(names, plain.features, plain.alignment, plain)
        features = plain.features.renamed(names.modules_a, changed)
        return cls(names, features, realigned(features, plain.alignment, renamed), plain)


@dataclass(frozen=True, slots=True)
class _Names:
    """The rules that change names throughout."""

    modules_a: tuple[str, ...]
    modules_b: tuple[str, ...]
    chains_a: tuple[Chain, ...]
    chains_b: tuple[Chain, ...]

    @classmethod
    def of(cls, resolved: Resolved) -> _Names:
        chains_a, chains_b = [], []
        for group in resolved.op_groups:
            if len(group.a) == 1:
                chains_b.append(Chain(group.b, group.a[0], phase=group.phase))
            else:
                chains_a.append(Chain(group.a, group.b[0], phase=group.phase))
        return cls(resolved.modules_a, resolved.modules_b, tuple(chains_a), tuple(chains_b))

    def same_ops(self, other: _Names) -> bool:
        """Whether the rules about ops are the same."""
        return (self.chains_a, self.chains_b) == (other.chains_a, other.chains_b)

    def features(self, a: OpLog, b: OpLog) -> Features:
        """The features of two logs under these names."""
        return Features(a, b, self.modules_a, self.modules_b, self.chains_a, self.chains_b)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one comparison of two logs hands on to the next one under other rules; None: nothing yet."""

    matching: Matching | None = None
    flow: DataFlow | None = None
    judged: Judged | None = None


@dataclass(frozen=True)
class Comparison:
    """r rows; see the module's docstring.

    Attributes:
        row_a, row_b: int32[r], the record shown on each side (the lead of a group), -1 when there is none.
        pair: int32[r], index into `pairing`, -1 for a row that only one side has.
        status: int8[r] of `Status`.
        error: float64[r], relative error; NaN when there is nothing to compare; inf for NaN or Inf in the values.
        bound: bool[r], the error is only a lower bound (two norms that agree do not bound the error); where it is not,
            it is an estimate, or 0 because the bits are equal.
        inputs_equal: bool[r], by their digests the inputs of both sides are equal to the bit; so what differs in such a
            row is the operation's own doing, red or not.
        tolerance: float64[r], the error up to which the row counts as close (that of Min and Max is larger than that
            of norms, see verdict.py); NaN when not judged.
        role: int8[r] of `Role`, NONE for rows that are not red.
        cause: bool[r], the row is a first cause: a red one, one that only one side has, or one that a rule ignores
            though red rows follow from it that no other first cause explains.
        original: int32[r], for a recomputed copy without partner, or with one because of what both repeat, the row of
            this comparison that shows the original; else -1.
        at_a, at_b: int32[n_a], int32[n_b], the row that shows each record (members of a group: the pair's row).
        rules, usage: the rules that were applied, and what became of each.
        policy: combinations of dtypes that differ throughout and are judged at the coarser ε.
        expectation: how alike the runs are expected to be.
        arithmetic: by pair, which differences float arithmetic explains; None where that was not asked.
        slots: by row, the further output or the parameter that `status` and `error` are about; rows that are judged by
            their first output have none.
    """

    a: OpLog
    b: OpLog
    pairing: Pairing
    row_a: Int32
    row_b: Int32
    pair: Int32
    status: NDArray[np.int8]
    error: Float64
    bound: Bool
    inputs_equal: Bool
    tolerance: Float64
    role: NDArray[np.int8]
    cause: Bool
    original: Int32
    at_a: Int32
    at_b: Int32
    rules: RuleSet = field(default_factory=RuleSet)
    usage: tuple[RuleUsage, ...] = ()
    policy: tuple[tuple[str, str], ...] = ()
    expectation: Expectation = field(default_factory=Expectation)
    arithmetic: Arithmetic | None = None
    slots: Mapping[int, SlotVerdict] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    single: ClassVar[bool] = False
    """Whether this is one log by itself (`matchers.single_run`)."""

    @property
    def logs(self) -> tuple[tuple[str, OpLog], ...]:
        """The logs, each with the name of its side."""
        return (("a", self.a),) if self.single else (("a", self.a), ("b", self.b))

    @property
    def matching(self) -> Matching | None:
        """The automatic matching; None for a preview."""
        return self.kept.matching

    @property
    def flow(self) -> DataFlow | None:
        """The data flow of both logs; None for a preview."""
        return self.kept.flow

    def __len__(self) -> int:
        return len(self.row_a)

    @cached_property
    def red(self) -> Bool:
        """bool[r]: the rows that are red."""
        return np.asarray(self.status >= Status.SHAPE)

    @cached_property
    def counts(self) -> dict[Status, int]:
        """Rows per status, zeros included."""
        n = np.bincount(self.status, minlength=len(Status))
        return {s: int(n[s]) for s in Status}

    @cached_property
    def comparability(self) -> Comparability:
        """What is different about the two runs as a whole."""
        return comparability(self)

    @cached_property
    def consequences(self) -> Consequences:
        """What follows from each first cause; computed when first asked for."""
        return consequences(self)

    def count(self, role: Role) -> int:
        """Rows of one role."""
        return int(np.count_nonzero(self.role == role))

    def side(self, name: str) -> tuple[OpLog, Int32]:
        """The log of side `a` or `b` and the record that each row shows of it."""
        return (self.a, self.row_a) if name == "a" else (self.b, self.row_b)

    def members(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The records of a and of b that a row stands for."""
        if self.pair[row] >= 0:
            return self.pairing.members(int(self.pair[row]))
        a, b = int(self.row_a[row]), int(self.row_b[row])
        return ((a,) if a >= 0 else ()), ((b,) if b >= 0 else ())

    def final(self) -> Comparison:
        """The same rows without what a comparison under other rules would start from, which is most of the memory."""
        return replace(self, kept=Kept(flow=self.kept.flow))

    def with_rules(self, rules: RuleSet, *, progress: Progress | None = None) -> Comparison:
        """The same logs under other rules: equal to `compare(a, b, rules)`, but only what changed is done again."""
        return _compare(self.a, self.b, rules, self.expectation, self.kept, progress)


def compare(
    a: OpLog,
    b: OpLog,
    rules: RuleSet | None = None,
    *,
    expectation: Expectation | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Pairs the operations of two logs, judges every pair and finds the first causes."""
    rules = rules if rules is not None else RuleSet()
    return _compare(a, b, rules, expectation or Expectation(), Kept(), progress)


def noise_floor(a: OpLog, b: OpLog, third: OpLog, *, progress: Progress | None = None) -> NoiseFloor:
    """The noise that a third log shows, which repeats the run of a or that of b."""
    side, log = ("b", b) if repeats_b(a, b, third) else ("a", a)
    c = compare(log, third, progress=progress)
    paired = c.pair >= 0
    rows = c.row_a[paired].astype(np.int64), c.row_b[paired].astype(np.int64)
    return measure_noise(log, third, side, *rows, c.error[paired], c.inputs_equal[paired])


def _compare(
    a: OpLog, b: OpLog, rules: RuleSet, expectation: Expectation, kept: Kept, progress: Progress | None
) -> Comparison:
    tell = progress if progress is not None else _silent
    tell("applying the rules", 0.0)
    resolved = resolve(rules, a, b)
    names = _Names.of(resolved)
    tell("pairing", 0.1)
    matching = Matching.of(a, b, names, kept.matching)
    f = matching.features
    forced = [
        ForcedPair(
            pair.a, pair.b, Method.TEMPLATE if pair.template else Method.OVERRIDE, resolved.pairs_of_rule(pair.rule)
        )
        for pair in resolved.forced
    ]
    tell("pairing", 0.7)
    repaired = apply_rules(f, matching.alignment, forced, resolved.apart)
    pairing = _pairing(f, repaired.state, forced, resolved.apart)
    usage = with_hints(rules, resolved, repaired)

    tell("judging", 0.8)
    i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
    flow = kept.flow if kept.flow is not None else DataFlow(a, b)
    judgement = judge_all(a, b, pairing, flow, expectation, resolved.rtol(i, j), kept.judged)
    verdicts = without_parts(f, pairing, judgement.verdicts, flow)
    status = verdicts.status.copy()
    status[resolved.ignored_a[i] | resolved.ignored_b[j]] = Status.IGNORED
    status[partial_sums(a, b, pairing, status, flow)] = Status.PARTIAL
    tell("tracing causes", 0.9)
    # what is ignored is no red row, and a red row that follows from it is no first cause all the same
    judged = np.where(status == Status.IGNORED, verdicts.status, status)
    origins = find_origins(a, b, pairing, replace(verdicts, status=judged), flow)
    verdicts = replace(verdicts, status=status)
    kept = Kept(matching, flow, judgement.judged)
    return _rows(
        a, b, rules, resolved, usage, kept, matching.features, pairing, verdicts, origins, judgement, expectation
    )


def _silent(_what: str, _fraction: float) -> None:
    """Progress that nobody wants to hear of."""


def _pairing(f: Features, state: State, forced: Sequence[ForcedPair], apart: Sequence[tuple[int, int]]) -> Pairing:
    """The partners as pairs, with the other members of groups."""
    lead_a = np.flatnonzero(state.of_a >= 0)
    lead_b = state.of_a[lead_a]
    of_a = np.full(len(f.a), -1, np.int32)
    of_b = np.full(len(f.b), -1, np.int32)
    of_a[lead_a] = np.arange(len(lead_a))
    of_b[lead_b] = np.arange(len(lead_a))
    for side, of in ((f.a, of_a), (f.b, of_b)):
        step = np.flatnonzero(side.lead >= 0)
        pair = of[side.lead[step]]
        joins = (pair >= 0) & (of[step] < 0)
        of[step[joins]] = pair[joins]
    for i, j in apart:  # a step of a chain that is not to be with what the chain stands for
        if of_a[i] >= 0 and of_a[i] == of_b[j]:
            (of_a if f.a.lead[i] >= 0 else of_b)[i if f.a.lead[i] >= 0 else j] = -1
    for group in forced:
        k = of_a[group.a[-1]]
        if k >= 0 and (len(group.a) > 1 or len(group.b) > 1):
            of_a[list(group.a)], of_b[list(group.b)] = k, k
    size = sum(np.bincount(of[of >= 0], minlength=len(lead_a)) for of in (of_a, of_b))
    return Pairing(
        of_a=of_a,
        of_b=of_b,
        lead_a=lead_a.astype(np.int32),
        lead_b=lead_b.astype(np.int32),
        method=state.method[lead_a],
        confidence=state.confidence[lead_a].astype(np.float32),
        runner_up=state.runner_up[lead_a].astype(np.int32),
        runner_up_score=state.runner_up_score[lead_a].astype(np.float32),
        grouped=np.asarray(size > 2),
    )


def _rows(
    a: OpLog,
    b: OpLog,
    rules: RuleSet,
    resolved: Resolved,
    usage: tuple[RuleUsage, ...],
    kept: Kept,
    f: Features,
    pairing: Pairing,
    verdicts: Verdicts,
    origins: Origins,
    judgement: Judgement,
    expectation: Expectation,
) -> Comparison:
    """Puts pairs and lone records in the order of the screen."""
    alone_a, alone_b = np.flatnonzero(pairing.of_a < 0), np.flatnonzero(pairing.of_b < 0)
    pairs = len(pairing)
    # a lone record of b stands behind the row of the last paired record of b before it
    last = np.maximum.accumulate(np.where(pairing.of_b >= 0, np.arange(len(b)), -1)) if len(b) else np.zeros(0, int)
    behind = last[alone_b]
    place_b = np.where(behind >= 0, pairing.lead_a[pairing.of_b[behind]] if pairs else -1, -1)
    place = np.concatenate((pairing.lead_a, alone_a, place_b))
    rank = np.concatenate((np.full(pairs + len(alone_a), -1), alone_b))
    order = np.lexsort((rank, place))

    none_a, none_b = np.full(len(alone_a), -1), np.full(len(alone_b), -1)
    row_a = np.concatenate((pairing.lead_a, alone_a, none_b))[order].astype(np.int32)
    row_b = np.concatenate((pairing.lead_b, none_a, alone_b))[order].astype(np.int32)
    pair = np.concatenate((np.arange(pairs), none_a, none_b))[order].astype(np.int32)

    lone = np.concatenate(
        (_lone(f.a.original, a, Status.ONLY_A)[alone_a], _lone(f.b.original, b, Status.ONLY_B)[alone_b])
    )
    lone[np.concatenate((resolved.ignored_a[alone_a], resolved.ignored_b[alone_b]))] = Status.IGNORED
    alone = len(alone_a) + len(alone_b)
    status = np.concatenate((verdicts.status, lone))[order].astype(np.int8)
    ignored = status == Status.IGNORED
    nan, no = np.full(alone, np.nan), np.zeros(alone, bool)
    cause = np.concatenate((origins.cause, origins.cause_a[alone_a], origins.cause_b[alone_b]))[order]

    at_a, at_b = np.full(len(a), -1, np.int32), np.full(len(b), -1, np.int32)
    rows = np.arange(len(order), dtype=np.int32)
    at_a[row_a[row_a >= 0]] = rows[row_a >= 0]
    at_b[row_b[row_b >= 0]] = rows[row_b >= 0]
    row_of_pair = np.zeros(max(pairs, 1), np.int32)
    row_of_pair[pair[pair >= 0]] = rows[pair >= 0]
    at_a = np.where(pairing.of_a >= 0, row_of_pair[np.maximum(pairing.of_a, 0)], at_a)
    at_b = np.where(pairing.of_b >= 0, row_of_pair[np.maximum(pairing.of_b, 0)], at_b)

    original = np.full(len(order), -1, np.int32)
    again = status == Status.RECOMPUTE
    again[pair >= 0] |= pairing.method[pair[pair >= 0]] == Method.DATAFLOW
    for side, row, at in ((f.b, row_b, at_b), (f.a, row_a, at_a)):
        mine = np.flatnonzero(again & (row >= 0))
        source = side.original[row[mine]]
        original[mine] = np.where(source >= 0, at[np.maximum(source, 0)], -1)

    found = Comparison(
        a=a,
        b=b,
        pairing=pairing,
        row_a=row_a,
        row_b=row_b,
        pair=pair,
        status=status,
        error=np.concatenate((verdicts.error, nan))[order],
        bound=np.concatenate((verdicts.bound, no))[order],
        inputs_equal=np.concatenate((verdicts.inputs_equal, no))[order],
        tolerance=np.concatenate((verdicts.limit, nan))[order],
        role=np.where(ignored, np.int8(Role.NONE), np.concatenate((origins.role, no.astype(np.int8)))[order]),
        cause=cause,
        original=original,
        at_a=at_a,
        at_b=at_b,
        rules=rules,
        usage=usage,
        policy=judgement.policy,
        expectation=expectation,
        arithmetic=judgement.arithmetic,
        slots={int(row_of_pair[k]): slot for k, slot in verdicts.slots.items()},
        kept=kept,
    )
    return replace(found, cause=cause & (~ignored | still_felt(found))) if (cause & ignored).any() else found


def _lone(original: Int64, log: OpLog, status: Status) -> NDArray[np.int8]:
    """Status of records without partner: a copy that activation checkpointing ran again, or only on this side."""
    return np.where((original >= 0) | log.recompute, np.int8(Status.RECOMPUTE), np.int8(status))


def preview(a: OpLog, b: OpLog) -> Comparison:
    """The heads of two logs side by side, row by row: something to look at before the first pair is known."""
    n_a, n_b = len(a), len(b)
    n = max(n_a, n_b)
    rows = np.arange(n, dtype=np.int32)
    return Comparison(
        a=a,
        b=b,
        pairing=Pairing.none(n_a, n_b),
        row_a=np.where(rows < n_a, rows, -1),
        row_b=np.where(rows < n_b, rows, -1),
        pair=np.full(n, -1, np.int32),
        status=np.full(n, Status.PENDING, np.int8),
        error=np.full(n, np.nan),
        bound=np.zeros(n, bool),
        inputs_equal=np.zeros(n, bool),
        tolerance=np.full(n, np.nan),
        role=np.zeros(n, np.int8),
        cause=np.zeros(n, bool),
        original=np.full(n, -1, np.int32),
        at_a=np.arange(n_a, dtype=np.int32),
        at_b=np.arange(n_b, dtype=np.int32),
    )
