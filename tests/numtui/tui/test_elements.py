"""Kept operations in the explorer: their elements on a screen, and replays in the background."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual import events

from capture.keeping.form import RESULT
from numtui.inputs import OpenRequest
from tests.captured import Step
from tests.kept import replaying_python, write_kept
from tests.numtui.tui.test_app import opened, press, screen, settled

KEY = "m/op_1_mul"
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6) + np.float32(3)
RUN: dict[str, Any] = {"rank": 0, "step": 1}


def steps(scaled: Any) -> list[Step]:
    return [
        Step(key="m/op_0_add", reads=[X], gives=[X + 1]),
        Step(key=KEY, reads=[X + 1], gives=[scaled], made=["m/op_0_add"]),
        Step(key="m/op_2_exp", reads=[scaled], gives=[np.exp(scaled / 99)], made=[KEY]),
    ]


def asked(
    folder: Path, changed: Any = None, python: str | None = None, *, kept: tuple[str, ...] = (KEY,)
) -> OpenRequest:
    scaled = (X + 1) * np.float32(2)
    logs = []
    for name, values in (("a", scaled), ("b", scaled * np.float32(1.5) if changed is None else changed)):
        logs.append(folder / name / "rank_0_activations.log")
        write_kept(logs[-1], steps(values), kept, **RUN)
    a, b = map(str, logs)
    rules = folder / "rules.yaml"
    return OpenRequest(path_a=a, path_b=b, name_a="a", name_b="b", rules_path=rules, replay_python=python)


def with_one_element() -> Any:
    changed = (X + 1) * np.float32(2)
    changed[2, 3] = 9
    return changed


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_elements_with_histogram_map_and_values_under_the_cursor(tmp_path: Path, size: tuple[int, int]) -> None:
    async with opened(asked(tmp_path, with_one_element()), size) as (pilot, _):
        await press(pilot, "o")
        assert "2◇✗ m/op_1_mul" in screen(pilot)
        await press(pilot, "#")
        shown = screen(pilot)
        assert "m/op_1_mul  result 0  [4, 6] float32" in shown
        assert "1 of 24 elements differ, only in element [2, 3]" in shown
        assert "down: dimension 0 (4) · across: dimension 1 (6) · digits of ulp" in shown
        assert "equal              23" in shown
        assert "a 8.608696 = 4109bd38   b 9.0 = 41100000" in shown, "the cursor is on the largest difference"
        await press(pilot, "h")
        assert "[2, 2]  equal" in screen(pilot)
        await press(pilot, "g")
        assert "[2, 3]  410,312 ulp apart" in screen(pilot)
        await press(pilot, "tab")
        assert "input 0" in screen(pilot)
        assert "equal in every bit" in screen(pilot)
        await press(pilot, "#")
        assert "FIRST CAUSE" in screen(pilot)


async def test_without_colours_the_map_has_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(asked(tmp_path, with_one_element()), (80, 24)) as (pilot, _):
        await press(pilot, "o", "#")
        rows = [line[1:7] for line in screen(pilot).splitlines()]
        assert rows[4:8] == ["······", "······", "···6··", "······"]
        assert "▀" not in screen(pilot)


async def test_a_pattern_is_named_and_colours_are_those_of_the_terminal(tmp_path: Path) -> None:
    async with opened(asked(tmp_path), (80, 24)) as (pilot, _):
        await press(pilot, "o", "#")
        assert "24 of 24 elements differ: a times 1.5" in screen(pilot)
        strips = pilot.app.screen._compositor.render_strips()
        styles = {str(segment.style.color.name) for strip in strips for segment in strip if "▀" in segment.text
            and segment.style is not None and segment.style.color is not None}  # fmt: skip
        assert styles == {"color(1)"}, "red of the sixteen"


async def test_one_key_replays_and_the_result_stands_on_the_row(tmp_path: Path) -> None:
    request = asked(tmp_path, python=replaying_python(tmp_path / "python"))
    async with opened(request) as (pilot, explorer):
        await press(pilot, "o", ".")
        told = "asked the same, other bits: float64 sides with neither"
        assert told in screen(pilot)
        assert "2◆✗" in screen(pilot)
        await press(pilot, "j", "k")
        assert f"replayed: {told}" in screen(pilot), "in the inspector"
        await press(pilot, "#")
        assert f"→ {told}" in screen(pilot)
        assert explorer.background.working == ""
    beside = json.loads((tmp_path / "a" / "rank_0_kept" / RESULT).read_text())
    assert [case["sides"]["a"]["key"] for case in beside["cases"]] == [KEY]
    async with opened(replace(request, replay_python=None)) as (pilot, _):
        await press(pilot, "o")
        assert "2◆✗" in screen(pilot), "the next session reads it"


async def test_what_one_run_alone_has_kept_is_replayed_and_stored_there(tmp_path: Path) -> None:
    request = asked(tmp_path, python=replaying_python(tmp_path / "python"))
    shutil.rmtree(tmp_path / "a" / "rank_0_kept")
    async with opened(request) as (pilot, _):
        await press(pilot, "o", ".")
        assert "b is 1 ε from float64" in screen(pilot)
        assert "2◆✗" in screen(pilot)
    assert (tmp_path / "b" / "rank_0_kept" / RESULT).exists()


async def test_a_replay_is_cancelled_with_esc(tmp_path: Path) -> None:
    request = asked(tmp_path, python=replaying_python(tmp_path / "python", waits=True))
    async with opened(request) as (pilot, _):
        await press(pilot, "o")
        for key in ("full_stop", "full_stop", "escape"):
            pilot.app.post_message(events.Key(key, None))
        await settled(pilot)
        assert "replay cancelled" in screen(pilot)
        assert "2◇✗" in screen(pilot)


async def test_the_command_that_replays_elsewhere_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numtui.tui.screens.replays.find_spec", lambda _: None)
    monkeypatch.delenv("TMUX", raising=False)
    async with opened(asked(tmp_path)) as (pilot, _):
        await press(pilot, "o", ".")
        assert "no torch here: name a Python that has it as `replay_python` in the settings" in screen(pilot)
        await press(pilot, "#", "y")
        folders = [str(tmp_path / side / "rank_0_kept") for side in "ab"]
        assert pilot.app.clipboard == f"numtui replay {' '.join(folders)} --op {KEY}"


async def test_of_one_log_it_shows_where_nan_and_inf_are(tmp_path: Path) -> None:
    changed = with_one_element()
    changed[1, 4] = np.nan
    request = asked(tmp_path, changed)
    async with opened(replace(request, path_a=request.path_b, path_b="", name_b="")) as (pilot, _):
        await press(pilot, "g", "j", "#")
        assert "in a alone: 1 of 24 elements NaN or infinite" in screen(pilot)
        assert "[1, 4]  not finite" in screen(pilot)


async def test_a_row_that_was_not_kept_says_what_keeps_it(tmp_path: Path) -> None:
    async with opened(asked(tmp_path, kept=())) as (pilot, _):
        await press(pilot, "o", "#")
        assert "this operation was not kept: numtui plan A B writes" in screen(pilot)


async def test_a_bundle_that_no_capture_wrote_is_refused(tmp_path: Path) -> None:
    request = asked(tmp_path)
    (tmp_path / "b" / "rank_0_kept" / "manifest.json").write_text('{"version": 1, "calls": [1]}')
    async with opened(request) as (pilot, _):
        await press(pilot, "o", "j", "#")
        assert "call 0 is refused, and nothing was run" in screen(pilot)
