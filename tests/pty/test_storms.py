"""One storm of the campaign (`make fuzz` brews as many as there is time for)."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.storms import storm
from tests.pty.test_signals import Work


def test_keys_pastes_and_sizes(tmp_path: Path) -> None:
    storm(0, Work(tmp_path), gusts=60)
