"""From a source line of a log to a file, and to the command that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.errors import InputError
from numtui.query.source_line import editor_command, find_source, split_location


def test_a_file_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    for name in ("train.py", "models/llama3/model.py", "models/other/model.py", ".venv/llama3/attention.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    roots = [tmp_path]
    assert find_source("train.py", roots) == tmp_path / "train.py"
    assert find_source("llama3/model.py", roots) == tmp_path / "models/llama3/model.py"
    assert find_source(str(tmp_path / "train.py"), roots) == tmp_path / "train.py"
    for name in (
        "llama3/attention.py",
        "lama3/model.py",
        "",
        "a\0b",
        "../train.py",
        "/none/train.py",
        "models",
        "x" * 300,
    ):
        assert find_source(name, roots) is None


def test_only_files_below_a_root_are_found(tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here / "deep", other):
        folder.mkdir(parents=True)
        (folder / "model.py").touch()
    (tmp_path / "here.py").touch()  # a name that begins as the root's does
    (here / "link.py").symlink_to(other / "model.py")
    (here / "inside.py").symlink_to(here / "deep" / "model.py")
    (here / "away").symlink_to(other)
    for name in ("/etc/passwd", "../other/model.py", "link.py", "away/model.py", "../here.py", f"{other}/model.py"):
        with pytest.raises(InputError, match="is not opened"):
            find_source(name, [here])
        assert name in ("/etc/passwd", "../here.py") or find_source(name, [here, other]) is not None
    assert find_source("inside.py", [here]) == here / "inside.py"
    assert find_source("deep/../deep/model.py", [here]) is not None
    # a link to the root itself
    (tmp_path / "same").symlink_to(here)
    assert find_source("deep/model.py", [tmp_path / "same"]) is not None
    # where the first of the name lies elsewhere, the next one is taken
    (here / "a").mkdir()
    (here / "a" / "model.py").symlink_to(other / "model.py")
    assert find_source("model.py", [here]) == here / "deep" / "model.py"


def test_a_location_is_a_file_and_a_line() -> None:
    assert split_location("llama3/model.py:49") == ("llama3/model.py", 49)
    assert split_location("model.py") == ("model.py", 1)
    assert split_location("odd:²") == ("odd:²", 1)


@pytest.mark.parametrize(
    ("setting", "environment", "command"),
    [
        (None, {}, ["vi", "+7", "a b.py"]),
        (None, {"EDITOR": "nano"}, ["nano", "+7", "a b.py"]),
        (None, {"EDITOR": "nano", "VISUAL": "emacsclient -t"}, ["emacsclient", "-t", "+7", "a b.py"]),
        (None, {"EDITOR": "/usr/bin/code --wait"}, ["/usr/bin/code", "--wait", "-g", "a b.py:7"]),
        (None, {"EDITOR": "hx"}, ["hx", "a b.py:7"]),
        ("ed --at={line} {file}", {"EDITOR": "hx"}, ["ed", "--at=7", "a b.py"]),
    ],
)
def test_editors(
    setting: str | None, environment: dict[str, str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert editor_command(setting, Path("a b.py"), 7) == command


def test_an_editor_that_is_no_command_is_told() -> None:
    with pytest.raises(InputError, match="not a command"):
        editor_command('code "', Path("a.py"), 1)
