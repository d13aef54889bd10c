"""Suggested rules, as text or as a rule file. Rules that change no verdict are counted in a sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

import numpy as np

from matchers.arrays import Int32
from matchers.comparison import Comparison
from matchers.drift.red_rows import RecordPair, RedRows
from matchers.drift.suggestion import Suggestion, compatible
from matchers.ops.module_path import canonical, template
from matchers.rules.emit import flow_item
from matchers.rules.item import new_file
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["effect_of", "left_out", "quiet_drift", "removes", "write_suggestions"]

_WIDTH: Final = 118
_MAX_RULES: Final = 8
_MAX_TEXT: Final = 400
_MAX_REMOVED: Final = 3
"""Removed red rows that are named."""


def write_suggestions(
    comparison: Comparison,
    suggestions: Sequence[Suggestion],
    out: TextIO,
    form: str,
    names: tuple[str, str],
    note: str = "",
    everything: bool = False,
) -> None:
    """Write suggestions as `text`, or as `yaml`: a rule file with compatible rules.

    Args:
        note: stands below the title.
        everything: rules that change no verdict, too, and kinds of drift without rules.
    """
    title = f"{safe_text(names[0])} <-> {safe_text(names[1])}"
    if note:
        title += f"\n{'# ' if form == 'yaml' else ''}{safe_text(note)}"
    shown = [s for s in suggestions if everything or s.matters]
    quiet = [s for s in suggestions if not (everything or s.matters)]
    if form == "yaml":  # data, which `quoted` makes safe
        out.writelines(f"{line}\n" for line in _yaml(comparison, shown, quiet, title, everything))
    else:
        write_lines(_text(comparison, shown, quiet, title, everything), out)


def _text(
    c: Comparison, shown: Sequence[Suggestion], quiet: Sequence[Suggestion], title: str, everything: bool
) -> Iterator[str]:
    yield f"numtui suggest: {title}"
    if not shown and not quiet:
        yield ""
        yield "No known kind of drift: the names of the two logs agree."
    more = "--all --format yaml" if everything else "--format yaml"
    for number, s in enumerate(shown, 1):
        yield ""
        yield f"{number}. {_headline(s)}"
        yield from _wrapped(s.explanation)
        if s.no_rule and not s.failed:
            yield from _wrapped(f"{'Not all' if s.rules else 'No rule'}: {s.no_rule}.")
        if s.changes:
            yield from _wrapped(f"Effect: {effect_of(s)}.")
        if told := removes(c, s.red):
            yield from _wrapped(f"{told[0].upper()}{told[1:]}.")
        yield from _listed([f"drop {line}" for line in _dropped(c, s)], "rules to drop", more)
        lines = [f"{rule.section}: {safe_text(flow_item(rule), _MAX_TEXT)}" for rule in s.rules]
        yield from _listed(lines, "rules", more)
    if quiet:
        yield ""
        yield from quiet_drift(c, quiet)
        yield f"--all lists {left_out(quiet)}."


def removes(c: Comparison, red: RedRows) -> str:
    """`removes 31 red rows: layers.0/op_3_mul (#62), … in 32 layers; first cause moves from #62 to #410`.

    Empty if no red row is removed. The numbers are those of the rows of `c`.
    """
    number = red.removed.shape[1]
    if not number:
        return ""
    spots = [(int(a), int(b)) for a, b in red.removed[:, :_MAX_REMOVED].T]
    named = ", ".join(f"{_key(c, spot)} ({_number(c, spot)})" for spot in spots)
    more = ", …" if number > len(spots) else ""
    layers = _layers(c, red)
    where = f" in {layers:,} layers" if layers > 1 and more else ""
    moved = ""
    if red.cause_moved and max(red.cause_before) >= 0:
        to = f"moves from {_number(c, red.cause_before)} to {_number(c, red.cause_after)}"
        moved = f"; first cause {to if max(red.cause_after) >= 0 else f'{_number(c, red.cause_before)} disappears'}"
    return f"removes {plural(number, 'red row')}: {named}{more}{where}{moved}"


def quiet_drift(c: Comparison, quiet: Sequence[Suggestion]) -> Iterator[str]:
    """Sum up kinds of drift whose rules change no verdict, and those that have no rule."""
    drift = [s for s in quiet if s.rules]
    if drift:
        rows = [_rows(c, s) for s in drift]
        told = f"Names drift in {plural(len(np.unique(np.concatenate(rows))), 'row')}"
        # of rows that no rule covers it is not known whether they are red because of their names
        if any(s.no_rule and c.red[at].any() for s, at in zip(drift, rows, strict=True)):
            yield f"{told}; rules for {sum(s.settles for s in drift):,} of them change no verdict."
        else:
            yield f"{told}; nothing is red because of it."
    if ruleless := [f"{s.name} ({plural(s.rows, 'row')})" for s in quiet if not s.rules]:
        yield f"{'Also without' if drift else 'Without'} a rule: {', '.join(ruleless)}."


def left_out(quiet: Sequence[Suggestion]) -> str:
    """`129 rules`, or `2 kinds of drift` if they have no rules."""
    rules = sum(len(s.rules) for s in quiet)
    return plural(rules, "rule") if rules else plural(len(quiet), "kind of drift", "kinds of drift")


def _rows(c: Comparison, s: Suggestion) -> Int32:
    """Return the rows of the operations that show a kind of drift."""
    a, b = s.instances
    return np.where(a >= 0, c.at_a[a], c.at_b[b])


def _key(c: Comparison, spot: RecordPair) -> str:
    a, b = spot
    return safe_text(c.a.keys[a] if a >= 0 else c.b.keys[b], _MAX_TEXT)


def _number(c: Comparison, spot: RecordPair) -> str:
    a, b = spot
    return f"#{int(c.at_a[a] if a >= 0 else c.at_b[b]) + 1}"


def _layers(c: Comparison, red: RedRows) -> int:
    """Return the number of layers of the removed rows."""
    a, b = red.removed
    modules = {c.a.modules[at] for at in np.unique(c.a.module[a[a >= 0]]).tolist()}
    modules |= {c.b.modules[at] for at in np.unique(c.b.module[b[(a < 0)]]).tolist()}
    return len({place for name in modules if (place := template(canonical(name)).place.partition(".")[0])})


def _listed(lines: Sequence[str], what: str, more: str) -> Iterator[str]:
    yield from (f"     {line}" for line in lines[:_MAX_RULES])
    if len(lines) > _MAX_RULES:
        yield f"     … {len(lines) - _MAX_RULES:,} more {what} are in {more}"


def _dropped(comparison: Comparison, s: Suggestion) -> list[str]:
    """Return the rules that a suggestion drops, each with its place."""
    return [
        safe_text(f"{comparison.rules.where(rule)}: {rule.section}: {flow_item(rule)}", _MAX_TEXT) for rule in s.drops
    ]


def _yaml(
    c: Comparison, shown: Sequence[Suggestion], quiet: Sequence[Suggestion], title: str, _everything: bool
) -> Iterator[str]:
    yield f"# numtui suggest: {title}"
    for s in shown:
        yield f"# {_headline(s)}"
        if told := removes(c, s.red):
            yield f"#   {told}"
    if quiet:
        yield from (f"# {line}" for line in quiet_drift(c, quiet))
        yield f"# {left_out(quiet)} left out: --all"
    chosen = compatible(c, shown)
    for s in chosen:
        yield from (f"# drop {line}" for line in _dropped(c, s))
    yield new_file([rule for s in chosen for rule in s.rules]).rstrip("\n") or "version: 1"


def _headline(s: Suggestion) -> str:
    return f"{s.name}: search failed" if s.failed else f"{s.name}: {plural(s.rows, 'row')}, {_covered(s)}"


def _covered(s: Suggestion) -> str:
    if not s.changes:
        return "no rule"
    if not s.rules:
        return f"dropping {plural(len(s.drops), 'rule')} fixes {s.settles:,}"
    instead = f" instead of {len(s.drops):,}" if s.drops else ""
    return f"{plural(len(s.rules), 'rule')}{instead} {'covers' if len(s.rules) == 1 else 'cover'} {s.settles:,}"


def effect_of(s: Suggestion) -> str:
    """Return the change of the counts by the rules of a family."""
    changes = [f"{abs(n):,} {'more' if n > 0 else 'fewer'} {status.label}" for status, n in s.effect.items()]
    return ", ".join(changes) or "no verdict changes; existing pairs become fixed"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        safe_text(text),
        _WIDTH,
        initial_indent="   ",
        subsequent_indent="   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
