"""One pair becomes the template for all its siblings, and what does not fit is named with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.drift.generalise import NoTemplateError, Proposal, generalise
from matchers.logs.parser import read_log
from matchers.rules.model import ApartRule, ModuleRule, PairRule, Rule, RuleSet, TemplateRule
from matchers.rules.resolve import resolve
from tests.builders import Op, op, write_log
from tests.conftest import DATA as REPOSITORY_DATA

Compared = Callable[[Sequence[Op], Sequence[Op]], Comparison]


@pytest.fixture
def compared(tmp_path: Path) -> Compared:
    def compare_ops(a: Sequence[Op], b: Sequence[Op]) -> Comparison:
        return compare(
            read_log(write_log(tmp_path / "a.log", a)),
            read_log(write_log(tmp_path / "b.log", b)),
        )

    return compare_ops


def layer_ops(key: str, layers: Sequence[int] = range(6), **fields: object) -> list[Op]:
    """One operation in each layer, with a value that only this layer has."""
    return [op(key.format(i=layer), 1.5 + layer * 7, **fields) for layer in layers]


def plain(keys: Iterable[str]) -> list[Op]:
    """Operations that differ in their keys only."""
    return [op(key) for key in keys]


def row(log_keys: Sequence[str], key: str) -> int:
    return list(log_keys).index(key)


def proposed(c: Comparison, a: str, b: str | Sequence[str], *rules: Rule) -> Proposal:
    keys_b = [b] if isinstance(b, str) else b
    return generalise(c, RuleSet(rules, path="r.yaml"), [row(c.a.keys, a)], [row(c.b.keys, key) for key in keys_b])


def promised(c: Comparison, proposal: Proposal, *rules: Rule) -> None:
    """The rules with the proposal make exactly as many pairs by the template as places fit."""
    out = resolve(proposal.applied(RuleSet(rules)), c.a, c.b)
    made = [forced for forced in out.forced if forced.template]
    assert len(made) == len(proposal.fits)


def test_every_layer_fits(compared: Compared) -> None:
    c = compared(layer_ops("layers.{i}/op_1_add"), layer_ops("layers.{i}/op_0_add"))
    out = proposed(c, "layers.3/op_1_add", "layers.3/op_0_add")
    assert out.rule == TemplateRule(a=("layers.{i}/op_1_add",), b=("layers.{i}/op_0_add",))
    assert out.fits == tuple(f"layer {layer}" for layer in range(6))
    assert out.text == "all 6 layers fit"
    assert not out.misfits
    assert not out.apart
    promised(c, out)


def test_pairs_made_by_hand_give_way_to_the_template(compared: Compared) -> None:
    c = compared(layer_ops("layers.{i}/op_1_add"), layer_ops("layers.{i}/op_0_add"))
    by_hand = [PairRule(a=(f"layers.{i}/op_1_add",), b=(f"layers.{i}/op_0_add",), why="by eye") for i in (1, 3)]
    out = proposed(c, "layers.3/op_1_add", "layers.3/op_0_add", *by_hand)
    assert out.replaces == tuple(by_hand)
    assert list(out.applied(RuleSet(tuple(by_hand)))) == [out.rule]
    assert out.text == "all 6 layers fit"


def test_what_does_not_exist_is_named(compared: Compared) -> None:
    c = compared(
        [*layer_ops("layers.{i}/op_1_add", [0, 1, 2, 3, 5]), op("layers.4/op_0_mul", 3.25)],
        [*layer_ops("layers.{i}/op_0_add", [0, 1, 3, 4, 5])],
    )
    out = proposed(c, "layers.0/op_1_add", "layers.0/op_0_add")
    assert out.text == (
        "4 of 6 layers fit; layer 2 does not, because b has no operation 'layers.2/op_0_add'; "
        "layer 4 does not, because a has no operation 'layers.4/op_1_add'"
    )
    promised(c, out)


def test_a_long_list_of_misfits_is_cut(compared: Compared) -> None:
    c = compared(layer_ops("layers.{i}/op_1_add", range(9)), layer_ops("layers.{i}/op_0_add", range(4)))
    out = proposed(c, "layers.0/op_1_add", "layers.0/op_0_add")
    assert len(out.misfits) == 5
    assert out.text.startswith("4 of 9 layers fit; layer 4 does not, because")
    assert out.text.endswith("; 2 more do not")


def test_what_another_rule_pairs_is_left_to_it(compared: Compared) -> None:
    c = compared(
        [*layer_ops("layers.{i}/op_1_add"), op("x/op_0_add", 3.0)],
        [*layer_ops("layers.{i}/op_0_add"), op("y/op_0_add", 4.0)],
    )
    rules: list[Rule] = [
        PairRule(a=("layers.1/op_1_add",), b=("y/op_0_add",), line=12),
        PairRule(a=("x/op_0_add",), b=("layers.2/op_0_add",)),
        ApartRule(a="layers.4/op_1_add", b="layers.4/op_0_add"),
    ]
    out = proposed(c, "layers.0/op_1_add", "layers.0/op_0_add", *rules)
    assert [misfit.reason for misfit in out.misfits] == [
        "'layers.1/op_1_add' of a is already paired with 'y/op_0_add' of b by r.yaml:12",
        "'layers.2/op_0_add' of b is already paired with 'x/op_0_add' of a by the new rule in pairs",
        "a rule keeps 'layers.4/op_1_add' of a and 'layers.4/op_0_add' of b apart",
    ]
    assert out.fits == ("layer 0", "layer 3", "layer 5")
    assert not out.apart, "these rules win over a template as they are"
    promised(c, out, *rules)


def test_shapes_that_differ_only_there(compared: Compared) -> None:
    b = layer_ops("layers.{i}/op_0_add")
    b[2].shape = (2, 2)
    c = compared(layer_ops("layers.{i}/op_1_add"), b)
    out = proposed(c, "layers.0/op_1_add", "layers.0/op_0_add")
    assert out.text == "5 of 6 layers fit; layer 2 does not, because the shapes differ: [4, 8] in a, [2, 2] in b"
    (apart,) = out.apart
    assert (apart.a, apart.b) == ("layers.2/op_1_add", "layers.2/op_0_add")
    promised(c, out)


def test_shapes_that_differ_in_the_pair_itself_do_not_count(compared: Compared) -> None:
    c = compared(layer_ops("layers.{i}/op_1_add"), layer_ops("layers.{i}/op_0_add", shape=(2, 8)))
    assert proposed(c, "layers.0/op_1_add", "layers.0/op_0_add").text == "all 6 layers fit"


def test_values_that_are_equal_elsewhere(compared: Compared) -> None:
    b = layer_ops("layers.{i}/op_0_add")
    b[3] = op("layers.3/op_0_add", 1000.0)
    b.append(op("<none>/op_9_add", 1.5 + 3 * 7))
    c = compared(layer_ops("layers.{i}/op_1_add"), b)
    out = proposed(c, "layers.0/op_1_add", "layers.0/op_0_add")
    assert out.text == (
        "5 of 6 layers fit; layer 3 does not, because 'layers.3/op_1_add' of a has the values of '<none>/op_9_add' of b"
    )
    promised(c, out)

    turned = compared(b, layer_ops("layers.{i}/op_1_add"))
    out = proposed(turned, "layers.0/op_0_add", "layers.0/op_1_add")
    assert [misfit.reason for misfit in out.misfits] == [
        "'layers.3/op_1_add' of b has the values of '<none>/op_9_add' of a"
    ]


def test_values_do_not_count_when_the_pair_itself_goes_against_them(compared: Compared) -> None:
    """Whoever pairs operations whose values are equal elsewhere has said that values are no reason."""
    b = [op(f"layers.{i}/op_{k}_add", 1.5 + (i * 2 + k) * 7) for i in range(4) for k in (0, 1)]
    c = compared(layer_ops("layers.{i}/op_0_add", [0, 2, 4, 6]), b)
    a = [op(f"layers.{i}/op_0_add", 1.5 + i * 2 * 7) for i in range(4)]
    c = compared(a, b)
    assert proposed(c, "layers.0/op_0_add", "layers.0/op_1_add").text == "all 4 layers fit"


def test_groups(compared: Compared) -> None:
    names = ("op_1_all_gather_into_tensor_out", "op_2_wait_tensor")
    b = [op(f"layers.{i}.norm/{name}", 2.5 + i * 9 + k) for i in range(4) for k, name in enumerate(names)]
    c = compared(layer_ops("layers.{i}/op_0__allgather_base_", range(4)), b)
    out = proposed(c, "layers.1/op_0__allgather_base_", [f"layers.1.norm/{name}" for name in names])
    assert out.rule.a == ("layers.{i}/op_0__allgather_base_",)
    assert out.rule.b == tuple(f"layers.{{i}}.norm/{name}" for name in names)
    assert out.text == "all 4 layers fit"
    promised(c, out)


def test_numbers_of_b_follow_those_of_a(compared: Compared) -> None:
    a = plain([f"model.layers.{i}.experts.{j}/op_0_mm" for i in (0, 1) for j in (0, 1)])
    b = plain([f"stage.layers.{i + 4}.experts.{j}/op_1_mm" for i in (0, 1) for j in (0, 1)])
    out = proposed(compared(a, b), "model.layers.0.experts.0/op_0_mm", "stage.layers.4.experts.0/op_1_mm")
    assert out.rule.a == ("model.layers.{i}.experts.{j}/op_0_mm",)
    assert out.rule.b == ("stage.layers.{i+4}.experts.{j}/op_1_mm",)
    assert out.text == "all 4 places fit"
    assert out.fits[3] == "model.layers.1.experts.1"


def test_no_more_placeholders_than_needed(compared: Compared) -> None:
    a = plain([f"layers.{i}.0/op_0_mm" for i in range(3)])
    out = proposed(compared(a, a), "layers.1.0/op_0_mm", "layers.1.0/op_0_mm")
    assert out.rule.a == ("layers.{i}.0/op_0_mm",)


def test_places_that_have_no_name_of_their_own(compared: Compared) -> None:
    a, b = plain([f"{i}.x/op_0_mm" for i in range(3)]), plain([f"m.{i}/op_0_mm" for i in range(3)])
    out = proposed(compared(a, b), "1.x/op_0_mm", "m.1/op_0_mm")
    assert out.rule == TemplateRule(a=("{i}.x/op_0_mm",), b=("m.{i}/op_0_mm",))
    assert out.fits == ("0", "1", "2")
    assert out.text == "all 3 places fit"


def test_braces_in_keys(compared: Compared) -> None:
    log = plain([f"l.{i}.{{x}}/op_0_mm" for i in range(3)])
    out = proposed(compared(log, log), "l.0.{x}/op_0_mm", "l.0.{x}/op_0_mm")
    assert out.rule.a == ("l.{i}.{{x}}/op_0_mm",)
    assert len(out.fits) == 3


def test_keys_that_repeat_are_paired_in_order(compared: Compared) -> None:
    twice = plain([key for i in range(3) for key in [f"layers.{i}/op_0_mm"] * 2])
    c = compared(twice, twice)
    assert generalise(c, RuleSet(), [1], [1]).text == "all 3 layers fit"
    with pytest.raises(NoTemplateError, match="paired in order"):
        generalise(c, RuleSet(), [0], [1])


def test_keys_that_repeat_only_there(compared: Compared) -> None:
    a = plain(["layers.0/op_0_mm", "layers.1/op_0_mm", "layers.2/op_0_mm", "layers.2/op_0_mm"])
    b = plain(["layers.0/op_0_mm", "layers.1/op_0_mm", "layers.2/op_0_mm"])
    c = compared(a, b)
    out = proposed(c, "layers.0/op_0_mm", "layers.0/op_0_mm")
    assert out.text == "2 of 3 layers fit; layer 2 does not, because the keys repeat: 2 in a, 1 in b"
    assert [(rule.a, rule.b) for rule in out.apart] == [("layers.2/op_0_mm#1", "layers.2/op_0_mm")]
    promised(c, out)


def test_modules_that_the_rules_rename(compared: Compared) -> None:
    a = plain(["layers.0/op_0_mm", *(f"root.layers.{i}/op_0_mm" for i in (1, 2))])
    b = plain([f"layers.{i}/op_1_mm" for i in range(3)])
    rename = ModuleRule(a="root.{rest:path}", b="{rest}")
    out = proposed(compared(a, b), "layers.0/op_0_mm", "layers.0/op_1_mm", rename)
    assert out.text == "all 3 layers fit"


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("feed_forward/op_7_mul", "layers.2.feed_forward/op_3_mul", "do not both have a layer number"),
        ("layers.0/op_0_add", "<none>/op_1_add", "do not both have a layer number"),
        ("op", "layers.2.feed_forward/op_3_mul", "do not both have a layer number"),
        ("only.0/op_0_add", "layers.0/op_0_add", "has no siblings: only 1 does not, because a has no operation"),
        ("one.0/op_0_add", "layers.0/op_0_add", "has no siblings$"),
        ("layers." + "x" * 5000 + ".0/op_0_add", "layers.0/op_0_add", "do not both have a layer number"),
    ],
)
def test_where_there_is_no_template(compared: Compared, a: str, b: str, reason: str) -> None:
    log_a = plain([a, "layers.5/op_0_add", "only.1/op_0_mm"])
    log_b = plain([b, "layers.7/op_1_add"])
    with pytest.raises(NoTemplateError, match=reason.replace("only 1", "only.1")):
        proposed(compared(log_a, log_b), a, b)


def test_pairs_that_are_not_for_a_template(compared: Compared) -> None:
    log = plain([f"layers.{i}/op_{k}_mm" for i in range(3) for k in range(2)])
    c = compared(log, log)
    with pytest.raises(NoTemplateError, match="one operation of a"):
        generalise(c, RuleSet(), [0, 1], [0])
    template = TemplateRule(a=("layers.{n}/op_0_mm",), b=("layers.{n}/op_0_mm",), line=3)
    with pytest.raises(NoTemplateError, match=r"a template already makes this pair: r\.yaml:3"):
        proposed(c, "layers.0/op_0_mm", "layers.0/op_0_mm", template)
    with pytest.raises(NoTemplateError, match=r"miss this pair itself, because 'layers\.0/op_0_mm' of a is already"):
        proposed(c, "layers.0/op_0_mm", "layers.0/op_1_mm", template)


@pytest.mark.parametrize("names", [("fsdp2", "fsdp2_traced"), ("ac_none", "ac_full")])
def test_on_real_logs_a_proposal_pairs_nothing_that_the_matching_pairs_otherwise(names: tuple[str, str]) -> None:
    a, b = (read_log(REPOSITORY_DATA / f"{name}.log.gz") for name in names)
    c = compare(a, b)
    general = 0
    for pair in range(0, len(c.pairing), 7):
        try:
            out = generalise(c, RuleSet(), *c.pairing.members(pair))
        except NoTemplateError:
            continue
        general += 1
        forced = resolve(out.applied(RuleSet()), a, b).forced
        assert len(forced) >= len(out.fits)
        np.testing.assert_array_equal(
            c.pairing.of_a[[pair.a[-1] for pair in forced]], c.pairing.of_b[[pair.b[-1] for pair in forced]]
        )
    assert general > 40
