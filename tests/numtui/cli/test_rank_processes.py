"""Processes that compare ranks: one that is killed, ctrl+c, and the end of the process that waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from matchers.runs.diff.part_file import read_part
from matchers.runs.diff.summary import Outcome
from tests.conftest import REPOSITORY
from tests.numtui.cli.rank_runs import write_runs

_SECONDS = 60
"""Within which something happens that a test waits for."""
_ON_RANK_1 = """
import multiprocessing, os, signal, sys

def on_open(event, arguments):
    if event == "open" and "rank_1_" in str(arguments[0]) and multiprocessing.parent_process() is not None:
        {does}

sys.addaudithook(on_open)
"""
"""What a Python does that reads the log of rank 1 in a process of its own."""
_WAITS = 'open("at_work", "w").close(); signal.pause()'
_DIES = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start(does, option…)`: the comparison of two runs in two processes and a group of its own."""
    monkeypatch.chdir(tmp_path)
    write_runs(red=(1, 2))
    started = []

    def run(does: str, *options: str) -> subprocess.Popen[str]:
        (tmp_path / "sitecustomize.py").write_text(_ON_RANK_1.format(does=does))
        process = subprocess.Popen(
            [sys.executable, "-m", "numtui", "diff", "a", "b", "--workers", "2", "--no-cache", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        for pid in of_session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def of_session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(folder.name))
    return found


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = monotonic() + _SECONDS
    while not happened():
        assert monotonic() < end
        sleep(0.02)


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")


def test_a_process_that_is_killed_each_time_fails_its_rank_alone(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(_DIES)
    out, err = process.communicate(timeout=_SECONDS)
    assert process.returncode == 1
    assert "1 of 3 ranks is red; it began on rank 2; rank 1 not compared\n" in out
    assert "rank 1: the process that compared it was killed" in err
    assert "Traceback" not in err


def test_a_process_that_is_killed_once_costs_nothing(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Its rank is tried again."""
    process = start(f'os.path.exists("killed") or (open("killed", "w").close(), {_DIES})')
    out, _ = process.communicate(timeout=_SECONDS)
    assert Path("killed").exists()
    assert process.returncode == 1
    assert "2 of 3 ranks are red; it began on ranks 1, 2\n" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_signals_leave_neither_processes_nor_output(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = start(_WAITS, "-o", "report.txt")
    wait_until(Path("at_work").exists)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=_SECONDS)
    assert process.returncode == 128 + number
    assert out == err == ""
    wait_until(lambda: not of_session(process.pid))
    assert sorted(path.name for path in Path().glob("report*")) == []


def test_a_part_is_whole_or_not_there(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(_WAITS, "--shard", "1/1", "-o", "part.json")
    wait_until(Path("at_work").exists)
    os.kill(process.pid, signal.SIGUSR1)
    process.communicate(timeout=_SECONDS)
    assert process.returncode == 128 + signal.SIGUSR1
    assert not list(Path().glob("*part*"))
    process = start(_DIES, "--shard", "1/1", "-o", "part.json")
    process.communicate(timeout=_SECONDS)
    assert process.returncode == 0
    told = [each.outcome for each in read_part(Path("part.json")).summaries]
    assert told == [Outcome.COMPARED, Outcome.FAILED, Outcome.COMPARED]


def test_processes_end_with_the_one_that_waits_for_them(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(_WAITS)
    wait_until(Path("at_work").exists)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not of_session(process.pid))
