"""What a command does not need, it does not import: torch never, Textual for the explorer only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from numtui.report.options import FORMATS
from tests.checked import odd_run
from tests.matchers.weights.test_weights import log

COMMANDS = [
    *("", "diff", "explain", "plan", "replay", "check", "weights", "capture", "suggest", "demo"),
    *("rules", "rules convert", "rules check", "cache", "completion"),
]

_RUN = """
import json, sys
from numtui.cli.main import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(code: str, *arguments: str) -> set[str]:
    """Top-level modules that are loaded after running `code`, which prints them as JSON on standard error."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def modules_after_commands(*commands: Sequence[str]) -> set[str]:
    """The same after commands of `numtui`, one after the other in one process."""
    return modules_after(_RUN, json.dumps(commands))


def test_help_and_errors_import_nothing_heavy() -> None:
    helps = [[*command.split(), "--help"] for command in COMMANDS]
    loaded = modules_after_commands(*helps, ["--version"], ["rules", "convert", "-h"], ["a", "-", "-"])
    assert not loaded & {"torch", "textual", "rich", "numpy", "rapidfuzz", "yaml", "shtab", "platformdirs"}


def test_a_report_imports_no_screen(example_logs: tuple[str, str]) -> None:
    loaded = modules_after_commands(*(["diff", *example_logs, "--format", form] for form in FORMATS))
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_rows_without_rules_need_no_yaml(example_logs: tuple[str, str]) -> None:
    loaded = modules_after_commands(["diff", *example_logs, "--format", "jsonl", "--rules", os.devnull])
    assert "numpy" in loaded
    assert not loaded & {"yaml", "rapidfuzz"}


def test_a_report_on_weights_imports_no_screen(tmp_path: Path) -> None:
    paths = [str(log(tmp_path / name)) for name in ("a.log", "b.log", "c.log")]
    loaded = modules_after_commands(*(["weights", *paths, "--format", form] for form in ("text", "json", "jsonl")))
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_a_checked_run_imports_no_screen(tmp_path: Path) -> None:
    run = odd_run(tmp_path / "run")
    loaded = modules_after_commands(*(["check", run, "--format", form] for form in FORMATS))
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_converting_rules_imports_no_screen(tmp_path: Path) -> None:
    overrides = tmp_path / "o.csv"
    overrides.write_text("a, b\n")
    loaded = modules_after_commands(["rules", "convert", str(overrides)])
    assert "yaml" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_suggestions_import_no_screen(example_logs: tuple[str, str]) -> None:
    loaded = modules_after_commands(*(["suggest", *example_logs, "--format", form] for form in ("text", "yaml")))
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_an_explained_row_imports_no_screen(example_logs: tuple[str, str]) -> None:
    loaded = modules_after_commands(*(["explain", *example_logs, "5", "--format", form] for form in ("text", "json")))
    assert "numpy" in loaded
    assert not loaded & {"torch", "textual", "rich", "asyncio"}


def test_the_explorer_imports_no_torch() -> None:
    screens = ("tui.app", "tui.overview_app", "tui.screens.check", "tui.screens.weights")
    imports = ", ".join(f"numtui.{name}" for name in screens)
    loaded = modules_after(f"import {imports}, json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)")
    assert "textual" in loaded
    assert "torch" not in loaded


def test_capturing_imports_nothing_of_the_viewer(tmp_path: Path) -> None:
    """A script may have modules of these names; and it decides when torch is imported."""
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr, flush=True); os._exit(0)"
    )
    run = "import sys; from numtui.__main__ import run; sys.argv = ['numtui', *sys.argv[1:]]; run()"
    loaded = modules_after(run, "capture", "-o", str(tmp_path), "--", str(script))
    assert not loaded & {"torch", "numpy", "textual", "rich", "matchers", "capture", "yaml"}


def test_the_grammar_of_the_log_needs_the_standard_library_only() -> None:
    loaded = modules_after(
        "import capture.log_format, json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    assert not loaded & {"numpy", "torch", "textual", "matchers", "numtui"}
