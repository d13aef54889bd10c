"""Dumps of msprobe: functions in their modules, or modules alone, by statistics, checksums or an XOR."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import InputError
from matchers.explain.facts import facts_of, inputs_of
from matchers.explain.sentences import headline
from matchers.laws.functions import dispatched
from matchers.logs.imported.makers import Makers
from matchers.logs.op_log import STATISTICS, OpLog, Phase
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.logs.writer import written
from matchers.rules.file import parse_rules
from matchers.runs.check import check_run
from matchers.runs.finding import Check
from matchers.runs.run import find_logs, find_run
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from tests.builders import Op, log_text
from tests.conftest import DATA
from tests.matchers.logs.imported.dumps import msprobe

OF_FUNCTIONS = [
    *(f"layers.{layer}{key}" for layer in (0, 1) for key in (".up/op_0_mm", "/op_0_tanh")),
    *(f"layers.{layer}.up{key}" for layer in (1, 0) for key in ("/op_1_linear_backward", ".weight/op_0_gradient")),
    "<none>/op_0_add_",
]


def compared(folder: Path, **options: Any) -> Comparison:
    return compare(read_log(msprobe(folder / "a", **options)), read_log(msprobe(folder / "b", **options, scale=1.5)))


def causes(c: Comparison) -> list[str]:
    return [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)]


def test_functions_stand_in_their_modules_with_what_made_their_inputs(tmp_path: Path) -> None:
    log = read_log(msprobe(tmp_path))
    assert (log.header.format, list(log.keys), log.problems) == ("msprobe (statistics)", OF_FUNCTIONS, ())
    assert [log.producers[row].tolist() for row in range(4)] == [[-1, -1], [0], [1, -1], [2]]
    backward, forward = [Phase.BACKWARD] * 4, [Phase.FORWARD] * 4
    assert log.phase.tolist() == [*forward, *backward, Phase.OPTIMIZER]
    assert (log.shape_text(0), log.dtype_text(0), log.location_text(0)) == ("[3, 4]", "float32", "/t.py:3")
    assert not len(log.digests.value)
    assert raw_record(log, 1)[0] == '"Torch.tanh.0.forward": {'


def test_modules_read_what_the_modules_in_them_return_and_their_parameters(tmp_path: Path) -> None:
    log = read_log(msprobe(tmp_path, "L0"))
    assert list(log.keys)[:4] == [f"layers.{n}{key}" for n in (0, 1) for key in (".up/op_0_Linear", "/op_0_Block")]
    assert log.texts("Parameter")[0] == ";layers.0.up.weight"
    assert log.producers[1].tolist() == [-1, 0]


def test_a_backward_call_reads_what_its_forward_call_was_given_and_made(tmp_path: Path) -> None:
    log = read_log(msprobe(tmp_path, "L1"))
    (row, _) = (k for k, key in enumerate(log.keys) if key.endswith("linear_backward"))
    assert list(log.keys)[1:3] == ["<none>/op_1_tanh", "<none>/op_2_mm"]
    assert log.producers[row].tolist()[1:] == [1, -1, 2]


@pytest.mark.parametrize(
    ("level", "cause"),
    [("L0", "layers.1.up/op_0_Linear"), ("L1", "<none>/op_2_mm"), ("mix", "layers.1.up/op_0_mm")],
)
@pytest.mark.parametrize("summary", ["statistics", "md5"])
def test_the_first_cause_is_the_module_whose_weight_differs(
    level: str, cause: str, summary: str, tmp_path: Path
) -> None:
    c = compared(tmp_path, level=level, summary=summary)
    assert causes(c) == [cause]
    assert c.role[int(np.flatnonzero(c.cause)[0])] == Role.UNKNOWN  # a parameter differs already
    assert not compare(c.a, c.a).red.any()


def test_equal_checksums_are_no_equal_bits_and_other_ones_are_other_bits(tmp_path: Path) -> None:
    log = read_log(msprobe(tmp_path / "a", summary="md5"))
    assert log.header.format == "msprobe (md5)"
    assert set(compare(log, log).status.tolist()) == {Status.SAME_PRINT}
    path = msprobe(tmp_path / "b", summary="md5")
    told = path.read_text()
    first = json.loads(told)["data"]["Functional.linear.0.forward"]["output"][0]["md5"]
    path.write_text(told.replace(first, "00000001"))
    assert compare(log, read_log(path)).status[0] == Status.CLOSE


def test_an_xor_can_differ_and_agreement_compares_nothing(tmp_path: Path) -> None:
    c = compared(tmp_path, summary="xor")
    assert c.a.header.format == "msprobe (xor)"
    assert c.status[:4].tolist() == [Status.NO_VALUES, Status.NO_VALUES, Status.NOT_JUDGED, Status.NOT_JUDGED]
    c = compare(c.a, c.b, expectation=Expectation(preset=Expect.BITWISE))
    assert c.status[:4].tolist() == [Status.NO_VALUES, Status.NO_VALUES, Status.DIVERGED, Status.DIVERGED]
    assert causes(c)[0] == "layers.1.up/op_0_mm"


def test_a_function_may_have_another_shape_than_what_it_dispatches(tmp_path: Path) -> None:
    """Tensors of another size are others, if no number of both logs tells."""
    theirs = read_log(msprobe(tmp_path, summary="xor"))
    shapes = {"layers.0.up/op_0_mm": (2, 6), "layers.1.up/op_0_mm": (2, 5)}
    (tmp_path / "own.log").write_text(
        log_text([Op(key=key, shape=shapes.get(key, (3, 4)), phase="forward") for key in theirs.keys[:4]])
    )
    c = compare(theirs, read_log(tmp_path / "own.log"))
    assert c.row_a[:4].tolist() == c.row_b[:4].tolist() == [0, 1, 2, 3]
    assert c.status[:4].tolist() == [Status.NO_VALUES, Status.NO_VALUES, Status.SHAPE, Status.NO_VALUES]


def test_values_that_are_odd_are_read_as_they_are_meant(tmp_path: Path) -> None:
    number = {"dtype": "torch.float32", "shape": [], "Max": -2, "Min": -2, "Mean": -2, "Norm": -2}
    broken = {**number, "type": "torch.distributed.tensor.DTensor", "Norm": float("nan"), "Mean": None}
    odd = {"input_args": [[{"x": number}]], "input_kwargs": {"y": [None, number]}, "output": [number, broken]}
    name = "Distributed.all_reduce.0.forward"
    path = msprobe(tmp_path, changes={name: odd, "Functional.linear.0.forward": {"tensor_stat_index": 3}}, batch=2)
    log = read_log(path)
    assert log.problems == ()
    last = len(log) - 1
    assert (log.stats[1, last], log.stats[2, last], log.inputs[last].tolist()) == (2.0, -2.0, [2.0, 2.0])
    assert log.texts("Output 1")[last] == '{"shape": [], "dtype": "float32", "l2": NaN, "min": -2.0, "max": -2.0}'
    assert log.micro_batch[:3].tolist() == [2, 2, 2]


def test_steps_and_ranks_are_told_by_folders(tmp_path: Path) -> None:
    for place in ("step0/rank0", "step0/rank1", "step2/rank0"):
        msprobe(tmp_path / place)
    assert list(find_run(str(tmp_path), step=0).paths) == [0, 1]
    assert find_run(str(tmp_path / "step2")).paths == {0: str(tmp_path / "step2" / "rank0" / "dump.json")}
    assert find_run(str(tmp_path / "step2" / "rank0")).paths == {0: str(tmp_path / "step2" / "rank0" / "dump.json")}
    assert find_run(str(msprobe(tmp_path / "one" / "step0" / "proc812").parents[1])).step is None


def test_stages_of_a_step_are_chosen_by_name(tmp_path: Path) -> None:
    """The folders of verl: a step of the training, a stage, and the steps that msprobe counts within it."""
    for step, stage in ((1, "actor"), (1, "critic"), (2, "actor")):
        for rank in (0, 1):
            msprobe(tmp_path / f"step_{step}" / stage / "step0" / f"rank{rank}")
    run = find_run(str(tmp_path), step=1, stage="critic")
    assert (run.step, run.stage, [*run.paths]) == (1, "critic", [0, 1])
    assert run.paths[1] == str(tmp_path / "step_1" / "critic" / "step0" / "rank1" / "dump.json")
    with pytest.raises(InputError, match=r"several stages \(actor, critic\).*--stage"):
        find_run(str(tmp_path))
    with pytest.raises(InputError, match="no logs of stage ref; its stages are actor, critic"):
        find_run(str(tmp_path), stage="ref")
    assert {log.step for log in find_logs(tmp_path, stage="actor")} == {1, 2}
    assert find_run(str(tmp_path / "step_2")).stage == "actor"
    msprobe(tmp_path / "step_2" / "actor" / "step1" / "rank0")
    assert [*find_run(str(tmp_path), step=2, stage="actor/step1").paths] == [0]


def test_a_run_is_checked_by_its_statistics(tmp_path: Path) -> None:
    path = msprobe(tmp_path)
    (made,) = (made for made in check_run(find_run(str(tmp_path))).made if made.check == Check.FINITE)
    assert made.many == len(read_log(path))
    told = json.loads(path.read_text())
    told["data"]["Torch.tanh.1.forward"]["output"][0] |= dict.fromkeys(("Max", "Min", "Mean", "Norm"), math.nan)
    path.write_text(json.dumps(told, indent=1))
    (found,) = check_run(find_run(str(tmp_path))).findings
    assert (found.check, found.subject) == (Check.FINITE, "layers.1/op_0_tanh")


def test_damage_costs_the_entries_in_which_it_lies(tmp_path: Path) -> None:
    path = msprobe(tmp_path)
    good = path.read_text()
    path.write_text(good.replace('"input_args": [', '"input_args": [}', 1))
    log = read_log(path)
    # the module stands for the function that was lost in it
    assert list(log.keys) == ["layers.0/op_0_tanh", "layers.0.up/op_0_Linear", *OF_FUNCTIONS[2:]]
    assert log.problems[0].line > 1
    path.write_text(good[: good.index("Torch.tanh.1")])
    log = read_log(path)
    assert (list(log.keys), log.complete) == (OF_FUNCTIONS[:3], False)
    path.write_text(good)
    (tmp_path / "construct.json").write_text("{")
    log = read_log(path)
    assert log.modules[:] == ["<none>", "layers.1.up.weight", "layers.0.up.weight"]
    assert "construct.json cannot be read" in log.problems[0].message


def test_the_head_of_a_dump_has_a_known_format(tmp_path: Path) -> None:
    many: dict[str, Any] = {f"Torch.relu.{k}.forward": {"input_args": [], "output": []} for k in range(1000)}
    log = read_log(msprobe(tmp_path, changes=many), head=1 << 10)
    assert (log.partial, log.header.format) == (True, "msprobe (statistics)")
    assert 256 <= len(log) < 1000


def test_a_dump_without_entries_is_an_empty_log(tmp_path: Path) -> None:
    path = msprobe(tmp_path)
    path.write_text('{"task": "structure", "level": "mix", "framework": "pytorch", "data": {}}')
    assert len(read_log(path)) == 0


def test_tensors_that_were_dumped_beside_are_read(tmp_path: Path) -> None:
    told = {"dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.0}
    entry = {
        "input_args": [{**told, "data_name": "x.pt"}],
        "input_kwargs": {},
        "output": [{**told, "data_name": "y.pt"}],
    }
    path = msprobe(tmp_path, changes={"Torch.relu.0.forward": entry})
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    for name in ("x.pt", "y.pt"):
        (folder / name).write_bytes((DATA / "torch_tensor.pt").read_bytes())
    log = read_log(path)
    last = len(log) - 1
    assert log.header.format == "msprobe (tensors)"
    assert (log.outputs[last].tolist(), log.inputs[last].tolist(), len(log.digests[last])) == ([6.0], [6.0], 1)
    assert log.input_digests[last].tolist() == log.digests[last].tolist()
    assert compare(log, log).status[last] == Status.EQUAL
    (folder / "y.pt").unlink()
    log = read_log(path)
    assert (len(log.digests[last]), log.stats[1, last]) == (0, 1.0)
    assert "y.pt" in log.problems[0].message


def test_what_overflows_in_a_sum_is_not_told(tmp_path: Path) -> None:
    """The norm in float32 of a mask of -3.4e38 is infinite, the mask is not."""
    mask = {"dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": -3.4e38, "Mean": -math.inf, "Norm": math.inf}
    infinite = {**mask, "Min": -math.inf}
    for told, stats in ((mask, ["Min", "Max"]), (infinite, ["L2 norm", "Min", "Max", "Mean"])):
        entry = {"input_args": [told], "input_kwargs": {}, "output": [told]}
        log = read_log(msprobe(tmp_path, changes={"Torch.relu.0.forward": entry}))
        last = len(log) - 1
        assert [name for k, name in enumerate(STATISTICS) if log.present[last] >> k & 1] == stats
        assert math.isnan(log.inputs[last][0]) == (told is not infinite)


def test_what_underflows_in_a_sum_is_not_told(tmp_path: Path) -> None:
    """Squares of elements of 1e-22 are no numbers of a float32; zeros have the norm zero."""
    small = {"dtype": "torch.float32", "shape": [2], "Max": 3e-22, "Min": 0.0, "Mean": 1.5e-22, "Norm": 4.5e-22}
    zero = {**small, "Max": 0.0, "Mean": 0.0, "Norm": 0.0}
    for told, stats in ((small, ["Min", "Max", "Mean"]), (zero, ["L2 norm", "Min", "Max", "Mean"])):
        entry = {"input_args": [told], "input_kwargs": {}, "output": [told]}
        log = read_log(msprobe(tmp_path, changes={"Torch.relu.0.forward": entry}))
        last = len(log) - 1
        assert [name for k, name in enumerate(STATISTICS) if log.present[last] >> k & 1] == stats
        assert math.isnan(log.inputs[last][0]) == (told is small)


def test_magnitudes_of_complex_numbers_are_compared_with_such_alone(tmp_path: Path) -> None:
    turned = {"dtype": "torch.complex64", "shape": [2], "Max": 3.0, "Min": 0.5, "Mean": 1.25, "Norm": None}
    changes = {"Torch.relu.0.forward": {"input_args": [turned], "input_kwargs": {}, "output": [turned]}}
    other = changes["Torch.relu.0.forward"] | {"output": [{**turned, "Max": 4.0}]}
    log = read_log(msprobe(tmp_path, changes=changes))
    own = replace(log, header=replace(log.header, format=None))
    last = len(log) - 1
    assert compare(log, log).status[last] == Status.SAME_PRINT
    assert compare(log, own).status[last] == Status.NO_VALUES
    (tmp_path / "b").mkdir()
    changed = read_log(msprobe(tmp_path / "b", changes={"Torch.relu.0.forward": other}))
    assert compare(log, changed).status[last] == Status.DIVERGED


def test_what_returns_its_input_unchanged_is_the_maker_from_then_on() -> None:
    makers = Makers()
    makers.keep("x", 0)
    makers.keep("x", 1, ("x", "y"))
    assert makers.of("x") == 1
    makers.keep("x", 2, ("y",))
    makers.keep("x", 3, ("x",))
    assert (makers.of("x"), makers.of("y")) == (-1, -1)


@pytest.mark.parametrize(
    ("function", "dimensions", "operation"),
    [
        ("linear", [3, 2], "mm"),
        ("linear", [3, 2, 1], "addmm"),
        ("matmul", [4, 4], "bmm"),
        ("matmul", [3, 2], "mm"),
        ("matmul", [2, 3], "matmul"),
        ("matmul", [1, 2], "matmul"),
        ("matmul", [-1, 2], "matmul"),
        ("truediv", [2], "div"),
        ("square", [3], "pow"),
        ("and", [2, 2], "bitwise_and"),
        ("cross_entropy", [2, 1], "cross_entropy"),
        ("silu", [3], "silu"),
    ],
)
def test_functions_are_called_as_what_torch_dispatches(function: str, dimensions: list[int], operation: str) -> None:
    assert dispatched(function, tuple(dimensions)) == operation


def _negated(path: Path) -> Path:
    """The dump with another sign of what the second layer reads and returns."""
    told = json.loads(path.read_text())
    call = told["data"]["Functional.linear.1.forward"]
    for tensor in (call["input_args"][0], call["output"][0]):
        low, high, mean = tensor["Min"], tensor["Max"], tensor["Mean"]
        tensor |= {"Min": -high, "Max": -low, "Mean": -mean}
        if "md5" in tensor:
            tensor["md5"] = f"{int(tensor['md5'], 16) ^ 1:08x}"
    path.write_text(json.dumps(told))
    return path


@pytest.mark.parametrize("summary", ["statistics", "md5"])
@pytest.mark.parametrize("converted", [False, True])
def test_a_minus_that_is_not_logged_is_seen_in_the_extremes_of_what_is_read(
    summary: str, converted: bool, tmp_path: Path
) -> None:
    a, b = (msprobe(tmp_path / side, "L1", summary=summary) for side in "ab")
    logs = [read_log(a), read_log(_negated(b))]
    if converted:
        for log, path in zip(logs, (a, b), strict=True):
            path.write_text("".join(written(log)))
        logs = [read_log(a), read_log(b)]
    c = compare(logs[0], logs[1])
    (row,) = np.flatnonzero(c.cause).tolist()
    assert (c.a.keys[int(c.row_a[row])], c.role[row]) == ("<none>/op_2_mm", Role.UNKNOWN)
    told, weight = inputs_of(c, row)
    assert (told.a, told.agrees, weight.agrees) == (told.b, False, True)
    assert headline(c, row).endswith("input 0 already differs: suspect an uncaptured operation just upstream")
    shown = {fact.name: fact for fact in facts_of(c, row)}
    assert shown["min of input 0"].a == f"-{shown['max of input 0'].b}"
    assert ("checksum of input 0" in shown) == (summary == "md5")
    c = compare(c.a, c.a)
    assert not c.red.any()
    assert all(fact.agrees for fact in inputs_of(c, row))


def test_stacks_are_those_outside_of_libraries(tmp_path: Path) -> None:
    path = msprobe(tmp_path)
    frames = ["File /x/site-packages/torch/f.py, line 1, in f, \n y", "File /m.py, line 3, in forward, \n z",
        "File /t.py, line 9, in <module>, \n m(x)"]  # fmt: skip
    path.with_name("stack.json").write_text(json.dumps({"0": [["Torch.tanh.0.forward"], frames]}))
    log = read_log(path)
    assert (log.location_text(1), log.texts("Stack")[1]) == ("/m.py:3", "/m.py:3:forward < /t.py:9:<module>")


def test_rules_may_have_the_names_of_the_dump(tmp_path: Path) -> None:
    a, b = read_log(msprobe(tmp_path / "a")), read_log(msprobe(tmp_path / "b", scale=1.5))
    rules = parse_rules(
        "pairs: [{a: Functional.linear.0.forward, b: Functional.linear.1.forward}]\n"
        'templates: [{a: "Torch.tanh.{n}.forward", b: "Torch.tanh.{n}.forward"}]\n'
        'ignore: [{match: "Functional.linear.*.backward"}]\n'
    )
    found = compare(a, b, rules)
    assert found.row_b[found.row_a == 0].tolist() == [2]
    ignored = [a.keys[int(row)] for row in found.row_a[found.excluded_by >= 0]]
    assert ignored == [key for key in OF_FUNCTIONS if key.endswith("linear_backward")]


def test_a_function_without_a_name_is_an_operation(tmp_path: Path) -> None:
    told = {"dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.5}
    log = read_log(msprobe(tmp_path, changes={"Torch..0.forward": {"input_args": [told], "output": [told]}}))
    assert log.keys[len(log) - 1] == "<none>/op_1_<none>"
    assert not compare(log, log).red.any()


def test_a_further_output_that_differs_without_digests_is_red(tmp_path: Path) -> None:
    def log(name: str, norm: float) -> OpLog:
        told = {"dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.5}
        entry = {"input_args": [told], "input_kwargs": {}, "output": [told, {**told, "Norm": norm, "Max": norm}]}
        return read_log(msprobe(tmp_path / name, changes={"Torch.relu.0.forward": entry}))

    c = compare(log("a", 2.5), log("b", 3.5))
    (row,) = np.flatnonzero(c.red).tolist()
    assert c.slots[row].name == "output 1"
