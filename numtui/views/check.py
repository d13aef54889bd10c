"""Lines of the screen of a checked run: its findings, and the details of the chosen one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matchers.runs.finding import CheckedRun, Finding
from matchers.runs.run import Run
from numtui.report.check.words import log_line, result, run_words, size, summaries, trouble, where
from numtui.session.findings import FindingsCursor
from numtui.text.lines import Line, fit, key_help, key_line, verdict_line, wrap_line
from numtui.text.safe import safe_text

__all__ = ["HELP", "checks_lines", "findings_lines", "last_top"]

_MAX_TEXT = 400
_MAX_SUBJECTS = 100
_KEYS = (
    ("↓↑", "move"),
    ("enter", "explorer"),
    ("c", "checks"),
    ("q", "quit"),
    ("?", "help"),
    ("space", "scroll"),
)
"""Keys, the most important first."""

HELP: Sequence[Line] = [
    *key_help(
        {
            "↓ ↑  j k": "another finding",
            "g  G  home  end": "first, last finding",
            "space  b": "scroll the details down, up",
            "enter": "open the explorer on the logs of this finding, at its operation",
            "c": "what held, and what was not checked",
            "ctrl+l": "redraw",
            "q": "quit",
        }
    ),
    [],
    [("  The first cause is the first finding. The explorer shows the rank where it is wrong as a,", "")],
    [("  and one that has the same operation as b.", "")],
]


def findings_lines(cursor: FindingsCursor, width: int, height: int) -> tuple[list[Line], list[int]]:
    """Return the lines of the screen, and by line the finding that a click chooses (-1: none)."""
    checked = cursor.checked
    rows = _rows(cursor, height)
    lines: list[Line] = [verdict_line(run_words(checked.run), result(checked), width), _about(checked)]
    lines += [_row(cursor, at, width) for at in rows]
    items = [-1, -1, *rows]
    details = _details(cursor, width)
    room = max(height - len(lines) - 2, 0)
    shown = details[cursor.top : cursor.top + room]
    if len(details) > cursor.top + room > 0:
        shown[-1:] = [[("  more: space", "dim@space")]]
    lines += [[], *shown]
    lines += [[] for _ in range(height - 1 - len(lines))]
    last: Line = [(f" {safe_text(cursor.message, 500)}", "red")] if cursor.message else key_line(_KEYS, width)
    lines = [*lines[: height - 1], last]
    return lines, [*items, *[-1] * len(lines)][: len(lines)]


def last_top(cursor: FindingsCursor, width: int, height: int) -> int:
    """Return how many lines of the details can be scrolled away."""
    return max(len(_details(cursor, width)) - max(height - len(_rows(cursor, height)) - 4, 1), 0)


def checks_lines(checked: CheckedRun) -> list[Line]:
    """Return what came of each check, what was not checked, and the notes."""
    lines: list[Line] = []
    partly = [*trouble(checked.run)]
    for each in summaries(checked):
        role = "red" if each.findings else "good" if each.made else "dim"
        reasons = [safe_text(reason, _MAX_TEXT) for reason in each.reasons]
        told = each.sentence
        if each.findings or each.made:
            partly += [f"{each.check.label}: {reason}" for reason in reasons]
        else:
            told = f"{each.check.label}: {'; '.join(reasons) or 'nothing to check'}"
        lines.append([(f"  {each.verdict:12}", role), (f" {told}", "")])
    for heading, sentences in (("Not checked", partly), ("Notes", checked.notes)):
        if sentences:
            lines += [[], [(f" {heading}", "title")]]
            lines += [[(f"  {safe_text(sentence, _MAX_TEXT)}", "")] for sentence in sentences]
    return lines


def _rows(cursor: FindingsCursor, height: int) -> range:
    """Return the listed findings, around the cursor."""
    findings = len(cursor.checked.findings)
    rows = min(findings, max((height - 4) // 2, 1))
    start = min(max(cursor.at - rows // 2, 0), findings - rows)
    return range(start, start + rows)


def _about(checked: CheckedRun) -> Line:
    every = summaries(checked)
    odd, idle = sum(each.findings > 0 for each in every), sum(each.verdict == "not made" for each in every)
    counts = ((len(every) - odd - idle, "held"), (odd, "with findings"), (idle, "not made"))
    return [(f" {len(every)} checks: {' · '.join(f'{n} {word}' for n, word in counts if n)}", "dim@c")]


def _row(cursor: FindingsCursor, at: int, width: int) -> Line:
    findings = cursor.checked.findings
    number = f" {at + 1:>{len(str(len(findings)))}} "
    text = fit(safe_text(findings[at].text, _MAX_TEXT), max(width - len(number) - 1, 1))
    return [(number, "red"), (text, "chosen" if at == cursor.at else "")]


def _details(cursor: FindingsCursor, width: int) -> list[Line]:
    if (finding := cursor.finding) is None:
        lines = checks_lines(cursor.checked)
    else:
        lines = [[(f" {text}", role)] for text, role in _facts(cursor.checked.run, finding)]
    return [part for line in lines for part in wrap_line(line, width)]


def _facts(run: Run, finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield sentences with their role."""
    yield safe_text(finding.text, _MAX_TEXT), "cause"
    yield ", ".join(filter(None, (where(finding), size(finding)))), ""
    for place in finding.places:
        location = f"  {safe_text(place.location, _MAX_TEXT)}" if place.location else ""
        yield f"rank {place.rank}  {safe_text(place.key, _MAX_TEXT)}{location}", ""
        yield f"  {log_line(run, place)}", "dim"
    yield from ((safe_text(note, _MAX_TEXT), "") for note in finding.notes)
    names = [finding.subject, *finding.more]
    yield from ((f"  {safe_text(name, _MAX_TEXT)}", "") for name in names[:_MAX_SUBJECTS])
    if len(names) > _MAX_SUBJECTS:
        yield f"  … and {len(names) - _MAX_SUBJECTS:,} more", "dim"
