"""Reports of an isolation: text for people, JSON for programs, a page without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, TextIO

from numtui import __version__
from numtui.report.html.page import more, static_page
from numtui.report.html.summary import text
from numtui.report.isolation import Found, Isolation
from numtui.report.own_errors import OwnError
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = [
    "MEASURE",
    "VERSION",
    "headings",
    "missed",
    "others",
    "place",
    "sentence",
    "title",
    "write_html",
    "write_json",
    "write_text",
]

VERSION: Final = 1
"""Version of the JSON. New fields keep it; a renamed or removed one changes it."""
MEASURE: Final = "Own errors, ‖b − a‖ / ‖a‖ in ε, with the inputs of a"
_MOST: Final = 500
_ALSO: Final = 3


def title(cause: Found) -> str:
    """Return the operations of a cause, or else its module; safe to display."""
    keys = dict.fromkeys(safe_text(key, 200) for key in (cause.key_a, cause.key_b) if key)
    many = f" and {len(cause.rows) - 1:,} more of this line" if len(cause.rows) > 1 else ""
    return f"{' ⇄ '.join(keys) or safe_text(cause.module, 200)}{many}"


def sentence(cause: Found) -> str:
    """Return what differs, and where else; safe to display."""
    if not cause.also:
        return safe_text(cause.sentence, 400)
    shown = ", ".join(safe_text(name, 80) for name in cause.also[:_ALSO])
    more = len(cause.also) - _ALSO
    return f"{safe_text(cause.sentence, 400)}; also in {shown}{f' and {more:,} more' if more > 0 else ''}"


def place(cause: Found) -> str:
    """Return phase and source line of a cause, safe to display."""
    return f"{cause.phase}, {safe_text(cause.line, 300) or 'no source line'}"


def missed(found: Isolation) -> str:
    """Say what was not grafted; empty for nothing."""
    if not found.missed:
        return ""
    what, why = next(iter(found.missed.items()))
    return f"Not grafted: {len(found.missed):,}; the first: {what}: {why}"


def headings(errors: Sequence[OwnError]) -> list[tuple[str, ...]]:
    """Return the table of own errors, safe to display, with its headings."""
    rows = [(safe_text(each.module, 80), *each.shown, each.dtype) for each in errors]
    return [("module", "forward", "backward", "weights", "ε of"), *rows]


def write_json(found: Isolation, out: TextIO) -> None:
    """Write all of it, in ASCII."""
    told = {"version": VERSION, "numtui": __version__, "a": found.names[0], "b": found.names[1]}
    told |= {"result": found.result, "open": found.open, "runs": found.runs, "red": found.red}
    told |= {"limit": found.limit or None}
    told |= {"causes": [cause.as_json() for cause in found.causes]}
    told |= {"own_errors": [error.as_json() for error in found.errors]}
    told |= {"grafted": list(found.grafted), "not_grafted": dict(found.missed)}
    out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def others(found: Isolation) -> str:
    """Count the modules that are not shown; empty for none."""
    left = [error.largest for error in found.only_counted]
    if not left:
        return ""
    most = max(left)
    return f"{plural(len(left), 'module')} with {f'rounding alone, at most {most:.2g} ε' if most else 'no error'}"


def write_text(found: Isolation, out: TextIO, *, color: bool = False) -> None:
    """Write it for people."""
    write_lines(_lines(found, Paint(color)), out)


def _lines(found: Isolation, paint: Paint) -> Iterator[str]:
    yield paint(BOLD, found.result)
    if found.open:
        yield from wrapped(found.open, "  ", "  ")
    for number, cause in enumerate(found.causes, 1):
        yield ""
        yield paint(BOLD, f"{number}. {title(cause)}")
        yield f"   {place(cause)}"
        yield from wrapped(sentence(cause), "   ", "   ")
    if found.errors:
        yield from _table(found, paint)
    if told := missed(found):
        yield ""
        yield from wrapped(told, "", "  ")


def _table(found: Isolation, paint: Paint) -> Iterator[str]:
    left = others(found)
    yield ""
    if not found.shown:
        yield f"Own errors: {left}"
        return
    rows = headings(found.shown)
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    yield paint(BOLD, MEASURE)
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in (1, 2, 3)), row[4]]
        yield "  " + "  ".join(cells).rstrip()
    if left:
        yield f"  and {left}"


def write_html(found: Isolation, out: TextIO) -> None:
    """Write a page."""
    heading = safe_text(f"{found.names[0]} ⇄ {found.names[1]}")
    page = static_page(
        f"numtui isolate: {heading}", heading, found.result, _body(found), red=bool(found.causes or found.red)
    )
    out.writelines(f"{line}\n" for line in page)


def _body(found: Isolation) -> Iterator[str]:
    for told in filter(None, (found.open, missed(found))):
        yield f"<p>{text(told)}</p>"
    if found.causes:
        yield "<h2>Causes</h2>\n<ol>"
        for cause in found.causes[:_MOST]:
            told = f"<code>{escape(place(cause))}</code><br>{text(sentence(cause))}"
            yield f"<li><strong><code>{escape(title(cause))}</code></strong><br>{told}</li>"
        yield f"</ol>{more(len(found.causes) - _MOST)}"
    if found.shown:
        yield f"<h2>{escape(MEASURE)}</h2>\n<table>"
        for number, row in enumerate(headings(found.shown[:_MOST])):
            tag = "td" if number else "th"
            yield "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
        yield f"</table>{more(len(found.shown) - _MOST)}"
    if left := others(found):
        yield f"<p>and {escape(left)}</p>" if found.shown else f"<p>Own errors: {escape(left)}</p>"
