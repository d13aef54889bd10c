"""The grammar of rule files: what is read, and what is said about the rest."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.ops.share import Holds
from matchers.rules.file import RuleFile, parse_rules
from matchers.rules.model import (
    SECTIONS,
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RowsRule,
    Rule,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)
from tests.conftest import REPOSITORY

ALL = """\
version: 1
pairs:
  - a: feed_forward/op_7_mul
    b: layers.2.feed_forward/op_3_mul
    why: AC recompute is logged under the short FQN
  - {a: layers.0/op_0__allgather_base_, b: [x/op_1_all_gather_into_tensor_out, x/op_2_wait_tensor]}
apart:
  - a: x
    b: "y"
templates:
  - a: "layers.{i}/op_{n}_add"
    b: "layers.{i}/op_{n-2}_add"
modules:
  - a: "FSDPLlama3Model.{rest:path}"
    b: "{rest}"
ops:
  - a: _allgather_base_
    b: [all_gather_into_tensor_out, wait_tensor]
ignore:
  - side: b
    op: wait_tensor
    why: asynchronous
  - match: "*.norm/*"
tolerance:
  - match: "layers.*.attention/*softmax*"
    rtol: 1.0e-5
  - match: x
    rtol: 1e-3
"""


def test_everything() -> None:
    rules = parse_rules(ALL, "r.yaml")
    assert not rules.problems
    assert rules.of(PairRule) == (
        PairRule(
            a=("feed_forward/op_7_mul",),
            b=("layers.2.feed_forward/op_3_mul",),
            why="AC recompute is logged under the short FQN",
        ),
        PairRule(a=("layers.0/op_0__allgather_base_",), b=("x/op_1_all_gather_into_tensor_out", "x/op_2_wait_tensor")),
    )
    assert rules.of(ApartRule) == (ApartRule(a="x", b="y"),)
    assert rules.of(TemplateRule) == (TemplateRule(a=("layers.{i}/op_{n}_add",), b=("layers.{i}/op_{n-2}_add",)),)
    assert rules.of(ModuleRule) == (ModuleRule(a="FSDPLlama3Model.{rest:path}", b="{rest}"),)
    assert rules.of(OpRule) == (OpRule(a=("_allgather_base_",), b=("all_gather_into_tensor_out", "wait_tensor")),)
    assert rules.of(IgnoreRule) == (
        IgnoreRule(side=Side.B, op="wait_tensor", why="asynchronous"),
        IgnoreRule(match="*.norm/*"),
    )
    assert rules.of(ToleranceRule) == (
        ToleranceRule(match="layers.*.attention/*softmax*", rtol=1e-5),
        ToleranceRule(match="x", rtol=1e-3),
    )
    assert [rule.line for rule in rules.of(PairRule)] == [3, 6]
    assert rules.where(rules.of(ApartRule)[0]) == "r.yaml:8"


def test_a_rule_can_be_disabled() -> None:
    rules = parse_rules("apart:\n  - {a: x, b: y, enabled: False}\n  - {a: x, b: y, enabled: true}\n")
    assert not rules.problems
    assert rules.rules == (ApartRule(a="x", b="y", enabled=False), ApartRule(a="x", b="y"))
    assert rules.in_force(ApartRule) == ((1, ApartRule(a="x", b="y")),)


def test_the_example_has_every_section_and_no_problem() -> None:
    path = REPOSITORY / "overrides.example.yaml"
    file = RuleFile.load(path)
    assert not file.rules.problems
    assert {type(rule) for rule in file.rules} == set(SECTIONS)
    assert file.render(file.rules) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pairs:\n  - a: x\n    bb: y\n", "r:3:5: unknown field 'bb' in pairs (did you mean 'b'?)"),
        ("pairs:\n  - a: x\n    zzz: y\n", "r:3:5: unknown field 'zzz' in pairs; known are a, b, why, enabled"),
        ("pairs:\n  - a: x\n", "r:2:5: a rule in pairs needs 'b'"),
        ("pairs:\n  - a: x\n    b:\n", "r:3:7: 'b' has no value"),
        ("pairs:\n  - a: null\n    b: y\n", "r:2:8: 'a' has no value (quote it if it is a name)"),
        ("pairs:\n  - a: x\n    a: y\n", "r:3:5: 'a' occurs twice"),
        ("pairs:\n  - a: x\n    b: y\n    enabled: no\n", "r:4:14: 'enabled' must be true or false, not 'no'"),
        ("pairs:\n  - a: x\n    b: y\n    enabled:\n", "r:4:13: 'enabled' has no value"),
        ("pairs:\n  - a: []\n    b: y\n", "r:2:8: 'a' is an empty list"),
        ("pairs:\n  - a: [x, [y]]\n    b: y\n", "r:2:12: 'a' must be text, found a list"),
        ("pairs:\n  - a: [x, x]\n    b: y\n", "r:2:12: 'a' names 'x' twice"),
        ("pairs:\n  - a: ''\n    b: y\n", "r:2:5: 'a' is empty"),
        ("pairs:\n  - x\n", "r:2:5: expected a rule with 'a: …', 'b: …', found 'x'"),
        ("pairs:\n  -\n", "r:2:4: expected a rule with 'a: …', 'b: …', found nothing"),
        ("pairs:\n  a: x\n  b: y\n", "r:2:3: 'pairs' must be a list of rules, each starting with '- '"),
        ("pairs: &x []\nops: *x\n", "r:2:6: 'ops' must be a list of rules, each starting with '- '"),
        (
            "pairs: [{a: &x k, b: *x}]\n",
            "r:1:22: 'b' must be text, found the alias *x, which rule files do not allow: write it out",
        ),
        ("pairs: [!!python/object:os.system {a: x}]\n", "found the tag tag:yaml.org,2002:python/object:os.system"),
        ("pairs:\n  - <<: {a: x}\n    b: y\n", "r:2:5: unknown field '<<' in pairs; known are a, b, why, enabled"),
        ("apart:\n  - a: [x]\n    b: y\n", "r:2:8: 'a' must be text, found a list"),
        ("templates:\n  - a: 'l.{i'\n    b: y\n", "r:2:11: a placeholder is {name}"),
        (
            "templates:\n  - a: l.{i}\n    b: '{n}'\n",
            "r:3:9: {n} is not captured on the other side, which captures {i}",
        ),
        ("modules:\n  - a: x\n    b: [y]\n", "r:3:8: 'b' must be text, found a list"),
        ("ignore:\n  - side: c\n    op: x\n", "r:2:11: 'side' must be a or b, not 'c'; omit it for both"),
        ("ignore:\n  - side: a\n", "r:2:5: 'op' or 'match' is required"),
        (
            "tolerance:\n  - match: x\n    rtol: lots\n",
            "r:3:11: 'rtol' must be a relative error such as 1.0e-5, not 'lots'",
        ),
        (
            "tolerance:\n  - match: x\n    rtol: -1\n",
            "r:3:11: 'rtol' must be a relative error such as 1.0e-5, not '-1'",
        ),
        (
            "tolerance:\n  - match: x\n    rtol: .nan\n",
            "r:3:11: 'rtol' must be a relative error such as 1.0e-5, not '.nan'",
        ),
        ("tolerance:\n  - match: x\n    rtol: nan\n", "r:3:11: 'rtol' must be"),
        ("tolerance:\n  - match: " + "x" * 5000 + "\n    rtol: 1\n", "r:2:5: 'match' is longer than 4,096 characters"),
        ("ops:\n  - a: x\n    b: y\n    why: [z]\n", "r:4:10: 'why' must be text, found a list"),
        ("version: 2\n", "r:1:10: expected 'version: 1', found version 2"),
        ("version: [1]\n", "r:1:10: expected 'version: 1', found a list"),
        ("pair: []\n", "r:1:1: unknown section 'pair' (did you mean 'pairs'?)"),
        ("[x]: y\n", "r:1:1: expected the name of a section, found a list"),
        ("ops: []\nops: []\n", "r:2:1: 'ops' occurs twice, first in line 1"),
        ("- a\n", "r:1:1: expected sections such as 'pairs:', found a list"),
        ("hello\n", "r:1:1: expected sections such as 'pairs:', found 'hello'"),
        ("a: b\n--- \nc: d\n", "r:2:1: a second document starts here"),
        ("pairs: [\n", "r:2:1: this is not YAML"),
        ("pairs:\n\t- a: x\n", "r:2:1: this is not YAML"),
        ("ok: 1\nx: \x1b[31m\n", r"r:2:4: YAML does not allow the character \x1b"),
        ("[" * 50, "r:1:17: nested too deeply for a rule file"),
        ('a: "\\ud800', "r:1:"),
        ("a: *x\nb: &x [*x]\n", "unknown section"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(text: str, message: str) -> None:
    problems = [str(problem) for problem in parse_rules(text, "r").problems]
    assert any(message in problem for problem in problems), problems


def test_what_is_wrong_costs_only_itself() -> None:
    text = "version: 3\nnonsense: 1\npairs:\n  - a: x\n    c: y\n  - a: x\n    b: y\nops: 5\nignore:\n  - op: z\n"
    rules = parse_rules(text, "r")
    assert rules.rules == (PairRule(a=("x",), b=("y",)), IgnoreRule(op="z"))
    assert [problem.line for problem in rules.problems] == [1, 2, 5, 8]


BROKEN = """\
version: 2
pairs:
  - {a: first/op_0_add, b: first/op_1_add}
  - a: x/op_0_add
    bb: y/op_0_add
  - a: x/op_0_add
  - a: x/op_0_add
    b:
  - a: [x/op_0_add, [y/op_0_add]]
    b: z/op_0_add
  - a: x/op_0_add
    a: y/op_0_add
    b: z/op_0_add
  - b: [z/op_0_add, z/op_0_add]
    a: x/op_0_add
  - x/op_0_add
templates:
  - a: "layers.{i/op_0_add"
    b: y
  - a: "layers.{i}/op_0_add"
    b: ["layers.{i}/op_0_add", "layers.{j}/op_1_add"]
  - a: "{x}/op_{n}_add"
    b: "{x+1}/op_{n}_add"
  - a: "layers.{i}/op_{n}_add"
    b: "layers.{i}/op_{n-1}_add"
    phase: bwd
  - {a: "good.{i}/{x}", b: "{x}.{i}"}
modules:
  - a: "M.{rest:paths}"
    b: "{rest}"
ops:
  - a: [mm, add]
    b: [bmm, mul]
  - {a: mm, b: bmm}
ignore:
  - side: c
    op: wait_tensor
  - side: a
tolerance:
  - match: "*"
    rtol: small
  - match: "*"
    rtol: -0.1
  - match: "*"
    rtol: 0.1
pair:
  - {a: x, b: y}
apart: none
"""
MISTAKES = """\
r:1:10: expected 'version: 1', found version 2
r:5:5: unknown field 'bb' in pairs (did you mean 'b'?)
r:6:5: a rule in pairs needs 'b'
r:8:7: 'b' has no value
r:9:21: 'a' must be text, found a list
r:12:5: 'a' occurs twice
r:14:21: 'b' names 'z/op_0_add' twice
r:16:5: expected a rule with 'a: …', 'b: …', found 'x/op_0_add'
r:18:16: a placeholder is {name}, {name:path}, {name:int}, {n+1}, {4n+1} or {5-n} (in 'a')
r:21:33: {j} is not captured on the other side, which captures {i} (in 'b')
r:23:9: {x} is not a number; write {x:int} where it is captured (in 'b')
r:26:12: 'phase' must be forward, backward, optimizer, other, prepare, gradients or after, not 'bwd'; omit it for all
r:29:11: {rest:paths}: a placeholder is of kind int, name, path (in 'a')
r:32:5: 'a' or 'b' must be a single op: a chain of ops matches one op, not another chain
r:36:11: 'side' must be a or b, not 'c'; omit it for both
r:38:5: 'op' or 'match' is required
r:41:11: 'rtol' must be a relative error such as 1.0e-5, not 'small'
r:43:11: 'rtol' must be a relative error such as 1.0e-5, not '-0.1'
r:46:1: unknown section 'pair' (did you mean 'pairs'?)
r:48:8: 'apart' must be a list of rules, each starting with '- '
"""


def test_every_mistake_of_a_file_is_told_and_the_good_rules_stay() -> None:
    rules = parse_rules(BROKEN, "r")
    told = [str(problem) for problem in rules.problems]
    assert told == MISTAKES.splitlines()
    assert len(set(told)) == len(told) == 20
    assert rules.rules == (
        OpRule(a=("mm",), b=("bmm",)),
        TemplateRule(a=("good.{i}/{x}",), b=("{x}.{i}",)),
        PairRule(a=("first/op_0_add",), b=("first/op_1_add",)),
        ToleranceRule(match="*", rtol=0.1),
    )


def test_what_ranks_may_hold() -> None:
    rules = parse_rules("layout:\n  - match: x\n    holds: partial\n  - match: y\n    holds: norm\n", "r")
    assert rules.rules == (LayoutRule(match="x", holds=Holds.PARTIAL),)
    (problem,) = rules.problems
    assert str(problem) == "r:5:12: 'holds' must be replica, shard, partial or unknown, not 'norm'"


def test_rows_are_named_as_a_text_or_a_list() -> None:
    rules = parse_rules("rows:\n  - {a: [0, 9], b: '[0,0]'}\n  - {a: [x], b: ':'}\n", "r")
    assert rules.rules == (RowsRule(a="0, 9", b="0, 0"),)
    assert str(rules.problems[0]).startswith("r:3:9: 'a' must be an index of rows such as ':, 9'")


def test_text_is_text_whatever_yaml_would_make_of_it() -> None:
    rules = parse_rules("apart:\n  - a: yes\n    b: 1_000\n  - a: 2024-01-01\n    b: |\n      x\n")
    assert rules.rules == (ApartRule(a="yes", b="1_000"), ApartRule(a="2024-01-01", b="x"))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing\n", "---\n", "\ufeff", "version: 1\n", "pairs:\nops: []\nignore: ~\n"]
)
def test_nothing_is_no_problem(text: str) -> None:
    assert parse_rules(text) == RuleSet()
    assert not parse_rules(text).problems


def test_aliases_cannot_explode() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    begin = time.process_time()
    assert len(parse_rules(text + "pairs: *a39\n").problems) == 41
    assert time.process_time() - begin < 2


@given(st.text("ab:-[]{}*&!|>'\"#,\n \t?%@`~<", max_size=40) | st.text(max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    parse_rules(text)
    for problem in parse_rules(f"pairs:\n  - {text}\n", "r").problems:
        assert str(problem).startswith("r:")


# Rules and sets


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairRule(a=(), b=("y",)), "'a' is an empty list"),
        (lambda: ApartRule(a="", b="y"), "'a' is empty"),
        (lambda: ApartRule(a="\udcff", b="y"), "surrogate"),
        (lambda: ModuleRule(a="{", b="y"), "placeholder"),
        (lambda: ModuleRule(a="x", b="{rest}"), "not captured"),
        (lambda: IgnoreRule(side="c", op="x"), "'c' is not a valid Side"),  # type: ignore[arg-type]
        (lambda: ToleranceRule(match="x", rtol=float("inf")), "rtol"),
        (lambda: LayoutRule(match="x", holds=Holds.NORM), "'holds' must be replica, shard, partial, unknown, not"),
    ],
)
def test_a_rule_that_makes_no_sense_cannot_be_made(make: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_rules_are_values() -> None:
    assert IgnoreRule(side="a", op="x") == IgnoreRule(side=Side.A, op="x", line=7, why=" ")
    assert len({IgnoreRule(side="a", op="x"), IgnoreRule(side=Side.A, op="x", line=7)}) == 1
    assert PairRule(a=("x",), b=("y",)) != PairRule(a=("x",), b=("y",), why="z")
    assert str(Side.A) == "a"


def test_sets_keep_the_order_of_kinds() -> None:
    pair, ignore, module = PairRule(a=("x",), b=("y",)), IgnoreRule(op="x"), ModuleRule(a="x", b="y")
    rules = RuleSet((ignore, pair)).adding(module).adding(pair)
    assert rules.rules == (module, pair, pair, ignore)
    assert [type(rule) for rule in rules] == sorted(map(type, rules), key=SECTIONS.index)
    assert rules.removing(pair).removing(pair) == RuleSet((module, ignore))
    assert len(rules) == 4
    assert not RuleSet()
    with pytest.raises(ValueError, match="not in this set"):
        RuleSet().removing(pair)


def test_removing_takes_the_very_object() -> None:
    first, second = IgnoreRule(op="x", line=1), IgnoreRule(op="x", line=2)
    rules: tuple[Rule, ...] = (first, second)
    assert RuleSet(rules).removing(first).rules[0] is second
    assert RuleSet(rules).removing(IgnoreRule(op="x")).rules[0] is first


def test_rules_alone_import_no_yaml() -> None:
    code = "import matchers.rules.model, sys; assert 'yaml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)
