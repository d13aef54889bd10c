"""Session over one pair of logs, independent of the screen.

The session owns all state that a key can change: the rules with undo and redo, the mark, the proposal; and in
`listing` the cursor, filter, folds, search and jumps. So nearly all of the program is tested without a terminal.

Matching is slow: a change of the rules returns a `Job`, whose `run` is pure and callable in any thread; `accept` takes
its result. A job carries the generation of its rules; results of outdated rules are dropped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np

from matchers.comparison import Comparison
from matchers.drift.suggest import suggest
from matchers.drift.suggestion import Suggestion
from matchers.explain.sentences import Explanation
from matchers.rules.file import RuleFile, parse_rules
from matchers.rules.model import PairRule, RuleSet, located
from numtui.query.fields import rows_of_rule
from numtui.report.kept import KeptOperations
from numtui.session.input_history import TypedLines, joined
from numtui.session.jobs import Job, Proposal, RealignmentSearch
from numtui.session.journal import Journal, Recovered
from numtui.session.listing import Listing
from numtui.session.restore import find_again, resume, sitting_of, written_meanwhile
from numtui.session.rule_edits import (
    Edit,
    EditError,
    Effect,
    RecordPair,
    ignore_edits,
    pair_edits,
    realign_edits,
    template_edits,
    unpair_edits,
)
from numtui.session.store import SavedSession, SessionStore
from numtui.session.suggestion_tree import Suggested

__all__ = ["Session"]


class _Drift:
    """A search for drift, done once."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._lock = Lock()
        self._found: tuple[Suggestion, ...] | None = None

    def found(self) -> tuple[Suggestion, ...]:
        """Search, or return what was found."""
        with self._lock:
            if self._found is None:
                c = self.comparison
                self._found = () if c.single or c.matching is None else suggest(c)
            return self._found


class Session:
    """Rules, proposal and listing of one comparison."""

    def __init__(
        self,
        comparison: Comparison,
        file: RuleFile,
        *,
        names: tuple[str, str] = ("a", "b"),
        journal: Journal | None = None,
        store: SessionStore | None = None,
        rules_named: bool = False,
    ) -> None:
        self.listing = Listing(comparison)
        self.file = file
        self.rules: RuleSet = file.rules
        self.rules_named = rules_named
        """The user named the rule file; otherwise it was found in the current folder."""
        self.rules_off = False
        """The comparison is without the rules, until they are turned on again or changed."""
        self.names = names
        self.journal = journal
        self.store = store
        self.outdated = False
        """True when the log files have changed since they were read."""
        self.generation = 0
        self.mark: RecordPair | None = None
        self.proposal: Proposal | None = None
        self.suggested = Suggested()
        self.typed = TypedLines()
        self.kept: KeptOperations | None = None
        """Operations kept beside the logs; None until they are looked for."""
        self._looked: RealignmentSearch | None = None
        self._before: Comparison | None = None
        """The comparison before the last change of the rules: `undo` and `redo` show it again at once."""
        self._drift = _Drift(comparison)
        self._undo: list[tuple[RuleSet, str]] = []
        self._redo: list[tuple[RuleSet, str]] = []
        self._serial = 0

    # -- the comparison and its jobs

    @property
    def comparison(self) -> Comparison:
        """Listed comparison."""
        return self.listing.comparison

    def adopt(self, comparison: Comparison, file: RuleFile) -> None:
        """Show the fully loaded logs with the rules of their file."""
        self.file, self.rules = file, file.rules
        self._undo, self._redo, self.proposal = [], [], None
        self._before = None
        self.generation += 1
        self.listing.show_comparison(comparison)

    def reload(self, comparison: Comparison) -> None:
        """Show reloaded logs; rules, filters, place, marks and notes stay on the same operations."""
        kept = sitting_of(self.listing)
        self.suggested.forget()
        self.proposal = self._before = None
        self.generation += 1
        self.listing.show_comparison(comparison, reread=True)
        find_again(self.listing, kept)
        self.outdated = False

    def rematch(self) -> Job:
        """Return the job that matches under the rules in force."""
        before = self._before
        known = before if before is not None and before.rules == self.applied else None
        return Job(self.generation, self.comparison, self.applied, result=known)

    def accept(self, job: Job) -> bool:
        """Take the result of a finished job; False when it is outdated."""
        if job.result is None or job.generation != self.generation:
            return False
        if not job.preview:
            self._before = self.comparison
            self.listing.show_comparison(job.result)
            return True
        proposal = self.proposal
        if proposal is None or proposal.serial != job.preview:
            return False
        proposal.comparison = job.result
        proposal.effect = Effect.between(self.comparison, job.result)
        return True

    def suggestions_in(self, comparison: Comparison) -> tuple[Suggestion, ...]:
        """Return the known kinds of drift and their rules, for `suggested`, kept for the last comparison.

        Takes seconds for a large log. Callable from any thread; a second caller waits for the first.
        """
        drift = self._drift
        if drift.comparison is not comparison:
            drift = self._drift = _Drift(comparison)
        return drift.found()

    # -- mispaired runs

    def look(self) -> RealignmentSearch | None:
        """Return the search for mispaired runs; None when nothing is red or it has run."""
        c = self.comparison
        if c.single or not c.red.any() or (self._looked is not None and self._looked.comparison is self.comparison):
            return None
        return RealignmentSearch(self.comparison)

    def take(self, look: RealignmentSearch) -> bool:
        """Take the result of a finished search; False when it is outdated."""
        if look.comparison is not self.comparison:
            return False
        self._looked = look
        return True

    @property
    def realignments(self) -> tuple[Suggestion, ...]:
        """Rule changes that would repair runs of red pairs, as far as searched."""
        current = self._looked is not None and self._looked.comparison is self.comparison
        return self._looked.found if self._looked is not None and current else ()

    def realignment(self, row: int) -> Suggestion | None:
        """Return the realignment of a red row, if any."""
        c = self.comparison
        if row < 0 or not c.red[row]:
            return None
        return next((found for found in self.realignments if int(c.row_a[row]) in found.records), None)

    def explain(self) -> Explanation | None:
        """Return the explanation of the current row, with a note on a doubtful pair; None without a row."""
        told, row = self.listing.explain(), self.listing.cursor
        found = self.realignment(row)
        if told is not None and found is not None:
            told = replace(told, notes=(f"{found.explanation} (a: realign)", *told.notes))
        return told

    def replayed(self, row: int) -> str:
        """Return the verdict of a replay of the row's operation; empty without one."""
        return next(iter(self.kept.shown(self.comparison, row)), "") if self.kept is not None and row >= 0 else ""

    def realign_edits(self) -> tuple[Edit, ...]:
        """Return the edits that repair the current run of red pairs; searches if needed (seconds for a large log).

        Raises:
            EditError: no such change is known.
        """
        if (look := self.look()) is not None:
            look.run()
            self.take(look)
        found = self.realignment(self.listing.cursor)
        if found is None and (failed := [run.explanation for run in self.realignments if run.failed]):
            raise EditError(failed[0])
        records = [record for run in self.realignments for record in run.records]
        rows = np.sort(self.comparison.at_a[records]) if records else np.zeros(0, np.int32)
        red = rows[self.comparison.red[rows]]
        elsewhere = int(red[0]) if len(red) else -1
        return realign_edits(self.rules, found, elsewhere)

    # -- rules

    @property
    def applied(self) -> RuleSet:
        """The rules in force: none while they are turned off."""
        return RuleSet() if self.rules_off else self.rules

    def toggle_rules(self) -> tuple[Job | None, str]:
        """Turn the rules off, or on again; neither they nor their file change."""
        if not self.rules.rules:
            return None, "there are no rules"
        self.rules_off, self.proposal = not self.rules_off, None
        self.generation += 1
        told = "rules off: verdicts without them (T turns them on, nothing is lost)" if self.rules_off else "rules on"
        return self.rematch(), told

    @property
    def dirty(self) -> bool:
        """True when the rules differ from the file's."""
        return self.file.differs(self.rules)

    def toggle_mark(self) -> str:
        """Mark the row under the cursor, or propose to pair it with the marked one.

        Raises:
            EditError: the two rows cannot be paired.
        """
        if self.listing.cursor < 0:
            return "no row to mark"
        if self.mark is None:
            self.mark = self.listing.spot
            return "marked: go to its partner and press m again (esc clears the mark)"
        marked = self.listing.row_of(self.mark)
        if marked == self.listing.cursor:
            self.mark = None
            return "mark cleared"
        self.propose("m", pair_edits(self.comparison, self.rules, self.mark, self.listing.spot))
        return ""

    def propose_unpair(self) -> None:
        """Propose to cut the pair under the cursor.

        Raises:
            EditError: the row is no pair.
        """
        row = self.listing.cursor
        self.propose("x", unpair_edits(self.comparison, self.rules, row) if row >= 0 else ())

    def propose_ignore(self) -> None:
        """Propose to ignore the row under the cursor, or to stop ignoring it."""
        row = self.listing.cursor
        self.propose("i", ignore_edits(self.comparison, self.rules, row) if row >= 0 else ())

    def generalised(self, at: int) -> Edit:
        """Return the edit that generalises a pair rule to all layers.

        Raises:
            EditError: as `template_edits`; or the rule makes no pair, or the rules have not been matched yet.
        """
        c, rule = self.comparison, self.rules.rules[at]
        if c.rules != self.rules:
            raise EditError("the rules are being matched: try again in a moment")
        if not isinstance(rule, PairRule):
            raise EditError("only pair rules can be generalised")
        rows = np.flatnonzero(rows_of_rule(c, at))
        if not len(rows):
            raise EditError("the rule pairs nothing in these logs")
        return template_edits(c, self.rules, int(rows[0]))[0]

    def template_edits(self) -> tuple[Edit, ...]:
        """Return templates in place of the pairs they cover; takes half a second for a large log.

        Of a change that is proposed, they generalise the first pair that it makes.

        Raises:
            EditError: the row under the cursor is no pair, or no template covers a sibling; the text says why.
        """
        p = self.proposal
        if p is None:
            return template_edits(self.comparison, self.rules, self.listing.cursor)
        if p.comparison is None:
            raise EditError("the change is being matched: try again in a moment")
        after = p.comparison.pairing.partner_of_a
        paired = np.flatnonzero((after != self.comparison.pairing.partner_of_a) & (after >= 0))
        if not len(paired):
            raise EditError("this change makes no pair to generalise: enter applies it, esc cancels it")
        return template_edits(p.comparison, p.edit.rules, int(p.comparison.at_a[paired[0]]))

    def next_alternative(self) -> None:
        """Select the next proposed edit."""
        if (p := self.proposal) is not None and len(p.edits) > 1:
            self._serial += 1
            self.proposal = Proposal(p.key, p.edits, self._serial, (p.chosen + 1) % len(p.edits))

    def preview_job(self) -> Job | None:
        """Return the preview job of the proposal."""
        p = self.proposal
        return None if p is None else Job(self.generation, self.comparison, p.edit.rules, preview=p.serial)

    def confirm(self) -> Job | None:
        """Apply the proposal; None without one."""
        p, self.proposal = self.proposal, None
        if p is None:
            return None
        if p.key == "m":
            self.mark = None
        job = self.change(p.edit.rules, p.edit.title)
        # The preview holds for these rules unless they changed meanwhile.
        job.result = p.comparison
        return job

    def cancel(self) -> bool:
        """Drop the proposal; False without one."""
        had, self.proposal = self.proposal is not None, None
        return had

    def change(self, rules: RuleSet, title: str) -> Job:
        """Replace the rules, undoably."""
        self._undo.append((self.rules, title))
        self._redo.clear()
        return self._set_rules(rules)

    def undo(self) -> tuple[Job | None, str]:
        """Undo the last change; return its description."""
        return self._travel(self._undo, self._redo, "undone", "nothing to undo")

    def redo(self) -> tuple[Job | None, str]:
        return self._travel(self._redo, self._undo, "done again", "nothing to do again")

    def _travel(
        self, source: list[tuple[RuleSet, str]], target: list[tuple[RuleSet, str]], done: str, nothing: str
    ) -> tuple[Job | None, str]:
        if not source:
            return None, nothing
        rules, title = source.pop()
        target.append((self.rules, title))
        left = f"   ({len(source)} more)" if source else ""
        return self._set_rules(rules), f"{done}: {title}{left}"

    def _set_rules(self, rules: RuleSet) -> Job:
        self.proposal, self.rules_off = None, False
        self.rules = rules
        self.generation += 1
        self.write_journal()
        return self.rematch()

    def propose(self, key: str, edits: tuple[Edit, ...]) -> None:
        """Propose edits as alternatives; an empty sequence does nothing."""
        self._serial += 1
        self.proposal = Proposal(key, edits, self._serial) if edits else None

    # -- from one session to the next

    def resume(self, kept: SavedSession) -> str:
        """Resume an earlier session; return a description of the restored state."""
        self.suggested.rejected.update(kept.rejected)
        self.typed.lines = joined(kept.typed, self.typed.lines)
        return resume(self.listing, kept)

    def store_session(self) -> None:
        """Save the place, named filters, marks and notes. Callable from any thread."""
        if self.store is None:
            return
        sitting = sitting_of(self.listing, set(self.suggested.rejected), self.typed.lines)
        if self.comparison.a.partial:
            # The place means nothing before the logs are loaded; notes do.
            sitting = written_meanwhile(self.store.known, sitting)
        if sitting != self.store.known:
            self.store.save(sitting)

    # -- the file and the journal

    def write_journal(self) -> None:
        """Update the journal from the rules."""
        if self.journal is None:
            return
        if self.dirty:
            self.journal.write(self.file.render(self.rules))
        else:
            self.journal.clear()

    def save(self, *, force: bool = False) -> None:
        """Write the rules to their file, if no other process is saving it.

        Raises:
            RulesError: it cannot be written; the journal stays. `RulesChangedError`: it changed on disk.
                `RulesBusyError`: another process is saving it; nothing was waited for.
        """
        self.file = self.file.save(self.rules, force=force, patience=0)
        self._saved()

    def save_to(self, path: Path, *, force: bool = False) -> None:
        """Write the rules to another file, and use that one from then on.

        Raises:
            RulesError: as `save`; `RulesChangedError` when the file exists already.
        """
        # Keep the text with its comments; the file at the other path was never read.
        self.file = replace(self.file, path=path, raw=None).save(self.rules, force=force, patience=0)
        self.rules_named = True
        self._saved()

    def _saved(self) -> None:
        saved = self.file.rules
        lines = {
            before.line: after.line
            for before, after in zip(self.rules, saved, strict=False)
            if before.line is not None and after.line is not None
        }
        # The undo history refers to the old file: rules are identified by their lines.
        for past in (self._undo, self._redo):
            rules = located([rules for rules, _ in past], saved, lines)
            past[:] = zip(rules, [title for _, title in past], strict=True)
        self.rules = saved
        self.write_journal()

    def recover(self, found: Recovered) -> Job:
        """Restore the unsaved rules of an earlier session."""
        (rules,) = located([parse_rules(found.rules)], self.file.rules)
        return self.change(rules, "recovered rules")
