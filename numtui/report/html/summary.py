"""Script-free parts of the page: the summary that a mail program shows, and the tabs beside the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from numtui.report.model import Report
from numtui.report.parts import MEANING, Log, RowFacts
from numtui.text.counts import plural
from numtui.text.safe import safe_text

__all__ = ["logs", "rules", "summary", "text"]

_MAX_CAUSES: Final = 20
_MAX_REDS: Final = 10
_MAX_RULES: Final = 500
_MAX_PROBLEMS: Final = 50
_MAX_TEXT: Final = 1000


def text(raw: str, limit: int = _MAX_TEXT) -> str:
    """Escape text of a log, a path or a name as HTML."""
    return escape(safe_text(raw, limit))


def summary(r: Report, notes: Sequence[tuple[int, str]]) -> str:
    """Return warnings, counts, notes, first causes and caveats."""
    return "\n".join(_summary(r, notes))


def _summary(r: Report, notes: Sequence[tuple[int, str]]) -> Iterator[str]:
    yield f"<p>{text(r.extent)}</p>"
    if r.warning:
        yield f'<p class="red"><strong>{text(r.warning, 2000)}</strong></p>'
    yield "<table>"
    for log in r.logs:
        many = f'<td class="number">{log.operations:,}</td><td>operations</td>'
        path = f"<code>{text(log.path)}</code>" + (f"<br>{text(log.captured, 300)}" if log.captured else "")
        yield f"<tr><td>{log.side}</td><td>{text(log.name, 60)}</td>{many}<td>{path}</td></tr>"
    yield "</table><table>"
    for status, n in r.counts:
        label = f'<td class="red">{status.label}</td>' if status.red else f"<td>{status.label}</td>"
        yield f'<tr><td class="number">{n:,}</td>{label}<td>{MEANING[status]}</td></tr>'
    yield "</table>"
    if r.judged_by:
        yield f"<p>judged with <code>{text(r.judged_by)}</code></p>"
    if r.rules_note:
        yield f"<p>{text(r.rules_note)}</p>"
    if not r.red:
        yield from _list("Compared", map(text, r.certificate))
    rows = [(r.row(row, explained=False), note) for row, note in notes]
    yield from _list("Notes", (f"{text(note, 2000)}<br>{_button(row)}" for row, note in rows))
    if (found := r.first_difference) is not None:
        told = "<br>".join((_button(found.row), *map(text, found.reasons), f"<small>{_facts(found.row)}</small>"))
        yield f"<h2>{text(found.title)}</h2><p>{told}</p>"
    causes = r.causes(_MAX_CAUSES)
    yield from _rows("First causes", [(cause.row, cause.follows) for cause in causes], r.cause_count)
    if not causes:
        yield from _rows("Red rows", [(row, "") for row in r.reds(_MAX_REDS, explained=True)], r.red)
    yield from _rows(
        "Differences within tolerance begin here",
        [(r.row(row), "") for row in r.beginning_rows[:_MAX_REDS].tolist()],
        len(r.beginning_rows),
    )
    copies = (
        f"{found.side}: {_button(r.row(found.row, explained=False))}{f' and {n - 1:,} more' if n > 1 else ''} "
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
    drift = (f"{f.name}, {f.extent}: {text(f.explanation)}" for f in r.families)
    yield from _list("Known kinds of drift", drift)
    yield f"<p><small>numtui {text(r.version)}</small></p>"


def _rows(title: str, rows: Sequence[tuple[RowFacts, str]], total: int) -> Iterator[str]:
    """Yield rows with their sentences, each with an extra text."""
    if not rows:
        return
    yield f"<h2>{title}</h2><ol>"
    for row, besides in rows:
        more = f"<br>{text(besides)}" if besides else ""
        yield f"<li>{_button(row)}<br>{text(row.sentence)}{more}<br><small>{_facts(row)}</small></li>"
    yield "</ol>"
    if total > len(rows):
        yield f"<p>… and {total - len(rows):,} more</p>"


def _button(row: RowFacts) -> str:
    """Return a button with the keys of a row that goes to it."""
    keys = escape(row.keys(lambda key: safe_text(key, _MAX_TEXT)))
    return f'<button type="button" class="go" data-go="{row.row}"><code>{keys}</code></button>'


def _facts(row: RowFacts) -> str:
    facts = [row.status.label]
    if row.role_word:
        facts.append(row.role_word)
    if row.error:
        facts.append(f"error {row.error}" + (f" ({row.in_eps})" if row.in_eps else ""))
    facts += [row.phase, *(text(t) for t in (row.shape, row.dtype) if t)]
    if place := row.place(text):
        facts.append(place)
    facts += [f"{side} line {line}" for side, line in (("a", row.line_a), ("b", row.line_b)) if line]
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
