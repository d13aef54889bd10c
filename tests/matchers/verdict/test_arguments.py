"""Another argument is a difference at any size, unless another form of the step explains it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.arguments import ArgumentDifference
from matchers.status import Role, Status
from matchers.verdict.arguments import asked_elsewhere, explained_by
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from numtui.query.query import parse_query
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from tests.builders import Op, op, write_log


def log(
    tmp_path: Path,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    op_name: str = "native_layer_norm",
    value: float = 2.0,
    digest: str = "0a",
    given: float = 1.0,
    shape: Sequence[int] = (4, 8),
    run: Mapping[str, Any] | None = None,
    overload: str = "",
    forms: str = "",
    dtype: str = "float32",
) -> OpLog:
    """A record with arguments between one that makes its input and one that reads its result."""
    asked = {} if arguments is None else {"Arguments": json.dumps(arguments)}
    asked |= {"Overload": overload} if overload else {}
    asked |= {"Inputs": forms} if forms else {}
    records = [
        op("m/op_0_embedding", given, extra={"Seq": "0", "Digest": "01" if given == 1.0 else "11"}),
        op(
            f"m/op_1_{op_name}",
            value,
            shape=shape,
            dtype=dtype,
            inputs=[3 * given],
            producers=["m/op_0_embedding"],
            location="norm.py:7",
            extra={"Seq": "1", "Digest": digest, "Input digests": "01" if given == 1.0 else "11", **asked},
        ),
        op("m/op_2_exp", 5.0, inputs=[3 * value], producers=[f"m/op_1_{op_name}"], extra={"Seq": "2", "Digest": "05"}),
    ]
    return read_log(write_log(tmp_path / f"{name}.log", records, run={"step": 1, **(run or {})}, footer=True))


CLOSE: dict[str, Any] = {"value": 2.0000002, "digest": "0b"}


def pair(c: Comparison) -> int:
    return next(row for row in range(len(c)) if c.a.location_text(int(c.row_a[row])) == "norm.py:7")


def test_another_argument_within_the_tolerance_is_the_first_cause(tmp_path: Path) -> None:
    c = compare(log(tmp_path, "a", {"eps": 1e-5}), log(tmp_path, "b", {"eps": 1e-6}, **CLOSE))
    row = pair(c)
    assert (c.status[row], c.reason[row], c.role[row]) == (Status.DIVERGED, Reason.ARGUMENTS, Role.ORIGIN)
    assert c.cause.nonzero()[0].tolist() == [row]
    assert explain(c, row).headline.startswith("FIRST CAUSE: eps 1e-05 in a, 1e-06 in b; the output differs by ")
    facts = {fact.name: fact for fact in explain(c, row).facts}
    assert (facts["eps ="].a, facts["eps ="].b, facts["eps ="].agrees) == ("1e-05", "1e-06", False)


@pytest.mark.parametrize("value", [2.0000002, 2.5], ids=["within the tolerance", "beyond it"])
def test_writing_in_place_is_no_other_operation(tmp_path: Path, value: float) -> None:
    one = log(tmp_path, "a", {"other": 1e-5}, op_name="add_", overload="aten.Scalar")
    other = log(tmp_path, "b", {"other": 1e-6}, op_name="add", overload="aten.Scalar", value=value, digest="0b")
    c = compare(one, other)
    row = pair(c)
    assert c.cause.nonzero()[0].tolist() == [row]
    assert explain(c, row).headline.startswith("FIRST CAUSE: other 1e-05 in a, 1e-06 in b; the output differs by ")


@pytest.mark.parametrize(
    ("values", "told"),
    [((1e-05, 1e-06), "1e-05 in a, 1e-06 in b"), ((0.1, float(np.float32(0.1))), "0.1 in a, 0.10000000149011612 in b")],
)
def test_numbers_that_were_rounded_to_float32_are_told_in_few_digits(
    tmp_path: Path, values: tuple[float, float], told: str
) -> None:
    rounded = [float(np.float32(value)) if told.startswith("1e") else value for value in values]
    a, b = (log(tmp_path, f"of {eps}", {"eps": eps}, value=2 + k / 10, digest=f"0{k}") for k, eps in enumerate(rounded))
    explained = explain(compare(a, b), 1)
    assert f"eps {told}" in explained.headline
    assert [(fact.a, fact.b) for fact in explained.facts if fact.name == "eps ="] == [tuple(told.split()[::3])]


@pytest.mark.parametrize(("shared", "told"), [(1e4, " at its line self 10000.0 in a, 9000.0 in b;"), (9e3, "")])
def test_an_operation_of_one_run_is_told_against_those_at_its_line(tmp_path: Path, shared: float, told: str) -> None:
    """A table that all layers share in one run: the other has one more, of a layer that was asked something else."""

    def table(name: str, base: float, value: float) -> Op:
        asked = {"Seq": name[-1], "Digest": f"{int(value):02x}", "Arguments": json.dumps({"self": base})}
        return op(f"rope/op_{name[-1]}_pow", value, location="rope.py:3", extra=asked)

    def reads(name: str, made: Op, value: float) -> Op:
        extra = {"Seq": name[-1], "Digest": f"{int(value):02x}"}
        return op(f"{name[:-1]}/op_0_exp", value, inputs=made.outputs, producers=[made.key], extra=extra)

    one, other = table("t0", shared, 7.0), table("t1", 9e3, 9.0)
    a = [one, reads("x2", one, 20.0), reads("y3", one, 30.0)]
    b = [one, other, reads("x2", one, 20.0), reads("y3", other, 35.0)]
    one_log, other_log = (
        read_log(write_log(tmp_path / f"{k}.log", of, run={"step": 1}, footer=True)) for k, of in enumerate((a, b))
    )
    c = compare(one_log, other_log)
    (row,) = c.cause.nonzero()[0].tolist()
    assert explain(c, row).headline == f"FIRST CAUSE: only b has this operation;{told} its consumers diverge"


def test_without_effect_on_a_bit_it_is_a_note(tmp_path: Path) -> None:
    c = compare(log(tmp_path, "a", {"eps": 1e-5}), log(tmp_path, "b", {"eps": 1e-6}))
    row = pair(c)
    assert c.status[row] == Status.EQUAL
    assert "other arguments: eps 1e-05 in a, 1e-06 in b" in explain(c, row).notes


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"dim": -1}, {"dim": 1}, "the same dimension"),
        ({"dim": [-1, -2]}, {"dim": [1, 0]}, "the same dimension"),
        ({"dim": [-1, -2]}, {"dim": [0, 1]}, "the same dimension"),
        ({"keepdim": True}, {}, "dimensions of size 1"),
        ({"eps": 1}, {"eps": 1.0}, None),
        ({"output_mask": [True, False]}, {"output_mask": [True, True]}, "results that one run does not need"),
        ({"dim": [1]}, {"dim": 1}, None),
        ({"weight": None}, {}, None),
        ({"dims": []}, {}, None),
        ({"max": float("nan")}, {"max": float("nan")}, None),
        ({"device": "cuda:0"}, {"device": "cuda:1"}, None),
        ({"value": 0.12345678901}, {"value": 0.12345678912}, "rounding"),
        ({"value": 0.3}, {"value": 0.1 + 0.2}, "the same number, rounded"),
        ({"eps": 9.999999747378752e-06}, {"eps": 1e-5}, "rounding"),
    ],
)
def test_another_spelling_is_no_difference(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], why: str | None
) -> None:
    c = compare(log(tmp_path, "a", one), log(tmp_path, "b", other, **CLOSE))
    row = pair(c)
    assert c.status[row] == Status.CLOSE
    told = [note for note in explain(c, row).notes if note.startswith("other arguments")]
    assert [note.rpartition(": ")[2] for note in told] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("dtype", "forms", "red"), [("bfloat16", "", False), ("bfloat16", "float32", True), ("float32", "", True)]
)
def test_a_dtype_that_is_asked_for_is_that_of_what_is_read(tmp_path: Path, dtype: str, forms: str, red: bool) -> None:
    """The result tells if that may differ; not where the operation alone makes it another one."""
    one, other = {"input_dtype": "float32"}, {"input_dtype": "bfloat16"}
    a, b = log(tmp_path, "a", one), log(tmp_path, "b", other, dtype=dtype, forms=forms, **CLOSE)
    c = compare(a, b, expectation=Expectation(Expect.LOW_PRECISION))
    assert bool(c.red[pair(c)]) == red


def test_where_a_cast_puts_its_result_is_no_difference(tmp_path: Path) -> None:
    """Autograd casts with a device and a layout, a script with a dtype alone."""
    a = log(tmp_path, "a", {"dtype": "float32"}, op_name="_to_copy")
    b = log(tmp_path, "b", {"dtype": "float32", "device": "cpu", "layout": "strided"}, op_name="_to_copy", digest="0b")
    assert compare(a, b).reason[1] != Reason.ARGUMENTS


@pytest.mark.parametrize(("expect", "red"), [(Expect.LOW_PRECISION, False), (Expect.REDUCTION_ORDER, True)])
def test_a_cast_the_other_way_is_no_finding_where_other_dtypes_are_expected(
    tmp_path: Path, expect: Expect, red: bool
) -> None:
    """One run adds in float32 and rounds the sum, the other adds rounded numbers and widens it."""
    a = log(tmp_path, "a", {"dtype": "float32"}, op_name="_to_copy", forms="bfloat16")
    asked = {"dtype": "bfloat16"}
    b = log(tmp_path, "b", asked, op_name="_to_copy", forms="float32", dtype="bfloat16", digest="0b", value=2.001)
    assert (compare(a, b, expectation=Expectation(expect)).reason[1] == Reason.ARGUMENTS) == red


@pytest.mark.parametrize(("dtype", "red"), [("bfloat16", False), ("float32", True)])
def test_a_mask_is_filled_with_the_lowest_number_of_each_dtype(tmp_path: Path, dtype: str, red: bool) -> None:
    one, other = ({"value": value} for value in (-3.4028234663852886e38, -3.3895313892515355e38))
    a, b = log(tmp_path, "a", one), log(tmp_path, "b", other, dtype=dtype, **CLOSE)
    c = compare(a, b)
    assert (c.reason[pair(c)] == Reason.ARGUMENTS) == red


@pytest.mark.parametrize(("coarse", "explained"), [("bfloat16", True), ("float16", False)])
def test_a_mask_of_float32_may_have_the_lowest_number_of_what_the_other_run_computes_in(
    tmp_path: Path, coarse: str, explained: bool
) -> None:
    lowest, logs = (-3.4028234663852886e38, -3.3895313892515355e38), []
    for name, dtype, value in zip("ab", ("float32", coarse), lowest, strict=True):
        asked = {"Arguments": json.dumps({"value": value})}
        records = [op("m/op_0_embedding", 3.0, dtype=dtype), op("m/op_1_full", value, extra=asked)]
        logs.append(read_log(write_log(tmp_path / f"{name}.log", records, run={"step": 1}, footer=True)))
    a, b = logs
    assert bool(explained_by(a, b, 1, 1, ArgumentDifference("value", *lowest), 1.0)) == explained


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"shifts": [-1]}, {"shifts": [1]}),
        ({"dim": 0}, {"dim": 1}),
        ({"is_causal": True}, {}),
        ({"scale": 0.1}, {"scale": 0.10001}),
        ({"scale": 0.1234567}, {"scale": 0.1234568}),  # nobody computes seven digits
        ({"text": "tanh"}, {"text": "none"}),
        ({"k": 4}, {"k": 8}),
        ({"scalars": [{"times": 9, "of": 0.5}]}, {"scalars": [{"times": 9, "of": 0.25}]}),
    ],
)
def test_what_nothing_explains_is_red(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    c = compare(log(tmp_path, "a", one), log(tmp_path, "b", other, **CLOSE))
    assert c.reason[pair(c)] == Reason.ARGUMENTS


@pytest.mark.parametrize(("values", "red"), [((0.123456, 0.123457), True), ((0.12345678, 0.12345679), False)])
def test_a_number_that_enters_was_computed_if_it_has_the_digits_of_float32(
    tmp_path: Path, values: tuple[float, float], red: bool
) -> None:
    a, b = (
        log(tmp_path, f"{x}", {"s": x}, op_name="lift_fresh", value=x, digest=f"{k}f") for k, x in enumerate(values)
    )
    assert (compare(a, b).reason[1] == Reason.ARGUMENTS) == red


def test_a_computed_number_of_the_first_red_row_follows_from_nothing(tmp_path: Path) -> None:
    one, other = ({"scale": 12**-0.5 / k} for k in (1, 2))
    c = compare(log(tmp_path, "a", one), log(tmp_path, "b", other, value=2.5, digest="0f"))
    assert c.reason[pair(c)] == Reason.ARGUMENTS


@pytest.mark.parametrize("forms", ["", "[4,8];int64[4]", "[4,8];[]"])
def test_dimensions_are_those_of_the_largest_tensor(tmp_path: Path, forms: str) -> None:
    """Not those of an index of one dimension, in which all are the same."""
    c = compare(log(tmp_path, "a", {"dim": 0}, forms=forms), log(tmp_path, "b", {"dim": 1}, forms=forms, **CLOSE))
    assert c.reason[pair(c)] == Reason.ARGUMENTS


def test_dimensions_of_another_layout_are_no_difference(tmp_path: Path) -> None:
    """(batch, heads, tokens) and (batch, tokens, heads); with equal inputs they are one."""
    a = log(tmp_path, "a", {"dim": [1]}, forms="[4,2,8]")
    assert compare(a, log(tmp_path, "b", {"dim": [2]}, forms="[4,8,2]", **CLOSE)).status[1] == Status.CLOSE
    assert compare(a, log(tmp_path, "d", {"dim": [0, 1]}, forms="[8,8]", **CLOSE)).status[1] == Status.CLOSE
    c = compare(a, log(tmp_path, "c", {"dim": [2]}, forms="[4,2,8]", **CLOSE))
    assert c.reason[pair(c)] == Reason.ARGUMENTS


@pytest.mark.parametrize(("forms", "stride", "red"), [
    ("[3,8,1,24];[12,8,1,3]", [1, 2], False),
    ("[3,8,2,24];[12,8,1,3]", [1, 2], True),
    ("[3,8,1,24];[12,8,1,3]", [1, 3], True),
])  # fmt: skip
def test_numbers_for_dimensions_of_size_1_are_no_difference(
    tmp_path: Path, forms: str, stride: list[int], red: bool
) -> None:
    """A convolution over time, and over time and a dimension of one."""
    a = log(tmp_path, "a", {"stride": [2]}, forms="[3,8,24];[12,8,3]")
    c = compare(a, log(tmp_path, "b", {"stride": stride}, forms=forms, **CLOSE))
    assert (c.reason[pair(c)] == Reason.ARGUMENTS) == red


def test_sizes_that_follow_from_other_shapes_are_not_judged_by_arguments(tmp_path: Path) -> None:
    other: dict[str, Any] = {"value": 4.0, "digest": "0b", "shape": (2, 8)}
    c = compare(log(tmp_path, "a", {"size": [4, 8]}), log(tmp_path, "b", {"size": [2, 8]}, **other))
    assert c.reason[pair(c)] != Reason.ARGUMENTS


def test_sizes_of_shards_are_no_difference(tmp_path: Path) -> None:
    c = compare(
        log(tmp_path, "a", {"rows": 32}),
        log(tmp_path, "b", {"rows": 16}, run={"world_size": 2}, **CLOSE),
    )
    assert c.status[pair(c)] == Status.CLOSE


def test_a_place_in_the_part_of_a_rank_is_no_difference(tmp_path: Path) -> None:
    """Expert 2 of four is the first one of the second rank."""
    a = log(tmp_path, "a", {"index": 2}, shape=(4, 8))
    b = log(tmp_path, "b", {"index": 0}, shape=(2, 8), run={"world_size": 2}, digest="0b")
    assert compare(a, b).reason[1] != Reason.ARGUMENTS
    c = compare(a, log(tmp_path, "c", {"index": 0}, shape=(4, 8), **CLOSE))
    assert c.reason[pair(c)] == Reason.ARGUMENTS


def test_what_makes_up_for_another_input_is_no_cause(tmp_path: Path) -> None:
    """A scale that other operations of one run multiply."""
    c = compare(
        log(tmp_path, "a", {"other": 0.5}, op_name="mul"), log(tmp_path, "b", {"other": 1.0}, op_name="mul", given=0.5)
    )
    assert c.reason[pair(c)] != Reason.ARGUMENTS


@pytest.mark.parametrize("last", [5, 6])
def test_what_a_line_asks_in_both_runs_is_no_other_argument_of_two_of_its_operations(tmp_path: Path, last: int) -> None:
    """Tokens choose other experts after a bug: by their numbers, two operations are partners of others."""

    def run(name: str, *experts: int) -> OpLog:
        asked = [{"Seq": str(k), "Arguments": json.dumps({"other": expert})} for k, expert in enumerate(experts)]
        records = [op(f"moe/op_{k}_eq", 3.0, location="moe.py:7", extra=told) for k, told in enumerate(asked)]
        return read_log(write_log(tmp_path / f"{name}.log", records, run={"step": 1}, footer=True))

    crossed = np.array([0]), np.array([2])
    assert asked_elsewhere(run("a", 1, 2, 5), run("b", 1, 2, last), *crossed).tolist() == [last == 5]


def test_of_other_overloads_only_common_arguments_are_compared(tmp_path: Path) -> None:
    c = compare(
        log(tmp_path, "a", {"dim": [1], "keepdim": True}, overload="aten.dim_IntList"),
        log(tmp_path, "b", {"dtype": "float64"}, **CLOSE),
    )
    assert c.status[pair(c)] == Status.CLOSE


def test_a_log_without_arguments_is_compared_without_and_that_is_said_once(tmp_path: Path) -> None:
    c = compare(log(tmp_path, "a", {"eps": 1e-5}), log(tmp_path, "b", None, **CLOSE))
    assert c.status[pair(c)] == Status.CLOSE
    assert [note.text for note in c.comparability.notes if note.kind == "arguments"] == [
        "only a's log has arguments: they are not compared"
    ]


def test_settings_of_optimizers_are_compared_but_for_their_implementation(tmp_path: Path) -> None:
    one, other = ([{"optimizer": "AdamW", "lr": 0.1, "foreach": x, "parameters": n}] for x, n in ((True, 2), (None, 1)))
    agreeing = compare(
        log(tmp_path, "a", None, run={"optimizer_settings": one}),
        log(tmp_path, "b", None, run={"optimizer_settings": other}),
    )
    assert not agreeing.comparability.grave
    other[0]["lr"] = 0.3 - 0.2
    assert not compare(agreeing.a, log(tmp_path, "d", None, run={"optimizer_settings": other})).comparability.grave
    other[0]["lr"] = 0.2
    c = compare(agreeing.a, log(tmp_path, "c", None, run={"optimizer_settings": other}))
    assert [note.text for note in c.comparability.grave] == ["the optimizer's lr is 0.1 in a and 0.2 in b"]


@pytest.mark.parametrize(("scale", "red"), [(1 / 8**0.5, False), (8**-0.5, False), (1 / 4**0.5, True)])
def test_a_scale_that_is_not_given_is_the_root_of_the_width(tmp_path: Path, scale: float, red: bool) -> None:
    op_name = "_scaled_dot_product_flash_attention_for_cpu"
    one = log(tmp_path, "a", {"scale": scale}, op_name=op_name, forms=";")
    other = log(tmp_path, "b", {}, op_name=op_name, forms=";", **CLOSE)
    assert compare(one, other).red.any() == red
    assert compare(other, one).red.any() == red


@pytest.mark.parametrize(
    ("decayed", "told"),
    [
        ([["b"], ["w", "n"]], "the optimizer's weight_decay is 0.0 in a and 0.1 in b for n"),
        (
            [["b", "w"], ["n"]],
            "the optimizer's weight_decay is [0.0, 0.1] in a and [0.1, 0.0] in b for n and 1 more parameter",
        ),
        ([["module.b", "module.n"], ["module.w"]], ""),
        ([["x"], ["y"]], ""),
    ],
)
def test_settings_are_compared_by_the_parameters_that_both_runs_name(
    tmp_path: Path, decayed: list[list[str]], told: str
) -> None:
    """Two groups with the same two settings, which hold other parameters in one run."""

    def groups(names: list[list[str]]) -> list[dict[str, Any]]:
        return [{"weight_decay": decay, "names": of} for decay, of in zip((0.0, 0.1), names, strict=True)]

    runs = groups([["n", "b"], ["w"]]), groups([names[::-1] for names in decayed])
    a, b = (log(tmp_path, side, None, run={"optimizer_settings": run}) for side, run in zip("ab", runs, strict=True))
    c = compare(a, b)
    assert [note.text for note in c.comparability.grave] == [told] * bool(told)


def test_a_single_group_holds_all_that_the_other_run_names(tmp_path: Path) -> None:
    one = [{"lr": 0.1, "weight_decay": 0.0}]
    other = [{"lr": 0.1, "names": ["w"], "weight_decay": 0.0}, {"lr": 0.2, "names": ["b"], "weight_decay": 0.0}]
    a, b = (log(tmp_path, of, None, run={"optimizer_settings": run}) for of, run in (("a", one), ("b", other)))
    c = compare(a, b)
    assert [note.text for note in c.comparability.grave] == ["the optimizer's lr is 0.1 in a and 0.2 in b for b"]


def test_rows_are_found_by_their_arguments(tmp_path: Path) -> None:
    c = compare(log(tmp_path, "a", {"eps": 1e-5, "dim": -1}), log(tmp_path, "b", {"eps": 1e-6, "dim": 1}, **CLOSE))
    row = pair(c)
    for query, found in (("arg:eps", [row]), ("arg:eps=1e-06", [row]), ("arg:scale", []), ("differs:args", [row])):
        assert parse_query(query).mask(c).nonzero()[0].tolist() == found
    told = Report(c, ReportOptions(names=("a", "b"))).row(row).arguments
    assert [(each.name, each.a, each.b, each.explained) for each in told] == [
        ("eps", "1e-05", "1e-06", ""),
        ("dim", "-1", "1", "the same dimension"),
    ]


@pytest.mark.parametrize("value", ["9" * 400, "[" * 600 + "]" * 600, '{"times": 3}', '"\\ud800"', "1e999"])
def test_arguments_are_untrusted(tmp_path: Path, value: str) -> None:
    c = compare(log(tmp_path, "a", {"x": 1.5}), log(tmp_path, "b", {"x": "VALUE"}, **CLOSE))
    path = tmp_path / "b.log"
    path.write_text(path.read_text().replace('"VALUE"', value))
    c = compare(c.a, read_log(path))
    for row in range(len(c)):
        explain(c, row)
    assert parse_query("arg:x").mask(c).sum() == 1
