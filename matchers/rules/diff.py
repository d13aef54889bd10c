"""The difference of two lists of rules: removed, added, moved and rewritten ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from matchers.arrays import longest_rising
from matchers.files.yaml_tree import Lines
from matchers.rules.grammar import Section
from matchers.rules.model import Rule

__all__ = ["SectionChange", "section_changes"]


@dataclass(slots=True)
class SectionChange:
    """The changes of one section, by position in its `items`.

    Attributes:
        removed: positions of the rules that leave their place.
        added: new and moved rules: `added[k]` behind item k, `added[-1]` before the first that stays, `added[None]` at
            the end; each with the position that it comes from, None for a new one.
        rewritten: positions of the rules whose text changes, with the new rule, wherever they stand.
    """

    removed: set[int] = field(default_factory=set)
    added: dict[int | None, list[tuple[Rule, int | None]]] = field(default_factory=lambda: defaultdict(list))
    rewritten: dict[int, Rule] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.rewritten)


_Old = tuple[Rule | None, int]
"""An entry of a file: the rule (None for a broken one) and its line."""

_SAME: Final[tuple[Callable[[Rule | None, int | None], Hashable], ...]] = (
    lambda rule, _: rule and id(rule),
    lambda rule, line: rule and (rule, line),
    lambda rule, _: rule,
    lambda rule, line: rule and (replace(rule, enabled=True), line),
    lambda rule, _: rule and replace(rule, enabled=True),
    lambda rule, line: rule and line,
    # A broken entry is only what its user has corrected: a removed rule that comes back to its line is not it.
    lambda rule, line: line if rule is None or rule.written is not None else None,
)
"""Identities by which a rule is found in its file, the surest first; None finds nothing."""


def _sources(entries: Sequence[_Old], wanted: Sequence[Rule]) -> list[int | None]:
    """For each wanted rule the index of the old entry that it is, unchanged or changed; None for a new rule."""
    source: list[int | None] = [None] * len(wanted)
    free = dict.fromkeys(range(len(entries)))
    for same in _SAME:
        open_ = [index for index, old in enumerate(source) if old is None]
        if not open_ or not free:
            break
        available: dict[Hashable, list[int]] = defaultdict(list)
        for old in reversed(free):
            available[same(*entries[old])].append(old)
        for index in open_:
            name = same(wanted[index], wanted[index].line)
            if name is not None and available.get(name):
                source[index] = old = available[name].pop()
                del free[old]
    return source


def section_changes(lines: Lines, sections: Sequence[Section], wanted: Sequence[Rule]) -> list[SectionChange]:
    """The changes from the rules of these sections (of one kind) to the wanted ones, moving as few as possible."""
    places: list[tuple[int, int]] = []
    entries: list[_Old] = []
    for at, section in enumerate(sections):
        for position, item in enumerate(section.items):
            entries.append((item.rule, lines.number(item.node.start) + 1))
            places.append((at, position))
    # Of the old rules that are wanted, the longest run in the old order stays in place.
    source = _sources(entries, wanted)
    old_ones = [old for old in source if old is not None]
    staying = {old_ones[at] for at in longest_rising(old_ones).tolist()}

    out = [SectionChange() for _ in sections]
    for number, ((rule_of_old, _), (at, position)) in enumerate(zip(entries, places, strict=True)):
        if number not in staying and (rule_of_old is not None or number in old_ones):
            out[at].removed.add(position)
    last_staying = max((index for index, old in enumerate(source) if old in staying), default=-1)
    anchor: tuple[int, int] | None = None
    for index, (rule, old) in enumerate(zip(wanted, source, strict=True)):
        if old is not None and (rule != entries[old][0] or rule.written is not None):
            out[places[old][0]].rewritten[places[old][1]] = rule
        if old is not None and old in staying:
            anchor = places[old]
            continue
        key: int | None
        if index > last_staying:
            # Behind the last one that stays means the end of the last section, behind its broken items too.
            at, key = len(sections) - 1, None
        elif anchor is not None:
            at, key = anchor
        else:
            at, key = places[min(staying)][0], -1
        moved = places[old][1] if old is not None and places[old][0] == at else None
        out[at].added[key].append((rule, moved))
    return out
