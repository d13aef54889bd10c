"""In a real terminal: from a finding to the explorer on two ranks, and back."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.checked import OPS, odd_run
from tests.pty.tmux import Terminal


def test_a_finding_opens_in_the_explorer_and_q_comes_back_to_it(tmp_path: Path) -> None:
    """The last rank runs another operation than the others, in row 20."""
    run = odd_run(tmp_path / "run_x", odd=20)
    with Terminal([sys.executable, "-m", "numtui", "check", run], columns=100, rows=30, cwd=tmp_path) as t:
        t.wait_for("run_x: 3 ranks")
        assert f"rank 2  {OPS[20].key}_" in t.screen()
        t.keys("c")
        t.wait_for("ranks with one role run the same operations")
        t.keys("q")
        t.keys("Enter")
        t.wait_for("rank 2 ⇄ rank 0")
        t.wait_for("FIRST CAUSE")
        t.keys("q")
        t.wait_for("run_x: 3 ranks")
        assert t.exit_code("q") == 1
        assert t.is_restored
