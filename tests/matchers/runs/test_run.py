"""Logs of a run as they lie on disk: steps, ranks that are missing, logs that are cut off, empty or no logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matchers.errors import InputError
from matchers.runs.check import check_run
from matchers.runs.finding import Check
from matchers.runs.run import find_run
from tests.matchers.runs.simulated import Layout, Plan, simulate, write_run

THREE = Plan(layout=Layout(dp=3), layers=1)
NAME = "rank_{}_activations.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A healthy run of three ranks."""
    return write_run(simulate(THREE), tmp_path / "run")


def test_the_logs_say_what_the_run_is(folder: Path) -> None:
    run = check_run(find_run(str(folder))).run
    assert (run.name, list(run.paths), run.world_size, run.step) == ("run", [0, 1, 2], 3, 1)
    assert run.mesh == {"pp": 1, "dp": 3, "tp": 1}
    assert run.coordinates == {rank: {"pp": 0, "dp": rank, "tp": 0} for rank in range(3)}
    assert (run.missing, run.cut) == ((), {})


@pytest.mark.parametrize("inside", ["numerics", "step_7", "numerics/step_7"])
def test_logs_are_found_below_the_folder(tmp_path: Path, inside: str) -> None:
    write_run(simulate(THREE), tmp_path / inside)
    assert list(find_run(str(tmp_path)).paths) == [0, 1, 2]
    assert check_run(find_run(str(tmp_path))).findings == ()


def test_of_several_steps_one_is_chosen(tmp_path: Path) -> None:
    for step in (3, 20):
        write_run(simulate(THREE), tmp_path / f"step_{step}")
    with pytest.raises(InputError, match=r"\(3, 20\); choose one with --step"):
        find_run(str(tmp_path))
    assert all("step_20" in path for path in find_run(str(tmp_path), step=20).paths.values())
    with pytest.raises(InputError, match="of step 4; there are steps 3, 20"):
        find_run(str(tmp_path), step=4)


def test_one_log_is_a_run(folder: Path) -> None:
    """It misses no ranks: nobody asked for them."""
    run = check_run(find_run(str(folder / NAME.format(1)))).run
    assert (list(run.paths), run.missing) == ([1], ())


def test_ranks_without_a_log_are_named(folder: Path) -> None:
    os.unlink(folder / NAME.format(1))
    found = check_run(find_run(str(folder)))
    assert found.run.missing == (1,)
    assert found.findings == ()
    assert "groups with rank 1, whose log is missing" in [unmade.reason for unmade in found.unmade]
    assert Check.REPLICAS in [made.check for made in found.made], "of the others"


@pytest.mark.parametrize("content", [b"", b"\n", b"no log", bytes(64), b"\x1f\x8b broken"])
def test_a_log_that_cannot_be_read_is_named_with_its_reason(folder: Path, content: bytes) -> None:
    (folder / NAME.format(2)).write_bytes(content)
    found = check_run(find_run(str(folder)))
    assert list(found.run.cut or {}) == [2]
    assert NAME.format(2) in (found.run.cut or {})[2]
    assert found.findings == ()


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("part", [0.03, 0.2, 0.5, 0.9, 0.999])
def test_a_log_that_ends_anywhere_leaves_nothing_out(folder: Path, rank: int, part: float) -> None:
    path = folder / NAME.format(rank)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    found = check_run(find_run(str(folder)))
    assert list(found.run.cut or {}) == [rank]
    assert found.findings == ()


def test_logs_of_several_steps_do_not_say_one(folder: Path) -> None:
    path = folder / NAME.format(2)
    path.write_bytes(path.read_bytes().replace(b'"step": 1,', b'"step": 2,'))
    assert check_run(find_run(str(folder))).run.step is None


@pytest.mark.parametrize("name", ["none", "file.txt", "a\0b"])
def test_what_is_no_run_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        find_run(str(tmp_path / name))


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no rank_N_activations\.log here"):
        find_run(str(tmp_path))
