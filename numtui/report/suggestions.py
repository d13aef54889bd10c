"""Suggested rules, as text or as a rule file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from matchers.comparison import Comparison
from matchers.drift.suggestion import Suggestion, compatible
from matchers.rules.emit import flow_item
from matchers.rules.item import new_file
from numtui.text.counts import plural
from numtui.text.safe import safe_text

__all__ = ["write_suggestions"]

_WIDTH: Final = 118
_MAX_RULES: Final = 8
_MAX_TEXT: Final = 400


def write_suggestions(
    comparison: Comparison,
    suggestions: Sequence[Suggestion],
    out: TextIO,
    form: str,
    names: tuple[str, str],
    note: str = "",
) -> None:
    """Write suggestions as `text`, or as `yaml`: a rule file with compatible rules. `note` stands below the title."""
    title = f"{safe_text(names[0])} <-> {safe_text(names[1])}"
    if note:
        title += f"\n{'# ' if form == 'yaml' else ''}{safe_text(note)}"
    lines = _yaml(comparison, suggestions, title) if form == "yaml" else _text(comparison, suggestions, title)
    out.writelines(f"{line}\n" for line in lines)


def _text(comparison: Comparison, suggestions: Sequence[Suggestion], title: str) -> Iterator[str]:
    yield f"numtui suggest: {title}"
    if not suggestions:
        yield ""
        yield "No known kind of drift: the names of the two logs agree."
    for number, s in enumerate(suggestions, 1):
        yield ""
        yield f"{number}. {_headline(s)}"
        yield from _wrapped(s.explanation)
        if s.no_rule and not s.failed:
            yield from _wrapped(f"{'Not all' if s.rules else 'No rule'}: {s.no_rule}.")
        if s.changes:
            yield from _wrapped(f"Effect: {_effect(s)}.")
        yield from _listed([f"drop {line}" for line in _dropped(comparison, s)], "rules to drop")
        yield from _listed([f"{rule.section}: {safe_text(flow_item(rule), _MAX_TEXT)}" for rule in s.rules], "rules")


def _listed(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from (f"     {line}" for line in lines[:_MAX_RULES])
    if len(lines) > _MAX_RULES:
        yield f"     … {len(lines) - _MAX_RULES:,} more {what} are in --format yaml"


def _dropped(comparison: Comparison, s: Suggestion) -> list[str]:
    """Return the rules that a suggestion drops, each with its place."""
    return [
        safe_text(f"{comparison.rules.where(rule)}: {rule.section}: {flow_item(rule)}", _MAX_TEXT) for rule in s.drops
    ]


def _yaml(comparison: Comparison, suggestions: Sequence[Suggestion], title: str) -> Iterator[str]:
    yield f"# numtui suggest: {title}"
    for s in suggestions:
        yield f"# {_headline(s)}"
    chosen = compatible(comparison, suggestions)
    for s in chosen:
        yield from (f"# drop {line}" for line in _dropped(comparison, s))
    yield new_file([rule for s in chosen for rule in s.rules]).rstrip("\n") or "version: 1"


def _headline(s: Suggestion) -> str:
    return f"{s.name}: search failed" if s.failed else f"{s.name}: {plural(s.rows, 'row')}, {_settled(s)}"


def _settled(s: Suggestion) -> str:
    if not s.changes:
        return "no rule"
    if not s.rules:
        return f"dropping {plural(len(s.drops), 'rule')} settles {s.settles:,}"
    instead = f" instead of {len(s.drops):,}" if s.drops else ""
    return f"{plural(len(s.rules), 'rule')}{instead} {'settles' if len(s.rules) == 1 else 'settle'} {s.settles:,}"


def _effect(s: Suggestion) -> str:
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
