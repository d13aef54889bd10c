"""One sitting over one pair of logs, without a screen.

The session owns everything that a key press can change: the rules with undo and redo, the mark, what is proposed; and
`listing`: the cursor, the filter, the folds, the search, the jumps. The screen shows it and calls it; so nearly all of
the program is tested without a terminal.

Matching is slow enough to be done elsewhere: a change of the rules returns a `Job`, whose `run` is pure and may be
called in any thread, and `accept` takes the result back. A job carries the generation of the rules it was made for;
a result of rules that have changed since is dropped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from matchers.comparison import Comparison
from matchers.drift.suggest import suggest
from matchers.drift.suggestion import Suggestion
from matchers.explain.sentences import Explanation
from matchers.rules.file import RuleFile, parse_rules
from matchers.rules.model import PairRule, RuleSet, located
from numtui.query.fields import rows_of_rule
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


class Session:
    """See the module's docstring."""

    def __init__(
        self,
        comparison: Comparison,
        file: RuleFile,
        *,
        names: tuple[str, str] = ("a", "b"),
        journal: Journal | None = None,
        store: SessionStore | None = None,
    ) -> None:
        self.listing = Listing(comparison)
        self.file = file
        self.rules: RuleSet = file.rules
        self.names = names
        self.journal = journal
        self.store = store
        self.outdated = False
        """Whether the files have changed since they were read."""
        self.generation = 0
        self.mark: RecordPair | None = None
        self.proposal: Proposal | None = None
        self.suggested = Suggested()
        self.typed = TypedLines()
        self._looked: RealignmentSearch | None = None
        self._undo: list[tuple[RuleSet, str]] = []
        self._redo: list[tuple[RuleSet, str]] = []
        self._serial = 0

    # -- the comparison and its jobs

    @property
    def comparison(self) -> Comparison:
        """The comparison that is listed."""
        return self.listing.comparison

    def adopt(self, comparison: Comparison, file: RuleFile) -> None:
        """The logs have been read: show all of them, with the rules of their file."""
        self.file, self.rules = file, file.rules
        self._undo, self._redo, self.proposal = [], [], None
        self.generation += 1
        self.listing.show_comparison(comparison)

    def reload(self, comparison: Comparison) -> None:
        """The logs have been read again: rules, filters, place, marks and notes stay, on the same operations."""
        kept = sitting_of(self.listing)
        self.suggested.forget()
        self.proposal = None
        self.generation += 1
        self.listing.show_comparison(comparison, reread=True)
        find_again(self.listing, kept)
        self.outdated = False

    def rematch(self) -> Job:
        """The job that brings the comparison up to the rules."""
        return Job(self.generation, self.comparison, self.rules)

    def accept(self, job: Job) -> bool:
        """Take the result of a job that has run; False when it came too late to be of use."""
        if job.result is None or job.generation != self.generation:
            return False
        if not job.preview:
            self.listing.show_comparison(job.result)
            return True
        proposal = self.proposal
        if proposal is None or proposal.serial != job.preview:
            return False
        proposal.comparison = job.result
        proposal.effect = Effect.between(self.comparison, job.result)
        return True

    @staticmethod
    def suggestions_in(comparison: Comparison) -> tuple[Suggestion, ...]:
        """Known kinds of drift that a comparison shows, and rules for them; `suggested` takes them.

        A second for a large log: not for the screen's own thread.
        """
        return () if comparison.single or comparison.matching is None else suggest(comparison)

    # -- pairs made past each other

    def look(self) -> RealignmentSearch | None:
        """What is to be looked for in the comparison shown; None where nothing is red, or it has been done."""
        c = self.comparison
        if c.single or not c.red.any() or (self._looked is not None and self._looked.comparison is self.comparison):
            return None
        return RealignmentSearch(self.comparison)

    def take(self, look: RealignmentSearch) -> bool:
        """Take what a look found that has run; False when it came too late to be of use."""
        if look.comparison is not self.comparison:
            return False
        self._looked = look
        return True

    @property
    def realignments(self) -> tuple[Suggestion, ...]:
        """Changes of the rules that would make runs of red pairs fine, as far as they have been looked for."""
        current = self._looked is not None and self._looked.comparison is self.comparison
        return self._looked.found if self._looked is not None and current else ()

    def realignment(self, row: int) -> Suggestion | None:
        """The one that is about a row, if the row is red."""
        c = self.comparison
        if row < 0 or not c.red[row]:
            return None
        return next((found for found in self.realignments if int(c.row_a[row]) in found.records), None)

    def explain(self) -> Explanation | None:
        """What is known about the row under the cursor, and that its pair may be wrong; None when there is no row."""
        told, found = self.listing.explain(), self.realignment(self.listing.cursor)
        if told is None or found is None:
            return told
        return replace(told, notes=(f"{found.explanation} (a: realign)", *told.notes))

    def realign_edits(self) -> tuple[Edit, ...]:
        """What makes the run of red pairs fine that the row under the cursor belongs to; it is looked for if need be,
        which takes seconds for a large log.

        Raises:
            EditError: no such change is known.
        """
        if (look := self.look()) is not None:
            look.run()
            self.take(look)
        records = [record for found in self.realignments for record in found.records]
        rows = np.sort(self.comparison.at_a[records]) if records else np.zeros(0, np.int32)
        red = rows[self.comparison.red[rows]]
        elsewhere = int(red[0]) if len(red) else -1
        return realign_edits(self.rules, self.realignment(self.listing.cursor), elsewhere)

    # -- rules

    @property
    def dirty(self) -> bool:
        """Whether the rules differ from the file's."""
        return self.file.differs(self.rules)

    def toggle_mark(self) -> str:
        """Mark the row under the cursor, or propose to pair it with the marked one.

        Raises:
            EditError: these two make no pair.
        """
        if self.listing.cursor < 0:
            return "there is no row to mark"
        if self.mark is None:
            self.mark = self.listing.spot
            return "marked: go to its partner and press m again (esc drops the mark)"
        marked = self.listing.row_of(self.mark)
        if marked == self.listing.cursor:
            self.mark = None
            return "the mark is gone"
        self.propose("m", pair_edits(self.comparison, self.rules, self.mark, self.listing.spot))
        return ""

    def propose_unpair(self) -> None:
        """Propose to cut the pair under the cursor.

        Raises:
            EditError: it is no pair.
        """
        row = self.listing.cursor
        self.propose("x", unpair_edits(self.comparison, self.rules, row) if row >= 0 else ())

    def propose_ignore(self) -> None:
        """Propose to ignore the row under the cursor, or to judge it again."""
        row = self.listing.cursor
        self.propose("i", ignore_edits(self.comparison, self.rules, row) if row >= 0 else ())

    def generalised(self, at: int) -> Edit:
        """The rules with the template that says for all layers what the pair rule of an index says.

        Raises:
            EditError: as `template_edits`; or the rule makes no pair, or the rules have not been matched yet.
        """
        c, rule = self.comparison, self.rules.rules[at]
        if c.rules != self.rules:
            raise EditError("the rules are being matched: try again in a moment")
        if not isinstance(rule, PairRule):
            raise EditError("only of a rule in pairs there is a template to be made")
        rows = np.flatnonzero(rows_of_rule(c, at))
        if not len(rows):
            raise EditError("the rule makes no pair in these logs")
        return template_edits(c, self.rules, int(rows[0]))[0]

    def template_edits(self) -> tuple[Edit, ...]:
        """The template instead of the pairs made by hand that it covers; takes half a second for a large log.

        Raises:
            EditError: the row under the cursor is no pair, or no template covers a sibling; the text says why.
        """
        return template_edits(self.comparison, self.rules, self.listing.cursor)

    def next_alternative(self) -> None:
        """Choose the next of the proposed edits."""
        if (p := self.proposal) is not None and len(p.edits) > 1:
            self._serial += 1
            self.proposal = Proposal(p.key, p.edits, self._serial, (p.chosen + 1) % len(p.edits))

    def preview_job(self) -> Job | None:
        """The job that finds out what the proposal would do."""
        p = self.proposal
        return None if p is None else Job(self.generation, self.comparison, p.edit.rules, preview=p.serial)

    def confirm(self) -> Job | None:
        """Do what is proposed; None when nothing is."""
        p, self.proposal = self.proposal, None
        if p is None:
            return None
        if p.key == "m":
            self.mark = None
        job = self.change(p.edit.rules, p.edit.title)
        # The preview was made for exactly these rules, unless others came between.
        job.result = p.comparison
        return job

    def cancel(self) -> bool:
        """Drop the proposal; False when there is none."""
        had, self.proposal = self.proposal is not None, None
        return had

    def change(self, rules: RuleSet, title: str) -> Job:
        """Replace the rules, undoably."""
        self._undo.append((self.rules, title))
        self._redo.clear()
        return self._set_rules(rules)

    def undo(self) -> tuple[Job | None, str]:
        """Take the last change back; what was taken back, in words."""
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
        self.proposal = None
        self.rules = rules
        self.generation += 1
        self.record()
        return self.rematch()

    def propose(self, key: str, edits: tuple[Edit, ...]) -> None:
        """Propose a change, with its alternatives, which a key asked for; without any, nothing is proposed."""
        self._serial += 1
        self.proposal = Proposal(key, edits, self._serial) if edits else None

    # -- from one sitting to the next

    def resume(self, kept: SavedSession) -> str:
        """Go on where an earlier sitting ended; what is as it was, in words."""
        self.suggested.rejected.update(kept.rejected)
        self.typed.lines = joined(kept.typed, self.typed.lines)
        return resume(self.listing, kept)

    def keep(self) -> None:
        """Write down where one is, the named filters, marks and notes. Any thread may ask for it."""
        if self.store is None:
            return
        sitting = sitting_of(self.listing, set(self.suggested.rejected), self.typed.lines)
        if self.comparison.a.partial:
            # Where one is means nothing before the logs have been read; what was written does.
            sitting = written_meanwhile(self.store.known, sitting)
        if sitting != self.store.known:
            self.store.save(sitting)

    # -- the file and the journal

    def record(self) -> None:
        """Bring the journal up to the rules."""
        if self.journal is None:
            return
        if self.dirty:
            self.journal.write(self.file.render(self.rules))
        else:
            self.journal.clear()

    def save(self, *, force: bool = False) -> None:
        """Write the rules to their file.

        Raises:
            RulesError: it cannot be written; the journal stays. `RulesChangedError`: somebody else wrote to it.
        """
        self.file = self.file.save(self.rules, force=force)
        self._saved()

    def save_to(self, path: Path, *, force: bool = False) -> None:
        """Write the rules to another file, which is theirs from then on.

        Raises:
            RulesError: as `save`; `RulesChangedError` when there is a file already.
        """
        # The text, with its comments, goes along; what stands at the other path was never read.
        self.file = replace(self.file, path=path, raw=None).save(self.rules, force=force)
        self._saved()

    def _saved(self) -> None:
        saved = self.file.rules
        lines = {
            before.line: after.line
            for before, after in zip(self.rules, saved, strict=False)
            if before.line is not None and after.line is not None
        }
        # What can be undone was about the file as it was: rules are known in it by their lines.
        for past in (self._undo, self._redo):
            rules = located([rules for rules, _ in past], saved, lines)
            past[:] = zip(rules, [title for _, title in past], strict=True)
        self.rules = saved
        self.record()

    def recover(self, found: Recovered) -> Job:
        """Take over the rules that an earlier session left unsaved."""
        (rules,) = located([parse_rules(found.rules)], self.file.rules)
        return self.change(rules, "recovered rules")
