"""The plan of the next capture: which operations it names, why, and how a capture knows them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capture.keeping.wanted import Wanted
from matchers.comparison import compare
from matchers.errors import InputError
from matchers.logs.parser import read_log
from numtui.cli.main import main
from numtui.cli.parser import parse
from numtui.report.explanation import explain_row
from numtui.report.plan import plan_records
from tests.captured import Step, captured_log, write_captured

X = np.arange(1, 9, dtype=np.float32)
RUN: dict[str, Any] = {"rank": 0, "step": 1}


def steps(factor: float = 1, *, negated: bool = False) -> list[Step]:
    """X → made → scaled (by a factor) → [neg] → read."""
    made, scaled = X + 1, (X + 1) * np.float32(2 * factor)
    found = [
        Step(key="m/op_0_add", reads=[X], gives=[made]),
        Step(key="m/op_1_mul", reads=[made], gives=[scaled], made=["m/op_0_add"]),
    ]
    if negated:
        found.append(Step(key="m/op_2_neg", reads=[scaled], gives=[-scaled], made=["m/op_1_mul"]))
        scaled = -scaled
    end = found[-1].key
    return [*found, Step(key=f"m/op_{len(found)}_exp", reads=[scaled], gives=[np.exp(scaled / 99)], made=[end])]


def planned(a: list[Step], b: list[Step]) -> list[tuple[object, object, str]]:
    records = plan_records(compare(captured_log(a, **RUN), captured_log(b, **RUN)))
    return [(record["key_a"], record["key_b"], str(record["why"])) for record in records]


def test_a_first_cause_and_what_made_its_inputs_are_planned() -> None:
    found = planned(steps(), steps(1.5))
    assert found[0] == ("m/op_1_mul", "m/op_1_mul", "first cause, explains 2 red rows")
    assert found[1] == ("m/op_0_add", "m/op_0_add", "makes input 0 of m/op_1_mul")


def test_of_an_operation_that_one_run_alone_has_its_reader_is_planned() -> None:
    keys = [(a, b) for a, b, _ in planned(steps(), steps(negated=True))]
    assert keys[0] == (None, "m/op_2_neg")
    assert ("m/op_2_exp", "m/op_3_exp") in keys
    assert ("m/op_1_mul", "m/op_1_mul") in keys


def test_equal_runs_have_no_plan() -> None:
    assert planned(steps(), steps()) == []


def test_a_record_has_the_digests_of_both_runs() -> None:
    a, b = captured_log(steps(), **RUN), captured_log(steps(1.5), **RUN)
    first = plan_records(compare(a, b))[0]
    assert first["inputs_a"] == first["inputs_b"]
    assert first["outputs_a"] != first["outputs_b"]
    assert first["rank"] == 0


def test_a_collective_is_planned_on_the_other_ranks_too(tmp_path: Path) -> None:
    """Its result is made of what each of them gave."""
    group = {"ranks": [0, 1], "name": "0", "nth": 0, "op": "sum"}
    a, b = (
        captured_log(
            [Step(key="m/op_0_all_reduce", reads=[X], gives=[X * np.float32(k)], fields={"group": group})], **RUN
        )
        for k in (1, 2)
    )
    own, others = plan_records(compare(a, b))
    assert (own["rank"], others["rank"], others["why"]) == (0, None, own["why"])
    assert others["key_a"] == own["key_a"]
    assert "inputs_a" not in others
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "records": [own, others]}))
    wanted = Wanted.of([str(plan)])
    assert wanted.records("m/op_0_all_reduce", 0) == [own]
    assert wanted.records("m/op_0_all_reduce", 1) == [others]


def test_without_a_rank_the_plan_is_of_the_one_where_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, made in (("a", steps()), ("b", steps(1.5))):
        for rank in (0, 1):
            folder = tmp_path / run / "numerics"
            folder.mkdir(parents=True, exist_ok=True)
            write_captured(
                folder / f"rank_{rank}_activations.log", made if rank else steps(), rank=rank, step=1, world_size=2
            )
    plan = tmp_path / "plan.json"
    assert main(["plan", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(plan)]) == 0
    assert "rank 1, where it began" in capsys.readouterr().err
    assert {record["rank"] for record in json.loads(plan.read_text())["records"]} == {1}


def test_the_capture_reads_what_the_command_writes(tmp_path: Path) -> None:
    for name, made in (("a.log", steps()), ("b.log", steps(1.5))):
        write_captured(tmp_path / name, made, **RUN)
    plan = tmp_path / "plan.json"
    assert main(["plan", str(tmp_path / "a.log"), str(tmp_path / "b.log"), "-o", str(plan)]) == 0
    told = json.loads(plan.read_text())
    assert (told["a"], told["b"]) == ("a", "b")
    wanted = Wanted.of([str(plan)])
    assert wanted.wants("m/op_1_mul", 0)
    assert not wanted.wants("m/op_1_mul", 1)
    assert wanted.may_want("m", "mul")
    assert wanted.may_want(None, "mul")
    assert not wanted.may_want("other", "mul")
    assert len(plan.read_text().splitlines()) == 2 + len(told["records"])


def test_two_equal_runs_are_refused(tmp_path: Path) -> None:
    write_captured(tmp_path / "a.log", steps(), **RUN)
    arguments = parse(["plan", str(tmp_path / "a.log"), str(tmp_path / "a.log")])
    with pytest.raises(InputError, match="nothing to keep: no compared operation differs"):
        arguments.run(arguments)


def beside(path: Path, a: str, b: str, **other: Any) -> None:
    """A result of a replay beside a log: of the pair of `mul`, with these digests."""
    folder = path.with_name(f"{path.stem}_kept")
    folder.mkdir()
    sides = {side: {"key": "m/op_1_mul", "recorded": [digest]} for side, digest in (("a", a), ("b", b))}
    case = {"verdict": "asked otherwise", "elements": ["result: a times 1.5"], "sides": sides} | other
    (folder / "replay.json").write_text(json.dumps({"cases": [7, {"sides": 3}, case]}))


@pytest.mark.parametrize("same", [True, False])
def test_a_row_shows_what_its_replay_has_shown_if_it_was_of_these_records(tmp_path: Path, same: bool) -> None:
    for name, made in (("a.log", steps()), ("b.log", steps(1.5))):
        write_captured(tmp_path / name, made, **RUN)
    c = compare(read_log(str(tmp_path / "a.log")), read_log(str(tmp_path / "b.log")))
    a, b = (f"{int(log.digests[1][0]):016x}" for log in (c.a, c.b))
    beside(tmp_path / "a.log", a, b if same else a)
    told = [sentence.text for sentence in explain_row(c, 1).steps.get("Replay", ())]
    assert told == (["Asked otherwise.", "Result: a times 1.5."] if same else [])
    assert "Replay" not in explain_row(c, 0).steps
