"""Text of the inspector: values of both sides of a row, producers of its inputs, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from matchers.comparison import Comparison
from matchers.explain.sentences import Explanation, Fact, InputFact
from matchers.logs.op_log import OpLog
from matchers.status import Status
from numtui.session.session import Session
from numtui.text.glyphs import WORDS
from numtui.text.lines import MAX_TEXT, Line, fit, line_width, side_titles, width_of, wrap
from numtui.text.safe import safe_text

__all__ = ["Inspection", "inspect"]

_SIDE_BY_SIDE = 120
"""Minimum width for words beside the numbers."""

_NARROW = 60
"""Width below which labels and differences are cut, so that numbers are not."""

_COMMON = ("shape", "dtype", "phase", "location", "micro-batch", "recompute", "placement", "group")
"""Facts with a line of their own only where the sides differ."""

_WHERE = ("phase", "location", "stack", "micro-batch", "recompute", "group")
"""Facts that are not about values."""

_MAX_EARLY_INPUTS = 4
"""Inputs listed before the words; more would crowd them out."""

_MAX_MEMBERS = 4
"""Operations of a group that are named: all of a collective, some of a sum over micro-batches."""

_Made = Line | Callable[[], Line]
"""A line, or a function that makes it: of a thousand inputs, only those on the screen are made."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Text of the inspector; `inputs` has the line of each input, in order."""

    made: Sequence[_Made] = ()
    inputs: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.made)

    def lines(self, first: int = 0, last: int | None = None) -> list[Line]:
        """Return the lines from `first` to `last` (exclusive)."""
        return [_written(made) for made in self.made[first:last]]


def _written(made: _Made) -> Line:
    return made() if callable(made) else made


def inspect(session: Session, told: Explanation | None, width: int, chosen: int = -1) -> Inspection:
    """Lay out an explanation.

    Args:
        chosen: the highlighted input (index into `told.inputs`), -1 for none.
    """
    if told is None:
        return Inspection()
    c, row, narrow = session.comparison, session.listing.cursor, width < _SIDE_BY_SIDE
    names, role = _names(c, row), "red" if c.red[row] else "title"
    told_first = _worded(Status(int(c.status[row])), told.headline)
    words: list[Line] = []
    annotated = bool(session.listing.annotations.note(c, row))  # the first note is the user's own

    def add(sentence: str, role: str, width: int) -> None:
        words.extend([(f" {text}", role)] for text in wrap(sentence, width - 2))

    if narrow:
        # Few lines are seen: the numbers come right after the verdict, its reason and the name after them.
        verdict, _, reason = told_first.partition("; ")
        headline: list[_Made] = [[(f" {text}", role)] for text in wrap(verdict, width - 1, "  ")]
        headline += [[(f" {text}", "dim")] for note in told.notes[:annotated] for text in wrap(note, width - 2)]
        if reason:
            add(reason, role, width)
        add(names, "title", width)
    else:
        headline = list(_title(names, told_first, width, role))
    beside = width * 3 // 5
    word_width = width if narrow else width - beside
    if told.pairing:
        add(told.pairing, "", word_width)
    for note in filter(None, (*told.notes[annotated and narrow :], told.reason)):
        add(note, "dim", word_width)
    if narrow:
        table, at = _table(session, told, width, chosen, words)
    else:
        table, at = _table(session, told, beside, chosen)
        blank: Line = []
        both = zip_longest(table, words, fillvalue=blank)
        table = [partial(_beside, left, beside, right) for left, right in both]
    return Inspection((*headline, *table), tuple(len(headline) + i for i in at))


def _worded(status: Status, headline: str) -> str:
    """Put the word of the status before a finer one; FIRST CAUSE and the like stand for themselves."""
    word = WORDS[status]
    plain = headline.startswith(word) or headline.partition(":")[0].isupper()
    return headline if plain or word not in ("equal", "not judged") else f"{word} · {headline}"


def _beside(left: _Made, width: int, right: _Made) -> Line:
    """Join two lines, the left one padded to `width` cells."""
    written = _written(left)
    used = line_width(written)
    return [*written, (" " * (width - used), ""), *_written(right)]


def _names(c: Comparison, row: int) -> str:
    """Return the keys of both sides in full: that of b only where it differs, without a repeated module."""
    sides = [
        _keys(log, members)
        for log, members in zip((c.a, c.b), c.members(row), strict=True)
        if members and not (log is c.b and c.single)
    ]
    if len(sides) == 2 and sides[0] == sides[1]:
        del sides[1]
    module = ""
    said = []
    for keys in sides:
        short = []
        for key in keys:
            before, module = module, key.rpartition("/")[0]
            short.append(key[len(module) + 1 :] if module and module == before else key)
        said.append(" + ".join(short))
    return " ⇄ ".join(said)


def _keys(log: OpLog, records: Sequence[int]) -> list[str]:
    keys = [safe_text(log.keys[record], 400) for record in records[:_MAX_MEMBERS]]
    return [*keys, f"… {len(records):,} in all"] if len(records) > _MAX_MEMBERS else keys


def _title(names: str, headline: str, width: int, role: str) -> list[Line]:
    """Wrap the keys and the verdict to as many lines as needed."""
    lines: list[Line] = []
    left = len(names.replace(" ", ""))
    for text in wrap(f"{names}   {headline}", width - 1, "  "):
        at = 0
        while left and at < len(text):
            left -= text[at] != " "
            at += 1
        lines.append([(" " + text[:at], "title"), (text[at:], role)])
    return lines


def _table(
    session: Session, told: Explanation, width: int, chosen: int, words: list[Line] | None = None
) -> tuple[list[_Made], list[int]]:
    """Lay out facts and inputs side by side, and return the line of each input.

    `words` go between the values and what else is known, such as the location.
    """
    name, difference = (16, 12) if width >= _NARROW else (9, 9)
    each = max((width - name - difference - 1) // 2, 10)
    lines: list[_Made] = []
    if session.comparison.single:
        each, difference = max(width - name - 2, 10), 0
    else:
        a, b = side_titles(session.names, each - 1)
        lines.append(
            [(" " + fit("", name) + fit(a, each - 1) + " " + fit(b, each - 1) + " " + fit("Δ", difference), "dim")]
        )
    # Shared facts take one line behind the differing ones, so that the inputs are on the screen.
    shared = [fact for fact in told.facts if fact.name in _COMMON and fact.agrees]
    facts = [fact for fact in told.facts if fact not in shared]
    at: list[int] = []

    def add_facts(found: Iterable[Fact]) -> None:
        lines.extend(_fact(fact, name, each, difference) for fact in found)

    def add_inputs() -> None:
        for i, given in enumerate(told.inputs):
            at.append(len(lines))
            lines.append(partial(_input, session.comparison, given, name, each, difference, i == chosen))

    if words is None:
        add_facts(facts)
        add_inputs()
    else:
        where = [fact for fact in facts if fact.name in _WHERE or fact.name.startswith("called from")]
        values = [fact for fact in facts if fact not in where]
        values.sort(key=lambda fact: fact.agrees is not False)
        early = len(told.inputs) <= _MAX_EARLY_INPUTS
        add_facts(values[:2])
        if early:
            add_inputs()
        add_facts(values[2:])
        if not early:
            add_inputs()
        lines.extend(words)
        add_facts(where)
    if shared:
        text = " · ".join(safe_text(fact.a, MAX_TEXT) for fact in shared)
        # The source line comes last and matters most: it must not be cut off.
        for label, part in zip_longest(("both",), wrap(text, width - name - 2), fillvalue=""):
            lines.append([(f" {fit(label, name)}{part}", "")])
    return lines, at


def _fact(fact: Fact, name: int, each: int, difference: int) -> Line:
    role = "red" if fact.agrees is False else ""
    label = fit(safe_text(fact.name, name), name)
    # The end of a path says most.
    frame = fact.name == "stack" or fact.name.startswith("called from")
    path = fact.name == "location" or (frame and not fact.agrees)  # frames that agree are one text, innermost first
    a, b = (fit(safe_text(text, MAX_TEXT if path else each), each - 1, keep_end=path) for text in (fact.a, fact.b))
    if not difference:  # there is no other side
        return [(f" {label}{a}", "")]
    return [(f" {label}{a} {b} ", ""), (fit(safe_text(fact.difference, difference), difference), role)]


def _input(c: Comparison, fact: InputFact, name: int, each: int, difference: int, chosen: bool) -> Line:
    a = _from(fact.a, c.a, fact.producer_a, fact.name, each - 1)
    b = _from(fact.b, c.b, fact.producer_b, fact.name, each - 1)
    label = fit(f"input {fact.position}", name)
    if not difference:
        return [(f"{'›' if chosen else ' '}{label}{a}", "chosen" if chosen else "")]
    role = "red" if fact.agrees is False else ""
    delta = fit(safe_text(fact.difference, difference), difference)
    if chosen:
        return [(f"›{label}{a} {b} {delta}", "chosen")]
    return [(f" {label}{a} {b} ", ""), (delta, role)]


def _from(value: str, log: OpLog, producer: int, name: str, width: int) -> str:
    """Return a hash with its producer or parameter name."""
    text = safe_text(value, 24)
    source = safe_text(log.keys[producer] if producer >= 0 else name, 400)
    if source:
        room = width - width_of(text) - 3
        if room >= 8:
            text += " ← " + fit(source, min(room, width_of(source)), keep_end=True)
    return fit(text, width)
