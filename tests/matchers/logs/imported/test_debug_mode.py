"""The three logs of torch's DebugMode give the same operations, as far as each tells them."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.errors import LogError
from matchers.logs import records
from matchers.logs.imported import debug_mode_json
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.status import Status
from tests.matchers.contents import contents
from tests.matchers.logs.imported.samples import STEP, Line, hashes, saved, text

Form = Callable[[Sequence[Line]], str]
FORMS = (text, saved, hashes)
_PROBLEMS = ("problems", "problem_count", "content")
KEYS = [
    "a/op_0_addmm",
    "<none>/op_0_mul",
    "<none>/op_1_mul",
    "<none>/op_2__foreach_add_",
    "<none>/op_3_sum",
    "<none>/op_4_native_dropout",
]


def log_of(tmp_path: Path, written: str, **arguments: int) -> OpLog:
    path = tmp_path / "a.log"
    path.write_text(written)
    return read_log(path, **arguments)  # type: ignore[arg-type] # of `head` alone


@pytest.mark.parametrize("form", FORMS)
def test_operations_have_their_modules_numbers_and_what_made_their_inputs(form: Form, tmp_path: Path) -> None:
    log = log_of(tmp_path, form(STEP))
    assert (log.problems, log.complete) == ((), None)
    assert list(log.keys) == KEYS
    assert log.outputs[0].tolist() == [12.125]
    assert log.inputs[0].tolist() == [1.5, 9.75, 8.25]
    assert math.isnan(log.outputs[2][0])
    assert log.outputs[5].tolist() == [1.25, 6.0]
    assert not len(log.digests.value)
    # the view between is followed: by its number, or by its norm
    assert log.producers[1].tolist() == [0]
    assert log.producers[2].tolist() == [1]
    # what is written to in place is the result of that
    assert log.producers[4].tolist() == ([-1] if form is hashes else [3])
    assert log.texts("User hash") == {}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_tells_shapes_and_phases_as_far_as_it_has_them(form: Form, tmp_path: Path) -> None:
    log = log_of(tmp_path, form(STEP))
    if form is hashes:
        assert (len(log.shapes), len(log.dtypes)) == (0, 0)
        assert log.phase.tolist() == [Phase.FORWARD, Phase.FORWARD, *[Phase.OTHER] * 4]
    else:
        assert (log.shape_text(0), log.dtype_text(5)) == ("[3, 8]", "bfloat16")
        assert log.phase.tolist() == [
            Phase.FORWARD,
            Phase.FORWARD,
            Phase.OTHER,
            Phase.OPTIMIZER,
            Phase.OPTIMIZER,
            Phase.OTHER,
        ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_record_is_shown_as_the_file_has_it(form: Form, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(form(STEP).encode()) if packed else form(STEP).encode())
    lines = raw_record(read_log(path), 4)
    assert any("aten::sum" in line for line in lines)
    assert not any("native_dropout" in line for line in lines)


def test_saved_logs_tell_where_and_in_which_phase_an_operation_ran(tmp_path: Path) -> None:
    forward = '  File "/x/train.py", line 3, in f\n    y = m(x)\n  File "/lib/torch/nn/f.py", line 9, in g\n    z\n'
    backward = '  File "/x/train.py", line 7, in f\n    loss.backward()\n'
    mm = Line(1, "aten::mm", "t$0: f32[2, 2], t$0: f32[2, 2]", "t$1: f32[2, 2]", (1.5, 1.5), 2.5, stack=forward)
    log = log_of(tmp_path, saved([mm, mm._replace(stack=backward, forward_stack=forward), mm._replace(stack=backward)]))
    assert log.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.OTHER]
    assert [log.location_text(row) for row in range(3)] == ["/x/train.py:3", "/x/train.py:3", "/x/train.py:7"]


def test_lines_of_a_text_may_name_source_lines_kernels_and_layouts(tmp_path: Path) -> None:
    written = (
        "step 0 loss 2.5\n"
        "    # File: /x/train.py:3 in f, code: y = m(x)\n"
        "  aten::mm(dt$0: f32[4, 4]| S(0), dt$1: f32[4, 4]| S(0))\n"
        "    -> output: S(0)\n"
        "    redistribute_input [implicit] (1, S(0) -> R)\n"
        "      redistribute_input(t$2: f32[4, 4], trace: S(0)->R)\n"
        "    aten::mm(t$3: f32[4, 4], t$2: f32[4, 4])  ->  t$4: f32[4, 4]  # {'hash': 15.5}\n"
        "  [triton] kernel_0(arg=t: bf16[2, 32], n=3)\n"
        "    # pre-kernel hashes: {arg: 1.5}\n"
        "    # post-kernel hashes: {arg: 2.5}\n"
        "\n"
    )
    log = log_of(tmp_path, written)
    assert list(log.keys) == ["<none>/op_0_mm", "<none>/op_1_kernel_0"]
    assert log.location_text(0) == "/x/train.py:3"
    assert (log.inputs[1].tolist(), log.outputs[1].tolist()) == ([1.5], [2.5])
    assert [(problem.line, problem.message) for problem in log.problems] == [
        (1, "1 line is not of DebugMode, from here on")
    ]


@pytest.mark.parametrize("form", FORMS)
def test_whole_numbers_of_a_hash_are_no_norms_and_no_digests(form: Form, tmp_path: Path) -> None:
    both = Line(1, "aten::mm", "t$0: f32[2, 2], t$1: f32[2]", "t$2: f32[2]", ((1.5, 3), (2.5, 4)), (5.5, 2**64 - 1))
    log = log_of(tmp_path, form([both]))
    assert (log.inputs[0].tolist(), log.outputs[0].tolist()) == ([1.5, 2.5], [5.5])
    assert log.texts("User hash")[0] == str(2**64 - 1)
    assert not len(log.digests.value)
    other = tmp_path / "b.log"
    other.write_text(form([both._replace(output=(5.5, 7))]))
    c = compare(log, read_log(other))
    assert c.status.tolist() == [Status.CLOSE]
    assert compare(log, log).status.tolist() == [Status.SAME_PRINT]


@pytest.mark.parametrize("form", FORMS)
def test_whole_numbers_alone_say_that_bits_differ_and_not_by_how_much(form: Form, tmp_path: Path) -> None:
    one = Line(1, "aten::mm", "t$0: f32[2, 2], t$1: f32[2]", "t$2: f32[2]", (3, 4), 7)
    log = log_of(tmp_path, form([one]))
    other = tmp_path / "b.log"
    other.write_text(form([one._replace(output=8)]))
    assert compare(log, read_log(other)).status.tolist() == [Status.NOT_JUDGED]
    assert compare(log, log).status.tolist() == [Status.NO_VALUES]


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_log_without_hashes_has_operations_and_no_values(form: Form, tmp_path: Path) -> None:
    log = log_of(tmp_path, form([line._replace(inputs=None, output=None) for line in STEP]))
    assert "a/op_0_addmm" in log.keys
    assert (len(log.outputs.value), log.problems) == (0, ())


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"a.log:1: version 2 of DebugMode's logs is unknown: expected 1"):
        log_of(tmp_path, saved(version=2))


@pytest.mark.parametrize("form", FORMS)
def test_of_a_damaged_file_only_the_damaged_call_is_lost(form: Form, tmp_path: Path) -> None:
    good = form(STEP)
    log = log_of(tmp_path, good.replace("8.25", "8.2}5}", 1).replace("13.25", "1]3.25", 1))
    assert log.problem_count >= 1
    assert all(problem.line >= 1 for problem in log.problems)
    kept = set(KEYS) & set(log.keys)
    assert {"<none>/op_4_native_dropout", "<none>/op_3_native_dropout", "<none>/op_2_native_dropout"} & set(log.keys)
    assert len(log) >= len(KEYS) - 2
    assert kept


@pytest.mark.parametrize("depth", ["[1]", '"x"', "null"])
def test_a_depth_that_is_no_number_costs_its_call(depth: str, tmp_path: Path) -> None:
    before, mark, after = saved().rpartition('"call_depth": ')
    log = log_of(tmp_path, before + mark + depth + after.lstrip("0123456789"))
    assert len(log) == len(log_of(tmp_path, saved())) - 1
    assert log.problem_count == 1


def test_lines_of_something_else_are_counted_and_cost_no_field(tmp_path: Path) -> None:
    """Many at once: a damaged file may have millions."""
    whole = hashes()
    among = whole.replace("  Call index:", "step 1: 2.5\n\nstep 2\n  Call index:", 1)
    log, found = log_of(tmp_path, whole), log_of(tmp_path, among)
    assert among != whole
    assert [(one.line, one.message) for one in found.problems] == [(5, "2 lines are not of DebugMode, from here on")]
    assert contents(found, but=("path", "line", *_PROBLEMS)) == contents(log, but=("path", "line", *_PROBLEMS))


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_cut_off_is_read_up_to_there_and_says_so(form: Form, tmp_path: Path) -> None:
    good = form(STEP)
    log = log_of(tmp_path, good[: good.index("native_dropout") + 3])
    assert list(log.keys)[:5] == KEYS[:5]
    assert log.problems
    assert log.complete is (None if form is text else False)


@pytest.mark.parametrize("form", FORMS)
def test_the_head_of_a_log_is_read_without_the_rest(form: Form, tmp_path: Path) -> None:
    log = log_of(tmp_path, form(STEP * 2_000), head=64 << 10)
    assert log.partial
    assert 0 < len(log) < 2_000


def test_calls_that_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_FREE", 1 << 17)
    monkeypatch.setattr(records, "_MAX_MEMORY", 8)
    with pytest.raises(LogError, match=r"a.log: its first \d+,?\d+ records .* would take"):
        log_of(tmp_path, "  aten::a()\n" * 20_000)


def test_a_call_of_a_dtensor_stays_in_its_module(tmp_path: Path) -> None:
    local = "  # {'hash': 1.5}\n"
    log = log_of(
        tmp_path,
        "    [nn.Mod] M\n"
        "      [nn.Mod] M.a\n"
        "      aten::mm(dt$0: f32[4, 4]| S(0), dt$1: f32[4, 4]| S(0))\n"
        f"        aten::mm(t$3: f32[4, 4], t$2: f32[4, 4])  ->  t$4: f32[4, 4]{local}"
        f"      aten::mul.Tensor(t$4: f32[4, 4], 2)  ->  t$5: f32[4, 4]{local}",
    )
    assert list(log.keys) == ["a/op_0_mm", "<none>/op_0_mul"]


def test_what_lies_too_deep_is_damage(tmp_path: Path) -> None:
    deep = Line(1, "aten::mm", "", "t: f32[2]", (), 1.5)
    nested = '{"type": "list", "items": [' * 100_000
    log = log_of(tmp_path, saved([*STEP, deep]).replace('{"type": "scalar", "value": 1.5}]]', nested))
    assert list(log.keys) == KEYS
    assert log.problem_count
    log = log_of(tmp_path, text() + f"    aten::mm(t: f32[2])  ->  t: f32[2]  # {{'hash': {'(' * 100_000}}}\n")
    assert list(log.keys)[:6] == KEYS
    assert log.problem_count


def test_calls_are_read_across_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matchers.logs import source

    whole = log_of(tmp_path, saved())
    for size in (7, 64, 1000):
        monkeypatch.setattr(source, "_FEW", size)
        monkeypatch.setattr(source, "_START", 100)
        pieces = log_of(tmp_path, saved())
        assert list(pieces.keys) == list(whole.keys)
        assert np.array_equal(pieces.inputs.value, whole.inputs.value)
    assert debug_mode_json.FORMAT.name == whole.header.format
