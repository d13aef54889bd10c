"""Traces of Megatron-LM: boundaries of the program in the order of execution, and the experts that tokens go to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import LogError
from matchers.logs.imported import megatron_determinism
from matchers.logs.imported.columns import Row, rows
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.runs.check import check_run
from matchers.runs.run import find_run, has_steps
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from tests.builders import training_step, write_log
from tests.matchers.contents import contents
from tests.matchers.logs.imported.dumps import determinism, routing

NAMES = [f"iteration_24.decoder.layer{layer}.input/op_0_boundary" for layer in (0, 1, 2)]


def log_of(path: Path, text: str) -> OpLog:
    path.write_text(text)
    return read_log(path)


def compared(folder: Path, one: str, other: str) -> Comparison:
    return compare(log_of(folder / "a.jsonl", one), log_of(folder / "b.jsonl", other))


def test_boundaries_and_scalars_are_rows_in_the_order_of_execution(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", determinism("summary"))
    assert (log.header.format, log.problems) == ("Megatron determinism trace (summary)", ())
    batches = "iteration_24.iteration_start.num_microbatches/op_0_value"
    assert list(log.keys) == [batches, *NAMES, "iteration_24.loss.lm/op_0_value"]
    assert log.phase.tolist() == [Phase.OTHER, *[Phase.FORWARD] * 3, Phase.OTHER]
    assert (log.micro_batch.tolist(), log.shape_text(1), log.dtype_text(1)) == ([-1, 1, 1, 1, -1], "[2, 4]", "bfloat16")
    assert log.stats[1:, 4].tolist() == [1.5, 1.5, 1.5, 1.5]
    assert raw_record(log, 4)[1] == ' "event": "event",'


@pytest.mark.parametrize(
    ("mode", "equal", "other"),
    [
        ("full", Status.EQUAL, Status.NOT_JUDGED),
        ("sampled", Status.NO_VALUES, Status.NOT_JUDGED),
        ("summary", Status.SAME_PRINT, Status.DIVERGED),
        ("metadata", Status.NO_VALUES, Status.NO_VALUES),
    ],
)
def test_a_match_means_what_the_mode_records(mode: str, equal: Status, other: Status, tmp_path: Path) -> None:
    c = compared(tmp_path, determinism(mode), determinism(mode, differs_from=2))
    assert c.status[1:4].tolist() == [equal, equal, other]
    c = compare(c.a, c.b, expectation=Expectation(preset=Expect.BITWISE))
    assert c.red.tolist() == [False, False, False, mode != "metadata", False]


def test_the_first_difference_is_the_first_in_execution(tmp_path: Path) -> None:
    c = compared(tmp_path, determinism("summary"), determinism("summary", differs_from=1))
    assert c.first_difference is not None
    assert (c.first_difference.row, np.flatnonzero(c.cause).tolist(), c.role[2]) == (2, [2], Role.UNKNOWN)


def test_digests_of_two_kinds_are_not_compared(tmp_path: Path) -> None:
    trace = log_of(tmp_path / "a.jsonl", determinism("full"))
    ours = read_log(write_log(tmp_path / "b.log", training_step(1), run={}))
    c = compare(trace, ours)
    assert (len(c.a.digests.value), len(c.b.digests.value)) == (0, 0)


def test_another_schema_is_refused_and_damage_costs_its_line(tmp_path: Path) -> None:
    good = determinism("summary")
    with pytest.raises(LogError, match=r"a.jsonl:1: schema_version 2 of Megatron's determinism trace is unknown"):
        log_of(tmp_path / "a.jsonl", good.replace('"schema_version":1', '"schema_version":2', 1))
    log = log_of(tmp_path / "a.jsonl", good.replace('"mode":"summary"', '"mode', 1) + "\n" + good[:40])
    assert list(log.keys)[1] == NAMES[1]
    assert [problem.line for problem in log.problems] == [2, 7]
    assert log.complete is False


def test_a_sequence_that_goes_back_is_told(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", determinism("summary") + determinism("summary"))
    assert log.problems[0].message == "sequence 0 after 4: it is not increasing"


def test_ranks_are_told_by_the_names_of_files(tmp_path: Path) -> None:
    for rank in (0, 3):
        (tmp_path / f"rank_{rank:06}.jsonl").write_text(determinism("full"))
    assert list(find_run(str(tmp_path)).paths) == [0, 3]


def test_one_step_of_a_trace_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, (one, other) = tmp_path / "rank_000000.jsonl", (determinism("summary"), determinism("summary", 1))
    path.write_text(one + other.replace('"iteration":24', '"iteration":25'))
    log = read_log(path, step=25)
    assert {key.partition(".")[0] for key in log.keys} == {"iteration_25"}
    assert (len(log), log.line[0], raw_record(log, 0)[0]) == (5, 6, "{")
    alone = log_of(tmp_path / "alone.jsonl", other.replace('"iteration":24', '"iteration":25'))
    but = ("path", "content", "line", "problems", "problem_count")
    assert contents(log, but=but) == contents(alone, but=but)
    run = find_run(str(tmp_path), step=25)
    assert (run.step, len(check_run(run).run.paths)) == (25, 1)
    made: list[int] = []

    def noted(**columns: Any) -> list[Row]:
        made.append(len(columns["line"]))
        return rows(**columns)

    with monkeypatch.context() as patch:
        patch.setattr(megatron_determinism, "rows", noted)
        read_log(path, step=25)
    assert sum(made) == len(log), "no rows of the other step were made"
    with pytest.raises(LogError, match=r"no operations of step 7; its steps are 24, 25"):
        read_log(path, step=7)
    trace = log_of(tmp_path / "t.jsonl", routing() + routing().replace('"step": 0', '"step": 1'))
    assert 0 < len(read_log(trace.path, step=1)) < len(trace)


def test_a_token_that_goes_to_another_expert_is_red(tmp_path: Path) -> None:
    c = compared(tmp_path, routing(), routing(flipped=1))
    assert c.a.header.format == "Megatron routing trace"
    assert list(c.a.keys) == [f"step_0.decoder.layers.{layer}/op_0_pre_dispatch" for layer in (0, 1, 2)]
    assert c.status.tolist() == [Status.EQUAL, Status.DIVERGED, Status.EQUAL]


def test_hidden_states_beside_a_routing_tell_whether_it_is_their_consequence(tmp_path: Path) -> None:
    logs = []
    for name, flipped in (("a", None), ("b", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hidden_states_rank0.bin").write_bytes(np.arange(3 * 8, dtype="<u2").tobytes())
        logs.append(log_of(tmp_path / name / "trace.jsonl", routing(flipped, hidden=True)))
    c = compare(logs[0], logs[1])
    assert [key.rpartition("_")[2] for key in c.a.keys] == ["states", "dispatch"] * 3
    assert np.flatnonzero(c.cause).tolist() == [3]
    assert c.role[3] == Role.ORIGIN


def test_hidden_states_at_an_offset_beyond_their_file_cost_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "hidden_states_rank0.bin").write_bytes(bytes(48))
    damaged = routing(hidden=True).replace('"hs_offset": 16', f'"hs_offset": {1 << 63}')
    assert str(1 << 63) in damaged
    log = log_of(tmp_path / "trace.jsonl", damaged)
    assert [key.rpartition("_")[2] for key in log.keys] == ["states", "dispatch", "dispatch", "states", "dispatch"]


def test_a_pipe_is_not_read_by_who_asks_whether_it_has_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read once."""
    text = routing().encode()
    (tmp_path / "trace.jsonl").write_bytes(text)
    assert has_steps(str(tmp_path / "trace.jsonl"))
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(pipe, text[:100])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_bytes(text)  # a file of the name that stands for standard input
    assert not has_steps("pipe")
    assert not has_steps("-")
    assert os.read(pipe, 200) == text[:100]
    os.close(pipe)


def test_lines_that_are_no_choice_of_experts_cost_themselves(tmp_path: Path) -> None:
    lines: list[Any] = [json.loads(line) for line in routing().splitlines()]
    lines[1]["top_indices"] = [[1], [2, 3]]
    log = log_of(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert (len(log), [problem.line for problem in log.problems]) == (2, [2])
