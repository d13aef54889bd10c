"""Lines of the rules panel: the list, details of one rule, and the help."""

from __future__ import annotations

from matchers.rules.model import Rule
from numtui.session.rule_list import ORDER, RuleList, Stand, matches, rule_text
from numtui.text.counts import plural
from numtui.text.lines import Line, fit, width_of, wrap
from numtui.text.safe import safe_text

__all__ = ["HEADING", "detail", "help_lines", "stand_line", "summary"]

_MAX_TEXT = 600
_SIDES = (" ↔ ", " ✗ ", " → ")
"""Separators between the two sides of a rule."""

HEADING: Line = [("     #  section     line   matches  rule", "dim")]
"""Heading over the columns of `stand_line`."""


def summary(listed: RuleList) -> str:
    """Return the numbers of rules, of disabled ones and of those with trouble."""
    n, off, troubled = len(listed.rules), listed.disabled, len(listed.troubled)
    told = [plural(n, "rule")]
    told += [f"{off:,} disabled"] * bool(off)
    told += [f"{troubled:,} need{'s' * (troubled == 1)} attention (n)"] * bool(troubled)
    return " · ".join(told)


def stand_line(stand: Stand, width: int) -> Line:
    """Format a rule on one line: signs, number, section, line, match count, text."""
    rule, use = stand.rule, stand.use
    if rule is None:
        line = f"{stand.problem.line}" if stand.problem is not None else ""
        return [
            (" ✗   –  ", "red"),
            (f"{fit('broken', 10)}{line:>6} {'–':>9}  ", "red"),
            (fit(safe_text(stand.problem.message if stand.problem else "", _MAX_TEXT), max(width - 37, 8)), "red"),
        ]
    sign, role = ("○", "dim") if not rule.enabled else (" ", "")
    if stand.trouble:
        sign, role = "!", "close"
    elif use is not None and use.hint:
        sign = "~"
    changed = {"new": "+", "changed": "*"}.get(stand.unsaved, " ")
    count = "off" if not rule.enabled else "…" if use is None else f"{use.matched:,}"
    line = "new" if rule.line is None else str(rule.line)
    return [
        (f" {sign}{changed}", role),
        (f"{stand.number:>3}  {fit(rule.section, 10)}{line:>6} {count:>9}  ", role),
        (_brief(rule, max(width - 37, 8)), role),
    ]


def _brief(rule: Rule, width: int) -> str:
    """Fit a rule to `width` cells. Long keys keep their ends, which tell them apart."""
    text = safe_text(rule_text(rule), _MAX_TEXT)
    sign = next((sign for sign in _SIDES if sign in text), "")
    if width_of(text) <= width or not sign:
        return fit(text, width)
    left, _, right = text.partition(sign)
    room = width - len(sign)
    share = min(max(room // 2, room - width_of(right)), width_of(left))
    return fit(left, share, keep_end=True) + sign + fit(right, room - share, keep_end=True)


def detail(stand: Stand, width: int) -> list[Line]:
    """Return the details of a rule: text, reason, matches, problem, order."""
    rule, use = stand.rule, stand.use

    def wrapped(text: str, role: str) -> list[Line]:
        return [[(f" {part}", role)] for part in wrap(text, width - 2)]

    if rule is None:
        return [*wrapped(str(stand.problem), "red"), *wrapped("The file keeps it unchanged; e fixes it here.", "dim")]
    lines = wrapped(rule_text(rule), "title")
    if rule.why:
        lines += wrapped(f"why: {rule.why}", "")
    if not rule.enabled:
        return [*lines, *wrapped("disabled: kept in the file, not applied; space enables it", "dim")]
    if use is not None:
        lines += wrapped(matches(rule, use), "good" if use.matched else "close")
        lines += wrapped(use.problem, "close") if use.problem else []
        lines += wrapped(use.hint, "dim") if use.hint else []
    return [*lines, *wrapped(ORDER[rule.section], "dim")]


_HELP: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "In the list",
        (
            ("j k ↓ ↑", "move down, up; ctrl+d ctrl+u pgdn pgup g G as in the main list"),
            ("n N", "go to the next, previous rule that needs attention"),
            ("enter", "list the rows of the rule (the filter rule:3)"),
            ("e", "edit the rule as in the file, or fix a broken one"),
            ("o", "add a rule below, for the row under the cursor of the main list"),
            ("A", "add a rule to any section"),
            ("space d", "disable or enable the rule; the file keeps it"),
            ("J K", "move the rule down, up in its section"),
            ("x", "drop the rule"),
            ("t", "generalise this pair to all layers: a template in its place"),
            ("u ctrl+r", "undo, redo the last rule change"),
            ("ctrl+s", "save the rules to their file"),
            ("q esc r", "close"),
        ),
    ),
    (
        "In the rule editor",
        (
            ("ctrl+s", "apply the rule once it is valid (a second ctrl+s saves the file)"),
            ("esc", "leave; asks before it drops an edit"),
            ("tab", "complete fields and names of the logs; list the candidates"),
            ("enter", "start a new line with the same indent"),
            ("ctrl+z ctrl+y", "undo, redo typing"),
            ("ctrl+u ctrl+k ctrl+w", "cut to the start, to the end of the line, the word before"),
            ("ctrl+a ctrl+e", "go to the start, end of the line"),
            ("shift+← ↑ ↓ →  f6 f7", "select; the line, all. ctrl+c copies, ctrl+x cuts, ctrl+v pastes"),
        ),
    ),
)

_SIGNS = (
    "! the rule has a problem   ~ not needed for these logs   ○ disabled   ✗ broken, not parsed",
    "+ not in the file yet   * changed since the file was saved",
    "Rules apply in the order of the list, section by section.",
)


def help_lines() -> list[Line]:
    """Return the help of the panel."""
    lines: list[Line] = [[(f"  {text}", "")] for text in _SIGNS]
    for heading, keys in _HELP:
        lines += [[], [(f" {heading}", "title")]]
        lines.extend([(f"  {fit(key, 22)}", "key"), (f" {does}", "")] for key, does in keys)
    lines += [[], [(" The order of rules", "title")]]
    lines.extend([(f"  {fit(section, 22)}", "key"), (f" {told}", "")] for section, told in ORDER.items())
    return lines
