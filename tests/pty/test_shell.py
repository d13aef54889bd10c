"""The commands that need no explorer, in a real terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.pty.tmux import Terminal

NUMTUI = [sys.executable, "-m", "numtui"]


def test_help_fits_a_terminal_of_80_columns() -> None:
    with Terminal([*NUMTUI, "--help"], columns=80, rows=100) as t:
        assert t.exit_code() == 0
        screen = t.wait_for("exit codes: 0 the runs agree")
    assert "usage: numtui" in screen
    assert "\n\ncommands:\n" in screen
    assert all(
        line.startswith("  numtui ") for line in screen.partition("commands:\n")[2].partition("\n\n")[0].splitlines()
    )


def test_an_error_is_one_line() -> None:
    with Terminal([*NUMTUI, "missing.log", "other.log"], columns=80, rows=20) as t:
        assert t.exit_code() == 2
        screen = t.wait_for("numtui: ")
    assert screen.strip().splitlines()[0] == "numtui: missing.log: no such file or folder"
    assert "Traceback" not in screen


def test_the_report_in_a_terminal_has_colours_unless_told_otherwise(example_logs: tuple[str, str]) -> None:
    with Terminal([*NUMTUI, "diff", *example_logs], columns=160) as t:
        assert t.exit_code() == 0
        screen = t.wait_for("No divergence")
        assert "\x1b[1m" in t.screen(styles=True)
    assert "same-print" in screen
    with Terminal([*NUMTUI, "diff", *example_logs], env={"NO_COLOR": "1"}, columns=160) as t:
        assert t.exit_code() == 0
        t.wait_for("No divergence")
        assert "\x1b[1m" not in t.screen(styles=True)


def test_a_dumb_terminal_gets_the_report(example_logs: tuple[str, str], tmp_path: Path) -> None:
    with Terminal([*NUMTUI, *example_logs], env={"TERM": "dumb"}, columns=160, cwd=tmp_path) as t:
        assert t.exit_code() == 0
        screen = t.wait_for("No divergence")
    assert "numtui: this terminal cannot show the explorer" in screen


def test_ctrl_c_while_reading_ends_with_130(example_logs: tuple[str, str], tmp_path: Path) -> None:
    fifo = tmp_path / "slow.log"
    os.mkfifo(fifo)
    with Terminal([*NUMTUI, "diff", str(fifo), example_logs[1]]) as t:
        # Opening it for writing returns when the program has opened it for reading.
        with fifo.open("w"):
            assert t.exit_code("C-c") == 130
        assert "Traceback" not in t.screen()


@pytest.mark.parametrize(("key", "written"), [("q", ""), ("C-c", ""), ("q", "a beginning")])
def test_a_fifo_whose_writer_does_not_come_is_given_up(
    key: str, written: str, example_logs: tuple[str, str], tmp_path: Path
) -> None:
    fifo = tmp_path / "slow.log"
    os.mkfifo(fifo)
    with Terminal([*NUMTUI, str(fifo), example_logs[1]]) as t:
        if written:
            with fifo.open("w") as out:
                print(written, file=out, flush=True)
                t.wait_for("waiting for")
                assert t.exit_code(key) == 130
        else:
            t.wait_for("waiting for")
            assert t.exit_code(key) == 130
        assert "Traceback" not in t.screen()


def test_a_fifo_is_opened_when_its_writer_comes(example_logs: tuple[str, str], tmp_path: Path) -> None:
    fifo = tmp_path / "late.log"
    os.mkfifo(fifo)
    log = Path(example_logs[0])
    with Terminal([*NUMTUI, str(fifo), example_logs[1]]) as t:
        t.wait_for("waiting for")
        fifo.write_bytes(log.read_bytes())
        t.wait_for("No divergence")
        assert t.exit_code("q") in (0, 1)


def test_keys_come_from_the_terminal_when_a_log_comes_through_a_pipe() -> None:
    """`cat a.log | numtui - b.log`: standard input is the log, and the keyboard is opened again."""
    read_both = (
        "import sys; from numtui.terminal.tty import reopen_keyboard;"
        "log = sys.stdin.read(); print('opened', reopen_keyboard(), sys.stdin.isatty(), flush=True);"
        "print(log + input())"
    )
    with Terminal(["sh", "-c", 'printf "a log" | "$0" -c "$1"', sys.executable, read_both]) as t:
        t.wait_for("opened True True")
        t.type(" and a key")
        assert t.exit_code("Enter") == 0
        t.wait_for("a log and a key")
