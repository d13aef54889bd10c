"""In a real terminal: one log, an editor in between, and a session that a lost connection did not lose."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.builders import training_step, write_log
from tests.conftest import DATA
from tests.pty.tmux import Terminal

NUMTUI = [sys.executable, "-m", "numtui"]


def test_an_inf_its_source_line_and_back_again_after_a_hangup(tmp_path: Path) -> None:
    ops = training_step()
    made = next(i for i, op in enumerate(ops) if op.key == "layers.1.attention/op_1__softmax")
    ops[made].outputs = ["inf"]
    log = write_log(tmp_path / "rank_0_activations.log", ops)
    (tmp_path / "src" / "model").mkdir(parents=True)
    (tmp_path / "src" / "model" / "attention.py").write_text("\n" * 80)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "the editor shows $*"\nread line\n')
    editor.chmod(0o755)
    environment = {"EDITOR": str(editor), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Terminal([*NUMTUI, str(log)], columns=80, rows=24, env=environment, cwd=tmp_path) as t:
        t.wait_for("NaN or Inf: 1 of")
        t.wait_for("FIRST CAUSE: the output has Inf")
        t.keys("V")
        t.wait_for("src/model/attention.py")
        t.wait_for("the editor shows +56")
        t.keys("Enter")
        t.wait_for("back from")
        t.type("f")
        t.type("op:_softmax")
        t.keys("Enter")
        t.wait_for("filter: op:_softmax")
        os.kill(t.pid, signal.SIGHUP)
        assert t.exit_code() == 128 + signal.SIGHUP
    with Terminal([*NUMTUI, str(log)], columns=80, rows=24, env=environment, cwd=tmp_path) as t:
        t.wait_for(f"last session restored: at #{made + 1}")
        assert "filter: op:_softmax" in t.screen()
        t.keys("Escape")
        t.wait_for("rows are listed")
        assert t.exit_code("q") == 1
    with Terminal([*NUMTUI, str(log), "--no-session"], columns=80, rows=24, env=environment, cwd=tmp_path) as t:
        t.wait_for("begins at row")
        assert t.exit_code("q") == 1


def test_from_opening_to_the_line_of_a_bug_in_one_key(tmp_path: Path) -> None:
    """A softmax that is scaled by 1.01 in one layer; and where the sides' lines differ, that of b is one key more."""
    logs = [str(DATA / name) for name in ("order_f32_a.log.gz", "order_f32_bug.log.gz")]
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "the editor shows $*"\nread line\n')
    editor.chmod(0o755)
    environment = {"EDITOR": str(editor), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Terminal([*NUMTUI, *logs], columns=80, rows=24, env=environment, cwd=DATA.parents[1]) as t:
        assert "layers › 1 › attention" in t.wait_for("model.py:130")
        t.keys("V")
        t.wait_for("the editor shows +130")
        t.keys("Enter")
        t.wait_for("back from")
        t.keys("2", "V")
        t.wait_for("is the only source line of this row")
        assert t.exit_code("q") == 1


def test_settings_that_mean_nothing_are_told_before_anything_is_drawn(tmp_path: Path) -> None:
    log = write_log(tmp_path / "rank_0_activations.log", training_step())
    config = tmp_path / "numtui" / "config.yaml"
    config.parent.mkdir()
    config.write_text("keys:\n  next-red: q\n")
    with Terminal([*NUMTUI, str(log)], env={"XDG_CONFIG_HOME": str(tmp_path)}) as t:
        assert t.exit_code() == 2
        # where the line is broken depends on the length of the path
        said = "".join(t.screen().split())
        assert "config.yaml:2:13:next-red:thekeyqdoesquitalready" in said
