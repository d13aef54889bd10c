"""Markdown report for a GitHub issue.

Names of a log are code spans. Sentences are escaped for Markdown and GitHub: a log can neither embed a picture nor
mention a colleague.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from numtui.report.model import Report
from numtui.report.parts import MEANING, RowFacts
from numtui.report.recomputation import MismatchFacts
from numtui.text.safe import safe_text, write_lines

__all__ = ["bullets", "code", "more", "plain", "row_markdown", "write"]

_MAX_BULLETS: Final = 50
_MAX_CAUSES: Final = 10
_MAX_ROWS: Final = 50
_MAX_RULES: Final = 40
_MAX_KEY: Final = 160
_MAX_SENTENCE: Final = 600


def write(report: Report, out: TextIO) -> None:
    """Write the report."""
    write_lines(_lines(report), out)


def code(text: str, limit: int = _MAX_KEY) -> str:
    """Format text as a code span, safe in a table too."""
    text = safe_text(text, limit)
    # A span ends at a run of backticks as long as its opening one.
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", "\\|")


_SPECIAL: Final = re.compile(r"([\\`*\[\]<>~|&]|(?<![^\W_])_|_(?![^\W_]))")
"""Mark-up within a line; an underscore within a word is none."""
_LINKS: Final = re.compile(r"([@#])|(:)(?=//)|(www)(?=\.)", re.IGNORECASE)


def plain(text: str, limit: int = _MAX_SENTENCE) -> str:
    """Escape text: no mark-up, no link, no mention."""
    escaped = _SPECIAL.sub(r"\\\1", safe_text(text, limit)).replace("\\<", "&lt;").replace("\\>", "&gt;")
    # GitHub still finds mentions and addresses; a comment in between prevents that.
    return _LINKS.sub(lambda found: f"{found[0]}<!-- -->", escaped.replace("\\&", "&amp;"))


def row_markdown(row: RowFacts) -> str:
    """Format one row for a discussion."""
    facts = [row.status.label]
    if row.role_word:
        facts.append(row.role_word)
    if row.error:
        facts.append(f"error {row.error}" + (f" ({row.in_eps})" if row.in_eps else ""))
    facts += [row.phase, *(code(t) for t in (row.shape, row.dtype) if t)]
    if place := row.place(code):
        facts.append(place)
    facts += [f"{side} line {line}" for side, line in (("a", row.line_a), ("b", row.line_b)) if line]
    return f"{row.keys(code)}  \n{', '.join(facts)}  \n{plain(row.sentence)}\n"


def _lines(r: Report) -> Iterator[str]:
    a, b = r.logs
    yield f"## {plain(r.result)}"
    yield ""
    if r.warning:
        yield f"**{plain(r.warning, 2000)}**"
        yield ""
    yield plain(r.extent)
    yield ""
    yield "| | run | operations | captured | log |"
    yield "| --- | --- | ---: | --- | --- |"
    for log in (a, b):
        facts = plain(log.name, 60), f"{log.operations:,}", plain(log.captured, 300), code(log.path, 300)
        yield f"| {log.side} | {' | '.join(facts)} |"
    if r.step_numbers:
        yield ""
        yield plain(", ".join(r.step_numbers))
    if r.judged_by:
        yield ""
        yield f"Judged with {code(r.judged_by, 300)}"
    if r.rules_note:
        yield ""
        yield plain(f"Note: {r.rules_note}")
    yield from _failures(r)
    yield from _notes(r)
    yield ""
    yield "| rows | status | |"
    yield "| ---: | --- | --- |"
    for status, n in r.counts:
        yield f"| {n:,} | {f'**{status.label}**' if status.red else status.label} | {MEANING[status]} |"
    yield from _first_difference(r)
    if not r.red and r.certificate:
        yield from _list("Compared", map(plain, r.certificate))
    yield from _causes(r)
    if r.mismatch_groups:
        yield from _list("Recompute mismatches", map(_mismatch, r.mismatch_groups[:_MAX_ROWS]))
    yield from _table(r)
    yield from _drift(r)
    yield from _rules(r)
    yield from _excluded(r)
    yield ""
    yield f"numtui {r.version}"


def _mismatch(group: tuple[MismatchFacts, int, str]) -> str:
    found, n, told = group
    place = f" ({code(found.location)})" if found.location else ""
    more = f" and {n - 1:,} more" if n > 1 else ""
    error = f", error {found.error}" if found.error else ""
    return f"{found.side}: {code(found.key)}{more}{place}: {plain(told)}{error}"


def _failures(r: Report) -> Iterator[str]:
    if r.failures:
        yield from _list("Fails on", (f"{f.condition}: {plain(f.text)}" for f in r.failures))
    if r.known:
        yield ""
        yield r.known


def _notes(r: Report) -> Iterator[str]:
    for heading, weight in (
        ("Why the two runs cannot be compared", "fatal"),
        ("Suspicious differences between the runs", "suspicious"),
        ("Harmless differences between the runs", "harmless"),
    ):
        if texts := [plain(note.text) for note in r.notes if note.weight == weight]:
            yield from _list(heading, texts)


def _first_difference(r: Report) -> Iterator[str]:
    if (found := r.first_difference) is not None:
        yield from _heading(found.title)
        facts = row_markdown(found.row).split("  \n")[:2]
        yield "  \n".join((*facts, *map(plain, found.reasons)))


def _causes(r: Report) -> Iterator[str]:
    causes = r.causes(_MAX_CAUSES)
    if not causes:
        return
    yield from _heading("First causes")
    for number, cause in enumerate(causes, 1):
        first, *rest = row_markdown(cause.row).rstrip("\n").split("\n")
        if cause.follows:
            rest.append(plain(cause.follows))
        yield f"{number}. {first}"
        indent = " " * len(f"{number}. ")
        yield from (indent + line for line in rest)
    yield from more(r.cause_count - len(causes))
    if found := r.further(_MAX_CAUSES):
        yield from _heading("Further causes, independent of those above")
        yield "\n".join(map(row_markdown, found)).rstrip("\n")
        yield from more(len(r.comparison.further_causes) - len(found))


def _table(r: Report) -> Iterator[str]:
    rows = r.reds(_MAX_ROWS)
    if not rows:
        return
    yield from _heading(f"The first {len(rows)} red rows" if r.red > len(rows) else "The red rows")
    yield "| row | operation | status | role | error | ε | place |"
    yield "| ---: | --- | --- | --- | ---: | ---: | --- |"
    for row in rows:
        cells = [
            str(row.row + 1),
            row.keys(code),
            row.status.label,
            row.role_word,
            row.error,
            row.in_eps.removesuffix(" ε"),
            row.place(code),
        ]
        yield f"| {' | '.join(cells)} |"
    yield from more(r.red - len(rows))


def _drift(r: Report) -> Iterator[str]:
    if r.families:
        told = (f"{f.name} ({f.extent}): {plain(f.explanation)}" for f in r.families)
        yield from _list("Known kinds of drift", told)


def _rules(r: Report) -> Iterator[str]:
    if not (r.rules or r.broken_rules):
        return
    where = "" if r.options.rules_path is None else f" from {code(r.options.rules_path, 300)}"
    told = [
        f"{rule.section}: {code(rule.text, 300)}: {rule.matched:,}"
        + (f" ({plain(rule.problem)})" if rule.problem else "")
        for rule in r.rules[:_MAX_RULES]
    ]
    yield from _list(f"Rules in force{where}, and what they matched", (*told, *map(plain, r.broken_rules)))
    yield from more(len(r.rules) - _MAX_RULES)


def _excluded(r: Report) -> Iterator[str]:
    told = [
        f"{what}: {', '.join(map(code, ops))}"
        for what, ops in zip(("both", "only a", "only b"), r.excluded, strict=True)
        if ops
    ]
    if told:
        yield from _list("Not captured", told)


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"### {text}"
    yield ""


def _list(heading: str, items: Iterable[str]) -> Iterator[str]:
    yield from _heading(heading)
    yield from (f"- {item}" for item in items)


def bullets(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a list under a heading; none for no sentences. They are made safe here."""
    if sentences:
        yield from _list(heading, (plain(sentence) for sentence in sentences[:_MAX_BULLETS]))
        yield from more(len(sentences) - _MAX_BULLETS)


def more(n: int) -> Iterator[str]:
    """Yield the lines that say how many things of a list were left out; none for none."""
    if n > 0:
        yield ""
        yield f"… and {n:,} more"
