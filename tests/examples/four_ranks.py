"""One of four gloo ranks that run cases of the bed, and alone its share of those of one process.

`four_ranks.py FOLDER PORT NAME…` writes the logs of each case to FOLDER/NAME, and what it printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

from tests.bed_cases import ALL_CASES, RANKS, Case
from tests.capture.runs import run_captured
from tests.conftest import EXAMPLES


def main() -> None:
    """See the module."""
    folder, port, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    known = ALL_CASES
    for number, case in enumerate(case for case in known if case.name in names):
        rank = int(os.environ["RANK"])
        if case.ranks > 1:
            with mock.patch.dict(os.environ, MASTER_PORT=str(port + number)):
                _run(case, folder, rank)
        elif number % RANKS == rank:
            with mock.patch.dict(os.environ):
                del os.environ["RANK"], os.environ["WORLD_SIZE"]
                _run(case, folder, 0)


def _run(case: Case, folder: Path, rank: int) -> None:
    printed = run_captured(EXAMPLES / case.script, folder / case.name, case.command).printed
    case.printed(folder, rank).write_text(printed, encoding="utf-8")


if __name__ == "__main__":
    main()
