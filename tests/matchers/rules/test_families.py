"""Every known kind of drift can be said as a rule about names, as a pair and as a template, where that makes sense.

The examples are small logs of just the operations that drifted, with those that make it hard: repeated layers, and
neighbours of the same op and shape. Rules are written as in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from matchers.comparison import compare
from matchers.pairing.pairing import Method
from matchers.rules.file import parse_rules
from matchers.rules.model import RuleSet
from matchers.status import RED, Status
from tests.builders import Op, op
from tests.matchers.drifted_logs import made_up_log


@dataclass
class Family:
    """One kind of drift.

    `pairs`: keys of a and of b (all members of a group) that belong together once a rule says so; `ignored`: keys of a
    that are to be green without a partner. `ways`: the rule file's text by what kind of rule it is.
    """

    name: str
    a: Sequence[Op]
    b: Sequence[Op]
    ways: dict[str, str]
    pairs: Sequence[tuple[str, str]] = ()
    ignored: Sequence[str] = ()
    made_by: dict[str, Method] = field(
        default_factory=lambda: {"pair": Method.OVERRIDE, "template": Method.TEMPLATE, "groups": Method.OVERRIDE}
    )


def run(*keys: str, start: float = 1.0, **fields: Any) -> list[Op]:
    """Operations with values of their own, so that what belongs together is known."""
    return [op(key, start + number, **fields) for number, key in enumerate(keys)]


def layers(count: int = 3) -> list[Op]:
    return run(*(f"layers.{layer}.{name}" for layer in range(count) for name in ("attention/op_0_mm", "norm/op_0_mul")))


GATHERED: dict[str, Any] = {"shape": (8, 4), "location": "fsdp.py:1"}
FAMILIES = [
    Family(
        "AC recompute: modules run on their own lose the prefix of their layer",
        [*layers(), *run("feed_forward/op_6_mm", "feed_forward/op_7_mul", start=50, phase="backward")],
        [
            *layers(),
            *run("layers.2.feed_forward/op_2_mm", "layers.2.feed_forward/op_3_mul", start=50, phase="backward"),
        ],
        {
            "modules": "modules: [{a: feed_forward, b: layers.2.feed_forward}]",
            "pair": "pairs: [{a: feed_forward/op_7_mul, b: layers.2.feed_forward/op_3_mul}]",
            "template": 'templates: [{a: "feed_forward/op_{n}_{x}", b: "layers.2.feed_forward/op_{n-4}_{x}"}]',
        },
        [("feed_forward/op_7_mul", "layers.2.feed_forward/op_3_mul")],
    ),
    Family(
        "counter shift: an in-place collective took op_0",
        run("layers.0/op_0_c_", "layers.0/op_1_c_", "layers.0/op_2_add", "layers.1/op_0_c_", "layers.1/op_1_add"),
        [op("layers.0/op_0_add", 3.0), op("layers.1/op_0_add", 5.0)],
        {
            "pair": "pairs: [{a: layers.0/op_2_add, b: layers.0/op_0_add},"
            " {a: layers.1/op_1_add, b: layers.1/op_0_add}]",
            "template": 'templates: [{a: "layers.0/op_{n}_add", b: "layers.0/op_{n-2}_add"},'
            ' {a: "layers.{i}/op_{n}_add", b: "layers.{i}/op_{n-1}_add", phase: forward}]',
        },
        [("layers.0/op_2_add", "layers.0/op_0_add"), ("layers.1/op_1_add", "layers.1/op_0_add")],
    ),
    Family(
        "collective rename: in place against launch and wait",
        run(*(f"layers.{i}/op_0__allgather_base_" for i in range(2)), **GATHERED),
        [
            record
            for i in range(2)
            for record in (
                op(f"layers.{i}.attention_norm/op_1_all_gather_into_tensor_out", 99.0, **GATHERED),
                op(f"layers.{i}.attention_norm/op_2_wait_tensor", 1.0 + i, **GATHERED),
            )
        ],
        {
            "ops": "ops: [{a: _allgather_base_, b: [all_gather_into_tensor_out, wait_tensor]}]",
            "pair": "pairs: [{a: layers.0/op_0__allgather_base_,"
            " b: [layers.0.attention_norm/op_1_all_gather_into_tensor_out, layers.0.attention_norm/op_2_wait_tensor]}]",
            "template": 'templates: [{a: "layers.{i}/op_{n}__allgather_base_", b: ['
            '"layers.{i}.attention_norm/op_{n+1}_all_gather_into_tensor_out",'
            ' "layers.{i}.attention_norm/op_{n+2}_wait_tensor"]}]',
        },
        [
            ("layers.0/op_0__allgather_base_", "layers.0.attention_norm/op_2_wait_tensor"),
            ("layers.0/op_0__allgather_base_", "layers.0.attention_norm/op_1_all_gather_into_tensor_out"),
        ],
    ),
    Family(
        "communication lowering: the waited value is logged under its consumer",
        run("layers.0/op_1__allgather_base_", "layers.1/op_1__allgather_base_", **GATHERED),
        run("layers.0.attention_norm/op_1_wait_tensor", "layers.1.attention_norm/op_1_wait_tensor", **GATHERED),
        {
            "ops": "ops: [{a: _allgather_base_, b: wait_tensor}]",
            "pair": "pairs: [{a: layers.0/op_1__allgather_base_, b: layers.0.attention_norm/op_1_wait_tensor}]",
            "template": 'templates: [{a: "layers.{i}/op_{n}__allgather_base_",'
            ' b: "layers.{i}.attention_norm/op_{n}_wait_tensor"}]',
        },
        [("layers.0/op_1__allgather_base_", "layers.0.attention_norm/op_1_wait_tensor")],
    ),
    Family(
        "repeated attention math: the pairing is one block off",
        run(*(f"layers.{i}.attention/op_{n}_mul" for i in range(2) for n in range(8)), inputs=[1.0]),
        run(*(f"layers.{i}.attention/op_{n}_mul" for i in range(2) for n in range(8, 16)), inputs=[1.0]),
        {
            "apart": "apart: [{a: layers.0.attention/op_0_mul, b: layers.0.attention/op_9_mul}]",
            "pair": "pairs: [{a: layers.0.attention/op_0_mul, b: layers.0.attention/op_8_mul}]",
            "template": 'templates: [{a: "layers.{i}.attention/op_{n}_mul", b: "layers.{i}.attention/op_{n+8}_mul"}]',
        },
        [("layers.0.attention/op_0_mul", "layers.0.attention/op_8_mul")],
    ),
    Family(
        "backward attribution: operations of the backward pass move to no module",
        [*layers(1), *run("layers.0.attention/op_12_add", "layers.0.attention/op_13_add", start=50, phase="backward")],
        [*layers(1), *run("<none>/op_66_add", "<none>/op_67_add", start=50, phase="backward")],
        {
            "modules": 'modules: [{a: "layers.{i}.attention", b: "<none>"}]',
            "pair": 'pairs: [{a: layers.0.attention/op_12_add, b: "<none>/op_66_add"}]',
            "template": 'templates: [{a: "layers.{i}.attention/op_{n}_add", b: "<none>/op_{n+54}_add",'
            " phase: backward}]",
        },
        [("layers.0.attention/op_12_add", "<none>/op_66_add")],
    ),
    Family(
        "fused and separate: one wqkv against three, of which the results are not compared",
        run(*(f"layers.{i}.attention.w{w}/op_0_mm" for i in range(2) for w in "qkv")),
        run(*(f"layers.{i}.attention.wqkv/op_0_mm" for i in range(2)), start=20, shape=(4, 24)),
        {
            "pair": "pairs: [{a: [layers.0.attention.wq/op_0_mm, layers.0.attention.wk/op_0_mm,"
            " layers.0.attention.wv/op_0_mm], b: layers.0.attention.wqkv/op_0_mm}]\n"
            'ignore: [{side: b, match: "*.wqkv/*"}]',
            "template": 'templates: [{a: ["layers.{i}.attention.wq/op_{n}_mm", "layers.{i}.attention.wk/op_{n}_mm",'
            ' "layers.{i}.attention.wv/op_{n}_mm"], b: "layers.{i}.attention.wqkv/op_{n}_mm"}]\n'
            'ignore: [{side: b, match: "*.wqkv/*", phase: forward}]',
        },
        [(f"layers.0.attention.w{w}/op_0_mm", "layers.0.attention.wqkv/op_0_mm") for w in "qkv"],
    ),
    Family(
        "fused and separate: an optimizer in one step or in several",
        [op("<none>/op_0__fused_adamw_", shape=None, outputs=[], inputs=[3.0], phase="optimizer")],
        [
            op(f"<none>/op_{n}__foreach_{name}_", shape=None, outputs=[], inputs=[1.0 + n], phase="optimizer")
            for n, name in enumerate(("lerp", "addcmul", "addcdiv"))
        ],
        {
            "ops": "ops: [{a: _fused_adamw_, b: [_foreach_lerp_, _foreach_addcmul_, _foreach_addcdiv_],"
            " phase: optimizer}]",
            "pair": 'pairs: [{a: "<none>/op_0__fused_adamw_", b: ["<none>/op_0__foreach_lerp_",'
            ' "<none>/op_1__foreach_addcmul_", "<none>/op_2__foreach_addcdiv_"]}]',
            "template": 'templates: [{a: "{m:name}/op_{n}__fused_adamw_", b: ["{m}/op_{n}__foreach_lerp_",'
            ' "{m}/op_{n+1}__foreach_addcmul_", "{m}/op_{n+2}__foreach_addcdiv_"], phase: optimizer}]',
        },
        [("<none>/op_0__fused_adamw_", "<none>/op_2__foreach_addcdiv_")],
    ),
    Family(
        "duplicated work: a second micro-batch that only one run has",
        [*layers(1), *run("layers.0.attention/op_1_mm", "layers.0.norm/op_1_mul", start=50)],
        layers(1),
        {
            "ignore by key": 'ignore: [{side: a, match: "layers.*/op_1_*"}]',
            "ignore by op": 'ignore: [{side: a, phase: forward, op: mul, match: "*op_1*"},'
            ' {side: a, op: m?, match: "*op_1*"}]',
        },
        ignored=["layers.0.attention/op_1_mm", "layers.0.norm/op_1_mul"],
    ),
    Family(
        "another kernel: small differences that are meant",
        [op("layers.0.attention/op_0_softmax", 1.0, phase="backward")],
        [op("layers.0.attention/op_0_softmax", 1.01, phase="backward")],
        {
            "tolerance": 'tolerance: [{match: "layers.*softmax*", rtol: 0.05}]',
            "tolerance of one side and phase": "tolerance: [{match: '*', side: b, phase: backward, rtol: 0.05}]",
        },
        [("layers.0.attention/op_0_softmax", "layers.0.attention/op_0_softmax")],
    ),
]


def cases() -> list[object]:
    return [pytest.param(f, way, id=f"{f.name.partition(':')[0]}-{way}") for f in FAMILIES for way in f.ways]


@pytest.mark.parametrize(("family", "way"), cases())
def test_a_family_is_settled_by_each_kind_of_rule(family: Family, way: str) -> None:
    a, b = made_up_log(family.a), made_up_log(family.b)
    rules = parse_rules(f"version: 1\n{family.ways[way]}\n", "r.yaml")
    assert not rules.problems
    c = compare(a, b).with_rules(rules)
    keys_a, keys_b = list(a.keys), list(b.keys)
    for key_a, key_b in family.pairs:
        pair = int(c.pairing.of_a[keys_a.index(key_a)])
        assert pair >= 0
        assert pair == c.pairing.of_b[keys_b.index(key_b)]
        assert Status(int(c.status[c.at_a[keys_a.index(key_a)]])) not in RED
        if way in family.made_by:
            assert c.pairing.method[pair] == family.made_by[way]
    for key_a in family.ignored:
        assert c.status[c.at_a[keys_a.index(key_a)]] == Status.IGNORED
    assert [use.problem for use in c.usage] == [None] * len(rules)
    assert all(use.matched for use in c.usage)


def test_without_its_rule_a_family_of_other_ops_or_values_is_not_settled() -> None:
    """So it is the rule that does it."""
    settled = {f.name.partition(":")[0] for f in FAMILIES if _settled(f, RuleSet())}
    assert settled.isdisjoint({"communication lowering", "fused and separate", "duplicated work", "another kernel"})


def _settled(family: Family, rules: RuleSet) -> bool:
    a, b = made_up_log(family.a), made_up_log(family.b)
    c = compare(a, b, rules)
    keys_a, keys_b = list(a.keys), list(b.keys)
    together = [c.at_a[keys_a.index(key_a)] == c.at_b[keys_b.index(key_b)] for key_a, key_b in family.pairs]
    alone = [c.status[c.at_a[keys_a.index(key)]] == Status.IGNORED for key in family.ignored]
    return all((*together, *alone)) and not c.red.any()
