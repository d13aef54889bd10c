"""Four gloo ranks that run cases of the bed, and alone their shares of those of one process.

`four_ranks.py FOLDER PORT NAME…` writes the logs of each case to FOLDER/NAME, and what it printed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path
from typing import cast
from unittest import mock

from tests.bed_cases import ALL_CASES, RANKS, Case
from tests.capture.runs import run_captured
from tests.conftest import EXAMPLES

_SLOW_TO_IMPORT = ("torch._inductor", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")


def main() -> None:
    """See the module."""
    for name in _SLOW_TO_IMPORT:  # once, not in each rank
        import_module(name)
    ranks = [get_context("fork").Process(target=_as_rank, args=(rank,), daemon=True) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    left = {process.sentinel: process for process in ranks}
    while left:
        for done in connection.wait(list(left)):
            process = left.pop(cast(int, done))
            process.join()
            if process.exitcode != 0:
                sys.exit(1)  # the others would wait for it


def _as_rank(rank: int) -> None:
    folder, port, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for number, case in enumerate(case for case in ALL_CASES if case.name in names):
        if case.ranks > 1:
            of_rank = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port + number)}
            with mock.patch.dict(os.environ, of_rank):
                _run(case, folder, rank)
        elif number % RANKS == rank:
            _run(case, folder, 0)


def _run(case: Case, folder: Path, rank: int) -> None:
    printed = run_captured(EXAMPLES / case.script, folder / case.name, case.command).printed
    case.printed(folder, rank).write_text(printed, encoding="utf-8")


if __name__ == "__main__":
    main()
