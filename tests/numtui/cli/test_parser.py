"""Sub-commands, and the explorer for what names none."""

from __future__ import annotations

import pytest

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
        (["dif", "a", "b"], "numtui: error: unrecognized arguments: b"),
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
