"""Lines of the suggestions panel: the tree of families, rules and operations, and details of one of them.

Pure text, in lines of `numtui.text.lines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from matchers.comparison import Comparison
from matchers.drift.red_rows import RedRows
from matchers.drift.suggestion import Suggestion
from matchers.rules.emit import flow_item
from numtui.report.suggestions import effect_of, left_out, quiet_drift, removes
from numtui.session.rule_edits import Effect
from numtui.session.suggestion_tree import Node, State, Suggested, rule_name
from numtui.text.counts import plural
from numtui.text.lines import Line, fit, line_width, width_of, wrap
from numtui.text.names import marked_keys
from numtui.text.safe import safe_text
from numtui.views.drift import drift_facts, how_it_is, key_lines

__all__ = ["detail", "heading", "node_line", "quiet_lines"]

_MARK: Final = {State.OPEN: (" ", ""), State.ACCEPTED: ("✓", "good"), State.REJECTED: ("✗", "dim")}
_MAX_TEXT: Final = 400


def heading(suggested: Suggested) -> str:
    """Return the number of listed rules, and of the rows that they cover, in words."""
    failed = sum(family.suggestion.failed for family in suggested.families)
    told = _to_cover(suggested)
    return f"{told}; {plural(failed, 'search', 'searches')} failed" if failed else told


def _to_cover(suggested: Suggested) -> str:
    families, rules, rows = suggested.to_settle()
    if families and not rules:
        return f"dropping rules would fix {plural(rows, 'row')} in {plural(families, 'family', 'families')}"
    if families:
        return f"{plural(rules, 'rule')} would cover {plural(rows, 'row')} in {plural(families, 'family', 'families')}"
    if not suggested.families:
        return "no known kind of drift: the names of the two runs agree"
    if suggested.quiet():
        return "nothing to fix: no rule would change a verdict"
    states = {suggested.state(Node(f)) for f in range(len(suggested.families))}
    return "rules cover all that they can" if State.ACCEPTED in states else "no rule needed"


def quiet_lines(c: Comparison, quiet: Sequence[Suggestion], key: str, width: int) -> list[Line]:
    """Sum up the families that are not listed; `key` lists them."""
    if not quiet:
        return []
    named = sorted((s for s in quiet if s.rules), key=lambda s: -s.rows)
    first, *others = quiet_drift(c, quiet)
    families = ", ".join(f"{s.rows:,} {s.name}" for s in named)
    told = f"{key} lists {left_out(quiet)}{'; there a pins a family for later runs' if named else ''}."
    summed = [first, *([f"By kind: {families}."] if named else []), *others]
    return [*_wrapped(summed, width), *_wrapped([told], width, f"@{key}")]


def node_line(c: Comparison, suggested: Suggested, node: Node, unfolded: bool, width: int) -> Line:
    """Format a line of the tree."""
    s = suggested.families[node.family].suggestion
    state = suggested.state(node)
    role = "dim" if state in (State.REJECTED, State.NEEDLESS) else ""
    sign = "▾" if unfolded else "▸"
    if node.instance >= 0:
        return _instance(c, *suggested.records(node), width, 8 if node.rule >= 0 else 5)
    if node.rule >= 0:
        count = f"{suggested.settles(node):,}×".rjust(8)
        text = safe_text(rule_name(s.rules[node.rule]), _MAX_TEXT)
        return [(f"   {sign} ", "dim"), _MARK[state], (f" {fit(text, width - 16)}", role), (f"{count} ", "dim")]
    counts = ("" if s.failed else plural(s.rows, "row")).rjust(13)
    mark = _MARK.get(state, ("·", "dim"))
    head: Line = [(f" {sign} ", "dim"), mark, (f" {fit(s.name, 26)}", role or "title"), (counts, role)]
    return [*head, (f"   {_standing(suggested, node, s, state)}", "good" if state is State.ACCEPTED else "dim")]


def _standing(suggested: Suggested, node: Node, s: Suggestion, state: State) -> str:
    """Return the state of a family, and what its open rules would cover."""
    accepted = len(suggested.families[node.family].accepted)
    if state is State.NEEDLESS:
        return "search failed" if s.failed else f"no rule: {s.no_rule}"
    if state is State.ACCEPTED:
        return f"accepted: {plural(accepted, 'rule')}" if accepted else "accepted"
    if state is State.REJECTED:
        return "rejected"
    rules = sum(suggested.state(replace(node, rule=k)) is State.OPEN for k in range(len(s.rules)))
    if not s.rules:
        return f"dropping {plural(len(s.drops), 'rule')} fixes {s.settles:,}"
    more = "more " if accepted else ""
    instead = f" instead of {len(s.drops):,}" if s.drops else ""
    cover = "covers" if rules == 1 else "cover"
    return f"{plural(rules, more + 'rule')}{instead} {cover} {suggested.settles(node):,}"


def _instance(c: Comparison, i: int, j: int, width: int, indent: int) -> Line:
    """Format an operation on one line, differences between its names marked."""
    row = int(c.at_a[i]) if i >= 0 else int(c.at_b[j])
    number = f"{' ' * indent}{str(row + 1).rjust(len(str(len(c))))} "
    room = width - width_of(number) - 1
    if i < 0 or j < 0:
        key = c.a.keys[i] if i >= 0 else c.b.keys[j]
        return [
            (number, "dim"),
            (fit(safe_text(key, _MAX_TEXT), room - 10, keep_end=True), ""),
            (" only " + "ab"[i < 0], "dim"),
        ]
    a, b = marked_keys(c.a.keys[i], c.b.keys[j])
    if line_width((*a, *b)) + 3 > room:
        each = (room - 3) // 2
        keys = [safe_text(log.keys[k], _MAX_TEXT) for log, k in ((c.a, i), (c.b, j))]
        return [(number, "dim"), (fit(keys[0], each, keep_end=True) + " ↔ " + fit(keys[1], each, keep_end=True), "")]
    return [(number, "dim"), *a, (" ↔ ", "dim"), *b]


def detail(
    c: Comparison,
    suggested: Suggested,
    node: Node,
    after: Comparison | None,
    effect: Effect | None,
    width: int,
    room: int,
) -> list[Line]:
    """Return the details of a line of the tree, in at most `room` lines.

    Args:
        after, effect: the comparison with this line accepted, and the change; None while unknown.
    """
    lines = list(_words(c, suggested, node, effect, width))[:room]
    if node.instance >= 0:
        return lines
    shown = _shown(c, suggested, node, after, width, (room - len(lines) - 1) // 3)
    return [*lines, *([[]] if shown else []), *shown][:room]


def _words(c: Comparison, suggested: Suggested, node: Node, effect: Effect | None, width: int) -> Iterator[Line]:
    s = suggested.families[node.family].suggestion
    if node.instance >= 0:
        i, j = suggested.records(node)
        yield from key_lines(c, i, j, width)
        yield [(f"   now: {how_it_is(c, i, j)}", "")]
        yield from _wrapped((f"· {text}" for text, _ in drift_facts(c, i, j)), width)
        for side, log, record in (("a", c.a, i), ("b", c.b, j)):
            if record >= 0:
                yield [(fit(f"   {side}: {safe_text(log.location_text(record), _MAX_TEXT)}", width), "dim")]
        yield from _wrapped([s.explanation], width, "dim")
        return
    if node.rule >= 0:
        rule = s.rules[node.rule]
        yield from _wrapped([f"{rule.section}: {safe_text(flow_item(rule), _MAX_TEXT)}"], width)
    else:
        yield from _wrapped([s.explanation], width)
        if s.no_rule and not s.failed:
            yield from _wrapped([f"{'Not all of it' if s.rules else 'No rule'}: {s.no_rule}."], width)
        if s.changes and effect is None:
            yield from _wrapped([f"Effect: {effect_of(s)}."], width)
            yield from _removed(c, s.red, width, "")
        for rule in s.drops:
            yield from _wrapped([f"drops {c.rules.where(rule)}: {safe_text(rule_name(rule), _MAX_TEXT)}"], width)
    if effect is not None:
        told = effect.sentence()
        fixed = "" if effect.paired or effect.cut or effect.ignored else "; the existing pairs become fixed"
        yield from _wrapped([f"Effect: {told}{fixed}"], width, "good")
        yield from _removed(c, effect.red, width, "good")


def _removed(c: Comparison, red: RedRows, width: int, role: str) -> Iterator[Line]:
    told = removes(c, red)
    return _wrapped([f"{told[0].upper()}{told[1:]}."] if told else [], width, role)


def _shown(
    c: Comparison, suggested: Suggested, node: Node, after: Comparison | None, width: int, most: int
) -> list[Line]:
    """List some operations, each with its two names and its state now and after."""
    found = suggested.instances(node)
    lines: list[Line] = []
    instances = suggested.families[node.family].suggestion.instances
    for k in found[: max(most, 0)]:
        i, j = instances[:, k].tolist()
        lines += key_lines(c, i, j, width)
        told = how_it_is(c, i, j)
        if after is not None and (then := how_it_is(after, i, j)) != told:
            told += f" → {then}"
        lines.append([(f"{' ' * (len(str(len(c))) + 2)}{told}", "dim")])
    left = len(found) - max(most, 0)
    if lines and left > 0:
        lines.append([(f" {left:,} more: → lists them", "dim")])
    return lines


def _wrapped(texts: Sequence[str] | Iterator[str], width: int, role: str = "") -> Iterator[Line]:
    for text in texts:
        yield from ([(f" {line}", role)] for line in wrap(text, max(width - 2, 20)))
