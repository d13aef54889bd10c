"""The user's settings: what they change, and how what is wrong in them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.errors import InputError
from numtui.actions import ACTIONS, conflicts, remapped
from numtui.cli.config import Config, config_path, load_config
from tests.conftest import REPOSITORY


def load(folder: Path, text: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_settings(tmp_path: Path) -> None:
    text = """\
    # mine
    keys:
      next-red: ["%", "] c"]
      fold: "_"
      html: []
    theme: nord
    color: false
    mouse: true
    session: false
    cache: 4 GiB
    editor: "code -g {file}:{line}"
    sources: [~/titan, /opt/site-packages]
    """
    assert load(tmp_path, text) == Config(
        keys={"next_red": ("%", "] c"), "fold": ("_",), "html": ()},
        theme="nord",
        color=False,
        mouse=True,
        session=False,
        cache=4 << 30,
        editor="code -g {file}:{line}",
        sources=(Path.home() / "titan", Path("/opt/site-packages")),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "keys:\n", "{}"])
def test_no_settings(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == Config()
    assert load_config(tmp_path / "none.yaml") == Config()


def test_where_settings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert config_path() == Path("/somewhere/numtui/config.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert config_path() == Path.home() / ".config" / "numtui" / "config.yaml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("theme: nord\nthema: dark\n", ":2:1: 'thema' is no setting; there are keys, theme, color"),
        ("keys:\n  next-rot: n\n", ":2:3: 'next-rot' is no action"),
        ("keys:\n  next-red: hyper+n\n", ":2:13: next-red: 'hyper+n' is no key"),
        ("keys:\n  next-red: [n, z 5]\n", ":2:17: next-red: 'z 5': a digit begins a count"),
        ("keys:\n  next-red: q\n", ":2:13: next-red: the key q does quit already; give that one another key too"),
        ("keys:\n  next-red: [N]\n  previous-red: [N]\n", "the key N does"),
        ("keys:\n  next-red: q q\n", "the key q does quit already"),
        ("keys:\n  next-red: z\n", "the key z does center already"),
        ("keys: [n]\n", ":1:7: keys are written as `name: value`"),
        ("mouse: perhaps\n", ":1:8: mouse: expected true or false"),
        ("cache: 4\n", ":1:8: cache: expected a size like `500 MiB` or `4 GiB`, or false"),
        ("cache: [4 GiB]\n", ":1:8: cache: expected a size"),
        ("cache: 4000000 GiB\n", ":1:8: cache: expected a size"),
        ("theme:\n", "theme: a text is expected"),
        ("sources: titan\n", ":1:10: sources: a folder is given from / or ~ on"),
        ("sources: [/opt, ~nosuchuser/x]\n", ":1:17: sources: ~nosuchuser/x: there is no user ~nosuchuser"),
        ("sources: [[]]\n", ":1:11: sources: a text is expected"),
        ("theme: a\ntheme: b\n", ":2:1: 'theme' is set twice"),
        ("keys: {\n", "this is not YAML"),
        ("- theme\n", ":1:1: settings are written as"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'config.yaml'}:")
    assert told in str(error.value)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "config.yaml")


def test_two_actions_can_change_places() -> None:
    keys = {"next_red": ("o",), "next_cause": ("n",)}
    assert not list(conflicts(remapped(keys)))
    assert not list(conflicts(ACTIONS))


def test_the_line_of_the_changelog_gives_the_freed_keys_back(tmp_path: Path) -> None:
    line = next(x for x in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if "keys: {" in x)
    assert load(tmp_path, line.strip()).keys == {a.id: (a.former,) for a in ACTIONS if a.former}
