"""The callback in Hugging Face's `Trainer`: the log of `numtui capture`, under the trainer's step numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from numtui.integrations.transformers import CaptureCallback
from tests.integrations.conftest import Runs, agree, check_calls_alone


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs of the training."""
    return Runs(Path(__file__).with_name("train_transformers.py"), tmp_path)


def test_the_log_is_that_of_numtui_capture(runs: Runs) -> None:
    """With accumulation, and evaluation before the first and after every step; no bit of the training changes."""
    arguments = "--accumulate 3 --evaluate"
    state = runs.plain(arguments)
    assert runs.called_back("a", "1 3", arguments) == state
    assert runs.captured("b", "1 3", arguments) == state
    logs = runs.logs("a")
    assert [(log.run["step"], log.complete) for log in logs.values()] == [(1, True), (3, True)]
    for name, log in logs.items():
        assert agree(runs.path("a") / "numerics" / name, runs.path("b") / "numerics" / name)
        assert [row.fields["Micro-batch"] for row in log.of("mm", "lm_head") if row.phase == "forward"] == [
            "0",
            "1",
            "2",
        ]
        assert log.run["coverage"]["optimizers"] == [1, 1]


def test_evaluation_is_in_no_log(runs: Runs) -> None:
    runs.called_back("a", "2")
    runs.called_back("b", "2", "--evaluate")
    a, b = (next(iter(runs.logs(name).values())) for name in "ab")
    assert a.keys == b.keys


def test_a_resumed_run_goes_on_counting(runs: Runs) -> None:
    saved = runs.path("checkpoints")
    state = runs.called_back("whole", "3 4", f"--accumulate 2 --save {saved}")
    resumed = f"--accumulate 2 --resume {saved / 'checkpoint-2'}"
    assert runs.called_back("a", "1 3 4", resumed) == state
    assert runs.captured("b", "1 2", resumed) == state
    assert list(runs.logs("a")) == ["step_3/rank_0_activations.log", "step_4/rank_0_activations.log"]
    for ours, theirs in ((3, 1), (4, 2)):
        log = runs.path("a") / "numerics" / f"step_{ours}"
        assert agree(log, runs.path("b") / "numerics" / f"step_{theirs}")
        assert agree(log, runs.path("whole") / "numerics" / f"step_{ours}")


def test_calls_of_an_evaluation_alone_are_recorded(runs: Runs) -> None:
    check_calls_alone(runs, "--calls")


def test_an_exception_leaves_an_incomplete_log(runs: Runs) -> None:
    """And nothing that goes on recording (see `nothing_stays`), though the library has no event for it."""
    with pytest.raises(ZeroDivisionError):
        runs.called_back("a", "2", "--fail-after 1")
    (log,) = runs.logs("a").values()
    assert log.run["step"] == 2
    assert log.run["incomplete"] == "ZeroDivisionError: as asked for"
    assert log.of("mm", "lm_head")


def test_the_arguments_are_those_of_a_capture() -> None:
    CaptureCallback("runs/a", steps=[1, 2], modules=["model.layers.0"], sketch=False, weights="every")
    with pytest.raises(TypeError, match="module_names"):
        CaptureCallback("runs/a", module_names=["model.layers.0"])
