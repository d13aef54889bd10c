"""The README tells the truth: every command in it runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONSOLE = [line[2:] for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def path_with_numtui(tmp_path: Path) -> str:
    """A PATH on which `numtui` is this checkout, installed or not."""
    script = tmp_path / "bin" / "numtui"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m numtui "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{os.environ['PATH']}"


def test_there_are_commands() -> None:
    assert len(CONSOLE) >= 9


@pytest.mark.parametrize("command", CONSOLE)
def test_every_command_runs(command: str, path_with_numtui: str) -> None:
    """Without a terminal, so the explorer's commands print their report."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path_with_numtui},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_the_capture_commands_find_the_planted_bug(tmp_path: Path, path_with_numtui: str) -> None:
    """The three commands of "Capture two runs", one after the other, in a folder that has the examples."""
    [block] = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "-m capture" in block]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    *captures, compare = block.splitlines()
    environment = os.environ | {"PATH": path_with_numtui, "PYTHONPATH": str(REPOSITORY)}
    for command in captures:
        shell = command.replace("python", shlex.quote(sys.executable), 1)
        subprocess.run(["bash", "-c", shell], cwd=tmp_path, env=environment, check=True, timeout=120)
    report = subprocess.run(
        ["bash", "-c", compare], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert report.returncode == 1, report.stderr
    causes = report.stdout.partition("First cause")[2]
    assert "layers.2.attention" in causes.partition("2. ")[0]


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_every_make_target_exists(target: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in link or (REPOSITORY / link).exists(), link
