"""The whole screen in its main situations. `--update-snapshots` writes them anew: look at the difference they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.numtui.scenes import PICTURES, SCENES, picture, played, snapshot, words_of

SNAPSHOTS = Path(__file__).with_name("snapshots")
LARGEST = 60_000
"""Bytes of a picture: the README is read over slow lines too."""


@pytest.mark.parametrize("name", SCENES)
async def test_the_screen_is_as_it_was(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    scene = SCENES[name]
    path = SNAPSHOTS / f"{name}.txt"
    async with played(scene, tmp_path) as pilot:
        shown, drawn = snapshot(pilot), picture(pilot, scene.title) if scene.picture else ""
    if pytestconfig.getoption("--update-snapshots"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8"), scene.proves
    if drawn:
        kept = (PICTURES / f"{scene.picture}.svg").read_text(encoding="utf-8")
        assert [*words_of(kept)] == [*words_of(drawn)], "`make screenshots` brings the pictures up to date"


def test_there_are_few_snapshots_and_no_more_than_scenes() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(SCENES)
    assert len(SCENES) <= 15


def test_the_pictures_are_small_and_say_nothing_of_this_machine() -> None:
    pictures = sorted(PICTURES.glob("*.svg"))
    assert [path.stem for path in pictures] == sorted(scene.picture for scene in SCENES.values() if scene.picture)
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for path in pictures:
        drawn = path.read_text(encoding="utf-8")
        assert len(drawn.encode()) < LARGEST
        assert not any(word.startswith("/") for word in words_of(drawn))
        assert f"docs/screenshots/{path.name}" in readme
