"""The HTML report as a page: its first screen, two columns of names, themes, a phone, and paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.ops.values import written
from matchers.status import Status
from numtui.query.grouping import By, grouped
from numtui.query.view import Filter, build_view
from numtui.report.html import View
from numtui.text.glyphs import WORDS
from numtui.text.names import marked_keys, shared_module, without
from numtui.text.safe import safe_text
from tests.browser.chromium import Chromium
from tests.builders import op, training_step, write_log
from tests.conftest import REPOSITORY

DATA = REPOSITORY / "tests" / "data"

Page = Callable[..., Chromium]


@pytest.fixture
def screen(chromium: Chromium) -> Iterator[Chromium]:
    """The browser, which has its usual size and theme again afterwards."""
    yield chromium
    chromium.size(1400, 900)
    chromium.media()


@pytest.fixture(scope="module")
def optimized() -> Comparison:
    """A real pair with further outputs and parameters changed in place."""
    return compare(read_log(DATA / "order_f32_a.log.gz"), read_log(DATA / "order_f32_bug.log.gz"))


def bottom(browser: Chromium, selector: str) -> float:
    return float(browser.ask(f"document.querySelector({selector!r}).getBoundingClientRect().bottom"))


def words(pieces: list[tuple[str, str]]) -> list[list[object]]:
    """Pieces of the terminal as those of the page."""
    return [[piece, role == "drift"] for piece, role in pieces]


# First screen


@pytest.mark.parametrize("pair", ["planted", "lowered", "optimized"])
def test_the_first_screen_says_why_and_begins_the_table(
    pair: str, page: Page, screen: Chromium, request: pytest.FixtureRequest
) -> None:
    """Verdict, coverage, first difference and first causes with their source lines, without scrolling."""
    c: Comparison = request.getfixturevalue(pair)
    screen.size(1280, 800)
    browser = page(c)
    tops = [bottom(browser, s) for s in ("#result", "#overview > summary", "#overview > div", "#tools", "#heads")]
    assert tops == sorted(tops)
    assert tops[-1] < 600, "the table begins on the first screen"
    assert browser.ask("(({ scrollHeight: a, clientHeight: b }) => a <= b)(document.querySelector('#overview'))")
    shown = str(browser.ask("document.querySelector('#overview').innerText"))
    assert c.coverage.sentence in shown
    for row in [*np.flatnonzero(c.cause).tolist()[:1], *([c.first_difference.row] if c.first_difference else [])]:
        log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
        assert log.keys[record] in shown
        assert log.location_text(record) in shown


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_numbers_do_not_break_and_nothing_is_wider_than_the_window(
    width: int, page: Page, screen: Chromium, lowered: Comparison
) -> None:
    screen.size(width, 844)
    browser = page(lowered)
    for tab in ("summary", "groups", "inspector", "rules", "logs", "keys"):
        browser.ask(f"numtui.openTab({tab!r})")
        heights = browser.ask(
            "Array.from(document.querySelectorAll('aside .number'), (cell) => { const range = document.createRange();"
            " range.selectNodeContents(cell);"
            " return range.getBoundingClientRect().height; })"
        )
        assert max(heights, default=0) < 24, tab
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")


def test_the_words_are_those_of_the_screen(page: Page, lowered: Comparison) -> None:
    browser = page(lowered)
    browser.ask("numtui.openTab('summary')")
    shown = browser.ask("Array.from(document.querySelectorAll('.counts td:nth-child(3)'), (cell) => cell.textContent)")
    assert set(shown) == {WORDS[status] for status, n in lowered.counts.items() if n}
    totals = browser.ask("Array.from(document.querySelectorAll('.counts .number'), (cell) => cell.textContent)")
    assert sum(int(n.replace(",", "")) for n in totals) == len(lowered)
    row = int(np.flatnonzero(lowered.status == Status.SAME_PRINT)[0])
    assert browser.ask(f"numtui.c.headline({row})") == "equal: same printed values"


def test_the_colour_scale_is_behind_a_menu(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    assert browser.ask("document.querySelector('#low').checkVisibility()") is False
    browser.ask("document.querySelector('.menu > summary').click()")
    assert browser.ask("document.querySelector('#low').checkVisibility()") is True


# Names


@pytest.mark.parametrize("pair", ["planted", "lowered"])
def test_the_parts_that_differ_are_those_of_the_explorer(pair: str, page: Page, request: pytest.FixtureRequest) -> None:
    c: Comparison = request.getfixturevalue(pair)
    browser = page(c)
    told = browser.ask("Array.from({ length: numtui.c.length }, (_, row) => numtui.c.rowNames(row))")
    compared = 0
    for row, names in enumerate(told):
        i, j = int(c.row_a[row]), int(c.row_b[row])
        a, b = c.a.keys[i] if i >= 0 else "", c.b.keys[j] if j >= 0 else ""
        if c.pair[row] >= 0 and c.pairing.grouped[c.pair[row]]:
            assert names["a"][0][0] in a
        elif a and b and a != b:
            left, right = marked_keys(a, b)
            assert (names["a"], names["b"]) == (words(left), words(right))
            assert names["merged"] == [words(left), words(without(right, shared_module(left, right)))]
            compared += 1
        elif a and b:
            assert (names["a"], names["b"], names["merged"]) == ([[a, False]], [['"', False]], [[[a, False]], []])
        else:
            gap = "(recompute)" if c.status[row] == Status.RECOMPUTE else "—"
            assert names["a"] == [[a or gap, False]]
            assert names["b"] == [[b or gap, False]]
    assert compared > (100 if pair == "lowered" else -1)


def test_marks_stay_in_place_behind_characters_of_any_width(page: Page, tmp_path: Path) -> None:
    """Python counts characters, a browser their UTF-16 units."""
    keys = [f"宽🔥\u202e.layers.{k}.norm" for k in (1, 2)]
    a, b = (
        read_log(write_log(tmp_path / f"{side}.log", [op(f"{key}/op_0_mm", 3.0)]))
        for side, key in zip("ab", keys, strict=True)
    )
    browser = page(compare(a, b))
    names = browser.ask("numtui.c.rowNames(0)")
    assert [text for text, differs in names["a"] if differs] == ["1"]
    assert "".join(text for text, _ in names["b"]) == safe_text(f"{keys[1]}/op_0_mm")


def test_a_phone_merges_the_names(page: Page, screen: Chromium, lowered: Comparison) -> None:
    c = lowered
    paired = (c.row_a >= 0) & (c.row_b >= 0) & (c.pair >= 0)
    grouped_rows = np.append(c.pairing.grouped, False)[c.pair]
    row = next(r for r in np.flatnonzero(paired & ~grouped_rows) if c.a.keys[c.row_a[r]] != c.b.keys[c.row_b[r]])
    screen.size(390, 844)
    browser = page(c, View(cursor=int(row)))
    browser.wait_for(f"document.querySelector('#rows .chosen')?.dataset.row == {row}")
    left, right = marked_keys(c.a.keys[c.row_a[row]], c.b.keys[c.row_b[row]])
    merged = "".join(
        ["".join(t for t, _ in left), "⇄", "".join(t for t, _ in without(right, shared_module(left, right)))]
    )
    assert browser.ask("document.querySelector('#rows .chosen .names').textContent") == merged
    assert browser.ask("document.querySelector('#heads .merged').checkVisibility()")
    assert browser.ask("document.querySelector('#rows .chosen').offsetHeight") > 40
    assert browser.ask("scrollY") == 0


# Groups and results


@pytest.mark.parametrize(("field", "by"), [("module", By.MODULE), ("at", By.LINE), ("op", By.OP)])
@pytest.mark.parametrize("pair", ["planted", "lowered", "optimized"])
def test_groups_are_those_of_the_explorer(
    field: str, by: By, pair: str, page: Page, request: pytest.FixtureRequest
) -> None:
    c: Comparison = request.getfixturevalue(pair)
    browser = page(c)
    told = browser.ask(
        f"numtui.groups({field!r}).map(({{ name, rows, red, worst, query }}) => [name, rows, red, worst, query])"
    )
    assert told == [[g.name, g.rows, g.red, g.worst, g.query] for g in grouped(c, np.ones(len(c), bool), by)]


def test_a_group_is_kept_by_its_name(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("B")
    browser.ask("document.querySelectorAll('#groups table button')[1].click()")
    worst = next(iter(grouped(planted, np.ones(len(planted), bool), By.MODULE)))
    assert browser.ask("numtui.listing.lines.length") == worst.rows
    assert browser.ask("document.querySelector('#filter').value") == worst.query
    browser.ask("document.querySelectorAll('#groups table button')[0].click()")
    assert browser.ask("numtui.listing.cursor") == worst.worst


def test_every_output_is_among_the_details(page: Page, optimized: Comparison) -> None:
    c = optimized
    browser = page(c)
    rows = [r for r in range(len(c)) if c.row_a[r] >= 0 and c.row_b[r] >= 0 and c.a.outputs.count[c.row_a[r]] > 1]
    assert rows
    for row in rows:
        i, j = int(c.row_a[row]), int(c.row_b[row])
        told = browser.ask(f"numtui.c.results({row})")
        outputs = [result for result in told if result["name"].startswith("output ")]
        expected = [(f"{x:.6e}", f"{y:.6e}") for x, y in zip(c.a.outputs[i][1:], c.b.outputs[j][1:], strict=True)]
        assert [(result["a"], result["b"]) for result in outputs] == expected
        assert len(told) - len(outputs) == len({*written(c.a, i), *written(c.b, j)})
    browser.ask(f"numtui.choose({rows[0]})")
    assert "output 1" in browser.ask("document.querySelector('#inspector').innerText")


def test_results_of_one_side_and_too_many_of_them(page: Page, tmp_path: Path) -> None:
    ops = training_step()
    many = [*ops, op("m/op_0_unbind", 3.0, outputs=[float(k) for k in range(1, 101)])]
    a, b = write_log(tmp_path / "a.log", ops), write_log(tmp_path / "b.log", many)
    browser = page(compare(read_log(a), read_log(b)))
    row = len(ops)
    assert len(browser.ask(f"numtui.c.results({row})")) == 64
    assert browser.ask(f"numtui.c.results({row})[0]") == {
        "name": "output 1", "type": "", "a": "", "b": "2.000000e+00", "difference": "",
    }  # fmt: skip
    browser.ask(f"numtui.choose({row})")
    assert "… and 35 more" in browser.ask("document.querySelector('#inspector').innerText")


# Themes and paper


def test_the_theme_is_that_of_the_system(page: Page, screen: Chromium, planted: Comparison) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    screen.media("screen", "dark")
    browser = page(planted)
    assert browser.ask(ground) == "rgb(20, 23, 27)"
    browser.ask("document.querySelector('#theme').click()")
    assert browser.ask(ground) == "rgb(255, 255, 255)"
    screen.media("screen", "light")
    assert page(planted).ask(ground) == "rgb(255, 255, 255)"


def test_paper_has_everything_but_menus(page: Page, screen: Chromium, planted: Comparison) -> None:
    screen.media("screen", "dark")
    browser = page(planted)
    browser.press("3")
    browser.wait_for("!numtui.listing.shown.has(2)")
    browser.ask("document.querySelector('#overview').open = false")
    assert browser.printed().startswith(b"%PDF")
    screen.media("print", "dark")
    seen = "Array.from(document.querySelectorAll({}), (each) => each.checkVisibility())"
    assert not any(browser.ask(seen.format("'button:not(.go), input, select, nav, canvas, #list, #keys, #note'")))
    panels = "'#overview > div, [data-panel]:not(#keys), #paper table'"
    assert all(browser.ask(seen.format(panels)))
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.querySelector('#paper thead')).display") == "table-header-group"
    rows = browser.ask("Array.from(document.querySelectorAll('#paper tbody tr'), (row) => row.innerText)")
    assert len(rows) == np.count_nonzero(planted.status != Status.SAME_PRINT)
    assert rows[0].split("\t")[:3] == ["●", "48", "▶ only one side"]
    assert rows[0].endswith("scripts/bugs.py:28")
    assert browser.complaints == []


def test_paper_folds_equal_rows_and_has_an_end(page: Page, tmp_path: Path) -> None:
    ops = [op(f"m.{k}/op_0_mm", k + 1.0) for k in range(3000)]
    other = [op(o.key, (k + 1.0) * (1.37 if k >= 10 else 1)) for k, o in enumerate(ops)]
    a, b = (read_log(write_log(tmp_path / f"{side}.log", each)) for side, each in (("a", ops), ("b", other)))
    c = compare(a, b)
    browser = page(c)
    browser.ask("numtui.print()")
    lines = browser.ask("Array.from(document.querySelectorAll('#paper tbody tr'), (row) => row.textContent)")
    assert lines[0] == "1… 10 equal …"
    assert len(lines) == 1000
    told = browser.ask("document.querySelector('#paper p').textContent")
    folded = len(build_view(c, Filter(), folded=True))
    assert told == f"The first 1,000 of {folded:,} listed lines; a filter chooses others."
