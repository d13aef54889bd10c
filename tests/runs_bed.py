"""Logs of the runs of tests/bed_cases.py: made once, those that the tests of a session ask for, or by hand.

`python -m tests.runs_bed FOLDER [NAME…]` writes the logs of these cases, or of all, to FOLDER/NAME/numerics, what each
rank printed beside them, and the table to FOLDER/cases.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bed_cases import ALL_CASES, Case, compared_with
from tests.conftest import REPOSITORY
from tests.forks import Forks
from tests.two_ranks import MEETING, made_once

if TYPE_CHECKING:
    import pytest

__all__ = ["needed_by", "start_runs_bed", "write_runs"]


def start_runs_bed(tmp_path_factory: pytest.TempPathFactory, items: Iterable[pytest.Item], forked: Forks) -> Path:
    """The folder of the cases that these tests need, made by the first test worker that asks for it."""
    return made_once(tmp_path_factory, "runs_bed", "cases.json", partial(write_runs, forked, cases=needed_by(items)))


def needed_by(items: Iterable[pytest.Item]) -> list[Case]:
    """The cases that tests have as parameters or in `pytest.mark.runs`, and those that they are compared with.

    Its arguments are patterns of names, in which `{layout}` is a parameter of the test. A test of the bed that has
    neither needs all.
    """
    patterns: set[str] = set()
    for item in items:
        if "runs_bed" in getattr(item, "fixturenames", ()):
            patterns |= _patterns(item) or {"*"}
    named = [case for case in ALL_CASES if any(fnmatchcase(case.name, pattern) for pattern in patterns)]
    names = {case.name for case in named} | {other.name for case in named for other in compared_with(case)}
    return [case for case in ALL_CASES if case.name in names]


def _patterns(item: pytest.Item) -> set[str]:
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    cases = [case for value in parameters.values() for case in (value if isinstance(value, tuple) else (value,))]
    return {case.name for case in cases if isinstance(case, Case)} | {
        pattern.format(**parameters) for mark in item.iter_markers("runs") for pattern in mark.args
    }


def write_runs(forked: Forks, folder: Path, cases: Sequence[Case]) -> None:
    """Write the logs of cases, and after them the table."""
    names = [case.name for case in cases]
    ranks = forked(
        ["-m", "tests.examples.four_ranks", str(folder), *names],
        REPOSITORY,
        MEETING,
    )
    assert ranks.returncode == 0, ranks.stderr[-4000:]
    table = [{**asdict(case), "command": case.command} for case in cases]
    (folder / "cases.json").write_text(json.dumps(table, indent=1), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with Forks() as forked:
        write_runs(forked, folder, [case for case in ALL_CASES if case.name in arguments[1:] or not arguments[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
