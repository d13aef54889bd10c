"""Unsaved rules survive whatever ends the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numtui.session.journal import Journal

RULES = Path("overrides.yaml")
SESSION = """
import sys
from pathlib import Path
from numtui.session.journal import Journal
journal = Journal("a.log", "b.log", Path("overrides.yaml"), folder=Path(sys.argv[1]))
journal.write("version: 1  # of another process\\n")
print("written", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_session(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A live process with unsaved rules; killed without warning when the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def new(folder: Path, a: str = "a.log") -> Journal:
    return Journal(a, "b.log", RULES, folder=folder)


def test_nothing_is_offered_at_first(tmp_path: Path) -> None:
    assert new(tmp_path / "none yet").pending() is None


def test_a_killed_process_leaves_its_rules(tmp_path: Path) -> None:
    """While the other session lives its journal is its own; after SIGKILL it is offered, until it is cleared."""
    with another_session(tmp_path):
        assert new(tmp_path).pending() is None
    session = new(tmp_path)
    recovered = session.pending()
    assert recovered is not None
    assert recovered.rules == "version: 1  # of another process\n"
    session.clear()
    assert new(tmp_path).pending() is None
    assert os.listdir(tmp_path) == []


def test_other_logs_are_another_matter(tmp_path: Path) -> None:
    with another_session(tmp_path):
        pass
    assert new(tmp_path, "c.log").pending() is None
    assert new(tmp_path).pending() is not None


def test_the_newest_of_several_is_offered_and_all_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr("numtui.session.journal.time.time", lambda: next(clock))
    for text in ("first", "newest", "middle"):
        session = new(tmp_path)
        session.write(text)
        session.close()
    after = new(tmp_path)
    recovered = after.pending()
    assert recovered is not None
    assert (recovered.rules, recovered.time) == ("newest", 30.0)
    after.clear()
    assert os.listdir(tmp_path) == []


def test_two_live_sessions_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, other = new(tmp_path), new(tmp_path)
    one.write("one")
    other.write("other")
    assert one.pending() is None
    other.clear()
    other.close()
    one.close()
    recovered = new(tmp_path).pending()
    assert recovered is not None
    assert recovered.rules == "one"


def test_a_saved_session_leaves_nothing(tmp_path: Path) -> None:
    session = new(tmp_path)
    session.write("rules")
    session.clear()
    session.close()
    assert os.listdir(tmp_path) == []
    session.close()


def test_without_locks_the_process_id_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has no locks a journal of a live process of this machine is still left alone."""

    def no_locks(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("numtui.session.journal.fcntl.flock", no_locks)
    session = new(tmp_path)
    session.write("rules")
    assert new(tmp_path).pending() is None
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    path.write_text(json.dumps(record | {"pid": gone.pid}))
    assert new(tmp_path).pending() is not None


def test_a_folder_that_cannot_be_written_is_told_not_raised(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    session = new(blocked / "journal")
    session.write("rules")
    assert session.problem is not None
    assert "not backed up" in session.problem
    assert session.pending() is None
    session.clear()
    session.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"text": 1}', '{"text": "x", "time": "soon"}', "\xff"])
def test_a_damaged_journal_is_not_offered(tmp_path: Path, text: str) -> None:
    session = new(tmp_path)
    session.write("rules")
    (path,) = tmp_path.glob("*.json")
    session.close()
    path.write_bytes(text.encode("latin-1"))
    assert new(tmp_path).pending() is None


def test_journals_are_private(tmp_path: Path) -> None:
    session = new(tmp_path / "journal")
    session.write("rules")
    for path in (tmp_path / "journal").iterdir():
        assert path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "record",
    [
        "[" * 100_000,
        '{"text": "version: 1", "time": 1' + "0" * 400 + "}",
        '{"text": "version: 1", "time": 1e300}',
        '{"text": "version: 1", "time": Infinity}',
        '{"text": "version: 1", "time": NaN}',
        '{"text": "version: 1", "time": -1}',
        '{"text": "version: 1", "time": 1, "pid": "1"}',
        '{"text": "\\ud800", "time": 1}',
        '{"text": "version: 1"}',
        '["text", "time"]',
        "\udcff",
    ],
)
def test_a_broken_journal_costs_only_itself(record: str, tmp_path: Path) -> None:
    logs = "a.log", "b.log", Path("rules.yaml")
    killed = Journal(*logs, folder=tmp_path)
    killed.write("version: 1\n")
    killed.close()
    [good] = tmp_path.glob("*.json")
    name = good.name.partition("-")[0]
    (tmp_path / f"{name}-1-0.json").write_text(record, encoding="utf-8", errors="surrogateescape")
    found = Journal(*logs, folder=tmp_path).pending()
    assert found is not None
    assert found.path == good


def test_a_journal_with_a_number_that_no_process_has_is_offered(tmp_path: Path) -> None:
    logs = "a.log", "b.log", Path("rules.yaml")
    killed = Journal(*logs, folder=tmp_path)
    killed.write("version: 1\n")
    killed.close()
    [path] = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"locked": False, "pid": 10**30}))
    assert Journal(*logs, folder=tmp_path).pending() is not None
