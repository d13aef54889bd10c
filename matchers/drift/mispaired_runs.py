"""Detect mispaired runs: consecutive red pairs whose numbers are found a few places further on in the other log.

A run is accepted if many of its operations agree on the shift. An operation is a witness if its printed numbers occur
once in each log, on different pairs; or, for runs without equal printed values, if they are close to those of exactly
one neighbour and far from all others. Constant, repeated or merely similar values are no evidence, so a genuine
difference has no witnesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from matchers.arrays import Bool, Float64, Int64, one_of
from matchers.comparison import Comparison
from matchers.drift.pair_names import same_prints
from matchers.logs.op_log import Phase
from matchers.pairing.features import Features, LogFeatures
from matchers.rules.model import TemplateRule
from matchers.rules.resolve import resolve
from matchers.status import AGREE
from matchers.verdict.judge import judge

__all__ = ["Shift", "find_shifts"]

_WITNESSES: Final = 3
"""Minimum number of operations that agree; fewer suffice only if a user's rule makes no more pairs."""
_SHARE: Final = 2 / 3
"""Minimum share of witnesses among the operations of a run."""
_MAX_SHIFTS: Final = 4
"""Maximum number of candidate shifts examined per module pattern."""
_NEIGHBOURS: Final = (-3, -2, -1, 1, 2, 3)
_CLOSE: Final = 0.02
"""Maximum relative difference of norms and extremes from the close neighbour."""
_FAR: Final = 5.0
"""Minimum ratio of the distance to all other operations, including the partner."""
_PRINTED: Final = 1e-6
"""Differences below are due to the printed precision."""
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Shift:
    """A run of red pairs, and the location of its operations' numbers.

    Attributes:
        i: records of a, ascending.
        j: for each the record of b that it would be paired with; -1 if unknown.
        witness: bool, the operation's own numbers give `j`; the others lie between witnesses.
        by: number of places further on (negative: further up) in b, among the operations of one op and phase in modules
            of one pattern; 0 if it varies.
        rules: the rules that make these pairs, as indices into those in force; empty if there are none.
        made: records of a, all pairs of those rules.
    """

    i: Int64
    j: Int64
    witness: Bool
    by: int
    rules: tuple[int, ...]
    made: Int64


class _Group(NamedTuple):
    """Red pairs that may be one run: positions, ascending, and the mask of witnesses of one shift."""

    members: Int64
    witness: Bool
    template: bool


class _Places:
    """The operations of one log by class (an integer per record), and the rank of each within its class."""

    def __init__(self, what: Int64) -> None:
        self._what = what
        self._order = np.argsort(what, kind="stable")
        self._at = np.empty(len(what), np.int64)
        self._at[self._order] = np.arange(len(what))

    def at(self, rows: Int64) -> Int64:
        """Positions of records, ordered by class and then by log order."""
        return self._at[rows]

    def further(self, rows: Int64, by: int) -> Int64:
        """The records `by` places further on within their class, -1 beyond the end."""
        at = self._at[rows] + by
        found = self._order[np.clip(at, 0, max(len(self._order) - 1, 0))]
        there = (at >= 0) & (at < len(self._order)) & (self._what[found] == self._what[rows])
        return np.where(there, found, _NOWHERE)

    def between(self, rows: Int64, others: Int64) -> Int64:
        """Number of places from records to others; 0 for records of different classes."""
        return np.where(self._what[rows] == self._what[others], self._at[others] - self._at[rows], 0)


@dataclass(frozen=True, slots=True)
class _Nearby:
    """Records of b that are close to records of a, by these: the partner (-1: not looked for), which neighbours of it
    were usable, a bit each; the one that was found, -1 for none, and how many places further on it was.
    """

    j: Int64
    usable: Int64
    target: Int64
    by: Int64

    @classmethod
    def none(cls, many: int) -> _Nearby:
        return cls(*(np.full(many, value, np.int64) for value in (-1, 0, _NOWHERE, 0)))


class _Numbers:
    """Facts of the logs alone under some names, and the neighbours that were found last; kept with the features.

    Attributes:
        target: by record of a, that of b with the same numbers, which no other has; -1 for none.
    """

    def __init__(self, f: Features) -> None:
        self.side = f.a
        self.varied = _varied(f.a)
        self.places_a, self.places = _Places(_where(f.a)), _Places(f.b.site * len(Phase) + f.b.phase)
        one, other = same_prints(f, np.flatnonzero(self.varied), np.flatnonzero(_varied(f.b)), of_one_op=True)
        self.target = np.full(len(f.a), _NOWHERE, np.int64)
        self.target[one] = other
        self.nearby = _Nearby.none(len(f.a))

    @classmethod
    def of(cls, f: Features) -> _Numbers:
        """Those of these features: not of those that they were renamed from."""
        known: _Numbers | None = vars(f).get("_numbers")
        if known is None or known.side is not f.a:
            known = vars(f)["_numbers"] = cls(f)
        return known


def find_shifts(c: Comparison) -> list[Shift]:
    """The runs of pairs that belong a few places further on, those with most witnesses first."""
    red = c.pair[c.red & (c.pair >= 0)]
    red = np.sort(red[~c.pairing.grouped[red]])
    if c.matching is None or not len(red):
        return []
    search = _Search(c, c.matching.features, red.astype(np.int64))
    found = [shift for group in search.groups() if (shift := search.run(group)) is not None]
    return sorted(found, key=lambda shift: (-int(shift.witness.sum()), int(shift.i[0])))


class _Search:
    """The red pairs (`i[k]`, `j[k]`), and the location of the numbers of each `i[k]`.

    Attributes:
        rule: the rule that makes each pair, -1 for none.
        target: the record of b that `i[k]` belongs to by its numbers, -1 if unknown.
        by: number of places further on of the target; 0 if it is elsewhere.
        exact: the printed numbers are equal.
    """

    def __init__(self, c: Comparison, f: Features, red: Int64) -> None:
        self.c, self.f = c, f
        self.i, self.j = c.pairing.lead_a[red], c.pairing.lead_b[red]
        self._made_by = _made_by(c)
        self.rule = self._made_by[self.i]
        self._is_template = np.array([isinstance(rule, TemplateRule) for rule in c.rules] + [False])
        self._numbers = _Numbers.of(f)
        self._places_a, self.places = self._numbers.places_a, self._numbers.places
        # fine pairs stay
        self.fine_b = one_of(c.status, AGREE)[c.at_b] & (c.pairing.of_b >= 0)
        self.target = self._numbers.target[self.i]
        self.target[(self.target == self.j) | self.fine_b[self.target]] = _NOWHERE
        self.exact = self.target >= 0
        self.by = np.where(self.exact, self.places.between(self.j, self.target), 0)
        self._look_nearby(np.flatnonzero(~self.exact & self._numbers.varied[self.i]))
        located = np.flatnonzero(self.target >= 0)
        wrong = ~np.isin(judge(c.a, c.b, self.i[located], self.target[located], None, c.policy).status, AGREE)
        self.target[located[wrong]] = _NOWHERE

    def _look_nearby(self, which: Int64) -> None:
        """Find those of the pairs `which` that are close to exactly one of the operations around their partner."""
        i, j, before = self.i[which], self.j[which], self._numbers.nearby
        found = np.stack([self.places.further(j, by) for by in _NEIGHBOURS])
        usable = (found >= 0) & ~self.fine_b[found]
        bits = (usable << np.arange(len(_NEIGHBOURS))[:, None]).sum(axis=0)
        new = np.flatnonzero((before.j[i] != j) | (before.usable[i] != bits))
        now = _Nearby.none(len(self.f.a))
        now.j[i], now.usable[i], now.target[i], now.by[i] = j, bits, before.target[i], before.by[i]
        now.target[i[new]], now.by[i[new]] = self._closest(i[new], j[new], found[:, new], usable[:, new])
        self._numbers.nearby = now
        clear = now.target[i] >= 0
        self.target[which[clear]], self.by[which[clear]] = now.target[i[clear]], now.by[i[clear]]

    def _closest(self, i: Int64, j: Int64, found: Int64, usable: Bool) -> tuple[Int64, Int64]:
        """The neighbours, of those found (int64[n, k]), that alone are close to i, -1 for none; how far on they are."""
        apart = np.stack([_difference(self.f, i, row) for row in (*found, j)])
        apart[:-1][found < 0] = np.inf
        best = np.argmin(np.where(usable, apart[:-1], np.inf), axis=0)
        column = np.arange(len(i))
        near = apart[best, column]
        rest = apart.copy()
        rest[best, column] = np.inf
        alone = rest.min(axis=0, initial=np.inf) >= _FAR * np.maximum(near, _PRINTED)
        clear = usable[best, column] & (near <= _CLOSE) & alone
        return np.where(clear, found[best, column], _NOWHERE), np.where(clear, np.array(_NEIGHBOURS)[best], 0)

    def groups(self) -> Iterator[_Group]:
        """Yield the pairs that may be one run, with the witnesses of one shift.

        A template is examined as a whole. Pair rules each cover one operation: those of modules of one pattern belong
        together, as do pairs without a rule.
        """
        f, of_template = self.f, self._is_template[self.rule]
        for mine in _alike(self.rule, np.flatnonzero(of_template)):
            located = self.target[mine] >= 0
            usual = np.isin(self.by[mine], _most_common(self.by[mine[located]])[:1])
            yield _Group(mine, located & (self.exact[mine] | usual), template=True)
        place = (f.a.pattern[self.i] * len(Phase) + f.a.phase[self.i]) * 2 + (self.rule >= 0)
        for mine in _alike(place, np.flatnonzero(~of_template)):
            located = self.target[mine] >= 0
            for by in _most_common(self.by[mine[located]])[:_MAX_SHIFTS]:
                # without a rule, a target elsewhere is no shift
                if by or self.rule[mine[0]] >= 0:
                    yield _Group(mine, located & np.equal(self.by[mine], by), template=False)

    def run(self, group: _Group) -> Shift | None:
        """The run that the witnesses make; None if they are too few."""
        inside = self._mostly_witnesses(group)
        run, witness = group.members[inside], group.witness[inside]
        rules = np.unique(self.rule[run])
        enough = _WITNESSES
        if len(run) and rules[0] >= 0 and (witness & self.exact[run]).any():
            enough = min(self.c.usage[rules[0]].matched if group.template else 1, _WITNESSES)
        if witness.sum() < enough:
            return None
        by = np.unique(self.by[run[witness]])
        shift = int(by[0]) if len(by) == 1 else 0
        j = np.where(witness, self.target[run], _NOWHERE)
        if shift:
            further = self.places.further(self.j[run], shift)
            j = np.where(witness | self.fine_b[further], j, further)
        rules = rules[rules >= 0]
        made = np.flatnonzero(np.isin(self._made_by, rules))
        return Shift(self.i[run], j, witness, shift, tuple(rules.tolist()), made)

    def _mostly_witnesses(self, group: _Group) -> Bool:
        """The members between the first and last witness of a module and op (for a template: of all), if most are
        witnesses.

        Fine pairs of the matching count among them; of rules, only red pairs do. If most pairs of a rule are witnesses,
        all of them are in the run, because a wrong rule at its end would block the others.
        """
        i = self.i[group.members]
        where = np.zeros(len(i), np.int64) if group.template else _where(self.f.a)[i]
        _, stretch, size = np.unique(where, return_inverse=True, return_counts=True)
        stretch = stretch.reshape(-1)
        ruled = self.rule[group.members[0]] >= 0
        standing = np.argsort(np.argsort(stretch, kind="stable")) if ruled else self._places_a.at(i)
        first, last = np.full(len(size), len(self.f.a)), np.full(len(size), -1)
        np.minimum.at(first, stretch[group.witness], standing[group.witness])
        np.maximum.at(last, stretch[group.witness], standing[group.witness])
        count = np.bincount(stretch[group.witness], minlength=len(size))
        mostly = (count > 0) & (count >= _SHARE * (last - first + 1))
        inside = mostly[stretch] & (standing >= first[stretch]) & (standing <= last[stretch])
        return inside | (ruled & (count >= _SHARE * size)[stretch])


def _alike(values: Int64, which: Int64) -> list[Int64]:
    """The positions `which`, grouped by value; ascending in each group."""
    which = which[np.argsort(values[which], kind="stable")]
    return np.split(which, np.flatnonzero(np.diff(values[which])) + 1) if len(which) else []


def _most_common(values: Int64) -> list[int]:
    """The distinct values, most frequent first."""
    return [value for value, _ in Counter(values.tolist()).most_common()]


def _made_by(c: Comparison) -> Int64:
    """For each record of a the rule that makes its pair, as an index into those in force; -1 for none."""
    out = np.full(len(c.a), -1, np.int64)
    for forced in resolve(c.rules, c.a, c.b).forced if len(c.rules) else ():
        out[forced.a[-1]] = forced.rule
    return out


def _where(side: LogFeatures) -> Int64:
    """A number per op, phase and module of a record."""
    return ((side.module + 1) * (int(side.op.max(initial=0)) + 2) + side.op + 1) * len(Phase) + side.phase


def _varied(side: LogFeatures) -> Bool:
    """Records with distinctive numbers: neither zero nor constant."""
    first = side.log.outputs.first()
    _, _, low, high, _ = side.log.stats
    return np.asarray(np.isfinite(first) & (first != 0) & (side.shape >= 0) & (low != high))


def _difference(f: Features, i: Int64, j: Int64) -> Float64:
    """The largest relative difference of norms and extremes, roughly; infinite if shapes or signs differ."""
    with np.errstate(invalid="ignore"):  # of two infinite values
        apart = np.nan_to_num(np.abs(f.a.stats[:, i] - f.b.stats[:, j]), nan=0.0)
    out = apart.max(axis=0, initial=0.0).astype(np.float64)
    out[(f.a.shape[i] != f.b.shape[j]) | (f.a.signs[i] != f.b.signs[j]) | np.isnan(f.b.stats[0, j])] = np.inf
    return out
