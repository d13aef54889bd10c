"""`--against` keeps the first operations that differ from another run, in the run in which they do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from capture import launch
from capture.keeping.against import Operation, Table, read_table
from capture.keeping.bundle import Bundle, read_bundle
from capture.keeping.form import find_bundles
from capture.keeping.perform import in_a_fork
from capture.process import Capture
from capture.settings import Settings
from capture.statistics import Statistics, Unmeasurable
from numtui.cli.main import main
from tests.capture.conftest import LOOP, Script
from tests.capture.runs import Run


@pytest.fixture
def table(script: Script, tmp_path: Path) -> Path:
    """The digests of the loop as it is."""
    run, path = script(LOOP), tmp_path / "table.json"
    assert main(["plan", "--digests", str(run.folder), "-o", str(path)]) == 0
    return path


def bundle_of(run: Run) -> Bundle:
    (folder,) = find_bundles(run.folder)
    return read_bundle(folder)


def replays(kept: Bundle) -> bool:
    calls = [{**call, "folder": str(kept.folder)} for call in kept.calls]
    found = in_a_fork(calls, {}, frozenset())
    wanted = [(call["digests"]["returned"], call["digests"]["left"]) for call in calls]
    return [(each["returned"], each["written"]) for each in found] == wanted


@pytest.mark.parametrize("text", [LOOP, LOOP.replace("model(x)", "torch.nn.functional.dropout(model(x), 0.5)")])
def test_a_run_that_is_the_other_one_keeps_nothing(script: Script, text: str, tmp_path: Path) -> None:
    assert main(["plan", "--digests", str(script(text).folder), "-o", str(tmp_path / "t.json")]) == 0
    run = script(text, f"--against {tmp_path / 't.json'}")
    assert "no operation differs from" in run.said
    assert find_bundles(run.folder) == []


OTHERS = {
    "addmm": ("model = net()", "model = net()\nmodel[2].register_forward_pre_hook(lambda _, given: (given[0] * 1,))"),
    "sum": ("model(x).sum()", "model(x).sum(dtype=torch.float64)"),
    "add_": ("lr=0.1", "lr=0.2"),
    "dropout": ("model(x)", "torch.nn.functional.dropout(model(x), 0.5)"),
}
FIRST = {"addmm": "_mul", "sum": "_sum", "add_": "_add_", "dropout": "_bernoulli_"}


@pytest.mark.parametrize("other", OTHERS)
def test_the_first_operation_that_differs_is_kept_and_replays(script: Script, table: Path, other: str) -> None:
    run = script(LOOP.replace(*OTHERS[other]), f"--against {table}")
    kept = bundle_of(run)
    first = kept.calls[0]
    assert first["key"].endswith(FIRST[other])
    assert f"{first['key']} differs first from" in run.said
    assert "not kept" not in run.said
    assert first["planned"][0]["key_b"] == first["key"]
    assert replays(kept)


def test_what_reads_a_difference_is_not_kept(script: Script, table: Path) -> None:
    kept = bundle_of(script(LOOP.replace(*OTHERS["sum"]), f"--against {table}"))
    assert len(kept.calls) == 1
    (record,) = kept.calls[0]["planned"]
    assert record["why"] == "same inputs, other results"
    assert len(record["outputs_a"]) == 1
    assert record["outputs_a"] != kept.calls[0]["digests"]["returned"]


def test_other_weights_are_no_difference_of_an_operation_and_said(script: Script, table: Path) -> None:
    run = script(LOOP.replace("model = net()", "torch.manual_seed(3)\nmodel = net()"), f"--against {table}")
    assert "/op_0_addmm is the first that reads what" in run.said
    assert "does not have: weights, data, or what another rank gave" in run.said
    assert find_bundles(run.folder) == []


@pytest.mark.parametrize("inherited", [False, True])
def test_the_program_stops_at_the_first_difference(
    script: Script, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: bool
) -> None:
    """Also before it has trained, as a process whose capture is another's, of which a call of a model says nothing."""
    monkeypatch.setattr(
        launch, "Capture", lambda *args, **options: Capture(*args, **(options | {"inherited": inherited}))
    )
    text = LOOP.replace(*OTHERS["addmm"]) + "raise AssertionError('it went on')\n"
    with pytest.raises(SystemExit, match=r"stopped at .*_mul: no such operation there"):
        script(text, f"--against {table} --stop")
    (folder,) = find_bundles(tmp_path / "out")
    assert [call["key"].rpartition("_")[2] for call in read_bundle(folder).calls] == ["mul"]
    log = (folder.parent / "rank_0_activations.log").read_text()
    assert re.search(r'"incomplete": "stopped at \S+_mul: no such operation there; --stop"', log)


def test_results_on_a_device_are_not_waited_for(script: Script, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(_self: Statistics, _slot: int) -> int:
        raise Unmeasurable("its digest is on a device")

    monkeypatch.setattr(Statistics, "digest", elsewhere)
    run = script(LOOP.replace(*OTHERS["sum"]), f"--against {table}")
    assert run.said.count("--against is for runs on a CPU") == 1
    assert "numtui plan A B names, with --save" in run.said
    assert "differs first from" in run.said  # found when the log is written, too late to keep it
    assert "(same inputs, other results, not kept)" in run.said
    assert run.log.complete


def test_what_cannot_be_kept_is_not_watched_and_the_capture_goes_on(
    script: Script, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any) -> Any:
        raise Unmeasurable("the random state is unknown")

    monkeypatch.setattr("capture.keeping.differing.random_state", unknown)
    run = script(LOOP.replace(*OTHERS["dropout"]), f"--against {table}")
    assert run.log.complete
    assert "(no such operation there, not kept)" in run.said


def test_of_another_step_there_is_nothing_to_compare(script: Script, table: Path) -> None:
    assert "has nothing of this step of rank 0" in script(LOOP, f"--against {table} --steps 2").said


def test_digests_while_a_step_runs_are_those_of_its_end() -> None:
    statistics = Statistics()
    slots = [statistics.measure(torch.full((3,), float(k))) for k in range(2000)]
    found = [statistics.digest(slot) for slot in slots]
    results = statistics.results()
    assert found == [results[slot].digest for slot in slots]
    statistics.restart(slots[:1])
    assert statistics.digest(slots[0]) == found[0]
    assert statistics.digest(statistics.measure(torch.zeros(3))) == found[0]


def ran(inputs: str, *results: int) -> Operation:
    return Operation(tuple(map(int, inputs)), results)


def test_an_operation_differs_first_if_it_reads_what_the_other_run_has() -> None:
    table = Table()
    table.add("m/op_0_mm", ran("12", 3))
    table.add("m/op_1_mm", ran("13", 4))
    for key, run, why in (
        ("m/op_0_mm", ran("12", 3), ""),
        ("m/op_0_mm", ran("12", 9), "same inputs, other results"),
        ("m/op_1_mm", ran("19", 4), ""),
        ("m/op_1_mm", ran("31", 9), "given other tensors"),
        ("m/op_2_neg", ran("4", 9), "no such operation there"),
        ("m/op_2_neg", ran("9", 8), ""),
        ("m/op_2_rand", ran("", 8), "no such operation there"),
    ):
        assert table.difference(key, run) == why
        assert table.may_differ(key.rpartition("_")[2], run) == bool(why)


@pytest.mark.parametrize(
    "told",
    ["", "[]", {"digests": 9}, {"digests": 1}, {"digests": 1, "logs": [{"rank": 0, "step": 1, "records": [["k", 1]]}]}],
)
def test_what_is_no_table_is_refused(told: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(told if isinstance(told, str) else json.dumps(told))
    with pytest.raises(ValueError, match="is no table of digests"):
        read_table(str(path))
    with pytest.raises(ValueError, match="numtui plan --digests RUN writes it"):
        Settings(against=str(tmp_path / "none"))


def test_a_table_is_of_one_run(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(script(LOOP).folder)
    assert main(["plan", "--digests", folder, folder]) == 2
    assert main(["plan", folder]) == 2
    assert "a plan is of two runs" in capsys.readouterr().err
