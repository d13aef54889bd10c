"""The code around the source line of a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import InputError
from numtui.query.source_code import excerpts
from numtui.views.source_code import code_entries
from tests.builders import op
from tests.captured import Step, captured_log
from tests.matchers.drifted_logs import made_up_log
from tests.numtui.query.test_commits import X, compared, repository  # noqa: F401 - a fixture

NORM, SCALE = 0, 1
"""Rows of `compared`."""


def shown(c: Comparison, row: int, folder: Path, width: int = 90) -> list[str]:
    entries = code_entries(excerpts(c, row, (folder,)), width)
    return ["".join(text for text, _ in line).rstrip() for entry in entries for line in entry.lines]


def marked(c: Comparison, row: int, folder: Path) -> list[str]:
    entries = code_entries(excerpts(c, row, (folder,)), 120)
    return [text for entry in entries for line in entry.lines for text, role in line if role == "cause" and text]


def test_each_run_has_the_code_of_its_commit(repository: tuple[Path, list[str]]) -> None:  # noqa: F811
    folder, hashes = repository
    c = compared(hashes[0], hashes[-1])
    told = shown(c, SCALE, folder)
    assert told[0] == f" a  model.py:6  at commit {hashes[0][:12]}"
    assert " ▸  6      scores = scores * 0.5" in told
    assert f" b  model.py:7  at commit {hashes[-1][:12]}" in told
    assert " ▸  7      scores = scores * 0.25" in told


def test_the_same_code_is_shown_once(repository: tuple[Path, list[str]]) -> None:  # noqa: F811
    folder, hashes = repository
    c = compared(hashes[0], hashes[0], moved=0)
    told = shown(c, SCALE, folder)
    assert told[0].startswith(" a and b  model.py:6  at commit")
    assert sum("▸" in line for line in told) == 1
    assert [line[7:] for line in told if "def norm" in line] == ["def norm(x):"]


def located(folder: Path, text: str, line: int, op: str, **run: object) -> Comparison:
    (folder / "model.py").write_text(text, encoding="utf-8")
    fields = {"location": f"model.py:{line}"}
    log = captured_log([Step(key=f"m/op_0_{op}", reads=[X], gives=[X], fields=fields)], **run)
    return compare(log, log)


def test_the_call_of_the_operation_is_marked_or_else_its_statement(tmp_path: Path) -> None:
    text = "def f(x):\n    y = torch.rsqrt(\n        x.mean() + 'é'\n    ) * x.exp()\n    return y\n"
    assert marked(located(tmp_path, text, 2, "rsqrt"), 0, tmp_path) == ["torch.rsqrt(", "x.mean() + 'é'", ")"]
    assert marked(located(tmp_path, text, 4, "exp"), 0, tmp_path) == ["x.exp()"]
    whole = ["y = torch.rsqrt(", "x.mean() + 'é'", ") * x.exp()"]
    assert marked(located(tmp_path, text, 4, "mul"), 0, tmp_path) == whole
    assert marked(located(tmp_path, "no python (\n", 1, "mul"), 0, tmp_path) == ["no python ("]


def test_without_its_commit_the_file_is_shown_as_it_is_now(tmp_path: Path) -> None:
    assert "as the file is now" in shown(located(tmp_path, "x = y\n", 1, "mul"), 0, tmp_path)[0]
    told = shown(located(tmp_path, "x = y\n", 9, "mul"), 0, tmp_path)
    assert told == [" a and b  model.py:9  as the file is now: it has no such line"]


def test_a_file_that_is_not_here_is_not_read(tmp_path: Path) -> None:
    log = captured_log([Step(key="m/op_0_mul", reads=[X], gives=[X], fields={"location": "/etc/passwd:1"})])
    with pytest.raises(InputError, match="is not opened"):
        excerpts(compare(log, log), 0, (tmp_path,))
    with pytest.raises(InputError, match=r"model.py not found here; start numtui in the source tree"):
        excerpts(compared("0" * 40, "0" * 40), SCALE, (tmp_path,))
    log = made_up_log([op("m/op_0_mul", location=None)])
    with pytest.raises(InputError, match="no source line"):
        excerpts(compare(log, log), 0, (tmp_path,))


def test_code_is_no_markup_and_no_escape(tmp_path: Path) -> None:
    told = shown(located(tmp_path, "x = '[red]\x1b[31m'\n\ty\n", 1, "mul"), 0, tmp_path)
    assert "\x1b" not in "".join(told)
    assert "[red]" in told[1]
