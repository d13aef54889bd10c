"""What a command does not need, it does not import: torch never, Textual for the explorer only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from numtui.report import FORMATS

_RUN = """
import json, sys
from numtui.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(code: str, *arguments: str) -> set[str]:
    """Top-level modules that are loaded after running `code`, which prints them as JSON on standard error."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["diff", "--help"], ["demo", "--help"], ["rules", "convert", "-h"], ["a", "-", "-"]],
)
def test_help_and_errors_import_nothing_heavy(arguments: Sequence[str]) -> None:
    assert not modules_after(_RUN, *arguments) & {"torch", "textual", "rich", "numpy", "rapidfuzz", "yaml"}


@pytest.mark.parametrize("form", FORMATS)
def test_a_report_imports_no_screen(form: str, example_logs: tuple[str, str]) -> None:
    loaded = modules_after(_RUN, "diff", *example_logs, "--format", form)
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_converting_rules_imports_no_screen(tmp_path: Path) -> None:
    overrides = tmp_path / "o.csv"
    overrides.write_text("a, b\n")
    loaded = modules_after(_RUN, "rules", "convert", str(overrides))
    assert "yaml" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


@pytest.mark.parametrize("form", ["text", "yaml"])
def test_suggestions_import_no_screen(form: str, example_logs: tuple[str, str]) -> None:
    loaded = modules_after(_RUN, "suggest", *example_logs, "--format", form)
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_the_explorer_imports_no_torch() -> None:
    loaded = modules_after("import numtui.app, json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)")
    assert "textual" in loaded
    assert "torch" not in loaded


def test_the_grammar_of_the_log_needs_the_standard_library_only() -> None:
    loaded = modules_after(
        "import capture.log_format, json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    assert not loaded & {"numpy", "torch", "textual", "matchers", "numtui"}
