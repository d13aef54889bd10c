"""The two logs of a request are read side by side: the same logs, and the same errors, as one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchers.errors import LogError
from numtui.inputs import OpenRequest
from numtui.session.pair import read_pair
from tests.conftest import DATA

REQUEST = OpenRequest(
    path_a=str(DATA / "ac_full.log.gz"),
    path_b=str(DATA / "ac_none.log.gz"),
    name_a="a",
    name_b="b",
    rules_path=Path("-"),
)


@pytest.fixture(params=[1, 2])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(request.param), raising=False)


@pytest.mark.usefixtures("processors")
def test_each_side_has_its_log() -> None:
    a, b = read_pair(REQUEST, None)
    assert (a.path, b.path) == (REQUEST.path_a, REQUEST.path_b)
    again_b, again_a = read_pair(replace(REQUEST, path_a=REQUEST.path_b, path_b=REQUEST.path_a), None)
    assert np.array_equal(a.stats, again_a.stats, equal_nan=True)
    assert np.array_equal(b.stats, again_b.stats, equal_nan=True)


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize(("missing", "said"), [(("a",), "no-a.log"), (("b",), "no-b.log"), (("a", "b"), "no-a.log")])
def test_the_first_log_that_cannot_be_read_is_told(missing: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path_a = str(tmp_path / "no-a.log") if "a" in missing else REQUEST.path_a
    path_b = str(tmp_path / "no-b.log") if "b" in missing else REQUEST.path_b
    with pytest.raises(LogError, match=said):
        read_pair(replace(REQUEST, path_a=path_a, path_b=path_b), None)


@pytest.mark.usefixtures("processors")
def test_progress_ascends_to_the_end_and_may_cancel() -> None:
    told: list[float] = []
    read_pair(REQUEST, lambda _, done: told.append(done))
    assert told == sorted(told)
    assert told[-1] == 1.0

    class Stop(Exception):
        pass

    def cancel(_: str, done: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        read_pair(REQUEST, cancel)


def test_it_is_the_reading_that_both_processors_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log b is read while a is: here a is only read once b is."""
    from threading import Event

    from matchers.logs.cache import read_cached

    read_b = Event()

    def reading(path: str, *args: object, **more: Callable[..., None]) -> object:
        if path == REQUEST.path_a:
            assert read_b.wait(60)
        log = read_cached(path, *args, **more)  # type: ignore[arg-type] # as it was called
        read_b.set()
        return log

    monkeypatch.setattr("numtui.session.pair.read_cached", reading)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2), raising=False)
    assert read_pair(REQUEST, None)[0].path == REQUEST.path_a
