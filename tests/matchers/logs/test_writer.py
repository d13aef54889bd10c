"""A log that was converted tells what it told before, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.logs.writer import written
from numtui.cli.main import main
from tests.builders import training_step, write_log
from tests.conftest import DATA
from tests.matchers.logs.imported.dumps import ACTIVATIONS, debug_tree, determinism, msprobe, routing, safetensors
from tests.matchers.logs.imported.samples import hashes, saved, text

LOGS = {
    **{form.__name__: form().encode() for form in (text, saved, hashes)},
    "determinism": determinism("full").encode(),
    "routing": routing().encode(),
    "safetensors": safetensors(ACTIVATIONS),
    "torch": (DATA / "torch_save.pt").read_bytes(),
    "transformers": debug_tree(),
}


def again(log: OpLog, folder: Path) -> OpLog:
    (folder / "again.log").write_text("".join(written(log)))
    return read_log(folder / "again.log")


def check(log: OpLog, other: OpLog) -> None:
    assert (other.problems, other.tells, list(other.keys)) == ((), log.tells, list(log.keys))
    for name in ("outputs", "inputs", "digests", "input_digests"):
        one, two = getattr(log, name), getattr(other, name)
        assert isinstance(one, Ragged)
        np.testing.assert_array_equal(one.count, two.count)
        np.testing.assert_array_equal(one.value, two.value)
    for name in ("stats", "counts", "present", "phase", "recompute", "micro_batch"):
        np.testing.assert_array_equal(getattr(log, name), getattr(other, name))
    known = [row for row in range(len(log)) if log.shape[row] >= 0 and log.dtype[row] >= 0]
    assert [log.shape_text(row) for row in known] == [other.shape_text(row) for row in known]
    assert [log.dtype_text(row) for row in known] == [other.dtype_text(row) for row in known]
    for row in range(len(log)):
        assert [max(maker, -1) for maker in log.producers[row]] == [*other.producers[row]] or (
            log.producers[row] < 0
        ).all()
    for name in ("Sketch", "User hash", "Parameter", "Output 1", "Mutated"):
        assert dict(log.texts(name).items()) == dict(other.texts(name).items())


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_another_tool_is_read_again_as_it_was(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LOGS[name])
    log = read_log(tmp_path / "a")
    check(log, again(log, tmp_path))


def test_statistics_and_batches_are_kept(tmp_path: Path) -> None:
    log = read_log(msprobe(tmp_path, summary="md5", batch=1))
    other = again(log, tmp_path)
    check(log, other)
    assert not compare(log, other).red.any()


def test_a_log_of_ours_keeps_all_fields(tmp_path: Path) -> None:
    log = read_log(DATA / "order_bf16_a.log.gz")
    other = again(log, tmp_path)
    check(log, other)
    assert (other.complete, other.header.run) == (log.complete, log.header.run)
    assert other.stated_digest == log.stated_digest


def test_a_log_that_is_cut_off_stays_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LOGS["safetensors"][:-8])
    log = read_log(tmp_path / "a")
    assert (log.complete, again(log, tmp_path).complete) == (False, False)


def test_an_unknown_phase_has_a_word(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.log", training_step(1))
    path.write_text(path.read_text().replace("Phase: backward", "Phase: other", 1))
    log = read_log(path)
    assert (log.problems, Phase.OTHER in log.phase) == ((), True)


def test_a_run_is_converted_rank_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        msprobe(tmp_path / "step3" / f"rank{rank}")
    assert main(["convert", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "rank_0_activations.log",
        "rank_1_activations.log",
    ]
    assert read_log(tmp_path / "out" / "rank_1_activations.log").header.tool == "msprobe (statistics)"
    assert "9 operations in" in capsys.readouterr().err
    assert main(["convert", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "exists" in capsys.readouterr().err
