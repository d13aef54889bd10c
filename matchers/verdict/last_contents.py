"""Judge what the two runs leave in each named tensor, whatever operations wrote it.

A fused optimizer updates all parameters in one operation, another one each of them in a dozen. Such operations have no
partners, but parameters, buffers and optimizer states keep their names: their content at the end of the step is
compared by name, unless both last records that tell it are one pair, which is judged as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from matchers.arrays import Float64, Int64, one_of
from matchers.laws.law import Amplifies
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import tells_arguments
from matchers.ops.last_contents import GRADIENT, LastContents, Touch
from matchers.ops.laws import law_of, on_lists
from matchers.ops.run_info import of_call
from matchers.ops.shapes import sharded_runs
from matchers.ops.values import Result, first_output, records_changes
from matchers.pairing.pairing import Pairing
from matchers.status import AGREE, RED, Status
from matchers.verdict.arguments import unexplained
from matchers.verdict.case import Case, Judgement
from matchers.verdict.content_verdicts import ContentVerdict, ContentVerdicts
from matchers.verdict.judge import Verdicts
from matchers.verdict.judge_values import Limits
from matchers.verdict.reason import Reason
from matchers.verdict.received import unpaired_rounding
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.slots import SlotVerdict, beyond_whole, judge_results
from matchers.verdict.stacked_contents import judge_stacks
from matchers.verdict.tolerance import (
    EPSILON,
    MOST_ALLOWED,
    OPTIMIZER_FORMS,
    UNSEEN,
    growth_factor,
    own_tolerance,
    signs_differ,
)

__all__ = ["judge_contents", "without_other_tensors"]


def judge_contents(case: Case, judged: Judgement) -> ContentVerdicts:
    """Judge the last contents of named tensors; those that are noise only where they agree."""
    (a, b), pairing, verdicts, noise = case.contents, case.pairing, judged.verdicts, judged.noise
    if not (records_changes(a.log) and records_changes(b.log)):
        return ContentVerdicts()
    unpaired = pairing.of_a < 0, pairing.of_b < 0
    apart = np.append(one_of(verdicts.status, (Status.NOT_JUDGED, Status.SHARDED)), False)
    # a run that names no tensor writes to none, if it tells what it begins with, has no optimizer, and is no call
    for of in (a, b):
        idle = of.start and not (of.log.phase == Phase.OPTIMIZER).any() and not of_call(of.log.header.run)
        if not (len(of.rows) or idle):
            return ContentVerdicts()
    # without an unpaired record that names a tensor, both runs write them in the same form
    if not any(
        (alone | apart[of])[rows].any()
        for alone, of, rows in ((unpaired[0], pairing.of_a, a.rows), (unpaired[1], pairing.of_b, b.rows))
    ):
        return ContentVerdicts()

    def told_by_a_pair(name: str) -> bool:
        if name not in a.last or name not in b.last:
            return False
        one, other = a.writer(name), b.writer(name)  # what only reads it is judged by what it makes
        pair = int(pairing.of_a[one])
        return 0 <= pair == pairing.of_b[other] and not apart[pair]

    left = [name for name in dict.fromkeys((*a.last, *b.last)) if not name.endswith(GRADIENT)]
    names = [name for name in left if not told_by_a_pair(name)]
    judge = _Judge(case, verdicts, judged.loss_scale, names)
    judged_names = ((name, judge(name)) for name in names)
    # what agrees counts, noise or not
    found = {name: of for name, of in judged_names if of is not None and (of.agrees or name not in noise)}
    rtol = np.array([math.nan if case.expectation.rtol is None else case.expectation.rtol])
    found |= {} if case.bitwise else judge_stacks(a, b, Limits(rtol, policy=case.policy))
    return ContentVerdicts(found, _placed(found.values(), pairing), noise, (a, b), unpaired)


def _placed(found: Iterable[ContentVerdict], pairing: Pairing) -> dict[tuple[str, int], tuple[ContentVerdict, ...]]:
    """The records that are red for their contents: as few as possible, and unpaired ones before pairs."""
    told: dict[tuple[str, int], list[ContentVerdict]] = {}
    for content in found:
        if content.red:
            for side in "ab":
                if content.record(side) >= 0:
                    told.setdefault((side, content.record(side)), []).append(content)

    def preference(place: tuple[str, int]) -> tuple[int, bool, str, int]:
        side, row = place
        return -len(told[place]), bool((pairing.of_a if side == "a" else pairing.of_b)[row] >= 0), side, row

    at: dict[tuple[str, int], tuple[ContentVerdict, ...]] = {}
    done: set[str] = set()
    for place in sorted(told, key=preference):
        if left := tuple(content for content in told[place] if content.name not in done):
            at[place] = left
            done.update(content.name for content in left)
    return at


def without_other_tensors(case: Case, judged: Judgement) -> Judgement:
    """Claim red pairs of updates, or of operations on lists, that hold other tensors, or the same in another order.

    An optimizer makes a list for each of its groups of parameters, and may hold tensors that the model has not, or
    stacked what the other run has one by one. Such pairs are not judged by themselves: what they leave is compared by
    name.
    """
    (a, b), pairing, verdicts, flow = case.contents, case.pairing, judged.verdicts, case.flow
    lists, red = on_lists(a.log)[pairing.lead_a] & on_lists(b.log)[pairing.lead_b], verdicts.status >= Status.SHAPE
    stacked = (verdicts.status == Status.SHAPE) & (a.log.phase[pairing.lead_a] == Phase.OPTIMIZER) & ~lists
    lists |= stacked
    found = np.zeros(len(pairing), bool)
    updates = a.log.updates[pairing.lead_a] & b.log.updates[pairing.lead_b] & red
    if not ((lists | updates) & red).any():
        return judged
    for k in np.flatnonzero(lists | updates).tolist():
        i, j = int(pairing.lead_a[k]), int(pairing.lead_b[k])
        names_a, names_b = a.names(i), b.names(j)
        if any(names_a) != any(names_b):
            found[k] = lists[k]
        elif any(names_a):
            # names that the other run has, too: a renamed module is no other tensor, nor is one without a name
            slots = zip(names_a, names_b, strict=False)
            others = [x != y for x, y in slots if x and y and (stacked[k] or _known(a, x, b) or _known(b, y, a))]
            found[k] = any(others) or (lists[k] and bool(others) and len(names_a) != len(names_b))
        else:  # temporary tensors, in the order of those they were made from
            makers = flow.a[i]
            of_makers = pairing.of_a[makers[makers >= 0]]
            alone = stacked[k] and len(of_makers) > 0 and bool((of_makers < 0).all())
            found[k] = alone or bool(found[of_makers[of_makers >= 0]].any())
    return judged.claimed(found & red, Status.NOT_JUDGED, Reason.OTHER_TENSORS)


def _known(of: LastContents, name: str, other: LastContents) -> bool:
    """True if another run has the tensor of one, or the parameter of which it is a state."""
    return name in other.last or of.base(name) in other.last


class _Judge:
    """Judges one name after the other."""

    def __init__(self, case: Case, verdicts: Verdicts, loss_scale: float, names: Iterable[str]) -> None:
        (self._a, self._b), self._pairing = case.contents, case.pairing
        self._bitwise, self._rtol, self._loss_scale = case.bitwise, case.expectation.rtol, loss_scale
        self._policy = case.policy
        self._flow, self._verdicts, self._explains = case.flow, verdicts, case.expectation.explains
        self._contents = {name: self._left(name) for name in names if name in self._a.last and name in self._b.last}
        x, y, alone = zip(*self._contents.values(), strict=True) if self._contents else ((), (), ())
        rtol = np.array(list(map(self._own_limit, x, y, alone)), np.float64)
        found = judge_results(x, y, Limits(rtol, policy=case.policy, shards=sharded_runs(case.a, case.b)))
        self._found = dict(zip(self._contents, found, strict=True))

    def __call__(self, name: str) -> ContentVerdict | None:
        one, other = self._a.last.get(name), self._b.last.get(name)
        if one is None or other is None:
            return self._of_one_run(name, one, other)
        x, y, alone = self._contents[name]
        verdict = self._judged(name, x, y, alone)
        if verdict is None and (more := self._once_more(name)) is not None:
            return more
        rows, given, other_part = (one.row, other.row), False, x.shape != y.shape
        if verdict is not None and verdict.status.red:
            rows = self._a.writer(name), self._b.writer(name)
            given = not other_part and any(n != name and change > verdict.limit for n, change in self._before(name))
        return ContentVerdict(name, *rows, verdict, alone, self._base(name) == name, given)

    def _of_one_run(self, name: str, one: Touch | None, other: Touch | None) -> ContentVerdict | None:
        """A parameter that only one run writes to, while the other knows it and leaves it as it was.

        Or a state of such a one, which is still as states begin.
        """
        mine, own, theirs, only = (self._a, one, self._b, "a") if one else (self._b, other, self._a, "b")
        if own is None:
            return None

        def told(row: int, verdict: SlotVerdict, alone: bool) -> ContentVerdict:
            rows = (row, -1) if only == "a" else (-1, row)
            return ContentVerdict(name, *rows, verdict, alone, parameter=True)

        equal = SlotVerdict(name, Status.EQUAL, Reason.EQUAL_BITS, only=only)
        after, before, end = mine.after(own), mine.before(mine.first[name]), theirs.ends.get(name)
        if name not in theirs.start:
            base = mine.base(name)
            new = base != name and base in theirs.start and base not in theirs.last and after.l1 == 0
            return told(own.row, equal, True) if new else None
        if not theirs.whole and end is None:
            return None
        # another rank may have written to it, a record that names it otherwise, or what no capture sees
        known = Result(name, digest=theirs.start[name]) if end is None else end
        if after.digest is None:
            return None
        parts = after.part is not None and relative_difference(after.l1, before.l1) == 0  # no digest of the whole
        if after.digest == known.digest or parts:
            return told(own.row, equal, True)
        if known.digest != theirs.start[name]:
            limits = Limits(self._own_limit(after, after, False))
            of_parts = replace(known, digest=None) if known.sketch else known  # no whole has the digest of its parts
            found = judge_results([replace(after, shape=None)], [of_parts], limits)[0]
            if found.status not in RED:
                # norms alone miss much
                return told(own.row, replace(found, name=name, only=only), False) if known.sketch else None
        elif before.digest == known.digest:
            known = before  # its norm is known where this run began with the same content
        norms = (after.l1, known.l1) if math.isfinite(known.l1) else (after.l2, known.l2)
        change = relative_difference(*norms)
        by_both = known.digest != theirs.start[name]
        reason = Reason.LAST_CONTENT if by_both else Reason.CHANGED_BY_ONE_RUN
        verdict = SlotVerdict(name, Status.DIVERGED, reason, change, True, 0.0, "" if by_both else only)
        return told(mine.writer(name), verdict, before.digest == theirs.start[name])

    def _once_more(self, name: str) -> ContentVerdict | None:
        """A tensor whose parts cannot be compared, and that one run changes once more: all else that writes to it is
        paired. Its content before and after tells by how much.
        """
        of_a, of_b = self._pairing.of_a, self._pairing.of_b
        writers = self._a.writers.get(name, ()), self._b.writers.get(name, ())
        alone = [row for row in writers[0] if of_a[row] < 0], [row for row in writers[1] if of_b[row] < 0]
        pairs = [int(of_a[r]) for r in writers[0] if of_a[r] >= 0], [int(of_b[r]) for r in writers[1] if of_b[r] >= 0]
        if bool(alone[0]) == bool(alone[1]) or pairs[0] != pairs[1]:
            return None
        side, mine, rows = ("a", self._a, alone[0]) if alone[0] else ("b", self._b, alone[1])
        for row in rows:
            law = law_of(mine.log, row)
            if law.communicates and not law.reduces:
                continue  # it brings what another rank has written, by records of its own
            touch = Touch(row, mine.names(row).index(name))
            before, after = mine.before(touch), mine.after(touch)
            if before.digest is not None and before.digest != after.digest:
                change, reason = relative_difference(before.l1, after.l1), Reason.CHANGED_ONCE_MORE
                verdict = SlotVerdict(name, Status.DIVERGED, reason, change, True, 0.0, side)
                places = (row, -1) if side == "a" else (-1, row)
                return ContentVerdict(name, *places, verdict, False, self._base(name) == name)
        return None

    def _left(self, name: str) -> tuple[Result, Result, bool]:
        """What the runs leave in a tensor, and True if all that it was computed from is bitwise equal."""
        return self._a.left(name), self._b.left(name), self._alone(name, self._a.last[name], self._b.last[name])

    def _judged(self, name: str, x: Result, y: Result, alone: bool) -> SlotVerdict | None:
        verdict = replace(self._found[name], name=name)
        if verdict.status == Status.SHARDED:
            return beyond_whole(x, y, self._rtol)
        if verdict.status == Status.SHAPE:
            return None  # another tensor of this name
        if self._bitwise and verdict.status == Status.CLOSE:
            return replace(verdict, status=Status.DIVERGED, reason=Reason.NOT_BITWISE, limit=0.0)
        if verdict.status == Status.DIVERGED and not (alone or self._bitwise or self._rtol is not None):
            return self._explained(verdict)
        if verdict.status == Status.CLOSE and self._rtol is None and self._asked_otherwise(name):
            return replace(verdict, status=Status.DIVERGED, reason=Reason.ARGUMENTS, limit=0.0)
        return verdict

    def _asked_otherwise(self, name: str) -> bool:
        """True if one operation, on lists or not, writes it in both runs, and was given something else in one."""
        a, b = self._a.log, self._b.log
        i, j = self._a.writer(name), self._b.writer(name)
        if law_of(a, i).base != law_of(b, j).base or not (tells_arguments(a) and tells_arguments(b)):
            return False
        return bool(unexplained(a, b, np.array([i]), np.array([j]), self._loss_scale)[0])

    def _own_limit(self, x: Result, y: Result, alone: bool) -> float:
        """The tolerance that the user gives, or equal inputs do; NaN for the default."""
        if x.dtype not in EPSILON or y.dtype not in EPSILON:
            return math.nan
        if self._rtol is not None:
            return self._rtol
        return OPTIMIZER_FORMS * max(own_tolerance(of.dtype, True) for of in (x, y)) if alone else math.nan

    def _explained(self, verdict: SlotVerdict) -> SlotVerdict | None:
        """A difference by what the writers read: an update of Adam amplifies the error of a gradient."""
        rows = self._a.writer(verdict.name), self._b.writer(verdict.name)
        received = self._received(verdict.name, rows)
        for _, change in self._before(verdict.name):
            if change > verdict.limit:  # no operation of the step made it: nothing excuses it
                return verdict
            received = max(received, UNSEEN * change)
        ops = law_of(self._a.log, rows[0]), law_of(self._b.log, rows[1])
        allowed = verdict.limit + max(map(growth_factor, ops)) * received
        before = [of.before(of.first[verdict.name]) for of in (self._a, self._b)]
        if received and all(law.amplifies is Amplifies.NEAR_A_SIGN for law in ops) and not any(x.l1 for x in before):
            allowed = max(allowed, signs_differ(received, self._a.left(verdict.name).numel))
        if not verdict.error <= allowed:
            return verdict
        if allowed > MOST_ALLOWED:
            return None
        return replace(verdict, status=Status.CLOSE, reason=Reason.ROUNDING_EXPLAINED, limit=allowed)

    def _received(self, name: str, rows: tuple[int, int]) -> float:
        """The error of the parameter's gradient where both logs tell it; else the largest of what the writers read.

        A list holds the gradients of all parameters, and some are nothing but rounding.
        """
        gradient = self._base(name) + GRADIENT
        if gradient in self._a.last and gradient in self._b.last:
            x, y = (_made(*side, gradient) for side in ((self._a, self._flow.a), (self._b, self._flow.b)))
            (found,) = judge_results([x], [y], Limits(policy=self._policy))
            if found.status in AGREE and not found.bound and np.isfinite(found.error):
                return found.error
        makers = zip(self._errors, (self._flow.a[rows[0]], self._flow.b[rows[1]]), strict=True)
        return max((errors[maker] for errors, made in makers for maker in made.tolist() if maker >= 0), default=0.0)

    @cached_property
    def _errors(self) -> tuple[list[float], list[float]]:
        """By record of a and of b, the error that it hands on."""
        (a, b), flow, pairing = (self._a.log, self._b.log), self._flow, self._pairing
        return (
            _errors(flow.a, pairing.of_a, self._verdicts, self._rounding(a, pairing.of_a, b)),
            _errors(flow.b, pairing.of_b, self._verdicts, self._rounding(b, pairing.of_b, a)),
        )

    def _rounding(self, log: OpLog, of: Int64, other: OpLog) -> Float64:
        """float64[n], what unpaired records round by, if the user expects rounding; 0 for pairs."""
        out = np.zeros(len(log))
        if self._explains:
            alone = np.flatnonzero(of < 0)
            out[alone] = unpaired_rounding(log, alone, other, 0.0)
        return out

    def _before(self, name: str) -> Iterator[tuple[str, float]]:
        """The change of the norms of a parameter and its states as the step begins: no operation made it."""
        for member in self._families.get(self._base(name), ()):
            if member in self._b.first and not member.endswith(GRADIENT):
                x, y = self._read(member)
                yield member, relative_difference(x.l1, y.l1)

    def _alone(self, name: str, one: Touch, other: Touch) -> bool:
        """True if what the tensor was computed from is bitwise equal: its parameter, gradient and states before."""
        base = self._base(name)
        if all(base + GRADIENT in contents.first for contents in (self._a, self._b)):
            return all(_same(*self._read(n)) for n in self._families[base] if n in self._b.first)
        read = [contents.log.input_digests[touch.row] for contents, touch in ((self._a, one), (self._b, other))]
        return len(read[0]) > 0 and set(read[0].tolist()) == set(read[1].tolist())

    def _read(self, name: str) -> tuple[Result, Result]:
        """The content of a named tensor that the step reads, in a and in b: a gradient after it was clipped."""
        x, y = ((c.last if name.endswith(GRADIENT) else c.first)[name] for c in (self._a, self._b))
        return self._a.before(x), self._b.before(y)

    @cached_property
    def _families(self) -> dict[str, list[str]]:
        """The names of a by their parameter: itself, its gradient, its states."""
        found: dict[str, list[str]] = {}
        for name in self._a.first:
            found.setdefault(self._base(name), []).append(name)
        return found

    def _base(self, name: str) -> str:
        """The parameter that a state belongs to; the name itself for a parameter or buffer."""
        return min(self._a.base(name), self._b.base(name), key=len)


def _made(contents: LastContents, flow: Ragged, name: str) -> Result:
    """The content that a run leaves in a named tensor, in full where the record that made it tells it."""
    found, row, slot = contents.left(name), contents.last[name].row, contents.last[name].slot
    maker = int(flow[row][slot]) if slot < len(flow[row]) else -1
    if found.sketch or maker < 0 or found.digest is None:
        return found
    made = first_output(contents.log, maker)
    return made if made.digest == found.digest else found


def _same(x: Result, y: Result) -> bool:
    return x.digest is not None and x.digest == y.digest


def _errors(flow: Ragged, of: Int64, verdicts: Verdicts, rounding: Float64) -> list[float]:
    """The error of each record's pair, unless that is red; of unpaired ones the largest that reaches them, and their
    own rounding (float64[n]).
    """
    counts = np.isfinite(verdicts.error) & ~one_of(verdicts.status, RED)
    errors: list[float] = np.append(np.where(counts, verdicts.error, 0.0), 0.0)[of].tolist()
    read, own = np.flatnonzero((flow.value >= 0) & (of[flow.row] < 0)), rounding.tolist()
    received = dict[int, float]()
    for row, maker in zip(flow.row[read].tolist(), flow.value[read].tolist(), strict=True):
        received[row] = max(received.get(row, 0.0), errors[maker])
        errors[row] = math.hypot(received[row], own[row])
    return errors
