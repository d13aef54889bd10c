"""The screen of a checked run: the list, the details, and the way to the explorer and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from matchers.errors import InputError
from matchers.runs.finding import CheckedRun
from numtui.cli.main import main
from numtui.inputs import OpenRequest
from numtui.report.check.words import summaries
from numtui.session.findings import FindingsCursor
from numtui.text.lines import line_width
from numtui.tui.overview_app import OverviewApp
from numtui.tui.screens.check import CheckScreen
from numtui.tui.screens.overview import OverviewScreen
from numtui.views.check import findings_lines, last_top
from tests.checked import OPS, checked_run, odd_run, place, run_of
from tests.numtui.tui.test_app import press, screen, settled
from tests.numtui.tui.test_weights import REQUEST, overview


def opened(cursor: FindingsCursor) -> AbstractAsyncContextManager[tuple[Pilot[None], OverviewApp]]:
    return overview(lambda: CheckScreen(cursor))


async def test_a_finding_opens_the_logs_of_its_two_ranks_at_its_record() -> None:
    async with opened(FindingsCursor(checked_run())) as (pilot, app):
        shown = screen(pilot)
        assert "run_x: 4 ranks, step 2, mesh dp 2 × tp 2: 2 findings" in shown
        assert "rank 2 of ranks 0, 2 · dp, relative error 0.0012" in shown
        assert f"rank 2  {OPS[5].key}  model.py:45" in shown
        assert "layers.0.attention.wk.weight" in shown
        await press(pilot, "enter")
    paths = checked_run().run.paths
    assert app.chosen == replace(REQUEST, path_a=paths[2], path_b=paths[0], name_a="rank 2", name_b="rank 0", row=5)
    assert app.return_code == 0


async def test_the_counts_of_checks_add_up_and_what_was_not_made_says_why() -> None:
    cursor = FindingsCursor(checked_run())
    told = summaries(cursor.checked)
    async with opened(cursor) as (pilot, _):
        counted = re.search(r"(\d+) checks: (\d+) held · (\d+) with findings · (\d+) not made", screen(pilot))
        assert counted is not None
        number, *parts = map(int, counted.groups())
        assert number == len(told) == sum(parts)
        await press(pilot, "c")
        idle = [each for each in told if each.verdict == "not made"]
        assert idle
        for each in idle:
            assert f"not made     {each.check.label}: {'; '.join(each.reasons) or 'nothing to check'}" in screen(pilot)


async def test_keys_move_among_the_findings_and_list_the_checks() -> None:
    cursor = FindingsCursor(checked_run())
    async with opened(cursor) as (pilot, app):
        await press(pilot, "c")
        shown = screen(pilot)
        assert "held         same-collectives: members of a group call the same collectives" in shown
        assert "1 finding    finite: " in shown
        await press(pilot, "G")
        assert "head.weight gets no gradient" in screen(pilot)
        await press(pilot, "q", "?")
        assert "open the explorer on the logs of this finding" in screen(pilot)
        await press(pilot, "q", "j")
        assert "rank_1_activations.log:128" in screen(pilot)
        await press(pilot, "j", "down")
        assert cursor.at == 1
        await press(pilot, "g")
        assert cursor.at == 0
        await press(pilot, "G", "k", "k", "end", "enter")
    assert app.chosen is not None
    assert (app.chosen.path_b, app.chosen.name_b, app.chosen.row) == ("", "", 9)


@pytest.mark.parametrize(
    ("checked", "told"),
    [
        (checked_run(findings=()), "there is no finding to open"),
        (checked_run(run_of(ranks=1)), "no log has a place of this finding"),
    ],
)
async def test_enter_without_a_log_says_so(checked: CheckedRun, told: str) -> None:
    async with opened(FindingsCursor(checked)) as (pilot, app):
        await press(pilot, "end", "enter")
        assert told in screen(pilot)
        await press(pilot, "q")
    assert app.chosen is None
    assert app.return_code == 0


async def test_a_click_chooses_a_finding_and_presses_the_keys_at_the_bottom() -> None:
    cursor = FindingsCursor(checked_run())
    app = OverviewApp(lambda: CheckScreen(cursor), replace(REQUEST, mouse=True))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert await pilot.click(offset=(10, 3))
        await settled(pilot)
        assert cursor.at == 1
        assert await pilot.click(offset=(screen(pilot).splitlines()[-1].index("enter"), 23))
        await settled(pilot)
    assert app.chosen is not None


def text(cursor: FindingsCursor, width: int = 80, height: int = 24) -> list[str]:
    lines, items = findings_lines(cursor, width, height)
    assert len(lines) == len(items) == height
    return ["".join(piece for piece, _ in line) for line in lines]


def test_a_run_without_findings_shows_what_held() -> None:
    shown = text(FindingsCursor(checked_run(findings=())), height=40)
    assert shown[0].endswith(": no finding")
    assert any("held         finite: no operation makes NaN" in line for line in shown)
    assert any("recompute: no operation is recomputed" in line for line in shown)


def test_details_scroll_to_their_end_and_no_further() -> None:
    (finding, _) = checked_run().findings
    cursor = FindingsCursor(checked_run(findings=(replace(finding, notes=tuple(f"note {n}" for n in range(50))),)))
    assert any(line == "  more: space" for line in text(cursor))
    cursor.top = last_top(cursor, 80, 24)
    shown = text(cursor)
    assert not any("more: space" in line for line in shown)
    assert any("layers.0.attention.wk.weight" in line for line in shown), "the last line"
    cursor.top -= 1
    assert any("more: space" in line for line in text(cursor))


def test_many_findings_scroll_with_the_cursor_at_any_size() -> None:
    (finding, _) = checked_run().findings
    cursor = FindingsCursor(checked_run(findings=tuple(replace(finding, text=f"the {n}th") for n in range(100))))
    for at in (0, 57, 99, 1000, -1):
        cursor.go_to(at)
        for width, height in ((80, 24), (48, 12), (20, 6), (200, 60)):
            lines, items = findings_lines(cursor, width, height)
            assert len(lines) == len(items) == height
            assert cursor.at in items
            assert all(line_width(line) <= width for line in lines[2 : 2 + sum(item >= 0 for item in items)])


def test_hostile_texts_are_made_safe() -> None:
    nasty = "a\x1b[31m\nb\u202e"
    (finding, _) = checked_run().findings
    hostile = replace(
        finding, text=nasty, subject=nasty, dimension=nasty, notes=(nasty,), places=(replace(place(2), key=nasty),)
    )
    cursor = FindingsCursor(checked_run(run_of(name=nasty), findings=(hostile,), notes=(nasty,)))
    cursor.message = nasty
    shown = "".join(text(cursor))
    assert not {"\x1b", "\n", "\u202e"} & set(shown)


def test_the_command_goes_to_the_explorer_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; the cursor is kept, and a log that the explorer refuses is said. A form is no screen."""
    run = odd_run(tmp_path / "run_x")
    seen: list[object] = []

    def shown(screen: Callable[[], OverviewScreen], asked: OpenRequest) -> tuple[int, OpenRequest | None]:
        overview = screen().overview
        assert isinstance(overview, FindingsCursor)
        seen.append((overview.message, overview.top))
        overview.top = 7
        return 0, overview.opening(asked) if len(seen) == 1 else None

    def explored(asked: OpenRequest) -> int:
        seen.append((Path(asked.path_a).name, Path(asked.path_b).name, asked.row))
        raise InputError("cannot be read")

    monkeypatch.setenv("TERM", "xterm")
    for name in ("is_terminal", "reopen_keyboard"):
        monkeypatch.setattr(f"numtui.cli.overview.{name}", lambda *_: True)
    monkeypatch.setattr("numtui.cli.overview.explore", explored)
    monkeypatch.setattr("numtui.tui.overview_app.run_overview", shown)
    assert main(["check", run]) == 1
    assert seen == [("", 0), ("rank_2_activations.log", "rank_0_activations.log", 5), ("cannot be read", 7)]
    for arguments in (["--format", "text"], ["-o", str(tmp_path / "r.txt")], ["--also", str(tmp_path / "r.md")]):
        assert main(["check", run, *arguments]) == 1
    assert len(seen) == 3
