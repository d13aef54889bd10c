"""Captures of one model in several implementations, each made once in a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log

Captured = Callable[..., OpLog]

_FOLDER = Path(__file__).parent / "implementations"
_GPT = ("conv1d", "linear", "separate")


@pytest.fixture(scope="session")
def implementation(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """`implementation(style, arguments)`: the log of the first step.

    Styles are `hf`, `titan` and `fused` of a Llama, `conv1d`, `linear` and `separate` of a GPT.
    """
    from tests.capture.runs import run_captured

    made: dict[tuple[str, str], OpLog] = {}

    def captured(style: str, arguments: str = "") -> OpLog:
        key = style, arguments
        if key not in made:
            folder = tmp_path_factory.mktemp(style)
            run_captured(_FOLDER / ("gpt.py" if style in _GPT else "train.py"), folder, f"{style} {arguments}")
            (path,) = folder.glob("numerics/*.log")
            made[key] = read_log(str(path))
        return made[key]

    return captured
