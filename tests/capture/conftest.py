"""Captures that the tests share: of the training example once in a session, and of a few lines as often as needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture import trace
from tests.capture.logs import Log
from tests.capture.runs import Examples

Record = Callable[..., Log]


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Runs of the training example."""
    return Examples(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """`record(model, step, **settings)`: the log of what a function does."""
    numbers = itertools.count()

    def run(model: Any, step: Callable[[], Any], **settings: Any) -> Log:
        path = tmp_path / f"{next(numbers)}.log"
        with trace(model, path=path, **settings):
            step()
        return Log.read(path)

    return run
