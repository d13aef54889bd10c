"""Pairs of small logs that drifted apart, made up by hypothesis; and rules about them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import strategies as st

from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleSet,
    TemplateRule,
    ToleranceRule,
)
from matchers.rules.resolve import key_reference
from tests.builders import Op, log_text, op, training_step

__all__ = ["made_up_log", "pairs_of_logs", "rule_sets"]

MODULES: Final = ("layers.0", "layers.1", "layers.0.attention", "layers.1.attention", "norm", "<none>", "Root.layers.0")
OPS: Final = ("add", "mul", "mm", "_allgather_base_", "_reduce_scatter_base_", "add_")
VALUES: Final = (1.0, 1.0, 2.0, 3.5, -4.0, 0.0, 1e-8, float("nan"), float("inf"))
TEMPLATES: Final = ("layers.{i}/op_{n}_{x}", "layers.{i}.attention/op_{n}_{x}")
SIDE: Final = st.sampled_from([None, "a", "b"])
PHASE: Final = st.sampled_from([None, None, None, *Phase])
SHAPES: Final = ((4, 8), (8,), (2, 8))


def made_up_log(ops: Iterable[Op], **options: Any) -> OpLog:
    """The records as a log that was written and read."""
    handle, path = tempfile.mkstemp(suffix=".log")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(log_text(ops, **options))
        return read_log(path)
    finally:
        os.unlink(path)


@dataclass(frozen=True)
class Numbers:
    """Three numbers that a change of a list of records uses as it likes."""

    x: int
    y: int
    z: int

    def pick(self, values: Sequence[Any], number: int | None = None) -> Any:
        """One of the values."""
        return values[(self.x if number is None else number) % len(values)]


numbers = st.builds(Numbers, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))


def _record(n: Numbers, before: Sequence[Op]) -> Op:
    """A record of a small world, in which names, shapes and values repeat. It may read one of those before it."""
    name = n.pick(OPS, n.y)
    made_by = before[n.z % len(before)] if before and n.z % 3 else None
    value = n.pick(VALUES, n.x + n.z)
    fields: dict[str, Any] = {
        "shape": n.pick(SHAPES, n.z // 3),
        "phase": n.pick((None, None, "backward", "optimizer"), n.y // len(OPS)),
        "location": n.pick(("model.py:1", "model.py:2", None), n.x),
        "inputs": [*(made_by.outputs[:1] if made_by else ()), 2.0][: 1 + n.x % 2],
        "producers": [made_by.key if made_by else "", ""][: 1 + n.x % 2],
    }
    if name.endswith("add_"):
        fields |= {"shape": None, "outputs": []}
    return op(f"{n.pick(MODULES)}/op_{n.y % 4}_{name}", value, **fields)


def _insert(ops: list[Op], n: Numbers) -> None:
    at = n.x % (len(ops) + 1)
    ops.insert(at, _record(n, ops[:at]))


def _delete(ops: list[Op], n: Numbers) -> None:
    del ops[n.x % len(ops)]


def _swap(ops: list[Op], n: Numbers) -> None:
    at = n.x % len(ops)
    ops[at - 1], ops[at] = ops[at], ops[at - 1]


def _move(ops: list[Op], n: Numbers) -> None:
    ops.insert(n.y % len(ops), ops.pop(n.x % len(ops)))


def _repeat(ops: list[Op], n: Numbers) -> None:
    ops.insert(n.y % (len(ops) + 1), replace(ops[n.x % len(ops)], phase="backward"))


def _lower(ops: list[Op], n: Numbers) -> None:
    """In-place collectives become two operations each: one that starts the communication and one that waits."""
    whole, start = n.pick(
        (("_allgather_base_", "all_gather_into_tensor"), ("_reduce_scatter_base_", "reduce_scatter_tensor"))
    )
    lowered: list[Op] = []
    for record in ops:
        if record.key.endswith(whole):
            key = record.key.replace(whole, start)
            lowered.append(replace(record, key=key))
            waited = [2.0 * float(value) for value in record.outputs]
            key = record.key.replace(whole, "wait_tensor")
            lowered.append(replace(record, key=key, inputs=record.outputs, producers=[lowered[-1].key], outputs=waited))
        else:
            lowered.append(record)
    ops[:] = lowered


def _insert_between(ops: list[Op], n: Numbers) -> None:
    """What a bug looks like that one more operation makes: those who read a value read what that made of it."""
    at = n.x % len(ops)
    made = ops[at]
    extra = replace(made, key="patch/op_0_neg", inputs=made.outputs, producers=[made.key], min=-5.0, max=n.y)
    ops.insert(at + 1, extra)
    for k in range(at + 2, len(ops)):
        if made.key in ops[k].producers:
            ops[k] = replace(
                ops[k],
                producers=[extra.key if producer == made.key else producer for producer in ops[k].producers],
                outputs=[3.0 * float(value) for value in ops[k].outputs],
            )


def _change(change: Callable[[Op, Numbers], Op]) -> Callable[[list[Op], Numbers], None]:
    def apply(ops: list[Op], n: Numbers) -> None:
        at = n.x % len(ops)
        ops[at] = change(ops[at], n)

    return apply


def _rename(record: Op, n: Numbers) -> Op:
    return replace(record, key=f"{n.pick(MODULES, n.y)}/{record.key.rpartition('/')[2]}")


def _shift(record: Op, n: Numbers) -> Op:
    module, _, name = record.key.rpartition("/op_")
    return replace(record, key=f"{module}/op_{n.y % 9}_{name.partition('_')[2]}")


def _revalue(record: Op, n: Numbers) -> Op:
    factor = n.pick((1 + 1e-6, 1 + 1e-3, 2.0, -1.0, float("nan"), float("inf")), n.y)
    return replace(record, outputs=[float(value) * factor for value in record.outputs], max=factor)


def _reread(record: Op, n: Numbers) -> Op:
    return replace(record, inputs=[n.pick(VALUES, n.y) for _ in record.inputs], producers=record.producers[: n.z % 3])


def _reshape(record: Op, n: Numbers) -> Op:
    return replace(record, shape=n.pick((*SHAPES, None), n.y), dtype=n.pick(("float32", "bfloat16", "int64"), n.z))


CHANGES: Final = (
    *(_insert, _delete, _swap, _move, _repeat, _lower, _insert_between),
    *map(_change, (_rename, _shift, _revalue, _reread, _reshape)),
)


@st.composite
def pairs_of_logs(draw: st.DrawFn, changes: int = 8) -> tuple[OpLog, OpLog]:
    """A log of up to some fifty records, and what drift made of it."""
    ops: list[Op] = []
    for n in draw(st.lists(numbers, max_size=14)):
        ops.append(_record(n, ops))
    ops += training_step(draw(st.integers(0, 2)), draw(st.integers(0, 3))) if draw(st.booleans()) else []
    drifted = list(ops)
    for change, n in draw(st.lists(st.tuples(st.sampled_from(CHANGES), numbers), max_size=changes)):
        if drifted or change is _insert:
            change(drifted, n)
    logs = made_up_log(ops), made_up_log(drifted)
    return logs if draw(st.booleans()) else (logs[1], logs[0])


@st.composite
def rule_sets(draw: st.DrawFn, a: OpLog, b: OpLog, most: int = 4) -> list[RuleSet]:
    """Rule sets of a session, one after the other: rules come, change and go, and steps are undone."""
    rules = RuleSet()
    every = [rules]
    for _ in range(draw(st.integers(1, most))):
        if draw(st.integers(0, 4)) == 4:
            rules = draw(st.sampled_from(every))
        else:
            made = [rule for rule in draw(st.lists(_rules(a, b), max_size=3)) if rule not in rules.rules]
            for rule in rules.rules:
                if draw(st.integers(0, 3)) == 3:
                    rules = rules.removing(rule)
            for rule in dict.fromkeys(made):
                rules = rules.adding(rule)
        every.append(rules)
    return every[1:]


def _rules(a: OpLog, b: OpLog) -> st.SearchStrategy[Rule]:
    chains = st.sampled_from([("mul",), ("mm",), ("all_gather_into_tensor", "wait_tensor"), ("mul", "add")])
    kinds: list[st.SearchStrategy[Any]] = [
        st.builds(
            ToleranceRule,
            match=st.sampled_from(["*", "layers.*", "*_mm"]),
            rtol=st.sampled_from([0.0, 1e-4, 1e9]),
            side=SIDE,
            phase=PHASE,
        ),
        st.builds(IgnoreRule, side=SIDE, phase=PHASE, op=st.sampled_from([*OPS, "*"])),
        st.builds(
            ModuleRule,
            a=st.sampled_from(["Root.{rest:path}", "layers.{i}", "layers.{i}.{rest:path}", "norm"]),
            b=st.sampled_from(["layers.1", "other"]),
        ),
        st.builds(
            lambda names: ModuleRule(a=names[0], b=names[1]),
            st.sampled_from(
                [
                    ("layers.{i}.{rest:path}", "blocks.{i}.{rest}"),
                    ("{x}.{rest:path}", "{rest}"),
                    ("layers.{i}.attention_norm", "layers.{i}.attention"),
                    ("layers.{i}.attention.wq", "layers.{i}.attention.wk"),
                    ("output", "tok_embeddings"),
                    ("Root.layers.0", "layers.1"),
                ]
            ),
        ),
        st.builds(ModuleRule, a=st.sampled_from(MODULES), b=st.sampled_from([*MODULES, "other"])),
        st.builds(OpRule, a=st.sampled_from([("add",), ("mul",), ("_allgather_base_",)]), b=chains, phase=PHASE),
        st.builds(OpRule, a=st.just(("mm", "add")), b=st.sampled_from([("mul",), ("mm",)])),
        st.builds(
            TemplateRule,
            a=st.sampled_from([(text,) for text in TEMPLATES] + [("layers.{i}/op_{n}_{x}", "layers.{i}/op_{n+1}_{x}")]),
            b=st.sampled_from([("layers.{i}/op_{n}_{x}",), ("layers.{i}.attention/op_{n+1}_{x}",), ("{i}/{n}/{x}",)]),
            phase=PHASE,
        ),
        st.builds(lambda key, phase: TemplateRule(a=(key,), b=(key,), phase=phase), st.sampled_from(TEMPLATES), PHASE),
    ]
    if len(a) and len(b):
        row_a, row_b = _keys(a), _keys(b)
        kinds += [
            st.builds(PairRule, a=row_a.map(lambda key: (key,)), b=row_b.map(lambda key: (key,))),
            st.builds(lambda row: _same_place(a, b, row), st.integers(0, len(a) - 1)),
            st.builds(PairRule, a=_several(row_a), b=_several(row_b)),
            st.builds(ApartRule, a=row_a, b=row_b),
        ]
    return st.one_of(kinds)


def _same_place(a: OpLog, b: OpLog, row: int) -> Rule:
    """A rule about two rows that are likely to be partners."""
    other = min(row, len(b) - 1)
    make = PairRule if row % 3 else lambda a, b: ApartRule(a=a[0], b=b[0])
    return make(a=(key_reference(a, row),), b=(key_reference(b, other),))


def _keys(log: OpLog) -> st.SearchStrategy[str]:
    return st.integers(0, len(log) - 1).map(lambda row: key_reference(log, row))


def _several(keys: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(keys, min_size=1, max_size=3, unique=True).map(tuple)
