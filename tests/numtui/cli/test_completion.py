"""Completion: made of the parsers, as they are now."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from numtui.cli.main import main
from numtui.cli.parser import root_parser


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the script that makes bash complete the program."""
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "numtui.bash"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def completed(script: Path, *words: str) -> set[str]:
    """Return the completions of bash for the last word, in a folder with one log."""
    (script.parent / "run 1" / "deep").mkdir(exist_ok=True, parents=True)
    line = 'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _shtab_numtui; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", line, "bash", str(script), "numtui", *words],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return set(done.stdout.splitlines()) - {""}


def test_bash_completes_commands_options_values_and_files(script: Path) -> None:
    assert {"diff", "suggest", "demo", "rules", "run 1"} <= completed(script, "")
    assert completed(script, "run") == {"run 1"}
    assert completed(script, "dif") == {"diff"}
    assert {"--theme", "--no-session", "--rules"} <= completed(script, "a.log", "--")
    assert "--theme" not in completed(script, "diff", "--")
    assert completed(script, "diff", "a", "b", "--format", "j") == {"json", "jsonl", "junit"}
    assert completed(script, "diff", "--name-a", "r") == set()
    assert completed(script, "diff", "-o", "r") == {"run 1"}
    assert "convert" in completed(script, "rules", "")
    assert completed(script, "rules", "convert", "--fo") == {"--force"}
    assert completed(script, "completion", "f") == {"fish"}


def test_bash_completes_the_logs_of_the_explorer(script: Path) -> None:
    assert completed(script, "a.log", "r") == {"run 1"}
    assert completed(script, "a.log", "d") == set(), "a command stands first"
    assert completed(script, "a.log", "b.log", "r") == set()
    assert completed(script, "run 1/") == {"run 1/deep"}
    assert completed(script, "A") == set(), "what stands for the explorer is no word"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


FLAGS = [(p.prog, flag) for p in parsers(root_parser()) for action in p._actions for flag in action.option_strings]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for prog, flag in FLAGS:
        assert (flag if shell != "fish" else flag.lstrip("-")) in script, (prog, flag)


def test_a_command_of_every_word_that_the_program_takes() -> None:
    names = [parser.prog for parser in parsers(root_parser())]
    # The root and the explorer, which stands for what is no other command.
    assert names[:3] == ["numtui", "numtui", "numtui diff"]
    assert "numtui rules convert" in names
    assert len(names) - 1 == len(set(names))
