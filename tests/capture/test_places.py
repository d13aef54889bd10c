"""Files of others in the way of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.capture.conftest import LOOP, Script


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_lies_at_the_path_of_a_log_is_replaced_and_not_written_to(
    script: Script, tmp_path: Path, kind: str
) -> None:
    victim, folder = tmp_path / "precious", tmp_path / "out" / "numerics"
    victim.write_text("precious")
    folder.mkdir(parents=True)
    for name in ("rank_0_activations.log", "rank_0_weights.log"):
        path = folder / name
        if kind == "link":
            path.symlink_to(victim)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.hardlink_to(victim)
    run = script(LOOP, "--weights every")
    assert victim.read_text() == "precious"
    assert not any(path.is_symlink() or not path.is_file() for path in folder.iterdir())
    assert "step 1" in run.said
    assert (kind == "link") == ("(replaces a link, which is not followed)" in run.said)
    assert "weights in" in run.said


def test_a_link_that_appears_during_the_training_is_not_followed(script: Script, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    change = f"""    import os
    path = {str(tmp_path / "out" / "numerics" / "rank_0_weights.log")!r}
    os.path.lexists(path) and (os.unlink(path), os.symlink({str(tmp_path / "precious")!r}, path))
"""
    run = script(LOOP + change, "--weights every")
    assert (tmp_path / "precious").read_text() == "precious"
    assert "weights are no longer recorded" in run.said


def test_a_link_to_the_folder_is_followed(script: Script, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "scratch")
    assert script(LOOP).log.complete
    assert (tmp_path / "scratch" / "numerics" / "rank_0_activations.log").is_file()


@pytest.mark.parametrize(("mode", "said"), [(0o777, True), (0o1777, False), (0o775, False)])
def test_a_folder_that_everybody_may_write_to_is_said(script: Script, tmp_path: Path, mode: int, said: bool) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(mode)
    assert script(LOOP, "--weights every").said.count(f"everybody may write to {folder}, and so") == said
