"""Header of the main screen: names of the runs, facts that hold for all rows, and counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.step_numbers import step_numbers
from matchers.logs.op_log import OpLog
from matchers.ops.run_info import Severity
from matchers.status import Status
from numtui.session.session import Session
from numtui.text.counts import plural
from numtui.text.glyphs import GLYPHS, WORDS
from numtui.text.lines import Line, fit_line, line_width, width_of
from numtui.text.safe import safe_text
from numtui.views.run_summary import join
from numtui.views.table import short_dtype

__all__ = ["header"]

_MAX_NAME = 30


class Fact(NamedTuple):
    """A fact about all rows, also in short; one that `stays` is always on the screen."""

    text: str
    short: str
    role: str = "dim"
    stays: bool = True


def header(session: Session, width: int, work: str = "") -> list[Line]:
    """Return run names, facts and counts, in two lines where one has no room for what has to be seen.

    Until there are counts, `work` takes their place. Where something is red, which the banner says in words, the counts
    lose theirs before they take a second line.
    """
    c = session.comparison
    a, b = (safe_text(name, _MAX_NAME) for name in session.names)
    names: Line = [(f" {a}" if c.single else f" {a} ⇄ {b}", "title")]
    busy: Line = [(f"{work} ", "key")] if work else []
    counted = not work or c.single or not c.counts[Status.PENDING]
    facts = sorted(_facts(session), key=lambda fact: not fact.stays)
    stay = sum(fact.stays for fact in facts)
    long = [(" numtui ", "title"), *names, *((f" · {fact.text}", fact.role) for fact in facts)]
    fewest = len(long) - len(facts) + stay
    short = [*names, *((f" · {fact.short}", fact.role) for fact in facts[:stay])]

    def right(words: int) -> Line:
        return [*(_counts(c, words) if counted else []), *([("  ", "")] if counted and busy else []), *busy]

    for left, words in (
        (long, _ALL_WORDS),
        *((long[:n], _SOME_WORDS) for n in range(len(long), fewest - 1, -1)),
        (long[:fewest], _NO_WORDS),
        *((short, words) for words in (_NO_WORDS, _NO_ZEROS, *([_SIGNS] if c.red.any() else []))),
    ):
        if line_width((*left, *right(words))) < width:
            return [join(left, right(words), width)]
    # The facts that have no room in the first line begin the second.
    first = next((left for left in (long, long[:fewest]) if line_width(left) <= width), short)
    fits = max(sum(end <= width for end in accumulate(width_of(text) for text, _ in first)), 1)
    over = first[fits:]
    words = next((n for n in (_ALL_WORDS, _SOME_WORDS, _NO_WORDS) if line_width((*over, *right(n))) < width), _NO_ZEROS)
    return [fit_line(first[:fits], width), join(over, right(words), width)]


def _facts(session: Session) -> Iterator[Fact]:
    """Yield what limits the verdict, then what it is about, the most important first."""
    c = session.comparison
    compared = not c.counts[Status.PENDING] and not c.single
    if compared:
        side = c.coverage.larger
        if side.compared < side.operations or not side.operations:
            part = f"{side.compared:,} of {side.operations:,}"
            yield Fact(f"{part} compared (I)", f"{part} compared")
        if c.comparability.grave:
            fatal = c.comparability.severity == Severity.FATAL
            told = "not comparable" if fatal else "compare with care"
            yield Fact(f"{told} (I)", told, "red" if fatal else "close")
    rules = _rules(session)
    if rules is not None:
        yield rules
    yield from _expectation(c)
    logs = [log for _, log in c.logs]
    for name in ("rank", "step"):
        one, *others = (_place(log, name) for log in logs)
        other = others[0] if others else one
        if one is not None and other is not None:
            told = f"{name} {one}" if one == other else f"{name} {one} ⇄ {other}"
            if session.names[: len(logs)] != tuple(f"{name} {at}" for at in (one, other)[: len(logs)]):
                yield Fact(told, told)
    if compared or c.single:
        for told in step_numbers(c):
            yield Fact(told, "", stays=False)
    if copies := sum(found.stays for found in c.recompute_mismatches):
        yield Fact(f"{plural(copies, 'recompute mismatch', 'recompute mismatches')} (o)", "", stays=False)
    dtypes = [_main_dtype(log) for log in logs]
    if dtypes[0] and dtypes[0] == dtypes[-1]:
        yield Fact(dtypes[0], "", stays=False)
    elif all(dtypes):
        # Stated once here, so that rows need not be red for it.
        judged = ", judged at the coarser ε" if c.policy else ""
        yield Fact(f"{dtypes[0]} ⇄ {dtypes[1]}{judged}", "", stays=False)
    seeds = [log.header.run.get("seed") for log in logs]
    if seeds[0] is not None and seeds[0] == seeds[-1]:
        yield Fact(safe_text(f"seed {seeds[0]}", 24), "", stays=False)
    if unread := c.a.problem_count + c.b.problem_count:
        yield Fact(f"{plural(unread, 'unreadable spot')} (I)", "", stays=False)


def _expectation(c: Comparison) -> Iterator[Fact]:
    if c.expectation.preset is not None:
        yield Fact(f"expect {c.expectation.preset.value}", c.expectation.preset.value)
    elif c.expectation.rtol is not None:
        yield Fact(f"rtol {c.expectation.rtol:g}", f"rtol {c.expectation.rtol:g}")
    if (noise := c.expectation.noise) is not None:
        yield Fact(
            f"limits from {noise.source}" if noise.runs else "noise measured", "floor" if noise.runs else "noise"
        )


def _rules(session: Session) -> Fact | None:
    """Return the rule file and its effect in this comparison; None without rules.

    A rule is in force if it is enabled and matches something.
    """
    c = session.comparison
    if c.single or c.counts[Status.PENDING] or not (session.rules.rules or session.rules.problems):
        return None
    name = f"{safe_text(session.file.path.name, 40)} · " if session.file.raw is not None else ""
    if session.rules_off:
        return Fact(f"rules: {name}off (T)", "rules off", "red")
    number = sum(used.matched > 0 for used in c.usage)
    role = "dim" if session.rules_named or not name else "close"
    return Fact(f"rules: {name}{number:,} of {len(c.usage):,} in force", f"rules {number:,}/{len(c.usage):,}", role)


def _place(log: OpLog, name: str) -> str | None:
    """Return the rank or the step of a log, from its path or its header."""
    if found := re.search(rf"(?:^|/){name}_(\d+)", PurePath(log.path).as_posix()):
        return found[1]
    said = log.header.run.get(name)
    return None if said is None else safe_text(str(said), 12)


def _main_dtype(log: OpLog) -> str:
    """Return the most common output dtype."""
    known = log.dtype[log.dtype >= 0]
    return short_dtype(log.dtypes[int(np.bincount(known).argmax())]) if len(known) else ""


_SELDOM = ("not judged", "recompute", "ignored")
"""Words for rows neither red nor good nor of one side only, shown where there are any."""

_ALL_WORDS, _SOME_WORDS, _NO_WORDS, _NO_ZEROS, _SIGNS = range(5)
"""Length of the counts: all words, those of compared rows, the fewest, no zeros, and only signs."""


def _counts(c: Comparison, words: int) -> Line:
    """Count the rows of each kind; the glyphs of the rows replace words, and the counts add up all the same."""
    n = c.counts
    reds, causes = sum(n[s] for s in Status if s.red), len(c.starts)
    if c.single:
        glyph = GLYPHS[Status.NAN]
        found = [("●", causes, "cause", " first NaN or Inf"), (glyph, reds, "red", " with NaN or Inf")]
        return [(f"{glyph} {count:,}{word}  ", role if count else "dim") for glyph, count, role, word in found]
    red = " red" + (f" ({n[Status.NAN]:,} nan)" if n[Status.NAN] else "")
    cause = " cause" + "s" * (causes != 1)
    first = " first" + cause if words == _ALL_WORDS else cause
    some = words <= _SOME_WORDS
    pieces = [
        ("●", causes, "cause", first),
        (GLYPHS[Status.DIVERGED], reds, "red", red),
        (GLYPHS[Status.CLOSE], n[Status.CLOSE], "close", " close" if some else ""),
        (GLYPHS[Status.SAME_PRINT], n[Status.EQUAL] + n[Status.SAME_PRINT], "", " equal" if some else ""),
        (GLYPHS[Status.ONLY_A], n[Status.ONLY_A], "alone", ""),
        (GLYPHS[Status.ONLY_B], n[Status.ONLY_B], "alone", " only one side" if words == _ALL_WORDS else ""),
    ]
    for word in _SELDOM:
        if there := [s for s in Status if WORDS[s] == word and n[s]]:
            glyphs, told = "".join(GLYPHS[s] for s in there), f" {word}" if words == _ALL_WORDS else ""
            pieces.append((glyphs, sum(n[s] for s in there), "dim", told))
    if words >= _NO_ZEROS:
        pieces = [piece for at, piece in enumerate(pieces) if piece[1] or at < 2]
    if words == _SIGNS:
        pieces = [(glyph, count, role, "") for glyph, count, role, _ in pieces]
    written: Line = [(f"{glyph} {count:,}{word}  ", role if count else "dim") for glyph, count, role, word in pieces]
    return [*written[:-1], (written[-1][0][:-1], written[-1][1])]
