"""Kept operations over environments: which one gives other bits first, with few of them started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.keeping.replay import Kept, ReplayError
from numtui.experiments import environments
from numtui.experiments.environments import Environments, bisect_environments

CALL = {"key": "net/op_0_mm", "operator": "aten::mm", "digests": {"returned": ["0"], "left": []}}


def replaying(bits: Sequence[int | None], started: list[str]) -> Any:
    """Stand for `replayed`: the bits that each environment gives, by its number; None for one that has no torch."""

    def run(calls: Sequence[Kept], *_: object, python: str, **__: object) -> Any:
        started.append(python)
        if bits[int(python)] is None:
            raise ReplayError(f"{python} has no torch")
        return [[{"returned": [str(bits[int(python)])], "written": []} for _ in calls]]

    return run


@given(many=st.integers(2, 40), data=st.data())
def test_the_first_environment_with_other_bits(many: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, many - 1))
    started: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environments, "replayed", replaying([int(n >= first) for n in range(many)], started))
        (changed,) = bisect_environments(Environments([Kept(Path(), CALL)]), [str(n) for n in range(many)])
    assert (changed.before, changed.since, changed.recorded) == (str(first - 1), str(first), True)
    assert len(started) == len(set(started)) <= math.ceil(math.log2(many)) + 2


def test_what_does_not_run_is_passed_over_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "replayed", replaying([0, None, None, 7, 7], []))
    (changed,) = bisect_environments(Environments([Kept(Path(), CALL)]), list("01234"))
    assert (changed.before, changed.since) == ("0", "3")
    assert changed.skipped == {"1": "1 has no torch", "2": "2 has no torch"}


def test_where_the_last_one_gives_the_same_bits_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(environments, "replayed", replaying([0, 5, 0], started))
    (changed,) = bisect_environments(Environments([Kept(Path(), CALL)]), list("012"))
    assert (changed.since, started) == ("", ["0", "2"])


def test_a_first_environment_that_does_not_run_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "replayed", replaying([None, 1], []))
    (changed,) = bisect_environments(Environments([Kept(Path(), CALL)]), list("01"))
    assert (changed.trouble, changed.since) == ("0: 0 has no torch", "")
