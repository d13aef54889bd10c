"""One storm of the campaign (`make fuzz` brews as many as there is time for)."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fuzz.storms import storm
from tests.pty.test_signals import Work, end_by


def test_keys_pastes_and_sizes(tmp_path: Path) -> None:
    storm(0, Work(tmp_path), gusts=60)


def test_a_paste_is_no_command(tmp_path: Path) -> None:
    """Of coloured output, what follows the escape would mark a row, quit, and discard the rules."""
    work = Work(tmp_path)
    with work.under_way() as t:
        t.type("\x1b[200~\x1b[1mqd\x1b[201~?")
        t.wait_for("First keys")
        end_by(signal.SIGTERM, t)
    assert work.is_kept()
