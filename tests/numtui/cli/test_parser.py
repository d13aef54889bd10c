"""Sub-commands, and the explorer for what names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.errors import InputError
from numtui.cli.parser import parse
from tests.test_imports import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_that_fits_a_terminal(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse([*command.split(), "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {' '.join(['numtui', *command.split()])} [-h]")
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x", "a", "b"], "numtui: error: unrecognized arguments: b"),
        (["diff", "a", "b", "--frm"], "numtui diff: error: unrecognized arguments: --frm"),
        (["rules", "check", "f", "--frm"], "numtui rules check: error: unrecognized arguments: --frm"),
        (["rules", "chek"], "numtui rules: error: argument COMMAND: invalid choice: 'chek'"),
    ],
)
def test_what_a_command_does_not_take_is_told_with_its_own_usage(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    assert stopped.value.code == 2
    usage, _, error = capsys.readouterr().err.rpartition("\nnumtui")
    assert f"numtui{error}".startswith(told)
    assert usage.startswith(f"usage: {told.partition(':')[0]} ")


@pytest.mark.parametrize("first", ["a.log", "./diff", "A [B]", "-", "explore"])
def test_what_names_no_command_is_a_log(first: str) -> None:
    args = parse([first, "b.log", "--theme", "nord"])
    assert (args.a, args.b, args.theme) == (first, "b.log", "nord")
    args = parse(["--no-color", first])
    assert (args.a, args.b, args.no_color) == (first, None, True)


@pytest.mark.parametrize(
    ("line", "pair", "session"),
    [
        ("--no-session demo bug", "bug", True),
        ("demo bug --no-session", "bug", True),
        ("--mouse --theme nord demo", "bug", False),
    ],
)
def test_options_of_the_screen_may_stand_before_the_command(line: str, pair: str, session: bool) -> None:
    args = parse(line.split())
    assert (args.pair, args.no_session) == (pair, session)


def test_an_option_before_a_command_that_lacks_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--mouse", "diff", "a", "b"])
    assert "unrecognized arguments: --mouse" in capsys.readouterr().err
    assert parse(["--no-session", "a", "b"]).a == "a"
    assert parse(["a", "--theme", "demo"]).theme == "demo"


@pytest.mark.parametrize(("typed", "meant"), [("dif", "diff"), ("sugest", "suggest"), ("wieghts", "weights")])
def test_a_misspelt_command_is_recognised(
    typed: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"{typed}: no such file or folder; did you mean 'numtui {meant}'"):
        parse([typed, "a", "b"])
    (tmp_path / typed).mkdir()
    assert parse([typed, "a"]).a == typed


def test_a_run_with_the_name_of_a_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without logs is not: many repositories have a `capture`."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "plan" / "numerics"
    folder.mkdir(parents=True)
    parse(["plan", "a", "b"])
    assert not capsys.readouterr().err
    (folder / "rank_0_activations.log").touch()
    parse(["plan", "a", "b"])
    assert "plan is a command; the run in the folder of that name is ./plan" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a", "dif.log", "x/dif", "run1"])
def test_a_missing_log_is_no_misspelt_command(name: str) -> None:
    assert parse([name, "b"]).a == name


@pytest.mark.parametrize("text", ["1_0", " 1", "\uff11", "1e", "0x1", "nan", "inf", "-1", ""])
def test_a_tolerance_is_a_plain_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["diff", "a", "b", f"--rtol={text}"])
    assert "a tolerance is a number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1", "1.", ".5", "1e-3", "+1.5E+2", "0"])
def test_tolerances(text: str) -> None:
    assert parse(["diff", "a", "b", f"--rtol={text}"]).rtol == float(text)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["diff", "a", "--no-color", "b"], ("b", None)),
        (["diff", "a", "--no-color"], (None, None)),
        (["explain", "a", "b", "--noise", "c", "7"], ("b", "7")),
        (["explain", "a", "--no-cache", "b", "7"], ("b", "7")),
    ],
)
def test_words_that_may_be_left_out_are_found_behind_options(words: list[str], found: tuple[str | None, ...]) -> None:
    args = parse(words)
    assert (args.b, getattr(args, "row", None)) == found
