"""Detect renamed modules, and cover whole subtrees with few rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np

from matchers.drift.pair_names import PairNames, Segments, key_segments
from matchers.drift.templates import heads
from matchers.ops.module_path import NO_MODULE
from matchers.rules.model import ModuleRule
from matchers.rules.pattern import Pattern

__all__ = ["find_renames", "rename_rules"]

_SHARE: Final = 0.9
"""Minimum share of a module's pairs with one module of the other run; some are always logged elsewhere."""

_MAX_PATTERNS: Final = 64
"""Limits the work: every rule is tried on every distinct module name."""


def find_renames(names: PairNames) -> dict[int, int]:
    """Renamed modules of a: entry of a's module table -> entry of b's."""
    a, b = names.c.a.module[names.i], names.c.b.module[names.j]
    width = len(names.b.names)
    codes, counts = np.unique(a.astype(np.int64) * width + b, return_counts=True)
    of_a: dict[int, Counter[int]] = defaultdict(Counter)
    of_b: dict[int, Counter[int]] = defaultdict(Counter)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        one, other = divmod(code, width)
        if NO_MODULE not in (names.a.names[one], names.b.names[other]):
            of_a[one][other] += count
            of_b[other][one] += count
    in_a, in_b = set(names.a.names), set(names.b.names)
    out = {}
    for one, partners in of_a.items():
        [(other, count)] = partners.most_common(1)
        text_a, text_b = names.a.names[one], names.b.names[other]
        wrapped = names.a.canonical[one] == names.b.canonical[other]
        unknown = text_a not in in_b and (wrapped or text_b not in in_a)
        # two names of a, with and without a wrapper, may map to one of b
        back = of_b[other][one] if wrapped else sum(of_b[other].values())
        if unknown and count >= _SHARE * max(sum(partners.values()), back):
            out[one] = other
    return out


def rename_rules(names: PairNames, renamed: dict[int, int], why: str) -> tuple[tuple[ModuleRule, ...], set[int]]:
    """Rules for the modules in `renamed`, and the subset that they cover."""
    by_pattern: dict[tuple[Segments, Segments], list[tuple[int, int]]] = defaultdict(list)
    for one, other in renamed.items():
        by_pattern[names.a.places[one].pattern, names.b.places[other].pattern].append((one, other))
    covered: set[int] = set()
    rules: list[ModuleRule] = []
    tried: set[tuple[str, str]] = set()
    for (left, right), modules in list(by_pattern.items())[:_MAX_PATTERNS]:
        found = heads(
            [names.a.places[one].numbers for one, _ in modules], [names.b.places[other].numbers for _, other in modules]
        )
        if found is None or covered.issuperset(one for one, _ in modules):
            continue
        segments = [key_segments(left, found[0]), key_segments(right, found[1])]
        n = _common_end(*segments)
        above, whole = ([".".join(parts[: len(parts) - k]) for parts in segments] for k in (n, 0))
        subtree = f"{above[0]}.{{rest:path}}", f"{above[1]}.{{rest}}" if above[1] else "{rest}"
        for text in (subtree, (whole[0], whole[1])):
            if text in tried or (text is subtree and not n):
                continue
            tried.add(text)
            fits = _fits(names, renamed, *text)
            if fits:
                rules.append(ModuleRule(a=text[0], b=text[1], why=why))
                covered |= fits
                break
    return tuple(rules), covered


def _fits(names: PairNames, renamed: dict[int, int], a: str, b: str) -> set[int]:
    """The modules that a rule renames; empty if it would rename one of them wrongly."""
    source, target = Pattern.of(a), Pattern.of(b)
    out = set()
    for one, name in enumerate(names.a.names[:-1]):
        captures = source.match(name)
        if captures is not None:
            if one not in renamed or target.expand(captures) != names.b.names[renamed[one]]:
                return set()
            out.add(one)
    return out


def _common_end(left: list[str], right: list[str]) -> int:
    """Number of common trailing segments to leave out of a rule.

    One segment of `left` always remains, to identify the subtree, and every placeholder that `right` keeps.
    """
    n = 0
    while n < min(len(left) - 1, len(right)) and left[-1 - n] == right[-1 - n]:
        n += 1
    while not _kinds(right, n) <= _kinds(left, n):  # equal at n = 0
        n -= 1
    return n


def _kinds(segments: list[str], n: int) -> set[tuple[str, str]]:
    """The placeholders of all but the last n segments."""
    return set(Pattern.of(".".join(segments[: len(segments) - n])).kinds.items())
