"""Folders of settings and sessions: XDG's on Linux, the system's elsewhere, with the earlier places read."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from numtui.cli.config import config_path, load_config
from numtui.folders import config_folders, state_folders
from numtui.session.journal import Journal
from numtui.session.store import SavedSession, SessionStore


def test_folders_follow_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folders, variable, default in (
        (state_folders, "XDG_STATE_HOME", ".local/state"),
        (config_folders, "XDG_CONFIG_HOME", ".config"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / "mine"))
        assert folders() == (tmp_path / "mine" / "numtui",)
        for ignored in ("relative", ""):
            monkeypatch.setenv(variable, ignored)
            assert folders() == (tmp_path / default / "numtui",)


def test_a_platformdirs_that_takes_relative_paths_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setattr(platformdirs, "user_state_path", lambda _: Path("relative/numtui"))
    assert state_folders() == (tmp_path / ".local/state/numtui",)


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home of a user whose system has another folder for both, `Library`, than earlier versions had."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable)
    for name in ("user_config_path", "user_state_path"):
        monkeypatch.setattr(platformdirs, name, lambda _: tmp_path / "Library" / "numtui")
    return tmp_path


def test_settings_at_the_earlier_place_are_read(earlier: Path) -> None:
    assert config_path() == earlier / "Library/numtui/config.yaml"
    old = earlier / ".config/numtui/config.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("theme: nord\n", encoding="utf-8")
    assert load_config().theme == "nord"
    new = earlier / "Library/numtui/config.yaml"
    new.parent.mkdir(parents=True)
    new.write_text("theme: gruvbox\n", encoding="utf-8")
    assert load_config().theme == "gruvbox"


def test_a_session_at_the_earlier_place_goes_on_at_the_new_one(earlier: Path) -> None:
    old = SessionStore("a.log", "b.log", folder=earlier / ".local/state/numtui/sessions")
    old.save(SavedSession(query="status:red", filters={"mine": "wq"}))
    store = SessionStore("a.log", "b.log")
    assert store.load().query == "status:red"
    store.save(SavedSession(query="op:mm", filters={"mine": "wq"}))
    assert store.problem is None
    assert store.path.parent == earlier / "Library/numtui/sessions"
    assert SessionStore("a.log", "b.log").load() == SavedSession(query="op:mm", filters={"mine": "wq"})
    assert old.load().query == "status:red"


def test_a_session_that_is_damaged_is_put_aside_where_it_is(earlier: Path) -> None:
    old = SessionStore("a.log", "b.log", folder=earlier / ".local/state/numtui/sessions")
    old.path.parent.mkdir(parents=True)
    old.path.write_text("{", encoding="utf-8")
    store = SessionStore("a.log", "b.log")
    assert store.load() == SavedSession()
    assert str(old.path.with_suffix(".damaged")) in (store.problem or "")


def test_rules_that_were_not_saved_are_offered_from_the_earlier_place(earlier: Path) -> None:
    crashed = Journal("a.log", "b.log", Path("rules.yaml"), folder=earlier / ".local/state/numtui/journal")
    crashed.write("version: 1\n")
    crashed.close()
    journal = Journal("a.log", "b.log", Path("rules.yaml"))
    found = journal.pending()
    assert found is not None
    assert found.rules == "version: 1\n"
    journal.write("version: 1\n# more\n")
    assert list((earlier / "Library/numtui/journal").glob("*.json"))
    journal.clear()
    assert not list(earlier.rglob("*.json"))
    journal.close()


def test_a_user_whom_the_system_does_not_know_has_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)
    assert state_folders() == config_folders() == (Path("/nonexistent/numtui"),)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folders() == (tmp_path / "numtui",)
