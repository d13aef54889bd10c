"""Content of a report, independent of its format: every format is written from a `Report`.

Text of a log is raw here; each format escapes it in its own way. Nothing depends on the clock, the machine, or the
order of a dict: two reports of the same logs and rules are the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from matchers.arrays import Int64
from matchers.causes.consequences import Cause
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import shown
from matchers.ops.run_info import captured
from matchers.ops.training_scalars import training_scalars
from matchers.pairing.pairing import Method
from matchers.rules.emit import flow_item
from matchers.status import Role, Status
from numtui import __version__
from numtui.report.evidence_basis import agreement, broken_entries, certificate, extent, lacking, log_trouble
from numtui.report.gate import GatedRows
from numtui.report.options import found_rules
from numtui.report.parts import (
    Argument,
    CauseFacts,
    DifferenceFacts,
    Doubt,
    FamilyFacts,
    Log,
    Note,
    RowFacts,
    RuleUse,
)
from numtui.report.recomputation import MismatchFacts, mismatch_facts, mismatch_groups
from numtui.text.counts import plural

if TYPE_CHECKING:
    from matchers.drift.suggestion import Finding, Suggestion
    from matchers.explain.tensor_rows import Tokens

__all__ = ["Report", "follows"]

_UNSURE: Final = 0.5
"""Pairs below this confidence are reported: a wrong pair is a false red row."""


class Report(GatedRows):
    """Content of all report formats for a comparison, computed on demand."""

    version = __version__

    # -- the two runs

    @cached_property
    def logs(self) -> tuple[Log, Log]:
        """Both logs."""
        c, names = self.comparison, self.options.names
        return _log("a", names[0], c.a), _log("b", names[1], c.b)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Differences between the two runs as a whole, gravest first."""
        return tuple(Note(note.severity.label, note.text) for note in self.comparison.comparability.notes)

    @property
    def warning(self) -> str:
        """The fatal and suspicious notes in one sentence; empty without any."""
        return self.comparison.comparability.sentence

    @property
    def step_numbers(self) -> tuple[str, ...]:
        """The loss and the gradient norm of both runs, as far as both logs tell them."""
        from matchers.explain.step_numbers import step_numbers

        return tuple(step_numbers(self.comparison))

    @property
    def comparable(self) -> bool:
        """True without a fatal note."""
        return all(note.weight != "fatal" for note in self.notes)

    @cached_property
    def excluded(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Operations that the captures left out: both, only a, only b."""
        a, b = (dict.fromkeys(log.header.excluded) for log in (self.comparison.a, self.comparison.b))
        return tuple(o for o in a if o in b), tuple(o for o in a if o not in b), tuple(o for o in b if o not in a)

    # -- the outcome

    @cached_property
    def red(self) -> int:
        """Number of red rows."""
        return int(np.count_nonzero(self.comparison.red))

    @cached_property
    def cause_rows(self) -> Int64:
        """Rows of the first causes, in screen order."""
        return np.flatnonzero(self.comparison.cause)

    @cached_property
    def counts(self) -> tuple[tuple[Status, int], ...]:
        """Number of rows of each occurring status, red ones first."""
        n = self.comparison.counts
        return tuple((s, n[s]) for s in sorted(Status, key=lambda s: (not s.red, s)) if n[s])

    @property
    def result(self) -> str:
        """The outcome in one sentence."""
        c = self.comparison
        if self.red:
            rows = f"{self.red:,} of {plural(len(c), 'row')} {'is' if self.red == 1 else 'are'} red"
            causes = plural(self.cause_count, "first cause")
            if further := len(c.further_causes):
                causes += f" and {further:,} further {'cause' if further == 1 else 'causes'}"
            found = f"{rows}, {f'{n:,} independent causes' if (n := self.independent) else causes}"
            if self.broken_rules:
                found += f"; {broken_entries(len(self.broken_rules))}"
            if not c.coverage.parts:
                return found
            missing = c.coverage.missing
            word = lacking(c.coverage)
            return f"{word}: {missing}; {found}" if c.coverage.half else f"{found}; {word.lower()}: {missing}"
        return agreement(c)

    @property
    def extent(self) -> str:
        """The coverage in one sentence."""
        return extent(self.comparison)

    @property
    def alarming(self) -> bool:
        """True if something is red, or not enough was compared."""
        return self.red > 0 or not self.comparison.coverage.enough

    @property
    def known(self) -> str:
        """Sentence on the rows allowed as known differences; empty for none."""
        n = int(np.count_nonzero(self.allowed.rows))
        return f"{plural(n, 'row')} {'is' if n == 1 else 'are'} allowed as known differences." if n else ""

    @cached_property
    def certificate(self) -> tuple[str, ...]:
        """Evidence behind the outcome, a sentence each."""
        return tuple(certificate(self.comparison))

    @property
    def judged_by(self) -> str:
        """The expectation options as typed; empty where every pair was judged by itself."""
        return " ".join(self.comparison.expectation.options)

    @property
    def cause_count(self) -> int:
        """Number of first causes; rows of one place in the program count as one."""
        return len(self.comparison.starts)

    @property
    def independent(self) -> int:
        """Number of causes of which certainly none follows from another; 0 where there is one or it is not certain."""
        c = self.comparison
        own = c.red & c.inputs_equal
        n = len(c.starts) + len(c.further_causes)
        return n if n > 1 and all(own[list(rows)].any() for rows in c.starts[1:]) else 0

    def further(self, limit: int) -> tuple[RowFacts, ...]:
        """Return the first rows of causes downstream of a first one, see `matchers.causes.further_causes`."""
        return tuple(self.row(rows[0]) for rows in self.comparison.further_causes[:limit])

    @cached_property
    def first_difference(self) -> DifferenceFacts | None:
        """The row at which the runs cease to be equal, however little; None where no compared row differs."""
        from matchers.explain.first_difference import first_difference_note, first_difference_reasons

        c = self.comparison
        if (found := c.first_difference) is None:
            return None
        return DifferenceFacts(
            title=first_difference_note(c),
            reasons=first_difference_reasons(c),
            row=self.row(found.row),
            kind=found.kind.label,
            within_tolerance=bool(c.pair[found.row] >= 0 and not c.red[found.row]),
            by_digest=found.by_digest,
            reader=found.reader,
            differs=found.start,
            others=found.others,
            others_differ=found.others_differ,
            operation=found.operation,
        )

    def causes(self, limit: int) -> tuple[CauseFacts, ...]:
        """Return the first causes that explain most, among those with known consequences."""
        from matchers.explain.sentences import format_error

        c = self.comparison
        return tuple(
            CauseFacts(
                row=self.row(cause.rows[0]),
                rows=cause.rows,
                red=cause.red,
                assumed=cause.assumed,
                masked=cause.masked,
                modules=cause.modules,
                growth=tuple(
                    (step.phase.label, step.place, format_error(step.error, bool(c.bound[step.row])))
                    for step in cause.growth
                ),
                follows=follows(c, cause),
            )
            for cause in c.consequences.causes[:limit]
        )

    @cached_property
    def tokens(self) -> Tokens | None:
        """The tokens whose numbers differ most, of logs that tell rows."""
        from matchers.explain.tensor_rows import worst_tokens

        return worst_tokens(self.comparison)

    def rows_told(self, row: int) -> tuple[str, ...]:
        """Sentences about the rows of a pair's results."""
        from matchers.explain.tensor_rows import row_sentences

        return tuple(row_sentences(self.comparison, row))

    def reds(self, limit: int, *, explained: bool = False) -> tuple[RowFacts, ...]:
        """Return the first red rows."""
        return tuple(self.row(row, explained=explained) for row in np.flatnonzero(self.comparison.red)[:limit].tolist())

    @cached_property
    def beginning_rows(self) -> Int64:
        """Rows within tolerance whose inputs are bitwise equal: origins of rounding, or of a small bug."""
        c = self.comparison
        return np.flatnonzero((c.status == Status.CLOSE) & c.inputs_equal & ~c.unread)

    @cached_property
    def mismatches(self) -> tuple[MismatchFacts, ...]:
        """Recomputed copies that do not repeat what they did in the forward pass."""
        return mismatch_facts(self.comparison)

    @cached_property
    def mismatch_groups(self) -> tuple[tuple[MismatchFacts, int, str], ...]:
        """The same by source line: the first, their number, and what is said of the first."""
        return tuple(mismatch_groups(self.comparison))

    def row(self, row: int, *, explained: bool = True) -> RowFacts:
        """Describe one row; `explained` adds a sentence, which takes most of the time."""
        from matchers.explain.arguments import argument_reasons
        from matchers.explain.sentences import (
            format_eps,
            format_error,
            headline,
            row_epsilon,
        )  # not for the rows in machine formats

        c = self.comparison
        a, b = c.members(row)
        i, j = int(c.row_a[row]), int(c.row_b[row])
        log, record = (c.a, i) if i >= 0 else (c.b, j)
        error = float(c.error[row])
        return RowFacts(
            row=row,
            a_keys=tuple(c.a.keys[r] for r in a),
            b_keys=tuple(c.b.keys[r] for r in b),
            status=Status(c.status[row]),
            role=Role(c.role[row]),
            cause=bool(c.cause[row]),
            error="" if np.isnan(error) else format_error(error, bool(c.bound[row])),
            in_eps=format_eps(error, row_epsilon(c, row)),
            phase=Phase(log.phase[record]).label,
            shape=log.shape_text(record),
            dtype=log.dtype_text(record),
            module=log.module_name(record),
            location=log.location_text(record),
            location_b=_other_location(c, i, j),
            line_a=int(c.a.line[i]) if i >= 0 else 0,
            line_b=int(c.b.line[j]) if j >= 0 else 0,
            arguments=tuple(
                Argument(other.name, shown(other.a), shown(other.b), why) for other, why in argument_reasons(c, row)
            ),
            sentence=headline(c, row) if explained else "",
        )

    # -- doubts and explanations

    @cached_property
    def doubt(self) -> Doubt | None:
        """The least certain pair, when some are doubtful."""
        c, p = self.comparison, self.comparison.pairing
        unsure = np.flatnonzero((p.confidence < _UNSURE) & (p.method > Method.TEMPLATE))
        if len(unsure) == 0:
            return None
        worst = int(unsure[np.argmin(p.confidence[unsure])])
        rival = int(p.runner_up[worst])
        return Doubt(
            pairs=len(unsure),
            below=_UNSURE,
            a_key=c.a.keys[int(p.lead_a[worst])],
            b_key=c.b.keys[int(p.lead_b[worst])],
            method=Method(p.method[worst]).label,
            confidence=float(p.confidence[worst]),
            runner_up=c.b.keys[rival] if rival >= 0 else "",
            runner_up_score=float(p.runner_up_score[worst]),
        )

    @cached_property
    def realignments(self) -> tuple[FamilyFacts, ...]:
        """Mispaired runs: red pairs that other partners make equal, with their fix."""
        from matchers.drift.realign import realignments

        return tuple(map(_family, realignments(self.comparison)))

    @cached_property
    def families(self) -> tuple[FamilyFacts, ...]:
        """Known kinds of drift in the comparison, most rows first.

        Only realignments while there are any: wrong pairs look like drift.
        """
        from matchers.drift.suggest import families

        if any(not family.failed for family in self.realignments):
            return self.realignments
        found = map(_family, families(self.comparison))
        return (*self.realignments, *sorted(found, key=lambda f: (-f.rows, f.name)))

    @property
    def rules_note(self) -> str:
        """Sentence about a rule file that was found and not named; empty without one."""
        found = self.options.rules_found
        return "" if found is None else found_rules(found, applied=found == self.options.rules_path)

    @cached_property
    def rules(self) -> tuple[RuleUse, ...]:
        """The rules in force, in the order of application."""
        c = self.comparison
        return tuple(
            RuleUse(rule.section, flow_item(rule), rule.line, used.matched, used.problem or "", used.hint or "")
            for used in c.usage
            for rule in [c.rules.rules[used.rule]]
            if rule.enabled
        )

    @cached_property
    def broken_rules(self) -> tuple[str, ...]:
        """The broken entries of the rule file, with their place."""
        return tuple(str(problem) for problem in self.comparison.rules.problems)


def follows(c: Comparison, cause: Cause) -> str:
    """Describe the consequences of a first cause in a sentence; empty where it is the only red row."""
    told = [*_explained(c, cause)]
    if len(cause.rows) > 1:
        told.append(f"starts in {len(cause.rows):,} rows of one place in the program")
    worst = max(cause.growth, key=lambda step: step.error, default=None)
    if worst is not None and len(cause.growth) > 1 and not c.single:
        from matchers.explain.sentences import format_error

        error = format_error(worst.error, bool(c.bound[worst.row]))
        told.append(f"largest error {error} at {_key(c, worst.row)}")
    if cause.after >= 0:
        told.append(f"possibly a consequence of cause {cause.after + 1}, through rows with the same printed values")
    if cause.masked:
        rows = "downstream row matches" if cause.masked == 1 else "downstream rows match"
        told.append(f"{cause.masked:,} {rows} in every printed digit but may still differ")
    return "; ".join(told)


def _explained(c: Comparison, cause: Cause) -> Iterator[str]:
    """Count the red rows that a first cause explains; a single one by its key, which is shown nowhere else."""
    reds = np.flatnonzero(c.red)
    if len(reds) > 1:
        many = "all" if cause.red == len(reds) else f"{cause.red:,} of {len(reds):,}"
        by_place = f"; {plural(cause.assumed, 'row')} attributed by position only (producers not captured)"
        yield f"explains {many} red rows, in {plural(cause.modules, 'module')}{by_place if cause.assumed else ''}"
    elif cause.red and int(reds[0]) not in cause.rows:
        yield f"explains the one red row, {_key(c, int(reds[0]))}"


def _key(c: Comparison, row: int) -> str:
    """Return the key of a row in a, or in b where only b has it."""
    return c.a.keys[int(c.row_a[row])] if c.row_a[row] >= 0 else c.b.keys[int(c.row_b[row])]


def _family(found: Finding | Suggestion) -> FamilyFacts:
    return FamilyFacts(found.name, found.rows, found.explanation, found.failed)


def _log(side: str, name: str, log: OpLog) -> Log:
    numbers = training_scalars(log)
    return Log(
        side=side,
        name=name,
        path=log.path,
        captured=captured(log),
        losses=numbers.losses,
        gradient_norm=numbers.gradient_norm,
        operations=len(log),
        declared=log.header.declared,
        complete=log.complete,
        trouble=tuple(log_trouble(log)),
        problems=tuple((problem.line, problem.message) for problem in log.problems),
        problem_count=log.problem_count,
    )


def _other_location(c: Comparison, i: int, j: int) -> str:
    """Return the source line of record j of b where it differs from that of record i of a."""
    if i < 0 or j < 0:
        return ""
    one, other = c.a.location_text(i), c.b.location_text(j)
    return other if one and one != other else ""
