"""The comparison of two logs: the one object that the screen, the reports and the exit code read.

`compare(a, b, rules)` runs the pipeline: rules → matching → pairing → verdicts → rows → causes. The result is a set of
frozen columns (`matchers.rows`) together with the rules behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from matchers.arrays import Bool, Int64, columns, marked
from matchers.causes.consequences import Consequences, consequences, places
from matchers.causes.find import first_causes
from matchers.causes.first_difference import Equality, FirstDifference, differences, first_difference
from matchers.causes.further_causes import further_causes
from matchers.causes.proven import proven
from matchers.coverage.choices import choice_notes
from matchers.coverage.cover import any_pair_compared
from matchers.coverage.coverage import Coverage, coverage
from matchers.logs.op_log import OpLog
from matchers.ops.common_numbers import same_numbers
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import LastContents
from matchers.ops.micro_batches import fold_micro_batches
from matchers.ops.module_ends import at_module_ends
from matchers.ops.phases import same_phases
from matchers.ops.recomputation import Mismatch, recompute_mismatches
from matchers.ops.shards import Shards
from matchers.pairing.cut_rows import on_common_rows
from matchers.pairing.held_once import held_once
from matchers.pairing.matching import Matching, NameRules, paired_by
from matchers.pairing.pairing import Method
from matchers.pairing.rematch import ForcedPair, apply_rules
from matchers.rows import Rows
from matchers.rules.model import LayoutRule, RowsRule, RuleSet, ToleranceRule
from matchers.rules.resolve import RuleUsage, resolve
from matchers.rules.unneeded import with_hints
from matchers.status import Status
from matchers.verdict.arguments import other_arguments, unexplained
from matchers.verdict.case import Case, Earlier
from matchers.verdict.comparability import Comparability, comparability
from matchers.verdict.content_verdicts import ContentVerdicts
from matchers.verdict.error_propagation import Arithmetic
from matchers.verdict.expectation import Expectation
from matchers.verdict.noise_floor import NoiseFloor, measure_noise, repeats_b
from matchers.verdict.records import RecomputeMismatch
from matchers.verdict.tolerance import DtypePolicy
from matchers.verdict.verdicts import judge_all, within_rules_only

__all__ = ["Comparison", "Kept", "Progress", "compare", "noise_floor", "preview"]

Progress = Callable[[str, float], None]
"""Called with a label of the current step and the fraction done (0 to 1). May raise to cancel."""


@columns
class Kept:
    """Intermediate results of a comparison that speed up the next one of the same logs; None before the first."""

    shards: Shards | None = None
    matching: Matching | None = None
    earlier: Earlier = field(default_factory=Earlier)
    contents: tuple[LastContents, LastContents] | None = None
    copies: tuple[tuple[Mismatch, ...], tuple[Mismatch, ...]] | None = None


_OF_LOGS: Final = (LayoutRule, RowsRule)
"""Rules about what the logs are, before their operations are paired."""

MergeAgain = Callable[[RuleSet], tuple[OpLog, OpLog]]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Rows):
    """The rows of two logs under a set of rules; `with_rules` gives those under other rules.

    Attributes:
        rules, usage: the applied rules, and the effect of each.
        policy: dtype combinations that differ throughout and are judged at the coarser ε.
        expectation: how similar the runs are expected to be.
        arithmetic: by pair, the differences that float arithmetic explains; None unless requested.
        cancellation: by pair, how many times a sum that cancels its terms are.
        loss_scale: the factor of a's losses and gradients against b's before they are reduced; 1 for none.
        last_contents: what the runs leave in parameters, buffers and optimizer states that operations without a common
            pair wrote.
        recompute_mismatches: recomputed copies of both runs that do not repeat what they did in the forward pass.
        merge_again: the logs under other rules about layouts and rows, of merged ranks read again; None where neither
            ranks are merged nor rows told.
    """

    rules: RuleSet = field(default_factory=RuleSet)
    usage: tuple[RuleUsage, ...] = ()
    policy: DtypePolicy = ()
    expectation: Expectation = field(default_factory=Expectation)
    arithmetic: Arithmetic | None = None
    cancellation: Mapping[int, float] = field(default_factory=dict)
    loss_scale: float = 1.0
    last_contents: ContentVerdicts = field(default_factory=ContentVerdicts, repr=False, compare=False)
    recompute_mismatches: tuple[RecomputeMismatch, ...] = ()
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)
    merge_again: MergeAgain | None = field(default=None, repr=False, compare=False)

    @property
    def matching(self) -> Matching | None:
        """The automatic matching; None for a preview."""
        return self.kept.matching

    @cached_property
    def comparability(self) -> Comparability:
        """Differences between the two runs as a whole."""
        found = comparability(
            self.a,
            self.b,
            self.pairing,
            self.flow,
            policy=self.policy,
            expectation=self.expectation,
            red=bool(self.red.any()),
        )
        return found.with_notes(choice_notes(self))

    @cached_property
    def mismatch_at(self) -> dict[int, RecomputeMismatch]:
        """The recompute mismatches by row; that of a where both sides have one."""
        return {
            int((self.at_a if m.side == "a" else self.at_b)[m.mismatch.row]): m
            for m in reversed(self.recompute_mismatches)
        }

    @cached_property
    def starts(self) -> list[tuple[int, ...]]:
        """The rows of each first cause, in screen order: those of one place in the program are one cause."""
        return places(self, self.cause)

    @cached_property
    def consequences(self) -> Consequences:
        """The rows that follow from each first cause; computed on first use."""
        return consequences(self)

    @cached_property
    def further_causes(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each cause downstream of a first one that no input brings about; computed on first use."""
        return () if self.single or not self.cause.any() else further_causes(self, self.asked_otherwise)

    @cached_property
    def coverage(self) -> Coverage:
        """The compared and covered operations of both logs; computed on first use."""
        return coverage(self, self.last_contents.agree)

    @property
    def nothing_compared(self) -> bool:
        """True if not one row was compared; no coverage is computed where a pair was."""
        return not any_pair_compared(self) and self.coverage.nothing

    def coverage_but(self, allowed: Bool) -> Coverage:
        """The same if the user allows some rows (bool[r]) not to be compared."""
        return coverage(self, self.last_contents.agree, allowed)

    @cached_property
    def within_rules_only(self) -> Bool:
        """bool[r]: rows that are close within a tolerance of a rule, and would be red without it."""
        found = np.zeros(len(self), bool)
        if any(isinstance(rule, ToleranceRule) and rule.enabled for rule in self.rules.rules):
            rows = np.flatnonzero((self.pair >= 0) & (self.status == Status.CLOSE))
            i, j = self.row_a[rows], self.row_b[rows]
            rtol = resolve(self.rules, self.a, self.b).rtol(i, j)
            found[rows] = within_rules_only(self.a, self.b, i, j, rtol, self.policy)
        return found

    @cached_property
    def asked_otherwise(self) -> Bool:
        """bool[r]: rows whose sides were given other arguments, which no other form of the step explains."""
        found = np.zeros(len(self), bool)
        rows = np.flatnonzero((self.pair >= 0) & (self.row_a >= 0) & (self.row_b >= 0))
        i, j = self.row_a[rows], self.row_b[rows]
        other = other_arguments(self.a, self.b, i, j)
        found[rows[other]] = [bool(each) for each in unexplained(self.a, self.b, i[other], j[other], self.loss_scale)]
        return found

    @cached_property
    def equality(self) -> Equality:
        """Pairs whose inputs are equal, and whether their results are; what the two logs teach of determinism."""
        return Equality(self)

    def reads_start(self, row: int) -> tuple[str, ...]:
        """Return the kinds of what differs before the step and makes a row differ, as of `FirstDifference.start`."""
        found = self.first_difference
        if found is None or found.row != row:
            among = marked(row, len(self))
            found = next(differences(self, self.equality, among), None) if found is not None else None
        return () if found is None or found.row != row else found.start

    @cached_property
    def first_difference(self) -> FirstDifference | None:
        """The row at which the runs cease to be equal, however little; None where no compared row differs."""
        return None if self.single or self.flow is None else first_difference(self, self.equality)

    def with_rules(self, rules: RuleSet, *, progress: Progress | None = None) -> Comparison:
        """Compare the same logs under other rules: equal to `compare(a, b, rules)`, but only changes are recomputed."""
        again = self.merge_again
        if again is not None and any(rules.enabled(kind) != self.rules.enabled(kind) for kind in _OF_LOGS):
            a, b = again(rules)
            return compare(a, b, rules, expectation=self.expectation, progress=progress, merge_again=again)
        return _compare(self.a, self.b, rules, self.expectation, self.kept, self.flow, progress, merge_again=again)

    def with_expectation(self, expectation: Expectation) -> Comparison:
        """Compare the same logs under the same rules, if another similarity is expected."""
        rules, again = self.rules, self.merge_again
        return _compare(self.a, self.b, rules, expectation, self.kept, self.flow, None, merge_again=again)


def compare(
    a: OpLog,
    b: OpLog,
    rules: RuleSet | None = None,
    *,
    expectation: Expectation | None = None,
    progress: Progress | None = None,
    final: bool = False,
    merge_again: MergeAgain | None = None,
) -> Comparison:
    """Pair the operations of two logs, judge every pair and find the first causes.

    Args:
        final: nothing is kept for comparing under other rules, which takes half as much memory again.
        merge_again: as of `Comparison`.
    """
    rules = rules if rules is not None else RuleSet()
    if merge_again is None and not final and all(len(log.texts("Rows")) for log in (a, b)):
        merge_again = partial(_as_given, a, b)
    a, b = fold_micro_batches(*same_phases(*same_numbers(*at_module_ends(a, b))))
    indices = [(rule.a, rule.b) for rule in rules.enabled(RowsRule)]
    a, b = held_once(*on_common_rows(a, b, _partners, indices))
    expectation = expectation or Expectation()
    return _compare(a, b, rules, expectation, Kept(), None, progress, final=final, merge_again=merge_again)


def noise_floor(a: OpLog, b: OpLog, third: OpLog, *, progress: Progress | None = None) -> NoiseFloor:
    """Measure noise from a third log that repeats the run of a or that of b."""
    side, log = ("b", b) if repeats_b(a, b, third) else ("a", a)
    c = compare(log, third, progress=progress)
    paired = c.pair >= 0
    rows = c.row_a[paired], c.row_b[paired]
    return measure_noise(c.a, c.b, side, *rows, c.error[paired], c.inputs_equal[paired])


def _compare(
    a: OpLog,
    b: OpLog,
    rules: RuleSet,
    expectation: Expectation,
    kept: Kept,
    flow: DataFlow | None,
    progress: Progress | None,
    *,
    final: bool = False,
    merge_again: MergeAgain | None = None,
) -> Comparison:
    tell = progress if progress is not None else _silent
    # 1. the rules, resolved to records of these two logs
    tell("applying the rules", 0.0)
    resolved = resolve(rules, a, b)

    # 2. the matching: pairs found without rules about single operations, a shard by the shape of its whole tensor
    tell("pairing", 0.1)
    shards = kept.shards if kept.shards is not None else Shards.of(a, b)
    matching = Matching.of(a, b, NameRules.of(resolved), shards, kept.matching)
    features = matching.features

    # 3. the pairing: the forced pairs of the rules, and the matching around them
    tell("pairing", 0.7)
    forced = [
        ForcedPair(
            pair.a, pair.b, Method.TEMPLATE if pair.template else Method.OVERRIDE, resolved.pairs_of_rule(pair.rule)
        )
        for pair in resolved.forced
    ]
    repaired = apply_rules(features, matching.alignment, forced, resolved.apart)
    pairing = paired_by(features, repaired.state, forced, resolved.apart)
    repeats = features.a.copies, features.b.copies
    usage = with_hints(rules, resolved, repaired.by_itself, repaired.idle)
    to_keep = None if final else matching
    del matching, features, repaired  # large, and done with

    # 4. the verdicts: each pair by its numbers, then by every judge in its order
    tell("judging", 0.8)
    i, j = pairing.lead_a, pairing.lead_b
    flow = flow if flow is not None else DataFlow(a, b)
    contents = kept.contents
    if contents is None or (contents[0].modules, contents[1].modules) != (resolved.modules_a, resolved.modules_b):
        contents = LastContents(a, resolved.modules_a), LastContents(b, resolved.modules_b)
    copies = kept.copies if kept.copies is not None else (recompute_mismatches(a), recompute_mismatches(b))
    case = Case.of(
        a,
        b,
        pairing,
        expectation,
        resolved.rtol(i, j),
        flow=flow,
        shards=shards,
        excluded=resolved.ignored_a[i] | resolved.ignored_b[j],
        contents=contents,
        copies=copies,
        earlier=replace(kept.earlier),
    )
    found = judge_all(case)
    verdicts, left = found.verdicts, found.contents

    # 5. the rows, in screen order
    excluded_by = resolved.excluded_a, resolved.excluded_b
    rows = Rows.of(a, b, repeats, pairing, verdicts, found.parts, excluded_by, flow)

    # 6. the first causes
    tell("tracing causes", 0.9)
    if not rows.understood:
        rows = proven(rows, found.of_records, scaled=found.loss_scale != 1).rows()
    else:
        rows = first_causes(rows.with_unpaired(found.of_records), left, contents, same_kernels=not expectation.explains)
    return rows.completed(
        Comparison,
        rules=rules,
        usage=usage,
        policy=case.policy,
        expectation=expectation,
        arithmetic=found.arithmetic,
        cancellation=found.cancellation,
        loss_scale=found.loss_scale,
        last_contents=left,
        recompute_mismatches=found.mismatches,
        kept=Kept() if final else Kept(shards, to_keep, case.earlier, contents, copies),
        merge_again=merge_again,
    )


def _partners(a: OpLog, b: OpLog) -> tuple[Int64, Int64]:
    """The records of two logs that are partners without any rules."""
    resolved = resolve(RuleSet(), a, b)
    matching = Matching.of(a, b, NameRules.of(resolved), Shards.of(a, b), None)
    found = paired_by(matching.features, apply_rules(matching.features, matching.alignment, [], ()).state, [], ())
    return found.lead_a, found.lead_b


def _as_given(a: OpLog, b: OpLog, _rules: RuleSet) -> tuple[OpLog, OpLog]:
    return a, b


def _silent(_what: str, _fraction: float) -> None:
    """No-op progress callback."""


def preview(a: OpLog, b: OpLog) -> Comparison:
    """The heads of two logs side by side, row by row, shown until the first pairs are known."""
    n_a, n_b = len(a), len(b)
    n = max(n_a, n_b)
    rows = np.arange(n, dtype=np.int32)
    return Comparison.unjudged(a, b, np.where(rows < n_a, rows, -1), np.where(rows < n_b, rows, -1))
