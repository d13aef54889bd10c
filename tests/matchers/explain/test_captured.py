"""What the inspector says of rows of our own capture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import Comparison, compare
from matchers.explain.facts import Fact
from matchers.explain.sentences import Explanation, explain
from matchers.logs.op_log import OpLog
from matchers.status import Status
from tests.builders import op
from tests.captured import Step, captured_log
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.test_captured import AFTER, WEIGHTS, W, X, Y, compared, mm, optimizer, shard
from tests.needs import examples


def told_of(a: Sequence[Step], b: Sequence[Step], row: int = 0) -> Explanation:
    return explain(compared(a, b), row)


def fact(told: Explanation, name: str) -> Fact:
    return next(found for found in told.facts if found.name == name)


def test_an_origin_of_equal_bits_and_the_distance_of_the_tensors() -> None:
    told = told_of([mm(Y)], [mm(-Y)])
    assert told.headline.startswith("FIRST CAUSE: the output differs by ≈")
    assert told.headline.endswith("; all inputs are bitwise equal")
    assert any(note.startswith("≈: the distance of the tensors, estimated") for note in told.notes)
    assert fact(told, "‖a − b‖/‖b‖").difference.startswith("≈")
    assert fact(told, "digest").agrees is False
    assert [given.agrees for given in told.inputs] == [True, True]


def test_another_autocast_is_shown_and_said_of_a_first_cause() -> None:
    switched = {"autocast_changes": [[mm(Y).key, {"cpu": "bfloat16"}], ["no/op_0_such", 3], "hostile"]}
    a, b = captured_log([mm(Y)], **switched), captured_log([mm(-Y)], autocast_changes=[])
    told = explain(compare(a, b), 0)
    assert (fact(told, "autocast").a, fact(told, "autocast").b) == ("bfloat16", "off")
    assert "autocast is bfloat16 in a, off in b" in told.notes
    assert not any("autocast" in note for note in explain(compare(a, captured_log([mm(-Y)])), 0).notes), "an older log"
    cast = Step(key="op_0__to_copy", gives=(X.astype(np.float16),), reads=(X,))
    reader = replace(mm(Y), made=[cast.key, ""])
    one = captured_log([cast, reader], autocast_changes=[[cast.key, {"cuda": "float16", "cpu": "bfloat16"}]])
    rows = compare(one, captured_log([mm(-Y)], autocast_changes=[]))
    noted = [note for row in range(len(rows)) for note in explain(rows, row).notes]
    assert "autocast is cuda float16, cpu bfloat16 in a, off in b" in noted


def test_an_input_whose_bits_differ_behind_an_equal_norm() -> None:
    told = told_of([mm(Y)], [mm(Y * 2, reads=(-X, W))])
    assert [(given.difference, given.agrees) for given in told.inputs] == [("≠ bits", False), ("0", True)]


def test_a_difference_that_begins_within_the_tolerance_says_so() -> None:
    told = told_of([mm(Y)], [mm(Y * np.float32(1 + 2e-6))])
    assert told.headline.startswith("FIRST DIFFERENCE: ≈")
    assert told.headline.endswith("e-06, within tolerance; all inputs are bitwise equal")
    assert "no other mm has equal inputs" in told.notes


def test_a_weight_that_differs_is_named() -> None:
    decayed = [*AFTER[:2], AFTER[2] * np.float32(1 - 1e-4), AFTER[3]]
    told = told_of([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, decayed)])
    assert told.headline.startswith("FIRST CAUSE: layers.2.weight differs after the step by ≈")
    assert told.headline.endswith("; all inputs are bitwise equal")
    assert fact(told, "changed").a == fact(told, "changed").b == "4 inputs"
    assert fact(told, "layers.2.weight").a == "diverged"
    assert told.inputs[2].name == "layers.2.weight"


def test_a_weight_that_only_one_run_changed_is_named() -> None:
    frozen = optimizer(WEIGHTS, AFTER)
    frozen.changed = {0: AFTER[0], 2: AFTER[2], 3: AFTER[3]}
    told = told_of([optimizer(WEIGHTS, AFTER)], [frozen])
    assert "only a changed layers.1.weight; it differs after the step" in told.headline
    assert fact(told, "layers.1.weight").a == "only a"


def test_shards_are_told_by_their_placements() -> None:
    told = told_of([mm(Y)], [mm(shard(Y[8:], Y, 8))])
    assert told.headline == (
        "sharded: the sides hold different shards of one tensor: a holds the whole, "
        "b Shard(0) on dp of [16, 32] from [8, 0]; not judged"
    )


def test_a_term_of_a_sum_over_ranks_is_no_shard() -> None:
    told = told_of([mm(Y)], [mm(shard(Y / 2, Y, kind="Partial(sum)"))])
    assert told.headline.startswith(
        "sharded: a side holds a term of a sum over ranks: a holds the whole, b Partial(sum)"
    )
    assert told.reason == "reason: term-of-sum"


def test_counts_and_where_it_ran() -> None:
    odd = Y.copy()
    odd[0, :3] = np.inf
    fields: dict[str, Any] = {
        "micro_batch": 1,
        "recompute": True,
        "group": {"ranks": [0, 1], "nth": 3},
        "stack": ["model.py:1:forward", "train.py:2:main"],
    }
    told = told_of([mm(odd, **fields)], [mm(Y, **fields)])
    assert "only in a" in told.headline
    assert (fact(told, "Inf").a, fact(told, "Inf").b) == ("3", "0")
    assert fact(told, "micro-batch").a == "1"
    assert fact(told, "recompute").a == "yes"
    assert fact(told, "group").a == "ranks 0, 1 · collective 3"
    assert fact(told, "stack").a == "model.py:1:forward < train.py:2:main"


def test_how_equal_bits_were_paired() -> None:
    assert told_of([mm(Y)], [mm(Y)]).pairing.startswith("paired by digests")
    other = told_of([mm(Y)], [mm(Y, reads=(-X, W))])
    assert other.pairing.startswith("paired by output digests")


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("input", "name", "shape", "dtype", "l1", "l2", "min", "max", "counts", "digest", "sketch", "placement")
entries = st.dictionaries(st.sampled_from(NAMES), anything | st.integers(0, 2), max_size=12)


@settings(max_examples=examples(40))
@given(st.data())
def test_whatever_stands_in_the_texts_of_a_log_it_is_compared_and_explained(data: st.DataObject) -> None:
    """They come from another machine."""

    def log() -> OpLog:
        def json_of(value: object) -> str:
            return json.dumps(value)

        extra = {
            "Digest": data.draw(st.sampled_from(["01", "02", "01, 03", "01, 04", "-"])),
            "Input digests": data.draw(st.sampled_from(["01", "02", "-", "01, 02"])),
            "Counts": data.draw(st.sampled_from(["numel=4 nan=0 inf=0 zero=1", "numel=9 nan=1 inf=2 zero=3", "?"])),
            "Sketch": data.draw(st.text("AB=é ", max_size=9) | st.just("A" * 171 + "=")),
            "Mutated": json_of(data.draw(st.lists(entries, max_size=2) | anything)),
            "Output 1": json_of(data.draw(entries | anything)),
            "Placement": json_of(data.draw(st.fixed_dictionaries({"shape": anything, "offsets": anything}) | anything)),
            "Group": json_of(data.draw(anything)),
            "Stack": data.draw(st.text("ab<: ", max_size=9)),
            "Parameter": data.draw(st.text("ab;", max_size=5)),
        }
        return made_up_log([op("m/op_0_mm", inputs=[1.0], extra=extra)], run={}, exact=True)

    a, b = log(), log()
    c: Comparison = compare(a, b)
    for row in range(len(c)):
        assert explain(c, row).headline
        assert Status(c.status[row]) in Status
    assert (compare(a, a).status != Status.DIVERGED).all()


def test_a_log_of_another_program_does_not_have_any_of_it() -> None:
    log = made_up_log([op("m/op_0_mm", inputs=[1.0])])
    told = explain(compare(log, log), 0)
    assert not {"digest", "stack", "changed", "micro-batch"} & {found.name for found in told.facts}


def test_an_error_that_jumps_against_what_came_in_is_called_a_jump() -> None:
    a = [mm(Y), Step(key="m/op_0_mul", reads=[Y], gives=[Y * 2], made=["layers.0.wq/op_0_mm"])]
    near = Y * np.float32(1 + 4e-6)
    b = [mm(near), Step(key="m/op_0_mul", reads=[near], gives=[near * np.float32(2.1)], made=["layers.0.wq/op_0_mm"])]
    told = told_of(a, b, 1)
    assert told.headline.startswith("FIRST CAUSE: the error jumps from ≈")
    assert " to ≈" in told.headline
    assert told.headline.endswith(" here")
    assert "agree" not in told.headline


def test_an_error_that_grows_past_its_tolerance_is_none() -> None:
    """The inputs' error was within the tolerance, the result's is not much larger and beyond it."""
    near, far = Y * np.float32(1 + 1.2e-5), Y * np.float32(2 * (1 + 8e-5))
    a = [mm(Y), Step(key="m/op_0_mul", reads=[Y], gives=[Y * 2], made=["layers.0.wq/op_0_mm"])]
    b = [mm(near), Step(key="m/op_0_mul", reads=[near], gives=[far], made=["layers.0.wq/op_0_mm"])]
    told = told_of(a, b, 1)
    assert told.headline.startswith("CONSEQUENCE: ")
    begins = told_of(a, b, 0).headline
    assert begins.startswith("FIRST CAUSE: the output differs by ≈1.")
    assert begins.endswith("; all inputs are bitwise equal, red rows follow")
