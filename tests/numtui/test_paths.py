"""Typed paths: whatever is typed is a path or a sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from matchers.errors import InputError
from numtui.cli.main import main
from numtui.paths import status_of, typed_path
from tests.builders import training_step, write_log

LONG = "x" * 300


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that cannot be searched, for root either, whom no permission stops."""
    folder = tmp_path / "locked"
    look = os.stat

    def stat(path: int | str | os.PathLike[str], *arguments: object, **options: object) -> os.stat_result:
        if not isinstance(path, int) and Path(path).parent == folder:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return look(path, *arguments, **options)  # type: ignore[arg-type]

    folder.mkdir()
    monkeypatch.setattr(os, "stat", stat)
    return folder


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert status_of(tmp_path / "file") is not None
    assert status_of(tmp_path / "none") is None
    assert typed_path(f"{tmp_path}/none") == tmp_path / "none"


def test_home_is_read_where_no_shell_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert typed_path("~/x", expand=True) == tmp_path / "x"
    assert typed_path("~/x") == Path("~/x")
    assert typed_path("~nosuchuser/x") == Path("~nosuchuser/x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("~nosuchuser/x", "there is no user ~nosuchuser"),
        (LONG, "File name too long; choose a shorter one"),
        ("file/x", "Not a directory; a file lies where a folder is needed"),
        ("a\0b", "is no path"),
        ("\ud800", "is no path"),
        ("round/x", "Too many levels of symbolic links"),
    ],
)
def test_a_path_that_no_file_can_have(text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("round").symlink_to("round")
    Path("file").touch()
    with pytest.raises(InputError, match=told):
        typed_path(text, expand=True)


def test_a_folder_that_cannot_be_searched(locked: Path) -> None:
    with pytest.raises(InputError, match="cannot be searched"):
        typed_path(str(locked / "x"))


@pytest.mark.parametrize(
    "line",
    [
        "diff LOG LOG -r WHERE",
        "diff LOG LOG -o WHERE.json",
        "diff LOG LOG --also WHERE.html",
        "diff LOG LOG --allow WHERE",
        "diff WHERE LOG",
        "suggest LOG LOG -o WHERE",
        "rules check WHERE",
        "rules convert CSV -o WHERE",
        "rules convert WHERE",
    ],
)
@pytest.mark.parametrize("where", ["locked", "long"])
def test_the_command_line_says_what_is_wrong_with_a_path(
    line: str, where: str, locked: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = write_log(tmp_path / "a.log", training_step(1))
    (tmp_path / "rules.csv").write_text("")
    words = {"LOG": str(log), "CSV": str(tmp_path / "rules.csv")}
    path = str(locked / "x") if where == "locked" else str(tmp_path / LONG)
    assert main([words.get(word, word.replace("WHERE", path)) for word in line.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith("numtui: ")
    assert told.count("\n") == 1
    if "convert WHERE" in line:  # only opened
        assert "cannot be read" in told
    else:
        assert ("cannot be searched" if where == "locked" else "choose a shorter one") in told
