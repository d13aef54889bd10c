"""Modules under new names: what a rename does to the pairs, and when everything is aligned anew."""

from __future__ import annotations

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.rules.model import ModuleRule, RuleSet
from tests.builders import Op, op
from tests.matchers.drifted_logs import made_up_log


def twins(first: str, second: str, start: float, layers: int = 30) -> OpLog:
    """Layers in which two modules do the same with much the same numbers, and plenty of operations around them."""
    ops: list[Op] = []
    for layer in range(layers):
        value = start + layer
        ops += [op(f"layers.{layer}/op_{n}_mm", value + n / 7, shape=(4, 8 + n)) for n in range(20)]
        ops += [op(f"layers.{layer}.{name}/op_0_mul", value, location=None) for name in (first, second)]
    return made_up_log(ops)


def partners(a: OpLog, b: OpLog, *rules: ModuleRule) -> dict[str, str]:
    c = compare(a, b).with_rules(RuleSet(rules))
    of_a = c.pairing.partner_of_a.tolist()
    return {a.keys[i]: b.keys[j] for i, j in enumerate(of_a) if j >= 0 and "mul" in a.keys[i]}


def test_a_few_modules_go_where_their_new_name_says() -> None:
    """Nothing but the names tells the twins apart, and by their own names they would stay in order."""
    a, b = twins("left", "right", 1.0), twins("up", "down", 500.0)
    straight = partners(a, b, ModuleRule(a="layers.{i}.left", b="layers.{i}.up"))
    crossed = partners(a, b, ModuleRule(a="layers.{i}.left", b="layers.{i}.down"))
    assert {straight.get(f"layers.{i}.left/op_0_mul") for i in range(30)} == {
        f"layers.{i}.up/op_0_mul" for i in range(30)
    }
    assert {crossed.get(f"layers.{i}.left/op_0_mul") for i in range(30)} == {
        f"layers.{i}.down/op_0_mul" for i in range(30)
    }


def test_only_a_rename_of_many_rows_is_aligned_anew() -> None:
    a, b = twins("left", "right", 1.0), twins("up", "down", 500.0)
    plain = compare(a, b)
    assert plain.matching is not None
    few = plain.with_rules(RuleSet((ModuleRule(a="layers.{i}.left", b="layers.{i}.down"),))).matching
    many = plain.with_rules(RuleSet((ModuleRule(a="layers.{i}", b="blocks.{i}"),))).matching
    assert few is not None
    assert many is not None
    assert few.alignment.weights is plain.matching.alignment.weights
    assert many.alignment.weights is not plain.matching.alignment.weights


def test_the_order_of_names_is_that_of_the_new_ones() -> None:
    a, b = twins("left", "right", 1.0), twins("up", "down", 500.0)
    matching = compare(a, b).matching
    assert matching is not None
    features = matching.features
    before = features.by_names[1].tolist()
    other = features.renamed([name.replace("left", "down") for name in a.modules], range(len(a.modules)))
    assert other.by_names[1].tolist() != before
    assert features.by_names[1].tolist() == before


def test_names_that_were_seen_through_change_nothing() -> None:
    """The class of the root and wrappers are left out of paths anyway."""
    a, b = twins("left", "right", 1.0), twins("left", "right", 500.0)
    wrapped = made_up_log([op(f"Root.{key}", 1.0) for key in a.keys])
    plain = compare(wrapped, b)
    assert plain.matching is not None
    again = plain.with_rules(RuleSet((ModuleRule(a="Root.{rest:path}", b="{rest}"),))).matching
    assert again is not None
    assert again.alignment is plain.matching.alignment
