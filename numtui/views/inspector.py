"""Text of the inspector: values of both sides of a row, producers of its inputs, and the verdict in words."""

from __future__ import annotations

import re
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
from numtui.text.short_names import shortened

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

_VERDICT_LINES = 2
"""Lines of a verdict before the numbers."""

_PRODUCER = 14
"""Cells of the producer of an input, where values can be cut for it."""

_VALUE = 13
"""Cells of a value that is never cut for it: a number in full."""

_SAME = '"'
"""Stands for a value of b that is equal to that of a, as for names in the list."""

_STEADY = (16, 25)
"""Least cells of a label and of a value where there is room: from row to row, numbers stay in their places."""

_ROOMY = 32
"""Least cells of a producer beside them."""

_MAX_MEMBERS = 4
"""Operations of a group that are named: all of a collective, some of a sum over micro-batches."""

_NAME = re.compile(r"[^\s,;:()]+/[^\s,;:()]+[^\s,;:().]")

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

    beside = width * 3 // 5
    word_width = width if narrow else width - beside
    # Few lines are seen: the numbers come right after two of the verdict, the rest and the name after them.
    verdict: list[Line] = [[(f" {text}", role)] for text in _verdict(told_first, width - 1)]
    headline: list[_Made] = [*verdict[:_VERDICT_LINES]]
    headline += [[(f" {text}", "dim")] for note in told.notes[:annotated] for text in wrap(note, width - 2)]
    if replayed := session.replayed(row):
        headline += [
            [(f" {text}", "title")] for text in wrap(f"replayed: {replayed}", width - 2, "  ")[:_VERDICT_LINES]
        ]
    words += verdict[_VERDICT_LINES:]
    add(names, "title", word_width)
    if told.pairing:
        add(told.pairing, "", word_width)
    for note in filter(None, (*told.notes[annotated:], told.reason)):
        add(note, "dim", word_width)
    if narrow:
        table, at = _table(session, told, width, chosen, words)
    else:
        table, at = _table(session, told, beside, chosen)
        blank: Line = []
        both = zip_longest(table, words, fillvalue=blank)
        table = [partial(_beside, left, beside, right) for left, right in both]
    return Inspection((*headline, *table), tuple(len(headline) + i for i in at))


def _verdict(sentence: str, width: int) -> list[str]:
    """Wrap a verdict; names in it are cut in the middle where that brings it into the lines before the numbers."""
    lines = [*wrap(sentence, width, "  ")]
    if len(lines) > _VERDICT_LINES:
        short = [*wrap(_NAME.sub(lambda found: shortened(found[0], _PRODUCER * 2), sentence), width, "  ")]
        lines = short if len(short) <= _VERDICT_LINES else lines
    return lines


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


def _table(
    session: Session, told: Explanation, width: int, chosen: int, words: list[Line] | None = None
) -> tuple[list[_Made], list[int]]:
    """Lay out facts and inputs side by side, and return the line of each input.

    `words` go between the values and what else is known, such as the location.
    """
    # Shared facts, and those of an operation that only one run has, take one line: the inputs are to be on the screen.
    c, row = session.comparison, session.listing.cursor
    alone = "" if c.single else "only a" if c.row_b[row] < 0 else "only b" if c.row_a[row] < 0 else ""
    shared = [fact for fact in told.facts if fact.name in _COMMON and (alone or fact.agrees)]
    facts = [fact for fact in told.facts if fact not in shared]
    widest = 16 if width >= _NARROW else 9
    name = min(max((width_of(fact.name) + 1 for fact in facts), default=0), widest)
    name, difference = max(name, 9), 9
    least = _VALUE
    steady = not c.single and width >= _STEADY[0] + 2 * _STEADY[1] + difference + _ROOMY
    if steady:
        name, least = _STEADY
    lines: list[_Made] = []
    if c.single:
        each, difference = max(width - name - 2, 10), 0
    else:
        # No wider than the values, because producers stand behind them.
        texts = [text for fact in facts for text in (fact.a, fact.b)]
        texts += [text for given in told.inputs for text in (given.a, given.b)]
        titles = [fit(title, _PRODUCER) for title in side_titles(session.names, _PRODUCER)]
        most = max(width_of(text) + 1 for text in (*texts, *titles))
        room = width - name - difference - 1
        each = max(min(max(most, least), (room - _PRODUCER * bool(told.inputs)) // 2), min(_VALUE, room // 2))
        a, b = side_titles(session.names, each - 1)
        lines.append(
            [(" " + fit("", name) + fit(a, each - 1) + " " + fit(b, each - 1) + " " + fit("Δ", difference), "dim")]
        )
    at: list[int] = []

    def add_facts(found: Iterable[Fact]) -> None:
        lines.extend(_fact(fact, name, each, difference) for fact in found)

    def add_shared() -> None:
        if not shared:
            return
        text = " · ".join(safe_text(fact.a or fact.b, MAX_TEXT) for fact in shared)
        # The source line comes last and matters most: it must not be cut off.
        for label, part in zip_longest((alone or "both",), wrap(text, width - name - 2), fillvalue=""):
            lines.append([(f" {fit(label, name)}{part}", "")])

    def add_inputs() -> None:
        for i, given in enumerate(told.inputs):
            at.append(len(lines))
            lines.append(partial(_input, c, given, name, each, difference, width, i == chosen))

    if steady:  # first, where it stays in its place too
        add_shared()
    if words is None:
        add_facts(facts)
        add_inputs()
    else:
        where = [fact for fact in facts if fact.name in _WHERE or fact.name.startswith("called from")]
        values = [fact for fact in facts if fact not in where]
        values.sort(key=lambda fact: fact.agrees is not False)
        early = len(told.inputs) <= _MAX_EARLY_INPUTS
        add_facts(values[:1])
        if early:
            add_inputs()
        add_facts(values[1:])
        if not early:
            add_inputs()
        lines.extend(words)
        add_facts(where)
    if not steady:
        add_shared()
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
    if fact.a == fact.b and width_of(fact.a) >= each:
        a, b = fit(safe_text(fact.a, MAX_TEXT), 2 * each - 2, keep_end=path), ""
    elif fact.agrees and fact.a == fact.b:
        b = fit(_SAME, each - 1)
    return [(f" {label}{a} {b} ", ""), (fit(safe_text(fact.difference, difference), difference), role)]


def _input(c: Comparison, fact: InputFact, name: int, each: int, difference: int, width: int, chosen: bool) -> Line:
    """Return the values of an input and their difference, with its producer or the name of the parameter."""
    label = fit(f"input {fact.position}", name)
    values: Line = [(fit(safe_text(fact.a, 24), each - 1), "")]
    if difference:
        b = _SAME if fact.agrees and fact.a == fact.b else safe_text(fact.b, 24)
        values = [(f"{values[0][0]} {fit(b, each - 1)} ", "")]
        values.append((fit(safe_text(fact.difference, difference), difference), "red" if fact.agrees is False else ""))
    elif source := _producer(c, fact, each - 3 - width_of(fact.a)):
        values = [(fit(f"{safe_text(fact.a, 24)} {source}", each - 1), "")]
    line: Line = [("›" if chosen else " ", ""), (label, ""), *values]
    if difference and (source := _producer(c, fact, width - line_width(line) - 1)):
        line.append((source, "dim"))
    return [("".join(text for text, _ in line), "chosen")] if chosen else line


def _producer(c: Comparison, fact: InputFact, width: int) -> str:
    """Return `← layers.3…wq/op_0_mm`, of both runs where they differ; empty where none is known."""
    sides = ((c.a, fact.producer_a), (c.b, fact.producer_b))
    known = [log.keys[record] if record >= 0 else fact.name for log, record in sides]
    keys = list(dict.fromkeys(filter(None, known)))
    room = width - 2 - 3 * (len(keys) - 1)
    if not keys or room < 4 * len(keys):
        return ""
    short = [shortened(key, room // len(keys)) for key in keys]
    if len(keys) > 1 and short[0] == short[1]:  # the counter was cut, which stands in front of the operation's name
        short = [fit(key.rpartition("/")[2], room // len(keys)).rstrip() for key in keys]
        if short[0] == short[1]:
            short = [shortened(keys[0], room - 1), "…"]
    return "← " + " ⇄ ".join(short)
