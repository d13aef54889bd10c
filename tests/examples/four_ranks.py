"""Four gloo ranks that run cases of the bed, alone their shares of those of one process; four more for each that dies.

`four_ranks.py FOLDER NAME…` writes the logs of each case to FOLDER/NAME, and what it printed.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast
from unittest import mock

from tests.bed_cases import ALL_CASES, RANKS, Case
from tests.capture.runs import run_captured
from tests.conftest import EXAMPLES
from tests.two_ranks import meetings_of, prepare_to_fork


def main() -> None:
    """See the module."""
    prepare_to_fork()
    names = sys.argv[2:]
    cases = [case for case in ALL_CASES if case.name in names]
    jobs = [[case for case in cases if not case.dies], *([case] for case in cases if case.dies)]
    groups = []
    meetings = []
    for job in jobs:
        meetings.append(meetings_of(len(job)))
        ports = [meeting.port for meeting in meetings[-1]]
        groups.append([get_context("fork").Process(target=_as_rank, args=(rank, job, ports)) for rank in range(RANKS)])
    for process in itertools.chain(*groups):
        process.start()
    for job, group in zip(jobs, groups, strict=True):
        whole = _join(group)
        if whole == any(case.dies for case in job):
            for process in itertools.chain(*groups):
                process.terminate()
            sys.exit(f"{', '.join(case.name for case in job)}: {[process.exitcode for process in group]}")


def _join(group: Sequence[BaseProcess]) -> bool:
    """Return True if all ranks reached their end; as torchrun does, terminate those that wait for one that died."""
    left = {process.sentinel: process for process in group}
    while left:
        for done in connection.wait(list(left)):
            process = left.pop(cast(int, done))
            process.join()
            if process.exitcode != 0:
                for other in left.values():
                    other.terminate()
    return not any(process.exitcode for process in group)


def _as_rank(rank: int, cases: Sequence[Case], ports: Sequence[int]) -> None:
    folder = Path(sys.argv[1])
    for number, (case, port) in enumerate(zip(cases, ports, strict=True)):
        if case.ranks > 1:
            of_rank = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port)}
            with mock.patch.dict(os.environ, of_rank):
                _run(case, folder, rank)
        elif number % RANKS == rank:
            _run(case, folder, 0)


def _run(case: Case, folder: Path, rank: int) -> None:
    printed = run_captured(EXAMPLES / case.script, folder / case.name, case.command).printed
    case.printed(folder, rank).write_text(printed, encoding="utf-8")


if __name__ == "__main__":
    main()
