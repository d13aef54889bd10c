"""One browser for the tests of a worker, and pages to open in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from numtui.report.html import View, write
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from tests.browser.chromium import Chromium
from tests.conftest import REPOSITORY

DATA = REPOSITORY / "tests" / "data"


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    browser.size(1400, 900)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def planted() -> Comparison:
    """A real pair: in b the output of an attention is negated."""
    return compare(read_log(DATA / "bug_base.log.gz"), read_log(DATA / "bug_neg_attn_l2.log.gz"))


@pytest.fixture(scope="session")
def lowered() -> Comparison:
    """A real pair with groups, recomputed and unfinished rows, and rows that only one side has."""
    return compare(read_log(DATA / "fsdp2_sac.log.gz"), read_log(DATA / "fsdp2_traced.log.gz"))


@pytest.fixture(scope="session")
def plain_pages() -> dict[int, tuple[Comparison, str]]:
    """Pages of the shared comparisons without a view or options, by the id of the comparison, which is kept alive."""
    return {}


@pytest.fixture
def page(chromium: Chromium, tmp_path: Path, plain_pages: dict[int, tuple[Comparison, str]]) -> Callable[..., Chromium]:
    """Opens the page of a comparison, and waits until its rows are there."""

    def open_page(c: Comparison, view: View | None = None, **options: Any) -> Chromium:
        path = tmp_path / "report.html"
        plain = view is None and not options
        if plain and id(c) in plain_pages:
            path.write_text(plain_pages[id(c)][1], encoding="utf-8")
        else:
            with path.open("w", encoding="utf-8") as out:
                write(Report(c, ReportOptions(**{"names": ("base", "other")} | options)), out, view)
            if plain:
                plain_pages[id(c)] = c, path.read_text(encoding="utf-8")
        chromium.open(path)
        chromium.wait_for("window.numtui && (document.querySelector('#rows .row') || !numtui.c.length)")
        return chromium

    return open_page
