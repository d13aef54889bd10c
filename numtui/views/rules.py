"""The lines of the panel of rules: the list, what there is to say of one of them, the help."""

from __future__ import annotations

from matchers.rules.model import Rule
from numtui.session.rule_list import ORDER, RuleList, Stand, matches, rule_text
from numtui.text.lines import Line, fit, width_of, wrap
from numtui.text.safe import safe_text

__all__ = ["HEADING", "detail", "help_lines", "stand_line", "summary"]

_MAX_TEXT = 600
_SIDES = (" ↔ ", " ✗ ", " → ")
"""What stands between the two sides of a rule."""

HEADING: Line = [("     #  section     line   matches  rule", "dim")]
"""Over the columns of `stand_line`."""


def summary(listed: RuleList) -> str:
    """How many rules there are, and what is to be said of them."""
    n, off, troubled = len(listed.rules), listed.disabled, len(listed.troubled)
    told = [f"{n:,} rule{'s' * (n != 1)}"]
    told += [f"{off} disabled"] * bool(off)
    told += [f"{troubled} need{'s' * (troubled == 1)} a look (n)"] * bool(troubled)
    return " · ".join(told)


def stand_line(stand: Stand, width: int) -> Line:
    """A rule on one line: signs, number, section, line, what it matches, what it says."""
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
    """A rule in so many cells. Of keys that are too long the ends are left: these tell them apart."""
    text = safe_text(rule_text(rule), _MAX_TEXT)
    sign = next((sign for sign in _SIDES if sign in text), "")
    if width_of(text) <= width or not sign:
        return fit(text, width)
    left, _, right = text.partition(sign)
    room = width - len(sign)
    share = min(max(room // 2, room - width_of(right)), width_of(left))
    return fit(left, share, keep_end=True) + sign + fit(right, room - share, keep_end=True)


def detail(stand: Stand, width: int) -> list[Line]:
    """All that there is to say of a rule."""
    rule, use = stand.rule, stand.use

    def wrapped(text: str, role: str) -> list[Line]:
        return [[(f" {part}", role)] for part in wrap(text, width - 2)]

    if rule is None:
        return [*wrapped(str(stand.problem), "red"), *wrapped("It stays in the file as it is. e mends it here.", "dim")]
    lines = wrapped(rule_text(rule), "title")
    if rule.why:
        lines += wrapped(f"why: {rule.why}", "")
    if not rule.enabled:
        return [*lines, *wrapped("disabled: it stays in the file and does nothing; space enables it", "dim")]
    if use is not None:
        lines += wrapped(matches(rule, use), "good" if use.matched else "close")
        lines += wrapped(use.problem, "close") if use.problem else []
        lines += wrapped(use.hint, "dim") if use.hint else []
    return [*lines, *wrapped(ORDER[rule.section], "dim")]


_HELP: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "In the list",
        (
            ("j k ↓ ↑", "a rule down, up; ctrl+d ctrl+u pgdn pgup g G as in the main list"),
            ("n N", "to the next, the previous rule that needs a look"),
            ("enter", "list the rows of the rule (the filter rule:3)"),
            ("e", "edit the rule as it stands in the file; on a broken one, mend it"),
            ("o", "a new rule below this one, about the row under the cursor of the main list"),
            ("A", "a new rule of any section"),
            ("space d", "disable the rule, or enable it: it stays in the file"),
            ("J K", "move the rule down or up in its section"),
            ("x", "drop the rule"),
            ("t", "say for all layers what this pair says: a template in its place"),
            ("u ctrl+r", "undo, redo the last change of the rules"),
            ("ctrl+s", "save the rules to their file"),
            ("q esc r", "close"),
        ),
    ),
    (
        "While a rule is typed",
        (
            ("ctrl+s", "take it over, as soon as nothing is wrong with it (the file is saved by another ctrl+s)"),
            ("esc", "leave; asks when something was typed"),
            ("tab", "complete fields and the names that the two logs have; tell them where they part"),
            ("enter", "a new line, indented like this one"),
            ("ctrl+z ctrl+y", "undo what was typed, and type it again"),
            ("ctrl+u ctrl+k ctrl+w", "cut to the start of the line, to its end, the word before"),
            ("ctrl+a ctrl+e", "to the start of the line, to its end"),
            ("shift+← ↑ ↓ →  f6 f7", "select; the line, all. ctrl+c copies, ctrl+x cuts, ctrl+v pastes what was"),
        ),
    ),
)

_SIGNS = (
    "! something is wrong with the rule   ~ these two logs do not need it   ○ it is disabled   ✗ it is not understood",
    "+ it is not in the file yet   * the file has it otherwise",
    "The rules are listed in the order in which they are looked at, section by section.",
)


def help_lines() -> list[Line]:
    """The help of the panel."""
    lines: list[Line] = [[(f"  {text}", "")] for text in _SIGNS]
    for heading, keys in _HELP:
        lines += [[], [(f" {heading}", "title")]]
        lines.extend([(f"  {fit(key, 22)}", "key"), (f" {does}", "")] for key, does in keys)
    lines += [[], [(" The order of rules", "title")]]
    lines.extend([(f"  {fit(section, 22)}", "key"), (f" {told}", "")] for section, told in ORDER.items())
    return lines
