"""Marks and requirements of the tests themselves."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tests import needs


@pytest.mark.parametrize(
    ("file", "fixtures", "marks"),
    [
        ("matchers/rules/test_file.py", (), set()),
        ("matchers/verdict/test_divided_batch.py", ("two_ranks",), {"torch"}),
        ("capture/test_tracer.py", ("tmp_path",), {"torch"}),
        ("capture/test_statistics.py", (), {"torch", "compiler"}),
        ("pty/test_tour.py", (), {"pty"}),
        ("browser/test_html_report.py", ("chromium",), {"browser"}),
        ("numtui/tui/repaint/test_frame.py", (), {"screen"}),
        ("numtui/session/test_session.py", (), set()),
    ],
)
def test_a_test_is_marked_by_its_folder_and_its_fixtures(file: str, fixtures: tuple[str, ...], marks: set[str]) -> None:
    assert needs.marks_of(PurePath(file), fixtures) == marks


def test_a_tool_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "tmux" in needs.lacking("pty")
    assert "Chromium" in needs.lacking("browser")
    assert "gcc" in needs.lacking("compiler")
    assert not needs.lacking("screen")


def test_every_mark_is_registered(pytestconfig: pytest.Config) -> None:
    registered = [line.partition(":")[0] for line in pytestconfig.getini("markers")]
    assert set(needs.MARKS) <= set(registered)
