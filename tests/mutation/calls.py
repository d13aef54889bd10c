"""Plugin for pytest: the functions of `matchers` that each test calls, and the seconds that it takes, as JSON.

The file is named by the environment variable `CALLS`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_ROOM = str(Path(__file__).parents[2] / "matchers") + os.sep
_found: dict[str, tuple[float, list[str]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the calls of a test and its fixtures."""
    called: set[Any] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    begin = time.perf_counter()
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        names = {f"{code.co_filename[len(_ROOM) :]}:{code.co_name}" for code in called if _ROOM in code.co_filename}
        _found[item.nodeid] = time.perf_counter() - begin, sorted(names)


def pytest_sessionfinish() -> None:
    """Write what was found."""
    Path(os.environ["CALLS"]).write_text(json.dumps(_found), "utf-8")
