"""Generalise one pair to all its siblings: a template for every layer from a pair made for one.

A pair whose module of a is in a numbered place (`layers.3.attention`) has siblings in the other places. The numbers
become placeholders, in the keys of b as well, and every place is checked: if an operation is missing, a rule disagrees,
or shapes or values contradict the pair, the place does not fit and the reason is given. Counters stay fixed: a template
over `{n}` would cover other operations, not this one elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from matchers.arrays import one_of
from matchers.comparison import Comparison
from matchers.drift.pair_names import escaped
from matchers.errors import UserError
from matchers.rules.key_index import KeyIndex, index_of, key_reference
from matchers.rules.model import ApartRule, PairRule, RuleSet, TemplateRule
from matchers.rules.pattern import Pattern
from matchers.rules.resolve import Forced, Resolved, resolve
from matchers.status import Status
from matchers.verdict.judge import judge

__all__ = ["Misfit", "NoTemplateError", "Proposal", "generalise"]

_NAMES: Final = "ijkl"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_NAMED: Final = 3
"""Maximum number of misfits named in a sentence."""
_ALIKE: Final = (Status.EQUAL, Status.SAME_PRINT)

Place = tuple[int, ...]
Group = tuple[int, tuple[int, ...]]
"""A row of a and the rows of b that a template pairs it with."""


class NoTemplateError(UserError):
    """A pair that no template extends to other places; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A place that the template does not fit.

    Attributes:
        place: `layer 17`, or `layers.3.experts.5`.
        reason: a sentence without capital and full stop.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A template in place of hand-made pairs.

    Attributes:
        rule: the template.
        fits: the places that it fits, in words, including that of the pair itself.
        misfits: the others.
        apart: rules that keep the template from making wrong pairs.
        replaces: the pair rules that it makes redundant.
        text: `31 of 32 layers fit; layer 17 does not, because …`.
    """

    rule: TemplateRule
    fits: tuple[str, ...]
    misfits: tuple[Misfit, ...]
    apart: tuple[ApartRule, ...]
    replaces: tuple[PairRule, ...]
    text: str

    def applied(self, rules: RuleSet) -> RuleSet:
        """The rules with this proposal applied."""
        return rules.removing(*self.replaces).adding(self.rule, *self.apart)


def generalise(c: Comparison, rules: RuleSet, a: Sequence[int], b: Sequence[int]) -> Proposal:
    """Find the template that covers most siblings of the pair of rows `a` and `b`.

    `rules` are those that the proposal must respect; they may be newer than the comparison's.

    Raises:
        NoTemplateError: no template covers a sibling.
    """
    if len(a) != 1:
        raise NoTemplateError("a template pairs one operation of a; this pair has several")
    seed = (a[0], tuple(b))
    candidates = list(_templates(c.a.keys[a[0]], [c.b.keys[row] for row in b]))
    if not candidates:
        raise NoTemplateError(
            f"the modules of '{c.a.keys[a[0]]}' and '{c.b.keys[b[-1]]}' do not both have a layer number; "
            "pair a second layer by hand to show the step"
        )
    search = _Search(c, rules, seed)
    found = [search.evaluate(candidate) for candidate in candidates]
    # The first of equals has the fewest placeholders.
    best = max(found, key=lambda proposal: len(proposal.fits))
    if len(best.fits) < 2:
        reason = f": {_because(best.misfits[:1])}" if best.misfits else ""
        raise NoTemplateError(f"the pair has no siblings{reason}")
    return best


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A template, and the places that it covers.

    `prefix` is the leading part of the module path of a that identifies the place; `names` are its placeholders.
    """

    rule: TemplateRule
    prefix: Pattern
    segments: int
    names: str

    @property
    def noun(self) -> str | None:
        """The name of the places: `layers` for `model.layers.{i}`; None for places with several numbers."""
        before = self.prefix.text.split(".")[:-1]
        return before[-1] if len(self.names) == 1 and before and before[-1].isalpha() else None

    def in_words(self, place: Place) -> str:
        noun = self.noun
        if noun is not None and len(noun) > 1 and noun.endswith("s"):
            return f"{noun[:-1]} {place[0]}"
        return self.prefix.expand(dict(zip(self.names, place, strict=True)))


def _templates(key_a: str, keys_b: Sequence[str]) -> Iterator[_Candidate]:
    """Every choice of numbers in the module of a that the keys of b can follow; few placeholders first."""
    parts = _segments(key_a)
    numbers = [at for at in range(len(parts) - 1) if _NUMBER.fullmatch(parts[at])][: len(_NAMES)]
    for size in range(1, len(numbers) + 1):
        for chosen in combinations(numbers, size):
            holes = dict(zip(chosen, _NAMES, strict=False))
            names = _NAMES[:size]
            texts_b = [_following(parts, holes, _segments(key)) for key in keys_b]
            if not all(texts_b) or len(set(texts_b)) < len(texts_b):
                continue
            text_a = _joined([f"{{{holes[at]}}}" if at in holes else escaped(part) for at, part in enumerate(parts)])
            prefix = ".".join(text_a.rpartition("/")[0].split(".")[: chosen[-1] + 1])
            try:
                rule = TemplateRule(a=(text_a,), b=tuple(text for text in texts_b if text))
            except ValueError:  # keys that rules do not allow: too long, or not text
                continue
            yield _Candidate(rule, Pattern.of(prefix), chosen[-1] + 1, names)


def _following(parts_a: Sequence[str], holes: dict[int, str], parts_b: Sequence[str]) -> str | None:
    """A key of b with its numbers replaced by the placeholders they follow; None if it does not follow them all.

    A number follows the placeholder after the same word (`layers.`), with an offset if necessary, else one of the same
    value.
    """
    out = [escaped(part) for part in parts_b]
    used = set()
    for at, part in enumerate(parts_b[:-1]):
        if not _NUMBER.fullmatch(part):
            continue
        word = parts_b[at - 1] if at else ""
        _, hole, offset = min(
            (
                2 * (word != (parts_a[hole - 1] if hole else "")) + (part != parts_a[hole]),
                hole,
                int(part) - int(parts_a[hole]),
            )
            for hole in holes
        )
        if word == (parts_a[hole - 1] if hole else "") or not offset:
            used.add(hole)
            out[at] = f"{{{holes[hole]}{f'{offset:+d}' if offset else ''}}}"
    return _joined(out) if len(used) == len(holes) else None


def _segments(key: str) -> list[str]:
    """The segments of a key's module, and last the part after its slash."""
    module, _, tail = key.rpartition("/")
    return [*module.split("."), tail]


def _joined(parts: Sequence[str]) -> str:
    module = ".".join(parts[:-1])
    return f"{module}/{parts[-1]}"


class _Search:
    """One call of `generalise`: the rules on the rows, and the agreement of values."""

    def __init__(self, c: Comparison, rules: RuleSet, seed: Group) -> None:
        self.c, self.rules, self.seed = c, rules, seed
        self.resolved: Resolved = resolve(rules, c.a, c.b)
        self.index_a: KeyIndex = index_of(c.a, self.resolved.modules_a)
        self.index_b: KeyIndex = index_of(c.b, self.resolved.modules_b)
        self.forced_a: dict[int, Forced] = {row: forced for forced in self.resolved.forced for row in forced.a}
        self.forced_b: dict[int, Forced] = {row: forced for forced in self.resolved.forced for row in forced.b}
        self.apart = frozenset(self.resolved.apart)
        by_rule = self.forced_a.get(seed[0])
        if by_rule is not None and by_rule.template and (by_rule.a[0], by_rule.b) == seed:
            raise NoTemplateError(f"a template already makes this pair: {self.where(by_rule)}")
        self.values_count = self.elsewhere([seed])[0] is None

    def where(self, forced: Forced) -> str:
        return self.rules.where(self.rules.rules[forced.rule])

    def evaluate(self, candidate: _Candidate) -> Proposal:
        """Check the template against every place."""
        reasons: dict[Place, str | None] = {}
        there: dict[Place, list[Group]] = {}
        rows_of = {
            tuple(int(captures[name]) for name in candidate.names): rows
            for captures, rows in self.index_a.template(Pattern.of(candidate.rule.a[0]))
        }
        origin = next(place for place, rows in rows_of.items() if self.seed[0] in rows)
        counts, made = self.counts(candidate, origin, rows_of[origin].tolist())
        if self.seed not in made:
            raise NoTemplateError("operations with a repeated key are paired in order, unlike these two")
        for place in sorted({*self.places(candidate), *rows_of}):
            rows = rows_of[place].tolist() if place in rows_of else []
            have, groups = self.counts(candidate, place, rows)
            there[place] = groups
            reasons[place] = self.absent(candidate, place, have) or self.uneven(have, counts) or self.ruled(groups)
        open_ = [place for place, reason in reasons.items() if reason is None]
        for place in open_:
            reasons[place] = self.shapes_differ(there[place])
        open_ = [place for place in open_ if reasons[place] is None and self.values_count]
        against = self.elsewhere([group for place in open_ for group in there[place]])
        for place in open_:
            mine, against = against[: len(there[place])], against[len(there[place]) :]
            reasons[place] = next((reason for reason in mine if reason), None)
        if reasons[origin] is not None:
            raise NoTemplateError(f"the template would miss this pair itself, because {reasons[origin]}")
        return self.proposal(candidate, there, reasons)

    def proposal(
        self, candidate: _Candidate, there: dict[Place, list[Group]], reasons: dict[Place, str | None]
    ) -> Proposal:
        fits = [place for place, reason in reasons.items() if reason is None]
        misfits = tuple(Misfit(candidate.in_words(place), reason) for place, reason in reasons.items() if reason)
        made = {group for place in fits for group in there[place]}
        by_rules = ((self.rules.rules[forced.rule], forced) for forced in self.resolved.forced)
        apart = tuple(
            ApartRule(a=key_reference(self.c.a, a), b=key_reference(self.c.b, b[-1]), why=reason)
            for place, reason in reasons.items()
            if reason is not None
            for a, b in there[place]
            if self.free(a, b)
        )
        total = len(reasons)
        what = candidate.noun or "places"
        text = f"{'all' if not misfits else f'{len(fits)} of'} {total} {what} fit"
        if misfits:
            text += f"; {_because(misfits)}"
        return Proposal(
            rule=candidate.rule,
            fits=tuple(map(candidate.in_words, fits)),
            misfits=misfits,
            apart=apart,
            replaces=tuple(
                rule
                for rule, forced in by_rules
                if isinstance(rule, PairRule) and len(forced.a) == 1 and (forced.a[0], forced.b) in made
            ),
            text=text,
        )

    def free(self, a: int, b: tuple[int, ...]) -> bool:
        """True if no rule keeps a template from this pair."""
        return (
            a not in self.forced_a
            and not any(row in self.forced_b for row in b)
            and not any((a, row) in self.apart for row in b)
        )

    # Places and their operations

    def places(self, candidate: _Candidate) -> Iterator[Place]:
        """The places among the modules of a, including those without the operation."""
        heads = {
            ".".join(name.split(".")[: candidate.segments]) for name in (*self.c.a.modules, *self.resolved.modules_a)
        }
        for head in heads:
            captures = candidate.prefix.match(head)
            if captures is not None:
                yield tuple(int(captures[name]) for name in candidate.names)

    def counts(self, candidate: _Candidate, place: Place, rows: list[int]) -> tuple[tuple[int, ...], list[Group]]:
        """Number of operations of a, and of each key of b, in a place; and the pairs that the template makes."""
        captures = dict(zip(candidate.names, place, strict=True))
        found = [self.index_b.named(Pattern.of(text).expand(captures)).tolist() for text in candidate.rule.b]
        groups = [(a, b) for a, *b in zip(rows, *found, strict=False)]
        return (len(rows), *map(len, found)), [(a, tuple(b)) for a, b in groups]

    # Reasons against

    def absent(self, candidate: _Candidate, place: Place, have: tuple[int, ...]) -> str | None:
        captures = dict(zip(candidate.names, place, strict=True))
        keys = [Pattern.of(text).expand(captures) for text in (*candidate.rule.a, *candidate.rule.b)]
        sides = "a" + "b" * (len(keys) - 1)
        absent = (f"{side} has no operation '{key}'" for side, key, n in zip(sides, keys, have, strict=True) if not n)
        return next(absent, None)

    def uneven(self, have: tuple[int, ...], usual: tuple[int, ...]) -> str | None:
        """A key that repeats more often on one side, unless it does so in the pair's own place."""
        if have == usual or len(set(have)) == 1:
            return None
        return f"the keys repeat: {have[0]} in a, {' and '.join(map(str, have[1:]))} in b"

    def ruled(self, groups: Sequence[Group]) -> str | None:
        """Another rule that decides about one of the rows."""
        for a, b in groups:
            for side, forced in (("a", self.forced_a.get(a)), *(("b", self.forced_b.get(row)) for row in b)):
                if forced is None or (forced.a, forced.b) == ((a,), b):
                    continue
                own, log, other, partners = (
                    (self.c.a.keys[a], self.c.b, "b", forced.b)
                    if side == "a"
                    else (self.c.b.keys[b[-1]], self.c.a, "a", forced.a)
                )
                with_ = " + ".join(f"'{log.keys[row]}'" for row in partners)
                return f"'{own}' of {side} is already paired with {with_} of {other} by {self.where(forced)}"
            if any((a, row) in self.apart for row in b):
                return f"a rule keeps '{self.c.a.keys[a]}' of a and '{self.c.b.keys[b[-1]]}' of b apart"
        return None

    def shapes_differ(self, groups: Sequence[Group]) -> str | None:
        """Shapes that differ although those of the pair itself do not."""
        shape, other = self.shapes(self.seed)
        if shape != other:
            return None
        for group in groups:
            shape, other = self.shapes(group)
            if shape and other and shape != other:
                return f"the shapes differ: {shape} in a, {other} in b"
        return None

    def shapes(self, group: Group) -> tuple[str, str]:
        return self.c.a.shape_text(group[0]), self.c.b.shape_text(group[1][-1])

    def elsewhere(self, groups: Sequence[Group]) -> list[str | None]:
        """For each pair, another operation with the values of one of the two, if the pair's own values differ."""
        out: list[str | None] = [None] * len(groups)
        if self.c.matching is None or not groups:
            return out
        state = self.c.matching.alignment.state
        a = np.array([a for a, _ in groups], np.int64)
        b = np.array([b[-1] for _, b in groups], np.int64)
        to_b, to_a = state.of_a[a], state.of_b[b]
        first, second = np.flatnonzero((to_b >= 0) & (to_b != b)), np.flatnonzero((to_a >= 0) & (to_a != a))
        i, j = np.concatenate((a, a[first], to_a[second])), np.concatenate((b, to_b[first], b[second]))
        verdicts = judge(self.c.a, self.c.b, i, j, None, self.c.policy)
        # Without numbers nothing differs, but nothing is known to be equal either.
        alike = one_of(verdicts.status, _ALIKE) & ~np.isnan(verdicts.error)
        own, first_alike, second_alike = np.split(alike, (len(a), len(a) + len(first)))
        keys_a, keys_b = self.c.a.keys, self.c.b.keys
        for at in second[second_alike & ~own[second]].tolist():
            out[at] = f"'{keys_b[int(b[at])]}' of b has the values of '{keys_a[int(to_a[at])]}' of a"
        for at in first[first_alike & ~own[first]].tolist():
            out[at] = f"'{keys_a[int(a[at])]}' of a has the values of '{keys_b[int(to_b[at])]}' of b"
        return out


def _because(misfits: Sequence[Misfit]) -> str:
    parts = [f"{misfit.place} does not, because {misfit.reason}" for misfit in misfits[:_NAMED]]
    if len(misfits) > _NAMED:
        parts.append(f"{len(misfits) - _NAMED} more do not")
    return "; ".join(parts)
