"""Detect drift between the names of paired operations: modules, counters, collectives, order.

Every pair belongs to at most one family, so that the rules of different families never meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int64, longest_rising
from matchers.drift.module_renames import find_renames, rename_rules
from matchers.drift.pair_names import PairNames
from matchers.drift.suggestion import Finding, allowed, found_by, instances
from matchers.drift.templates import Learner
from matchers.laws.register import law
from matchers.ops.module_path import NO_MODULE
from matchers.pairing.pairing import SURE
from matchers.rules.key_index import key_reference
from matchers.rules.model import OpRule, PairRule

__all__ = ["name_families"]

_MAX_PAIRS: Final = 500
"""Maximum size of a family that is covered by one rule per pair."""


class _Kind(IntEnum):
    """The drift that a pair of names shows."""

    SAME = 0
    RENAMED = 1
    WRAPPED = 2
    COLLECTIVE = 3
    NONE = 4
    CHECKPOINT = 5
    ELSEWHERE = 6
    OTHER_OP = 7


class _Family(NamedTuple):
    """Texts of a family for which templates are learned."""

    name: str
    explanation: str
    why: str
    no_template: str


_RENAMES: Final = (
    (_Kind.RENAMED, "renamed modules", "Modules are renamed in b", "renamed"),
    (_Kind.WRAPPED, "wrapped modules", "Names of one run include a wrapper or the root's class", "wrapped"),
)
"""Kinds of renamed modules: name of the family, summary, reason in the rule."""

_FAMILIES: Final = {
    _Kind.NONE: _Family(
        "moved to or from <none>",
        "Only one run knows the module of these operations: gradients summed by autograd, and graph operations that "
        "serve several modules.",
        "only one run knows the module",
        "all of <none> shares one counter, which follows neither a shift nor equal steps",
    ),
    _Kind.CHECKPOINT: _Family(
        "checkpointed names",
        "Activation checkpointing runs inner modules directly, so recomputed operations are logged without their "
        "layer.",
        "checkpointing runs inner modules directly",
        "the counter does not advance in equal steps from layer to layer",
    ),
    _Kind.ELSEWHERE: _Family(
        "moved to another module",
        "One run logs these operations under a parent, child or neighbour of the other run's module, as happens in "
        "the backward pass.",
        "logged under a neighbouring module",
        "the counters follow neither a common shift nor equal steps",
    ),
    _Kind.SAME: _Family(
        "shifted counters",
        "An unpaired operation takes a counter value and shifts all later ones in its module.",
        "counters are shifted",
        "the shift is neither constant nor growing in equal steps",
    ),
}


def name_families(names: PairNames) -> Iterator[Finding]:
    """Families of drift that the names of the pairs show."""
    renamed = find_renames(names)
    kind = _kinds(names, renamed)
    for of, name, *texts in _RENAMES:
        yield from found_by(name, partial(_modules, names, renamed, np.flatnonzero(kind == of), name, *texts))
    yield from found_by("lowered collectives", partial(_collectives, names, np.flatnonzero(kind == _Kind.COLLECTIVE)))
    learner = Learner(names)
    for of, family in _FAMILIES.items():
        yield from found_by(family.name, partial(_learned, names, learner, np.flatnonzero(kind == of), of))
    yield from found_by("swapped order", partial(_order, names))


def _learned(names: PairNames, learner: Learner, which: Int64, of: _Kind) -> Iterator[Finding]:
    """A family for which templates are learned."""
    family = _FAMILIES[of]
    counter_a, counter_b = names.c.a.counter[names.i[which]], names.c.b.counter[names.j[which]]
    shifted = (counter_a >= 0) & (counter_b >= 0) & (counter_a != counter_b)
    shows = which[shifted] if of == _Kind.SAME else which
    if not len(shows):
        return
    templates, covered = learner.learn(names.i[which], names.j[which], family.why)
    explanation = f"{family.explanation} For example {names.example(int(shows[0]))}."
    left = shows[~np.isin(shows, which[covered])]
    pairs = _pair_by_pair(names, left, family.why)
    if pairs:
        some = f"{len(pairs):,} of them {'gets' if len(pairs) == 1 else 'get'}"
        of_them = some if len(pairs) < len(shows) else "Each gets"
        explanation += f" {of_them} a pair rule: {family.no_template}."
    no_rule = family.no_template if len(pairs) < len(left) else ""
    yield Finding(family.name, explanation, names.instances(shows), (*templates, *pairs), no_rule)


def _pair_by_pair(names: PairNames, which: Int64, why: str) -> list[PairRule]:
    """A rule for each pair that no template covers; none if there are too many to read."""
    sure = ~names.grouped[which] & (names.c.pairing.confidence[names.pair[which]] >= SURE)
    if len(which) > _MAX_PAIRS:
        return []
    a, b = names.c.a, names.c.b
    return [
        rule
        for k in which[sure].tolist()
        for rule in allowed(PairRule, (key_reference(a, int(names.i[k])),), (key_reference(b, int(names.j[k])),), why)
    ]


def _kinds(names: PairNames, renamed: dict[int, int]) -> NDArray[np.int8]:
    """int8[pairs] of `_Kind`, decided once per distinct names."""
    a, b = names.c.a, names.c.b
    out = np.zeros(len(names.i), np.int8)
    drifted = np.flatnonzero(~names.same_module | ~names.same_op)
    i, j = names.i[drifted], names.j[drifted]
    columns = np.stack((a.module[i], b.module[j], a.op[i], b.op[j])).astype(np.int64) + 1
    code = np.zeros(len(drifted), np.int64)
    for column, table in zip(columns, (a.modules, b.modules, a.ops, b.ops), strict=True):
        code = code * (len(table) + 1) + column
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    kinds = [_kind(names, renamed, int(i[at]), int(j[at])) for at in first.tolist()]
    out[drifted] = np.array(kinds, np.int8)[group.reshape(-1)]
    return out


def _kind(names: PairNames, renamed: dict[int, int], i: int, j: int) -> _Kind:
    a, b = names.c.a, names.c.b
    ops = a.op_name(i), b.op_name(j)
    if ops[0] != ops[1]:
        return _Kind.COLLECTIVE if _in_place(*ops) else _Kind.OTHER_OP
    one, other = int(a.module[i]), int(b.module[j])
    short, long = sorted((names.a.canonical[one], names.b.canonical[other]), key=len)
    if renamed.get(one) == other:
        return _Kind.WRAPPED if short == long else _Kind.RENAMED
    if NO_MODULE in (names.a.names[one], names.b.names[other]):
        return _Kind.NONE
    if long.endswith(f".{short}") and any(part.isdigit() for part in long[: -len(short) - 1].split(".")):
        return _Kind.CHECKPOINT
    return _Kind.ELSEWHERE


def _in_place(op_a: str, op_b: str) -> str | None:
    """The in-place collective in a pair of ops, if the other op is what it is lowered to."""
    for one, other in ((op_a, op_b), (op_b, op_a)):
        sends = law(one).collective
        if sends is not None and sends.in_place and (law(other).waits or law(other).lowered == one):
            return one
    return None


def _modules(
    names: PairNames, renamed: dict[int, int], which: Int64, name: str, summary: str, why: str
) -> Iterator[Finding]:
    if not len(which):
        return
    mine = dict.fromkeys(np.unique(names.c.a.module[names.i[which]]).tolist())
    modules = {one: renamed[one] for one in mine}
    rules, covered = rename_rules(names, modules, why)
    one, other = next(iter(modules.items()))
    left = "" if len(covered) == len(modules) else "numbers or parts of some names follow no pattern"
    explanation = f"{summary}: {names.a.names[one]} is {names.b.names[other]}."
    yield Finding(name, explanation, names.instances(which), rules, left)


def _collectives(names: PairNames, which: Int64) -> Iterator[Finding]:
    """Collectives that are one operation in one run, and a start and a wait in the other."""
    if not len(which):
        return
    chains: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    starts = _starts(names)
    for at in which.tolist():
        i, j = int(names.i[at]), int(names.j[at])
        before_a, before_b = starts[0].get(i, -1), starts[1].get(j, -1)
        chain_a = (*((names.c.a.op_name(before_a),) if before_a >= 0 else ()), names.c.a.op_name(i))
        chain_b = (*((names.c.b.op_name(before_b),) if before_b >= 0 else ()), names.c.b.op_name(j))
        chains[chain_a, chain_b] += 1
    known_a, known_b = set(names.c.a.ops), set(names.c.b.ops)
    # a rule covers every shape; the matching separates shapes that both runs have in one form
    rules = tuple(
        OpRule(a=a, b=b, why="the same collective")
        for (a, b), _ in chains.most_common()
        if all(law(name).waits for name in known_b.intersection(a) | known_a.intersection(b))
    )
    yield Finding(
        "lowered collectives",
        "One run has an in-place collective; the other starts it and awaits it in the module that needs the result. "
        f"For example {names.example(int(which[0]))}.",
        names.instances(which),
        rules,
        "" if len(rules) == len(chains) else "both runs also have some of these ops under one name; no rule is needed",
    )


def _starts(names: PairNames) -> tuple[dict[int, int], dict[int, int]]:
    """For each side, the first row of each chain by its last row."""
    found = []
    for side in (names.f.a, names.f.b):
        start = np.flatnonzero(side.lead >= 0)
        found.append(dict(zip(side.lead[start].tolist(), start.tolist(), strict=True)))
    return found[0], found[1]


def _order(names: PairNames) -> Iterator[Finding]:
    """The smallest set of pairs without which the two runs have one order."""
    pairing = names.c.pairing
    moved = np.delete(np.arange(len(pairing.lead_b)), longest_rising(pairing.lead_b.tolist()))
    if len(moved):
        yield Finding(
            "swapped order",
            "The runs dispatch these operations in different order, as with schedulers and prefetched collectives.",
            instances(pairing.lead_a[moved], pairing.lead_b[moved]),
            no_rule="pairs need not keep the order of either run",
        )
