"""The manual page is the one that `make man` writes from the parsers now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.numtui.cli.test_completion import FLAGS

PAGE = (REPOSITORY / "docs" / "numtui.1").read_text(encoding="utf-8")


def test_it_is_current(tmp_path: Path) -> None:
    """`make man` brings it up to date."""
    written = tmp_path / "numtui.1"
    # The prerequisite is what this test runs in.
    subprocess.run(
        ["make", "--old-file", ".venv/.test", "man", f"BIN={os.path.dirname(sys.executable)}", f"MAN={written}"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert written.read_text(encoding="utf-8") == PAGE


def test_it_has_every_command_and_every_option() -> None:
    plain = PAGE.replace("\\-", "-")
    for prog, flag in FLAGS:
        assert f"{prog}\\fR" in plain or prog == "numtui"
        assert f"\\fB{flag}\\fR" in plain or flag in ("-h", "--help"), (prog, flag)


def test_it_is_a_page_for_every_terminal() -> None:
    assert PAGE.isascii()
    assert not [line for line in PAGE.splitlines() if line.startswith("'")]
