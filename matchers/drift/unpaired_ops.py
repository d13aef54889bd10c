"""Detect drift among unpaired operations: equivalent ops, fused operations, and repeated work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np

from matchers.arrays import Int64, one_of
from matchers.drift.pair_names import PairNames, Side, same_prints
from matchers.drift.suggestion import Finding, allowed, found_by, instances
from matchers.laws.law import Form
from matchers.laws.register import law
from matchers.logs.op_log import Phase
from matchers.ops.laws import collective, law_of
from matchers.pairing.features import LogFeatures
from matchers.rules.model import IgnoreRule, OpRule
from matchers.status import Status

__all__ = ["unpaired_families"]


def unpaired_families(names: PairNames) -> Iterator[Finding]:
    """Families of drift that the unpaired operations show."""
    for name, detect in (
        ("equivalent ops", _equivalent),
        ("fused and separate", _fused),
        ("further micro-batches", _batches),
        ("communication of one run", _communication),
        ("recomputed copies", _recomputed),
    ):
        yield from found_by(name, partial(detect, names))


# Equivalent ops


def _equivalent(names: PairNames) -> Iterator[Finding]:
    """Ops that only one run has, whose result another op, or two in a row, produce in the other run."""
    a, b = names.a, names.b
    chains: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    for i, j in sorted(_same_result(names)):
        op_a, op_b = a.log.op_name(i), b.log.op_name(j)
        chains[(*_step_before(a, i, op_b), op_a), (*_step_before(b, j, op_a), op_b)].append((i, j))
    known_a, known_b = set(a.log.ops), set(b.log.ops)
    rules: list[OpRule] = []
    shown: list[tuple[int, int]] = []
    taken = set[str]()
    for (ops_a, ops_b), pairs in sorted(chains.items(), key=lambda item: -len(item[1])):
        # a rule for an op that both runs have would break its pairs
        new_a = len(ops_a) > 1 or ops_a[0] not in known_b
        new_b = len(ops_b) > 1 or ops_b[0] not in known_a
        if new_a and new_b and not (len(ops_a) > 1 and len(ops_b) > 1) and not {f"a {ops_a}", f"b {ops_b}"} & taken:
            taken |= {f"a {ops_a}", f"b {ops_b}"}
            if more := allowed(OpRule, ops_a, ops_b, "the same operation under another name"):
                rules += more
                shown += pairs
    if rules:
        i, j = shown[0]
        yield Finding(
            "equivalent ops",
            "The runs use different ops for the same result, or one instead of two in a row. "
            f"For example {a.log.keys[i]} ↔ {b.log.keys[j]}.",
            instances(*np.array(shown).T),
            tuple(rules),
        )


def _same_result(names: PairNames) -> Iterator[tuple[int, int]]:
    """Unpaired rows of different ops with equal printed results, unique among the unpaired ones."""
    rows = []
    for side in (names.a, names.b):
        first = side.log.outputs.first(side.unpaired)
        rows.append(side.unpaired[np.isfinite(first) & (first != 0) & (side.features.shape[side.unpaired] >= 0)])
    i, j = same_prints(names.f, rows[0], rows[1])
    other = names.a.op[i] != names.b.op[j]
    yield from zip(i[other].tolist(), j[other].tolist(), strict=True)


def _step_before(side: Side, row: int, fused: str) -> tuple[str, ...]:
    """The op of the preceding row, if it is unpaired, in the same module, and part of the other op's name."""
    log, before = side.log, row - 1
    at = np.searchsorted(side.unpaired, before)
    if before not in side.unpaired[at : at + 1] or log.module[before] != log.module[row]:
        return ()
    step, op = log.op_name(before), log.op_name(row)
    return (step,) if step != op and step in fused and law(op).base in fused and fused != op else ()


# Fused operations


def _fused(names: PairNames) -> Iterator[Finding]:
    """Operations that do for several tensors at once what the other run does one by one."""
    shown = []
    example = ""
    for side, other in ((names.a, names.b), (names.b, names.a)):
        laws = [law_of(other.log, row) for row in other.unpaired.tolist()]
        separate = Counter(each.base for each in laws if not each.on_lists)
        phases = set(other.log.phase[other.unpaired].tolist())
        rows = []
        for row in side.unpaired.tolist():
            of = law_of(side.log, row)
            # the separate operations of a fused optimizer step have other names
            whole = of.form is Form.UPDATE and int(side.log.phase[row]) in phases
            if whole or (of.on_lists and separate[of.base] > 1):
                rows.append(row)
                example = example or side.log.keys[row]
        for row, parts in _split_modules(side, other):
            rows.append(row)
            example = example or f"{side.log.keys[row]} for {', '.join(parts)}"
        shown.append(side.alone(rows))
    if example:
        yield Finding(
            "fused and separate",
            f"One run fuses several operations of the other. For example {example}.",
            np.concatenate(shown, axis=1),
            no_rule="a pair compares single results, and none of the separate ones is the whole",
        )


def _split_modules(side: Side, other: Side) -> Iterator[tuple[int, list[str]]]:
    """Unpaired rows of a module that the other run lacks, and the modules there that share out its last dimension.

    `wqkv` against `wq`, `wk`, `wv`: siblings whose last letters occur in the name of the fused one.
    """
    siblings: dict[tuple[str, tuple[str, int]], dict[str, int]] = defaultdict(dict)
    for parent, child, what, row in _in_own_modules(other, side):
        siblings[parent, what].setdefault(child, row)
    for parent, child, what, row in _in_own_modules(side, other):
        parts = siblings.get((parent, what), {})
        inside = [part for part in parts if part and part[-1] in child and part[:-1] == child[: len(part) - 1]]
        if len(inside) > 1:
            yield row, inside


def _in_own_modules(side: Side, other: Side) -> Iterator[tuple[str, str, tuple[str, int], int]]:
    """(path of the parent, name, (op, phase), record) of the unpaired rows in modules that the other run lacks."""
    own = set(side.log.modules) - set(other.log.modules)
    for row in side.unpaired.tolist():
        if (name := side.log.module_name(row)) in own:
            parent, _, child = name.rpartition(".")
            yield parent, child, (side.log.op_name(row), int(side.log.phase[row])), row


# Repeated work


def _recomputed(names: PairNames) -> Iterator[Finding]:
    rows = np.flatnonzero(names.c.status == Status.RECOMPUTE)
    if len(rows):
        yield Finding(
            "recomputed copies",
            "Only one run recomputes forward operations in the backward pass (activation checkpointing).",
            instances(names.c.row_a[rows], names.c.row_b[rows]),
            no_rule="they are labelled, name their originals, and are not red",
        )


def _batches(names: PairNames) -> Iterator[Finding]:
    """Rows of micro-batches that the other run lacks, by their logged number or by how often modules ran."""
    shown = []
    for side, other in ((names.a, names.b.features), (names.b, names.a.features)):
        batch = side.features.batch[side.unpaired]
        if (batch >= 0).any():
            extra = side.unpaired[(batch >= 0) & ~np.isin(batch, other.batch)]
        else:
            extra = _ran_again(side.features, side.unpaired, other)
        shown.append(side.alone(extra))
    if any(found.size for found in shown):
        yield Finding(
            "further micro-batches",
            "One run has micro-batches that the other does not have.",
            np.concatenate(shown, axis=1),
            no_rule="the other run has no counterpart; an ignore rule hides them",
        )


def _ran_again(side: LogFeatures, unpaired: Int64, other: LogFeatures) -> Int64:
    """Unpaired rows of places that this run visits k times as often as the other, for the most common k.

    None if no k covers most of the rows. The optimizer steps once, however many micro-batches there are.
    """
    unpaired = unpaired[one_of(side.phase[unpaired], (Phase.FORWARD, Phase.BACKWARD))]
    size = np.int64(max(side.site.max(initial=0), other.site.max(initial=0)) + 1)
    place, theirs = (
        (s.place.astype(np.int64) + 1) * size * len(Phase) + s.site * len(Phase) + s.phase for s in (side, other)
    )
    here = place[unpaired]
    often, before = _occurrences(place, here), _occurrences(theirs, here)
    times = np.where((before > 0) & (often % np.maximum(before, 1) == 0), often // np.maximum(before, 1), 0)
    again = np.bincount(times[times > 1], minlength=2)
    usual = int(again.argmax())
    return unpaired[times == usual] if usual > 1 and 2 * again[usual] > len(unpaired) else unpaired[:0]


def _occurrences(values: Int64, of: Int64) -> Int64:
    ordered = np.sort(values)
    return np.searchsorted(ordered, of, side="right") - np.searchsorted(ordered, of)


def _communication(names: PairNames) -> Iterator[Finding]:
    """Collectives of one run if the other has none at all."""
    for side, other in ((names.a, names.b), (names.b, names.a)):
        log, collectives = side.log, collective(side.log)
        rows = side.unpaired[collectives[side.unpaired]]
        if not len(rows) or collective(other.log).any():
            continue
        name: Literal["a", "b"] = "a" if side.is_a else "b"
        ops = Counter(log.op_name(row) for row in rows.tolist())
        of_ops = Counter(log.op_name(row) for row in np.flatnonzero(collectives).tolist())
        yield Finding(
            "communication of one run",
            f"Only {name} communicates: its weights or its batch are sharded over ranks. "
            f"For example {log.keys[int(rows[0])]}.",
            side.alone(rows),
            tuple(
                IgnoreRule(side=name, op=op, why="only this run communicates") for op in ops if ops[op] == of_ops[op]
            ),
        )
