"""Completion and the manual page: made of the parsers, and as the parsers are now."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from numtui.cli.arguments import commands
from numtui.cli.completion import SHELLS, completion
from numtui.cli.main import main
from numtui.cli.man_page import man_page
from tests.conftest import REPOSITORY


def completed(folder: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words, in a folder with one log."""
    (folder / "run 1").mkdir(exist_ok=True)
    script = folder / "numtui.bash"
    script.write_text(completion("bash", commands()), encoding="utf-8")
    line = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _numtui; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", line, "bash", str(script), "numtui", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return set(done.stdout.splitlines()) - {""}


def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    assert {"diff", "suggest", "demo", "rules", "run 1"} <= completed(tmp_path, "")
    assert completed(tmp_path, "run") == {"run 1"}
    assert completed(tmp_path, "dif") == {"diff"}
    assert {"--theme", "--no-session", "--rules"} <= completed(tmp_path, "a.log", "--")
    assert "--theme" not in completed(tmp_path, "diff", "--")
    assert completed(tmp_path, "diff", "a", "b", "--format", "j") == {"json", "jsonl", "junit"}
    assert completed(tmp_path, "diff", "--name-a", "r") == set()
    assert completed(tmp_path, "diff", "-o", "r") == {"run 1"}
    assert "convert" in completed(tmp_path, "rules", "")
    assert completed(tmp_path, "rules", "convert", "--fo") == {"--force"}
    assert completed(tmp_path, "completion", "f") == {"fish"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in commands():
        for option in command.options:
            for flag in option.flags:
                assert (flag if shell != "fish" else flag.lstrip("-")) in script, (command.name, flag)


def test_a_command_of_every_word_that_the_program_takes() -> None:
    names = [command.name for command in commands()]
    assert names[:2] == ["", "diff"]
    assert "rules convert" in names
    assert len(names) == len(set(names))


def test_the_manual_page_is_current() -> None:
    """`python -m numtui.cli.man_page > docs/numtui.1` brings it up to date."""
    page = (REPOSITORY / "docs" / "numtui.1").read_text(encoding="utf-8")
    assert page == man_page(commands())
    assert page.isascii()
    assert page.count(".TP") >= sum(len(command.arguments) for command in commands())
    assert not [line for line in page.splitlines() if line.startswith("'")]
