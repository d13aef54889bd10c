"""Several processes save one rule file: each save is in the file, or was refused with a message."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matchers.errors import RulesError
from matchers.rules.file import RuleFile, RulesBusyError, RulesChangedError
from matchers.rules.model import PairRule

MINE, THEIRS = PairRule(a=("mine",), b=("mine",)), PairRule(a=("theirs",), b=("theirs",))
CONTENT = "version: 1  # ours\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(CONTENT)
    return path


def save(file: RuleFile, rule: PairRule, **options: Any) -> RuleFile:
    return file.save(file.rules.adding(rule), patience=0, **options)


def before(monkeypatch: pytest.MonkeyPatch, name: str, what: Callable[[], object]) -> None:
    """Do something just before the first call of a function of the system."""
    function = getattr(os, name)

    def called(*arguments: Any) -> Any:
        monkeypatch.setattr(os, name, function)
        what()
        return function(*arguments)

    monkeypatch.setattr(os, name, called)


@pytest.mark.parametrize("force", [False, True])
def test_nobody_saves_between_the_last_look_and_the_replacement(
    path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    mine, theirs = RuleFile.load(path), RuleFile.load(path)
    refused: list[RulesError] = []

    def they_save() -> None:
        with pytest.raises(RulesBusyError) as caught:
            save(theirs, THEIRS, force=force)
        refused.append(caught.value)

    before(monkeypatch, "replace", they_save)
    save(mine, MINE)
    assert MINE in RuleFile.load(path).rules
    assert refused
    with pytest.raises(RulesChangedError):
        save(theirs, THEIRS)


def test_one_of_two_makes_a_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    mine, theirs = RuleFile.open(path), RuleFile.open(path)
    before(monkeypatch, "link", lambda: save(theirs, THEIRS))
    with pytest.raises(RulesChangedError):
        save(mine, MINE)
    assert RuleFile.load(path).rules.rules == (THEIRS,)
    assert sorted(os.listdir(path.parent)) == ["rules.yaml"]


def test_one_that_waited_sees_the_file_that_replaced_the_locked_one(path: Path) -> None:
    mine, theirs = RuleFile.load(path), RuleFile.load(path)
    link = path.with_name("link.yaml")
    link.symlink_to(path)
    with path.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RulesBusyError, match=r"link\.yaml: another process is saving it; try again"):
            save(RuleFile.load(link), MINE)
        os.replace(_copy(path), path)  # whoever holds the lock does that
        save(mine, MINE)
    with pytest.raises(RulesChangedError):
        save(theirs, THEIRS)
    assert link.is_symlink()


def test_content_is_kept_aside_as_it_is_when_it_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("pairs: &all [{a: x, b: y}]\n")
    file = RuleFile.load(path)
    before(monkeypatch, "fsync", lambda: path.write_text("pairs: &all [{a: x, b: z}]\n"))
    save(file, MINE, force=True)
    assert path.with_name("rules.yaml.orig").read_text() == "pairs: &all [{a: x, b: z}]\n"


SAVER = """
import os, signal, sys
from matchers.files.atomic_write import atomic_write
atomic_write(sys.argv[1], b"pairs: [{a: theirs, b: theirs}]", check=lambda: os.kill(os.getpid(), signal.SIGSTOP))
"""


def test_who_holds_it_is_named_and_waited_for_no_longer_than_allowed(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SAVER, str(path)]) as saver:
        os.waitpid(saver.pid, os.WUNTRACED)
        named = f"rules.yaml: numtui, process {saver.pid} on {os.uname().nodename[:32]}, is saving it; try again"
        with pytest.raises(RulesBusyError) as caught:
            save(RuleFile.load(path), MINE)
        assert str(caught.value).endswith(named)
        saver.send_signal(signal.SIGCONT)
    assert save(RuleFile.load(path), MINE).rules.rules == (THEIRS, MINE)
    assert os.listdir(path.parent) == ["rules.yaml"]


def test_a_saver_that_was_killed_holds_nothing(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SAVER, str(path)]) as saver:
        os.waitpid(saver.pid, os.WUNTRACED)
        saver.kill()
    file = save(RuleFile.load(path), MINE)
    with path.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RulesBusyError, match="another process is saving it"):
            save(file, THEIRS)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
@pytest.mark.parametrize("exists", [True, False])
def test_a_file_system_without_locks_or_links_still_saves(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, exists: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "link", refuse)
    if not exists:
        path.unlink()
    file, theirs = RuleFile.open(path), RuleFile.open(path)
    assert MINE in save(file, MINE).rules
    with pytest.raises(RulesChangedError):
        save(theirs, THEIRS)
    assert os.listdir(path.parent) == ["rules.yaml"]


def _copy(path: Path) -> Path:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    return copy
