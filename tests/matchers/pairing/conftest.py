"""Captures of one model in several implementations, each made once in a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log

Captured = Callable[..., OpLog]

SCRIPT = Path(__file__).parent / "implementations" / "train.py"


@pytest.fixture(scope="session")
def implementation(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """`implementation(style, arguments)`: the log of the first step; styles are `hf`, `titan` and `fused`."""
    from tests.capture.runs import run_captured

    made: dict[tuple[str, str], OpLog] = {}

    def captured(style: str, arguments: str = "") -> OpLog:
        key = style, arguments
        if key not in made:
            folder = tmp_path_factory.mktemp(style)
            run_captured(SCRIPT, folder, f"{style} {arguments}")
            (path,) = folder.glob("numerics/*.log")
            made[key] = read_log(str(path))
        return made[key]

    return captured
