"""What only one log records is not a difference: logs of one run, one of them without part of its fields."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.facts import facts_of
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.rules.file import parse_rules
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.builders import training_step
from tests.captured import Step, write_captured
from tests.matchers.drifted_logs import made_up_log

NUMBERS = "L1 norm|L2 norm|Min|Max|Mean|Counts|Sketch"
HASHES = "Output hash|Input hashes"

RNG = np.random.default_rng(0)
X, W, G = (RNG.normal(size=(8, 4)).astype(np.float32) for _ in range(3))
LATER = W - 0.5 * G


def steps(left: Any = LATER) -> list[Step]:
    """A step of an optimizer whose operations return nothing, between two that do."""
    optimizer = {"phase": "optimizer", "parameters": ("w", "w.grad")}
    return [
        Step(key="m/op_0_mul", gives=[X * W], reads=[X, W]),
        Step(key="optimizer/op_0__foreach_add_", reads=[W, G], changed={0: left}, fields=optimizer),
        Step(key="optimizer/op_1__foreach_mul_", reads=[left, G], changed={0: 2 * left}, fields=optimizer),
        Step(key="m/op_1_neg", gives=[-X], reads=[X]),
    ]


@pytest.fixture
def logs(tmp_path: Path) -> Callable[..., OpLog]:
    def without(fields: str, made: list[Step], name: str = "a", entry: str = "") -> OpLog:
        """A log without some of its fields; `entry`: what is left of each entry of `Mutated`."""
        path = tmp_path / f"{name}.log"
        write_captured(path, made, parameter_digests={"w": "00000000000000ff"})
        text = path.read_text()
        if entry:
            kept = entry.split()
            text = re.sub(
                r"(?<=  Mutated: ).*",
                lambda m: json.dumps([{k: v for k, v in e.items() if k in kept} for e in json.loads(m[0])]),
                text,
            )
        path.write_text(re.sub(rf"  ({fields}): .*\n", "", text) if fields else text)
        return read_log(path)

    return without


def both_ways(a: OpLog, b: OpLog) -> list[Comparison]:
    return [compare(a, b), compare(b, a)]


@pytest.mark.parametrize(
    "fields", ["Mutated", f"{NUMBERS}|Mutated", f"{NUMBERS}|{HASHES}|Mutated", f"{NUMBERS}|{HASHES}|Mutated|Digest"]
)
def test_changes_that_one_log_leaves_out_are_not_compared(fields: str, logs: Callable[..., OpLog]) -> None:
    full, part = logs("", steps()), logs(fields, steps(), "b")
    for c in both_ways(full, part):
        assert not c.red.any()
        assert Status(c.status[1]) == Status.NO_VALUES
        assert any("optimizer" in str(part) or "all" in str(part) for part in c.coverage.parts)
        [changed] = [fact for fact in facts_of(c, 1) if fact.name == "changed"]
        assert changed.difference == "not compared"
    # nor does a log that leaves out what was changed agree bitwise with itself
    assert Status(compare(part, part).status[1]) != Status.EQUAL


def test_a_change_of_one_run_is_red_where_both_logs_record_changes(logs: Callable[..., OpLog]) -> None:
    more = [Step(key="m/op_2__foreach_add_", reads=[X, W], changed={0: X + W})]
    first, add, _, last = steps()
    still = [first, replace(add, changed={}), last]
    # one whose only operation of this kind changed nothing, as with a learning rate of 0
    for made in ([*still, *more], still):
        a, b = logs("", [first, add, last, *(more if more[0] in made else [])]), logs("", made, "b")
        for c in both_ways(a, b):
            assert c.red.any()


@pytest.mark.parametrize("left", [W - 0.25 * G, W * 2])
def test_a_change_is_not_judged_where_one_log_has_its_digest_alone(left: Any, logs: Callable[..., OpLog]) -> None:
    """The digests say that it differs, and nothing by how much."""
    a = logs("", steps())
    same, other = (logs(f"{NUMBERS}|{HASHES}", made, "b", "input name digest") for made in (steps(), steps(left)))
    assert all(Status(c.status[1]) == Status.EQUAL for c in both_ways(a, same))
    for c in both_ways(a, other):
        assert Status(c.status[1]) == Status.NOT_JUDGED
        assert headline(c, 1).startswith("FIRST DIFFERENCE: other bits, not judged; all inputs are bitwise equal")
        assert c.coverage.sentence.endswith("was not judged")


@pytest.mark.parametrize("inputs", [True, False])
def test_a_result_is_not_judged_where_one_log_has_its_digest_alone(inputs: bool, logs: Callable[..., OpLog]) -> None:
    first, *others = steps()
    fields = f"{NUMBERS}|{HASHES}" + ("" if inputs else "|Input digests")
    a, same = logs("", steps()), logs(fields, steps(), "b")
    other = logs(fields, [replace(first, gives=[X * W * 1.5]), *others], "c")
    assert all(Status(c.status[0]) == Status.EQUAL for c in both_ways(a, same))
    for c in [*both_ways(a, other), compare(same, other)]:
        assert Status(c.status[0]) == Status.NOT_JUDGED
        assert c.coverage.sentence.endswith("was not judged")
        if inputs:
            assert headline(c, 0).startswith("FIRST DIFFERENCE: other bits, not judged; all inputs are bitwise equal")
        else:
            assert headline(c, 0) == "not judged: other bits; no number in both logs says by how much"
    assert compare(a, other, expectation=Expectation(Expect.BITWISE)).red[0]


def test_empty_dimensions_make_no_noise() -> None:
    shapes = [(4, 0), (0,), (0, 4), (1, 0)]
    ops = [replace(op, shape=shapes[n % 4] if n % 2 else op.shape) for n, op in enumerate(training_step(3))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not compare(made_up_log(ops), made_up_log(ops)).red.any()


def test_a_tolerance_of_a_rule_is_a_plain_number() -> None:
    for text in ("1_0", "nan", "inf"):
        [problem] = parse_rules(f"version: 1\ntolerance:\n  - {{match: '*', rtol: {text}}}\n").problems
        assert "must be a relative error" in problem.message
    assert not parse_rules("version: 1\ntolerance:\n  - {match: '*', rtol: 1.0e-1}\n").problems
