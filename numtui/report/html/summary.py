"""Script-free parts of the page: the overview that a mail program shows first, and the tabs beside the rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from html import escape
from typing import Final

from numtui.report.model import Report
from numtui.report.parts import MEANING, CauseFacts, DifferenceFacts, Log, RowFacts
from numtui.text.counts import plural
from numtui.text.glyphs import GLYPHS, WORDS
from numtui.text.safe import safe_text

__all__ = ["button", "coverage", "logs", "overview", "rules", "summary", "text"]

_MAX_CAUSES: Final = 20
_MAX_REDS: Final = 10
_MAX_RULES: Final = 500
_MAX_PROBLEMS: Final = 50
_MAX_TEXT: Final = 1000


def text(raw: str, limit: int = _MAX_TEXT) -> str:
    """Escape text of a log, a path or a name as HTML."""
    return escape(safe_text(raw, limit))


def coverage(r: Report) -> str:
    """Return how much was compared, and the warning about the two runs as a whole."""
    warning = f' <strong class="red">{text(r.warning, 2000)}</strong>' if r.warning else ""
    return f"{text(r.extent)}{warning}"


def overview(r: Report) -> str:
    """Return where the runs part: the first difference beside the first causes, or the evidence that they do not."""
    causes = r.causes(_MAX_CAUSES)
    found = r.first_difference
    one = _section(_difference(found, {cause.row.row for cause in causes}) if found is not None else ())
    other = _section(_reasons(r, causes, -1 if found is None else found.row.row))
    return "\n".join(filter(None, (one, other)))


def _section(lines: Iterable[str]) -> str:
    content = "\n".join(lines)
    return f"<section>{content}</section>" if content else ""


def _difference(found: DifferenceFacts, causes: Container[int]) -> Iterator[str]:
    yield f"<h2>{text(found.title)}</h2>"
    told = [_head(found.row), *map(text, found.reasons)]
    if found.row.row not in causes:
        told.append(f"<small>{_facts(found.row)}</small>")
    yield f"<p>{'<br>'.join(told)}</p>"


def _reasons(r: Report, causes: Sequence[CauseFacts], difference: int) -> Iterator[str]:
    """Yield the first causes, of the row of the first difference without its name, or else the red rows or evidence."""
    if causes:
        rows = [(cause.row, cause.follows) for cause in causes]
        if r.cause_count > 1:
            yield from _rows(f"First causes: {r.cause_count:,}", rows, r.cause_count)
        elif causes[0].row.row == difference:
            yield from _rows("First cause: the same row", rows, 1, named=difference)
        else:
            yield from _rows("First cause", rows, 1)
        if further := r.further(_MAX_CAUSES):
            told = [(row, "") for row in further]
            yield from _rows("Further causes, independent of those", told, len(r.comparison.further_causes))
    elif r.red:
        yield from _rows("Red rows", [(row, "") for row in r.reds(_MAX_REDS, explained=True)], r.red)
    else:
        yield from _list("Compared", map(text, r.certificate))


def summary(r: Report, notes: Sequence[tuple[int, str]]) -> str:
    """Return counts, notes and caveats."""
    return "\n".join(_summary(r, notes))


def _summary(r: Report, notes: Sequence[tuple[int, str]]) -> Iterator[str]:
    for log in r.logs:
        told = f"<strong>{text(log.name, 60)}</strong>, {plural(log.operations, 'operation')}"
        yield f"<p>{log.side}: {told}" + (f"<br>{text(log.captured, 300)}</p>" if log.captured else "</p>")
    if r.step_numbers:
        yield f"<p>{', '.join(r.step_numbers)}</p>"
    yield from _counts(r)
    if r.judged_by:
        yield f"<p>judged with <code>{text(r.judged_by)}</code></p>"
    if r.rules_note:
        yield f"<p>{text(r.rules_note)}</p>"
    rows = [(r.row(row, explained=False), note) for row, note in notes]
    yield from _list("Notes", (f"{text(note, 2000)}<br>{button(row)}" for row, note in rows))
    yield from _rows(
        "Differences within tolerance begin here",
        [(r.row(row), "") for row in r.beginning_rows[:_MAX_REDS].tolist()],
        len(r.beginning_rows),
    )
    copies = (
        f"{found.side}: {button(r.row(found.row, explained=False))}{f' and {n - 1:,} more' if n > 1 else ''} "
        f"{text(found.location)}<br>{text(told)}" + (f", error {found.error}" if found.error else "")
        for found, n, told in r.mismatch_groups
    )
    yield from _list("Recompute mismatches", copies)
    yield from _list("The comparison fails on", (f"{f.condition}: {text(f.text)}" for f in r.failures))
    yield from _list("The two runs as a whole", (f"{note.weight}: {text(note.text)}" for note in r.notes))
    if (d := r.doubt) is not None:
        told = f"{d.pairs:,} pairs have a confidence below {d.below}; least certain is"
        pair = f"<code>{text(d.a_key)}</code> ↔ <code>{text(d.b_key)}</code> ({d.method}, {d.confidence:.2f})"
        yield f"<h2>Uncertain pairs</h2><p>{told} {pair}</p>"
    drift = (f"{text(f.name)}, {f.extent}: {text(f.explanation)}" for f in r.families)
    yield from _list("Known kinds of drift", drift)
    yield f"<p><small>numtui {text(r.version)}</small></p>"


def _counts(r: Report) -> Iterator[str]:
    """Yield the number of rows under each word of the screen, and what it stands for."""
    yield '<table class="counts">'
    for word in dict.fromkeys(WORDS.values()):
        there = [(status, n) for status, n in r.counts if WORDS[status] == word]
        if not there:
            continue
        style = ' class="red"' if there[0][0].red else ""
        meanings = (MEANING[s] if len(there) == 1 else f"{n:,} {MEANING[s]}" for s, n in there)
        total, glyphs = sum(n for _, n in there), "".join(GLYPHS[status] for status, _ in there)
        number = f'<td class="number">{total:,}</td><td>{glyphs}</td>'
        yield f"<tr>{number}<td{style}>{word}</td><td>{'; '.join(meanings)}</td></tr>"
    yield "</table>"


def _rows(title: str, rows: Sequence[tuple[RowFacts, str]], total: int, named: int = -1) -> Iterator[str]:
    """Yield rows with their sentences, each with an extra text; the row `named` stands beside them with its name."""
    if not rows:
        return
    yield f"<h2>{title}</h2><ol>"
    for row, besides in rows:
        head = "" if row.row == named else _head(row)
        told = filter(None, (head, text(row.sentence), text(besides), f"<small>{_facts(row)}</small>"))
        yield f"<li>{'<br>'.join(told)}</li>"
    yield "</ol>"
    if total > len(rows):
        yield f"<p>… and {total - len(rows):,} more</p>"


def button(row: RowFacts) -> str:
    """Return a button with the keys of a row that goes to it."""
    keys = escape(row.keys(lambda key: safe_text(key, _MAX_TEXT)))
    return f'<button type="button" class="go" data-go="{row.row}"><code>{keys}</code></button>'


def _head(row: RowFacts) -> str:
    """Return the source line of a row, where it is known, above its button."""
    place = row.place(text)
    return f"<strong>{place}</strong><br>{button(row)}" if place else button(row)


def _facts(row: RowFacts) -> str:
    facts = [f"row {row.row + 1:,}", f"{GLYPHS[row.status]} {WORDS[row.status]}"]
    if row.role_word:
        facts.append(row.role_word)
    if row.error:
        facts.append(f"error {row.error}" + (f" ({row.in_eps})" if row.in_eps else ""))
    facts += [row.phase, *(text(t) for t in (row.shape, row.dtype) if t)]
    facts += [f"line {line:,} of {side}'s log" for side, line in (("a", row.line_a), ("b", row.line_b)) if line]
    return ", ".join(facts)


def _list(title: str, items: Iterable[str]) -> Iterator[str]:
    items = list(items)
    if items:
        yield f"<h2>{title}</h2><ul>"
        yield from (f"<li>{item}</li>" for item in items)
        yield "</ul>"


def rules(r: Report) -> str:
    """Return the rules in force, their matches, and the broken entries of the file."""
    return "\n".join(_rules(r))


def _rules(r: Report) -> Iterator[str]:
    yield "<h2>Rules</h2>"
    if not (r.rules or r.broken_rules):
        yield "<p>No rules: every pair was found automatically.</p>"
        return
    if r.options.rules_path is not None:
        yield f"<p>from <code>{text(r.options.rules_path)}</code></p>"
    yield "<table><tr><th>kind</th><th>rule</th><th>matched</th></tr>"
    for rule in r.rules[:_MAX_RULES]:
        trouble = f'<br><span class="red">{text(rule.problem)}</span>' if rule.problem else ""
        cells = f'<td><code>{text(rule.text)}</code>{trouble}</td><td class="number">{rule.matched:,}</td>'
        yield f"<tr><td>{rule.section}</td>{cells}</tr>"
    yield "</table>"
    if len(r.rules) > _MAX_RULES:
        yield f"<p>… and {len(r.rules) - _MAX_RULES:,} more</p>"
    yield from _list("Broken", map(text, r.broken_rules))


def logs(r: Report) -> str:
    """Return the headers, excluded operations and problems of the logs."""
    return "\n".join(_logs(r))


def _logs(r: Report) -> Iterator[str]:
    yield "<h2>Uncaptured operations</h2>"
    told = zip(
        ("in both", f"in a, {r.options.names[0]}, only", f"in b, {r.options.names[1]}, only"), r.excluded, strict=True
    )
    if not any(r.excluded):
        yield "<p>The logs name none.</p>"
    yield from (f"<p>{text(what)}: <code>{text(', '.join(ops), 10_000)}</code></p>" for what, ops in told if ops)
    for log in r.logs:
        yield f"<h2>{log.side}: {text(log.name, 60)}</h2><p><code>{text(log.path)}</code></p>"
        yield f"<p>{plural(log.operations, 'operation')}{_completeness(log)}</p>"
        yield from _list("", (text(t) for t in log.trouble))
        spots = [f"line {line}: {text(message)}" for line, message in log.problems[:_MAX_PROBLEMS]]
        if log.problem_count > len(spots):
            spots.append(f"{log.problem_count:,} unreadable spots in all")
        yield from _list("Unreadable spots", spots)


def _completeness(log: Log) -> str:
    return {True: ", complete", False: ", cut off", None: ""}[log.complete]
