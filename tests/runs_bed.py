"""Logs of the runs of tests/bed_cases.py: made once for all tests, or by hand.

`python -m tests.runs_bed FOLDER [NAME…]` writes the logs of these cases, or of all, to FOLDER/NAME/numerics, what each
rank printed beside them, and the table to FOLDER/cases.json.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from tests.bed_cases import ALL_CASES, RANKS, Case
from tests.conftest import REPOSITORY
from tests.two_ranks import free_port, made_once

__all__ = ["start_runs_bed", "write_runs"]


def start_runs_bed(tmp_path_factory: pytest.TempPathFactory, tests: Sequence[pytest.Item]) -> Path:
    """The folder of the cases that some tests ask for, made by the first test worker that gets there."""
    return made_once(tmp_path_factory, "runs_bed", "cases.json", partial(write_runs, cases=_asked_for(tests)))


def _asked_for(tests: Sequence[pytest.Item]) -> list[Case]:
    """The cases that tests name by a parameter or the mark `bed`; all if one of them names none.

    A text names each case whose name has it at an end, or is it. With a fault goes the run that has none.
    """
    found: set[str] = set()
    for test in tests:
        if isinstance(test, pytest.Function) and "runs_bed" in test.fixturenames:
            given = [*test.callspec.params.values()] if hasattr(test, "callspec") else []
            named = _named([*given, *(name for mark in test.iter_markers("bed") for name in mark.args)])
            found |= named or {case.name for case in ALL_CASES}
    healthy = {(case.script, case.arguments) for case in ALL_CASES if case.name in found}
    return [c for c in ALL_CASES if c.name in found or (not c.bug and (c.script, c.arguments) in healthy)]


def _named(values: Sequence[object]) -> set[str]:
    found: set[str] = set()
    for value in values:
        if isinstance(value, Case):
            found.add(value.name)
        elif isinstance(value, tuple):
            found |= _named(value)
        elif isinstance(value, str):
            names = (case.name for case in ALL_CASES)
            found |= {name for name in names if f"-{name}-".startswith(f"-{value}-") or name.endswith(f"-{value}")}
    return found


def write_runs(folder: Path, cases: Sequence[Case]) -> None:
    """Write the logs of cases, and after them the table.

    Four ranks run all cases that reach their end, one after the other; torchrun runs the others meanwhile.
    """
    port, names = str(free_port()), [case.name for case in cases if not case.dies]
    ranks = _start("-m", "tests.examples.four_ranks", str(folder), port, *names)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(RANKS))
    dying = [
        _start(
            *torchrun,
            "-m",
            "capture",
            "-o",
            str(folder / case.name),
            "--",
            f"examples/{case.script}",
            *case.command.split(),
        )
        for case in cases
        if case.dies
    ]
    with ThreadPoolExecutor() as threads:
        waiting = {threads.submit(process.communicate, timeout=300): process for process in (ranks, *dying)}
        try:
            for done in as_completed(waiting):
                process, (_, said) = waiting[done], done.result()
                assert (process.returncode == 0) != (process in dying), said[-4000:]
        finally:
            for process in waiting.values():
                if process.poll() is None:  # with the ranks that it has started
                    os.killpg(process.pid, signal.SIGKILL)
    table = [{**asdict(case), "command": case.command} for case in cases]
    (folder / "cases.json").write_text(json.dumps(table, indent=1), encoding="utf-8")


def _start(*command: str) -> subprocess.Popen[str]:
    own = {"MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
        env={**os.environ, **own},
    )


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_runs(folder, [case for case in ALL_CASES if case.name in arguments[1:] or not arguments[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
