"""Whatever ends or interrupts the program: the terminal is as it was, the exit code says why, and no work is lost."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from matchers.rules.file import parse_rules
from numtui.session.journal import Journal
from numtui.session.store import SessionStore
from tests.builders import training_step, write_log
from tests.pty.raw import RawTerminal
from tests.pty.test_actions import Seen
from tests.pty.tmux import Terminal

NUMTUI = [sys.executable, "-m", "numtui"]

IGNORED = "version: 1\n\nignore:\n  - side: a\n    match: tok_embeddings/op_0_embedding\n"
"""The rule that `i` makes on the first row."""

RULES_AND_NOTE = 'i\r"odd\r'


class Work:
    """Two logs, and what is made of them: a rule that is not saved, and a note.

    Args:
        meanwhile: Python code that the program runs first.
    """

    def __init__(self, folder: Path, layers: int = 2, meanwhile: str = "") -> None:
        ops = training_step(layers=layers)
        self.logs = tuple(str(write_log(folder / side / "rank_0_activations.log", ops)) for side in ("one", "two"))
        self.rules = folder / "rules.yaml"
        run = "from numtui.__main__ import run; run()"
        program = [sys.executable, "-c", f"{meanwhile}; {run}"] if meanwhile else NUMTUI
        self.command = [*program, *self.logs, "-r", str(self.rules), "--mouse"]

    @property
    def notes(self) -> list[str]:
        return sorted(SessionStore(self.logs[0], self.logs[1]).load().notes.values())

    @property
    def unsaved(self) -> str | None:
        """The rules that the next session offers."""
        journal = Journal(self.logs[0], self.logs[1], self.rules)
        found = journal.pending()
        return None if found is None else found.rules

    @contextmanager
    def under_way(self, *, controls: bool = True, **env: str) -> Iterator[RawTerminal]:
        """The program with a rule and a note made."""
        with RawTerminal(self.command, env=env, controls=controls) as t:
            # Only of pairs that were judged: before, there are rows to see, and no rule can be made.
            t.wait_for("same printed values")
            t.type(RULES_AND_NOTE)
            # Of a sentence drawn over another only the letters that differ are written: so the note is looked for.
            t.wait_until(lambda: self.notes == ["odd"])
            # Until the rule is matched: what is looked for meanwhile is dropped.
            t.wait_until(lambda: b"ignored by a rule" in t.written)
            yield t

    def is_kept(self) -> bool:
        return self.notes == ["odd"] and self.unsaved is not None and parse_rules(self.unsaved) == parse_rules(IGNORED)


def end_by(number: signal.Signals, t: RawTerminal) -> None:
    """Leave what is open, and end the program, however it was treated; the terminal is as it was."""
    t.resize(100, 30)
    # Until it has read all of that: what is typed behind a signal is not read any more.
    for _ in range(4):
        t.type("\x1b")
        t.read(0.3)
    t.process.send_signal(number)
    code = _exit_code(t)
    assert code == 128 + number, f"signal {number}, exit code {code}: {t.written[-1500:]!r}"
    assert t.restored, t.written[-300:]
    assert b"Traceback" not in t.written


def _exit_code(t: RawTerminal) -> int:
    """The exit code; of a program that does not end, a failure with where each of its threads is."""
    try:
        return t.exit_code()
    except AssertionError:
        if t.process.poll() is None:
            t.process.send_signal(signal.SIGABRT)
            t.read(1)
            raise AssertionError(f"it did not end: {t.written[-3000:].decode(errors='replace')}") from None
        raise


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An editor that shows the source of the first row until a line is typed, and hears Ctrl-C and Ctrl-\\."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tok_embeddings.py").write_text("\n" * 80)
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport os, signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'interrupted'))\n"
        "signal.signal(signal.SIGQUIT, lambda *_: os.write(1, b'dumped'))\n"
        "print('the editor shows', sys.argv[1:], flush=True)\nsys.stdin.readline()\n"
    )
    editor.chmod(0o755)
    return str(editor)


@pytest.mark.parametrize(
    ("when", "number"),
    [("\x1b[?1049h", signal.SIGQUIT), ("opening", signal.SIGHUP), ("next red", signal.SIGINT)],
    ids=["first byte", "first frame", "list"],
)
def test_while_it_opens(tmp_path: Path, when: str, number: signal.Signals) -> None:
    """From the first byte that is written on; what it imports and reads meanwhile may take any time."""
    work = Work(tmp_path, meanwhile="import numtui.tui.terminal_app as t; t._PATIENCE = 60")
    with RawTerminal(work.command) as t:
        t.wait_for(when)
        t.process.send_signal(number)
        assert t.exit_code() == 128 + number
        assert t.restored


def test_a_note_that_is_written_while_large_logs_are_read(tmp_path: Path) -> None:
    work = Work(tmp_path, layers=600)
    with RawTerminal(work.command) as t:
        t.type('"odd\r')  # before the program has the terminal, which makes a line feed of the return
        t.wait_for("note: ")
        t.read()
        t.process.send_signal(signal.SIGTERM)
        assert t.exit_code() == 128 + signal.SIGTERM
        assert t.restored
    assert work.notes == ["odd"]


@pytest.mark.parametrize(
    ("keys", "shown", "number"),
    [
        ("q", "discard changes", signal.SIGALRM),
        ("/wq", "1/", signal.SIGTERM),
        ("\x10", "list the first causes", signal.SIGUSR1),
    ],
    ids=["question", "line", "palette"],
)
def test_later_wherever_one_is(work: Work, keys: str, shown: str, number: signal.Signals) -> None:
    with work.under_way() as t:
        t.type(keys)
        t.wait_for(shown)
        t.process.send_signal(number)
        assert t.exit_code() == 128 + number
        assert t.restored
        assert b"Traceback" not in t.written
    assert work.is_kept()
    assert not work.rules.exists()


@pytest.mark.parametrize(("crash", "number"), [("ctypes.string_at(0)", signal.SIGSEGV), ("os.abort()", signal.SIGABRT)])
@pytest.mark.compiler
def test_a_crash_of_the_interpreter(tmp_path: Path, crash: str, number: signal.Signals) -> None:
    """In a thread, which has the interpreter to itself: no Python code runs any more."""
    work = Work(
        tmp_path, meanwhile=f"import ctypes, os, numtui.session.store as s; s.SessionStore.save = lambda *_: {crash}"
    )
    with RawTerminal(work.command) as t:
        t.wait_for("same printed values")
        t.type(RULES_AND_NOTE)
        assert t.exit_code() == 128 + number
        assert t.restored
        _, _, after = t.written.rpartition(b"\x1b[?25h")
        assert b"Fatal Python error: " in after, "what is said can be read"
    assert work.unsaved is not None


def test_aborted_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    work = Work(tmp_path, meanwhile="import numtui.terminal.crash as c; c._library = lambda: None")
    with RawTerminal(work.command) as t:
        t.wait_for("opening")
        t.process.send_signal(signal.SIGABRT)
        assert t.exit_code() == 128 + signal.SIGABRT
        assert t.restored


@pytest.mark.compiler
def test_a_file_system_that_hangs_when_it_ends(tmp_path: Path) -> None:
    hangs = (
        "import threading, numtui.session.store as s, numtui.tui.terminal_app as t; t._PATIENCE = 0.1; "
        "s.SessionStore.save = lambda *_: threading.Event().wait()"
    )
    work = Work(tmp_path, meanwhile=hangs)
    with RawTerminal(work.command) as t:
        t.wait_for("same printed values")
        t.type(RULES_AND_NOTE)
        t.wait_for("noted")
        t.process.send_signal(signal.SIGUSR2)
        assert t.exit_code() == 128 + signal.SIGUSR2
        assert t.restored
    assert work.unsaved is not None


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGSEGV])
def test_on_the_overview_of_all_ranks(tmp_path: Path, number: signal.Signals) -> None:
    ops = training_step(layers=1)
    for path in (tmp_path / run / f"rank_{rank}_activations.log" for run in ("x", "y") for rank in (0, 1)):
        write_log(path, ops)
    with RawTerminal([*NUMTUI, str(tmp_path / "x"), str(tmp_path / "y"), "--workers", "1"]) as t:
        t.wait_for("rank 1")
        t.process.send_signal(number)
        assert t.exit_code() == 128 + number
        assert t.restored


def test_keys_of_the_editor_that_send_signals_are_for_the_editor_alone(work: Work, editor: str) -> None:
    with work.under_way(EDITOR=editor) as t:
        t.type("V")
        t.wait_for("the editor shows")
        for key, told in (("\x03", "interrupted"), ("\x1c", "dumped")):
            t.type(key)
            t.wait_for(told)
        t.type("\r")
        t.wait_for("back from")
        t.process.send_signal(signal.SIGINT)
        assert t.exit_code() == 128 + signal.SIGINT
        assert t.restored


def test_killed_without_a_warning(work: Work) -> None:
    with work.under_way() as t:
        while not work.notes:
            t.read(0.05)
        t.process.kill()
        assert t.exit_code() == 128 + signal.SIGKILL
    assert work.is_kept()


def test_the_next_session_offers_what_was_lost(work: Work) -> None:
    with work.under_way() as t:
        t.process.send_signal(signal.SIGHUP)
        assert t.exit_code() == 128 + signal.SIGHUP
    with Terminal(work.command) as t:
        t.wait_for("Unsaved rules of an earlier session")
        t.keys("r")
        t.wait_for("rules not saved")
        assert "note: odd" in t.screen()
        t.keys("q")
        t.wait_for("Unsaved rule changes")
        t.keys("s")
        assert t.exit_code() == 0
    assert work.rules.read_text(encoding="utf-8") == IGNORED
    assert work.unsaved is None
    with Terminal(work.command) as t:
        t.wait_for("1 note")
        assert "Unsaved rule changes" not in t.screen()
        assert t.exit_code("q") == 0


@pytest.mark.parametrize("keys", ["", "V"], ids=["list", "editor"])
def test_a_terminal_that_goes_away(work: Work, editor: str, keys: str) -> None:
    with work.under_way(EDITOR=editor) as t:
        t.type(keys)
        t.wait_for("the editor shows" if keys else "")
        t.vanish()
        assert t.exit_code() == 128 + signal.SIGHUP
    assert work.is_kept()


def test_a_terminal_that_goes_away_without_a_signal(work: Work) -> None:
    """The kernel tells nobody whose controlling terminal it was not."""
    with work.under_way(controls=False) as t:
        t.vanish()
        assert t.exit_code() == 128 + signal.SIGHUP
    assert work.is_kept()


def test_stopped_and_continued_from_outside(work: Work) -> None:
    """Nobody told the program; somebody else has written to its terminal meanwhile."""
    with Terminal(work.command) as t:
        t.wait_for("? help")
        t.type(RULES_AND_NOTE)
        t.wait_for("noted")
        for _ in range(2):
            # Not amid a frame: its rest would hide what the other wrote before the program has its terminal back,
            # and what is typed up to then is dropped.
            t.wait_for(lambda _: t.is_idle)
            os.kill(t.pid, signal.SIGSTOP)
            with open(t.device, "w", encoding="utf-8") as device:
                device.write("\x1b[6;20Hsomebody else was here")
            t.wait_for("somebody else was here")
            os.kill(t.pid, signal.SIGCONT)
            t.wait_for(lambda screen: "somebody" not in screen and "rules not saved" in screen)
        t.type("jjjjjjjjjj")
        t.wait_for(lambda screen: Seen.on(screen).row == 11, styles=True)
        t.keys("q")
        t.wait_for("Unsaved rule changes")
        t.keys("d")
        assert t.exit_code() == 0
        assert t.is_restored
    assert work.notes == ["odd"]


def test_suspended_and_back(work: Work, tmp_path: Path) -> None:
    """With ctrl+z and fg, in a shell with job control; and ended by it while it was suspended."""
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "ready> "}) as t:
        t.wait_for("ready>")
        t.type(" ".join(work.command) + "\r")
        t.wait_for("? help")
        t.type(RULES_AND_NOTE)
        t.wait_for("noted")
        t.keys("C-z")
        t.wait_for("Stopped")
        t.type("stty -a | grep -o ' icanon'; fg\r")
        t.wait_for("rules not saved")
        t.keys("C-z")
        t.wait_for(lambda screen: screen.count("Stopped") == 2 and " icanon\n" in screen)
        t.type("kill %1; wait -f %1; echo code $?\r")
        t.wait_for(f"code {128 + signal.SIGTERM}")
    assert work.is_kept()


def test_a_storm_of_sizes(work: Work) -> None:
    """While keys are pressed; the last size is the one that counts."""
    chance = random.Random(0)
    keys = [
        "j",
        "k",
        "G",
        "g",
        "n",
        "v",
        "\x1b",
        "?",
        "q",
        "c",
        "C",
        "r",
        "/wq\r",
        "=",
        "S",
        "\t",
        "\x10",
        " ",
        "B",
        "P",
    ]
    with work.under_way() as t:
        for _ in range(300):
            t.resize(chance.choice((1, 2, 7, 30, 59, 60, 61, 80, 133, 300)), chance.choice((1, 2, 5, 13, 14, 24, 70)))
            t.type(chance.choice(keys))
            t.read()
        end_by(signal.SIGTERM, t)
    assert work.is_kept()
