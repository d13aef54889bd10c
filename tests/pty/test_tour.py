"""The tour in the docs, walked in a real terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from matchers.rules.file import RuleFile
from tests.conftest import REPOSITORY
from tests.pty.tmux import Terminal

TOUR = (REPOSITORY / "docs" / "tour.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| `([^`]+)` \|[^|]*\|(?: `([^`]+)`)? *\|$", TOUR, re.MULTILINE)
LOGS = [str(REPOSITORY / "tests" / "data" / f"fsdp2_{name}.log.gz") for name in ("sac", "traced")]
TMUX = {"→": "Right", "←": "Left", "enter": "Enter", "ctrl+s": "C-s"}
NUMTUI = [sys.executable, "-m", "numtui"]


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24)])
def test_the_tour_ends_with_rules_that_settle_all_drift(tmp_path: Path, columns: int, rows: int) -> None:
    assert 5 < len(STEPS) <= 15
    assert all(f"{Path(log).name}" in TOUR for log in LOGS)
    with Terminal([*NUMTUI, *LOGS, "--no-session"], columns=columns, rows=rows, cwd=tmp_path) as t:
        t.wait_for("0 red")
        for key, says in STEPS[:-1]:
            t.keys(TMUX.get(key, key))
            # what is long is cut at the edge of a narrow screen
            t.wait_for(says[:50])
        assert t.exit_code(STEPS[-1][0]) == 0
    path = tmp_path / "overrides.yaml"
    assert len(RuleFile.load(path).rules) == 73
    left = subprocess.run(
        [*NUMTUI, "suggest", *LOGS, "-r", str(path), "--all"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    families = re.findall(r"^\d+\. .*", left.stdout, re.MULTILINE)
    assert len(families) == 2
    assert all(family.endswith("no rule") for family in families)
