"""The noise floor kept beside a log: what it says again, and whose it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare, noise_floor
from matchers.errors import InputError
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.status import Status
from matchers.verdict.expectation import Expectation
from matchers.verdict.floor_file import floor_beside, read_floor, write_floor
from tests.captured import Step, write_captured

X = np.linspace(1, 2, 4096).astype(np.float32)


def log_at(folder: Path, *moved: float, names: str = "layers") -> OpLog:
    """Three operations behind each other, whose results are moved by these errors in all directions."""
    folder.mkdir(parents=True, exist_ok=True)
    steps: list[Step] = []
    reads = X
    for number, by in enumerate(moved):
        rng = np.random.default_rng(number)
        gives = (X * (number + 2) * (1 + by * rng.standard_normal(len(X)))).astype(np.float32)
        made = [steps[-1].key] if steps else []
        steps.append(Step(key=f"{names}.{number}/op_0_mm", reads=[reads], gives=[gives], made=made))
        reads = gives
    path = folder / "rank_0_activations.log"
    write_captured(path, steps)
    return read_log(path)


def test_the_largest_noise_of_each_operation_is_kept_and_applied(tmp_path: Path) -> None:
    log = log_at(tmp_path / "a", 0, 0, 0)
    floors = [noise_floor(log, log, log_at(tmp_path / str(n), 0, by, 1e-6)) for n, by in enumerate((2e-4, 1e-4))]
    path = write_floor(log, floors)
    assert floor_beside(log.path) == path == tmp_path / "a" / "rank_0_floor.jsonl"
    floor = read_floor(log, "a", {log.path: path})
    assert (floor.runs, floor.source, floor.option) == (2, "2 perturbed runs", ("--floor",))
    assert floor.error.tolist() == pytest.approx(floors[0].error.tolist(), rel=1e-2)

    other = log_at(tmp_path / "b", 0, 5e-4, 0, names="blocks")  # its names are found by the pairing
    plain = compare(log, other)
    assert plain.status[1] == Status.DIVERGED
    limited = compare(log, other, expectation=Expectation(noise=floor))
    assert limited.status[1] == Status.CLOSE
    assert any("limits from 2 perturbed runs of a" in note.text for note in limited.comparability.notes)
    assert "--floor" in limited.expectation.options
    beyond = compare(log, log_at(tmp_path / "c", 0, 5e-2, 0), expectation=Expectation(noise=floor))
    assert beyond.status[1] == Status.DIVERGED


def test_it_is_found_by_key_where_a_comparison_has_other_records(tmp_path: Path) -> None:
    log, more = log_at(tmp_path / "a", 0, 0, 0), log_at(tmp_path / "b", 0, 1e-4, 1e-3)
    floor = noise_floor(log, log, more)
    c = compare(log_at(tmp_path / "c", 0, 0, 0), log)  # the same keys in another object
    assert np.array_equal(floor.of(c.pairing, c.a)[0], floor.error)


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (1, "{}", ":1: is no floor"),
        (1, "[" * 100_000, ":1: is no floor"),
        (2, "not json", ":2: not an operation"),
        (3, '{"key": "a/op_0_mm", "error": -1, "of_norm": 0}', ":3: not an operation"),
        (3, '{"key": "a/op_0_mm", "error": NaN, "of_norm": 0}', ":3: not an operation"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(line: int, text: str, said: str, tmp_path: Path) -> None:
    log = log_at(tmp_path, 0, 0, 0)
    path = write_floor(log, [noise_floor(log, log, log)])
    lines = path.read_text().split("\n")
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=said):
        read_floor(log, "a", {log.path: path})


def test_a_floor_of_another_log_is_refused(tmp_path: Path) -> None:
    log = log_at(tmp_path / "a", 0, 0, 0)
    path = write_floor(log, [noise_floor(log, log, log)])
    other = log_at(tmp_path / "a", 0, 1e-3, 0)
    with pytest.raises(InputError, match="measured against another log"):
        read_floor(other, "a", {other.path: path})
