"""A rule is mended, tried and saved in a real terminal, with keys that come faster than the screen."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.builders import training_step, write_log
from tests.pty.tmux import Terminal

RULES = """\
# agreed with Kim on Monday
pairs:
  - a: layers.0.attention.wq/op_0_mm  # the wrong one
    b: layers.0.attention.wk/op_0_mm
  - a: layers.1.attention.wq/op_0_mm
    bb: layers.1.attention.wq/op_0_mm
"""


def test_rules_are_typed_in_a_small_terminal_without_colours(tmp_path: Path) -> None:
    logs = [str(write_log(tmp_path / name / "rank_0_activations.log", training_step())) for name in "ab"]
    path = tmp_path / "overrides.yaml"
    path.write_text(RULES)
    command = [sys.executable, "-m", "numtui", *logs, "--no-session"]
    with Terminal(command, columns=80, rows=24, env={"NO_COLOR": "1"}, cwd=tmp_path) as t:
        t.wait_for("red: 1 of")
        t.keys("r")
        t.wait_for("1 rule · 1 needs attention")
        t.keys("e", "Down", "End", *["Left"] * len("k/op_0_mm"), "DC")
        t.type("q")
        t.wait_for("1 fewer red")
        t.keys("C-s")
        t.wait_for("0 red")
        t.keys("n", "e", "Down", "Home", "DC")
        t.wait_for("2  b: layers.1.attention.wq/op_0_mm")
        t.keys("C-s")
        t.wait_for("2 rules")
        t.keys("Space")
        t.wait_for("1 disabled")
        t.keys("C-s")
        t.wait_for("saved to")
        t.keys("q")
        t.wait_for("n next red")
        assert t.exit_code("q") == 0
    fixed = RULES.replace("attention.wk", "attention.wq").replace("bb:", "b:")
    assert path.read_text() == f"{fixed}    enabled: false\n"
