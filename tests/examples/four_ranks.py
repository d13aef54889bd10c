"""One of four gloo ranks that run every case of the bed, and alone its share of the cases of one process.

`four_ranks.py FOLDER PORT` writes the logs of each case to FOLDER/NAME.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from unittest import mock

from tests.capture.runs import run_captured
from tests.conftest import EXAMPLES
from tests.runs_bed import CASES, RANKS


def main() -> None:
    """See the module."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    rank = int(os.environ["RANK"])
    ports = itertools.count(port)
    for number, case in enumerate(CASES):
        if case.ends_early or (case.ranks == 1 and number % RANKS != rank):
            continue
        variables = {"MASTER_PORT": str(next(ports))}
        with mock.patch.dict(os.environ, variables):
            if case.ranks == 1:
                for name in ("RANK", "WORLD_SIZE"):
                    del os.environ[name]
            printed = run_captured(EXAMPLES / case.script, folder / case.name, case.command).printed
        suffix = "" if case.ranks == 1 else f"_{rank}"
        (folder / case.name / f"printed{suffix}.txt").write_text(printed, encoding="utf-8")


if __name__ == "__main__":
    main()
