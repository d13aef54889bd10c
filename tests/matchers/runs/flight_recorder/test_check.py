"""Dumps of the flight recorder: who is missing in a collective, who calls another, and that healthy ones are quiet."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from matchers.errors import InputError
from matchers.runs.check import check_run
from matchers.runs.finding import CheckedRun
from matchers.runs.run import find_run
from numtui.cli.main import main
from tests.checked import odd_run

WORLD, PAIR = ("0", "default_pg"), ("1", "tp")
FRAMES = [
    {"name": "all_reduce", "filename": "/v/lib/python3.12/site-packages/torch/distributed/x.py", "line": 9},
    {"name": "main", "filename": "/home/user/train.py", "line": 40},
]


def entry(number: int, does: str = "nccl:all_reduce", seq: int = 0, **changes: Any) -> dict[str, Any]:
    """An entry as torch 2.13 writes it (version 2.10)."""
    told: dict[str, Any] = {
        "record_id": number,
        "pg_id": 0,
        "process_group": WORLD,
        "time_created_ns": 1795718575881549,
    }
    told |= {"p2p_seq_id": 0, "op_id": number + 1, "profiling_name": does, "collective_seq_id": seq or number + 1}
    told |= {"input_sizes": [[4, 2]], "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "output_dtypes": ["Float"]}
    told |= {"state": "completed", "retired": True, "timeout_ms": 600000, "is_p2p": False, "frames": FRAMES}
    return told | changes


WAITS: dict[str, Any] = {"state": "started", "retired": False}


def write(folder: Path, ranks: Mapping[int, Sequence[Mapping[str, Any]]], form: str = "pickle", **more: Any) -> str:
    """Dumps in a folder, and its path; the second group is of ranks 0 and 1, or 2 and 3."""
    folder.mkdir(exist_ok=True)
    every = str(sorted(ranks))
    for rank, entries in ranks.items():
        pair = str([rank // 2 * 2, rank // 2 * 2 + 1])
        config: dict[str, Any] = {"0": {"name": "0", "desc": "default_pg", "ranks": every}}
        config["1"] = {"name": "1", "desc": "tp", "ranks": pair}
        dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [*entries], **more}
        if form == "json":
            (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
        else:
            (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    return str(folder)


def checked(path: str) -> CheckedRun:
    return check_run(find_run(path, dumps=True))


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_a_healthy_run_is_quiet(form: str, tmp_path: Path) -> None:
    one = [entry(0), entry(1, "nccl:_all_gather_base", output_sizes=[[16, 2]]), entry(2, process_group=PAIR, seq=1)]
    found = checked(write(tmp_path / "r", {rank: [*one, entry(3, seq=3, **WAITS)] for rank in range(4)}, form))
    assert (found.findings, found.unmade) == ((), ())
    assert found.made[0].many == 5
    # rank 0 was asked for its dump a moment later than the others
    late = {0: [*one, entry(3, seq=3)], **dict.fromkeys((1, 2, 3), one)}
    assert checked(write(tmp_path / "r", late, form)).findings == ()


@pytest.mark.parametrize(("seconds", "said"), [(0.25, "perhaps it is only late"), (601, "past its timeout of 600 s")])
def test_late_is_told_from_missing_where_the_dumps_show_it(seconds: float, said: str, tmp_path: Path) -> None:
    """Rank 1 is elsewhere: in a group of its own it calls something that much later than others wait."""
    at = 1795718575881549000
    waits = [entry(0, time_created_ns=at), entry(1, time_created_ns=at, **WAITS)]
    other = entry(1, time_created_ns=at + int(seconds * 1e9), process_group=("2", "own"), seq=1)
    (finding,) = checked(write(tmp_path / "r", {0: waits, 1: [entry(0), other], 2: waits})).findings
    assert said in finding.notes[-1]
    assert f"the dumps show {seconds:,.3g} s of waiting" in finding.notes[-1]


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_the_rank_that_others_wait_for_is_named_with_what_it_did_last(form: str, tmp_path: Path) -> None:
    waits = [entry(0), entry(1, **WAITS)]
    found = checked(write(tmp_path / "r", {0: waits, 1: [entry(0)], 2: waits}, form))
    (finding,) = found.findings
    assert finding.text == "rank 1 has not called all_reduce, collective 2 of default_pg, that others wait in"
    assert (finding.ranks, finding.group) == ((1,), (0, 1, 2))
    assert finding.notes == (
        "rank 1 last called all_reduce, collective 1 of default_pg, which has ended, /home/user/train.py:40",
        "ranks 0, 2 wait in it, /home/user/train.py:40",
        "the dumps show 0 s of waiting, its timeout is 600 s: perhaps it is only late",
    )
    assert [(place.rank, place.line, place.location) for place in finding.places] == [
        (1, 0, "/home/user/train.py:40"),
        (0, 1, "/home/user/train.py:40"),
    ]


def test_who_waits_elsewhere_is_not_the_first_cause(tmp_path: Path) -> None:
    """Ranks 2 and 3 wait for all, rank 0 waits for rank 1 in their pair, and rank 1 does nothing."""
    waits = [entry(0), entry(1, **WAITS)]
    stuck = [entry(0), entry(1, process_group=PAIR, seq=1, **WAITS)]
    found = checked(write(tmp_path / "r", {0: stuck, 1: [entry(0)], 2: waits, 3: waits}))
    assert [finding.ranks for finding in found.findings] == [(0, 1), (1,)]
    assert "rank 0 waits in all_reduce, collective 1 of tp, /home/user/train.py:40" in found.findings[0].notes


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"does": "nccl:broadcast"}, "rank 2: broadcast, collective 2 of default_pg, is all_reduce on other ranks"),
        (
            {"does": "nccl:reduce_scatter", "input_sizes": [[64]]},
            "rank 2: reduce_scatter, collective 2 of default_pg, is all_reduce on other ranks",
        ),
        ({"input_sizes": [[4]]}, "all_reduce, collective 2 of default_pg, of 4 to 8 Float, on other ranks of 8 Float"),
        (
            {"input_dtypes": ["BFloat16"], "output_dtypes": ["BFloat16"]},
            "all_reduce, collective 2 of default_pg, of 8 BFloat16, on other ranks of 8 Float",
        ),
    ],
)
def test_another_collective_size_or_dtype_is_found(other: dict[str, Any], text: str, tmp_path: Path) -> None:
    usual = [entry(0), entry(1, **WAITS), entry(2, **WAITS)]
    found = checked(write(tmp_path / "r", {0: usual, 1: usual, 2: [entry(0), entry(1, **(WAITS | other))]}))
    assert [(finding.text, finding.ranks) for finding in found.findings] == [(text, (2,))]


def test_other_sizes_of_a_broadcast_are_found_and_of_a_gather_are_not(tmp_path: Path) -> None:
    for does, wrong in (("nccl:_broadcast_oop", 1), ("nccl:gather", 0)):
        one, other = entry(0, does), entry(0, does, output_sizes=[[99]])
        assert len(checked(write(tmp_path / "r", {0: [one], 1: [other]})).findings) == wrong


def test_other_shapes_of_one_size_and_uneven_collectives_are_healthy(tmp_path: Path) -> None:
    other = entry(0, input_sizes=[[8]], output_sizes=[[8]]), entry(1, "nccl:all_to_all", input_sizes=[[3]])
    found = checked(write(tmp_path / "r", {0: [entry(0), entry(1, "nccl:all_to_all")], 1: other}))
    assert found.findings == ()


def test_what_was_overwritten_is_not_missing(tmp_path: Path) -> None:
    """Rank 1 has called so much else that its calls of the pair are gone."""
    busy = [entry(number, seq=number) for number in range(7, 10)]
    found = checked(write(tmp_path / "r", {0: [entry(0, process_group=PAIR, seq=1, **WAITS), *busy], 1: busy}))
    assert found.findings == ()
    # what the status counts was called, whether its entry is still there or not
    status = {"0": {"last_enqueued_collective": 5}}
    one, other = [entry(4, seq=5, **WAITS)], [entry(0, seq=1)]
    assert checked(write(tmp_path / "s", {0: one, 1: other}, pg_status=status)).findings == ()


def test_a_message_without_its_other_end_is_found(tmp_path: Path) -> None:
    message: dict[str, Any] = {"p2p_seq_id": 1, "collective_seq_id": 0, "is_p2p": True}
    waits = entry(1, "nccl:recv 1<-0", **message, **WAITS)
    found = checked(write(tmp_path / "r", {0: [entry(0)], 1: [entry(0), waits]}))
    assert [(finding.text, finding.ranks) for finding in found.findings] == [
        ("rank 0 does not send message 1, that rank 1 waits for", (0,))
    ]
    sent = entry(1, "nccl:send 0->1", **message, **WAITS)
    assert checked(write(tmp_path / "r", {0: [entry(0), sent], 1: [entry(0), waits]})).findings == ()


def test_gloo_keeps_the_first_state_of_what_has_ended(tmp_path: Path) -> None:
    ended: dict[str, Any] = {"does": "gloo:all_reduce", "state": "scheduled"}
    waits = {**ended, "retired": False}
    found = checked(write(tmp_path / "r", {0: [entry(0, **ended), entry(1, **waits)], 1: [entry(0, **ended)]}))
    assert [finding.ranks for finding in found.findings] == [(1,)]
    assert checked(write(tmp_path / "r", {0: [entry(0, **ended)], 1: []})).findings == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"version": "2.10", "pg_config": {}, "entries": [', "a damaged dump of the flight recorder"),
        (b'{"version": "9.1", "pg_config": {}, "entries": []}', "version 9.1 of the flight recorder is unknown"),
        (pickle.dumps({"version": "2.10", "pg_config": print}, 2), "rank_0 left no dump"),
        (b"\x80\x02cos\nsystem\nX\x09\x00\x00\x00pg_config\x85R.", "a damaged dump of the flight recorder"),
        (b'{"pg_config": ' + b"[" * 100_000, "a damaged dump of the flight recorder"),
        (json.dumps({"version": "2.1", "pg_config": {}, "entries": [entry(0), {"x": 1}]}).encode(), "1 entries cannot"),
    ],
)
def test_damaged_dumps_are_named_and_execute_nothing(content: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "r", {1: [entry(0)]})
    (tmp_path / "r" / "comm_lib_trace_rank_0").write_bytes(content)
    reasons = [one.reason for one in checked(path).unmade]
    assert any(said in reason for reason in reasons) or said == "rank_0 left no dump"


def test_dumps_beside_logs_come_first_and_other_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run_x"
    odd_run(run)
    (run / "comm_traces").mkdir()
    write(run / "comm_traces", {0: [entry(0, **WAITS)], 1: []})
    (run / "snapshot.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    (run / "compile").mkdir()
    (run / "compile" / "dedicated_log_torch_trace_rank_0_x1.log").write_text("")
    assert main(["check", str(run)]) == 1
    out = capsys.readouterr().out
    assert out.index("1. rank 1 has not called all_reduce") < out.index("2. ")
    assert "rank 1 has called no collective at all" in out
    assert "torch.cuda._memory_viz trace_plot" in out
    assert "tlparse" in out
    for form in ("json", "jsonl", "csv", "html", "junit", "markdown", "github"):
        assert main(["check", str(run), "--format", form]) == 1
        assert "collective 1 of default_pg" in capsys.readouterr().out


def test_a_folder_without_dumps_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "trace_0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(InputError, match=r"no rank_N_activations\.log"):
        find_run(str(tmp_path), dumps=True)
    with pytest.raises(InputError):  # of which there is nothing to compare
        find_run(write(tmp_path, {0: [entry(0)]}))
