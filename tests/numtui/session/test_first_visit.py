"""The tour is for the first visit only, and never stands in the way."""

from __future__ import annotations

import stat
from pathlib import Path

from numtui.session.first_visit import is_first_visit


def test_a_visit_is_the_first_once(tmp_path: Path) -> None:
    state = tmp_path / "state" / "numtui"
    assert is_first_visit([state])
    assert stat.S_IMODE((state / "visited").stat().st_mode) == 0o600
    assert not is_first_visit([state])


def test_who_has_sessions_was_here_before(tmp_path: Path) -> None:
    """Also in the folder of an earlier version, which is only read."""
    now, earlier = tmp_path / "now", tmp_path / "earlier"
    (earlier / "sessions").mkdir(parents=True)
    assert not is_first_visit([now, earlier])
    assert not now.exists()
    assert is_first_visit([now])


def test_where_nothing_can_be_kept_the_tour_does_not_come_back_every_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert not is_first_visit([tmp_path / "file" / "numtui"])
    assert not is_first_visit([])
