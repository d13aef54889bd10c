"""The mouse in a real terminal: its bytes in, screen out."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.builders import training_step, write_log
from tests.pty.tmux import Terminal

NUMTUI = [sys.executable, "-m", "numtui"]
WHEEL_DOWN = 65


def report(screen: str, text: str, button: int = 0) -> str:
    """The bytes by which a terminal tells a click, or a notch of the wheel, where the screen last says this."""
    y, line = [(y, line) for y, line in enumerate(screen.splitlines(), 1) if text in line][-1]
    at = f"\x1b[<{button};{line.index(text) + 1};{y}"
    return f"{at}M" if button else f"{at}M{at}m"


def test_clicks_and_the_wheel_in_a_terminal(tmp_path: Path) -> None:
    logs = [str(write_log(tmp_path / f"{side}.log", training_step(20))) for side in "ab"]
    with Terminal([*NUMTUI, *logs, "--mouse", "--no-session"], columns=100, rows=30, cwd=tmp_path) as t:
        click = report(t.wait_for("= layers.0.attention.wv/op_0_mm"), "= layers.0.attention.wv/op_0_mm")
        t.type(click)
        t.wait_for(lambda screen: "layers › 0 › attention › wv" in screen)
        t.type(click + click)
        t.wait_for("esc back to list")
        t.keys("Escape")
        screen = t.wait_for(lambda screen: "esc back to list" not in screen)
        t.type(report(screen, "= layers.0.attention.wv/op_0_mm", WHEEL_DOWN) * 3)
        t.wait_for(lambda screen: " 1 = tok_embeddings/op_0_embedding" not in screen)
        t.type(report(t.screen(), "? help"))
        t.wait_for("First keys")
        t.type(report(t.screen(), "q close"))
        t.wait_for(lambda screen: "First keys" not in screen)
        assert t.exit_code("q") == 0


def test_without_the_option_the_terminal_keeps_its_mouse(tmp_path: Path) -> None:
    logs = [str(write_log(tmp_path / f"{side}.log", training_step())) for side in "ab"]
    for options, wanted in ((["--mouse"], True), ([], False)):
        with Terminal([*NUMTUI, *logs, "--no-session", *options], cwd=tmp_path) as t:
            t.wait_for("0 red")
            assert t.takes_mouse is wanted
            assert t.exit_code("q") == 0
