"""The callback in Lightning's `Trainer`: the log of `numtui capture`, under the trainer's step numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.runs import run_python
from tests.integrations.conftest import Runs, agree, check_calls_alone
from tests.two_ranks import free_port

SCRIPT = Path(__file__).with_name("train_lightning.py")
PACKAGES = ["lightning.pytorch", "pytorch_lightning"]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs of the training."""
    return Runs(SCRIPT, tmp_path)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_log_is_that_of_numtui_capture(runs: Runs, package: str) -> None:
    """With accumulation, and validation between steps; no bit of the training changes."""
    arguments = f"--package {package} --accumulate 3 --evaluate 3"
    state = runs.plain(arguments)
    assert runs.called_back("a", "1 3", arguments) == state
    assert runs.captured("b", "1 3", arguments) == state
    logs = runs.logs("a")
    assert [(log.run["step"], log.complete) for log in logs.values()] == [(1, True), (3, True)]
    for name, log in logs.items():
        assert agree(runs.path("a") / "numerics" / name, runs.path("b") / "numerics" / name)
        assert [(row.phase, row.fields["Micro-batch"]) for row in log.of("addmm", "net.0")] == [
            ("forward", "0"),
            ("forward", "1"),
            ("forward", "2"),
        ]


@pytest.mark.parametrize("arguments", ["--evaluate 1", "--evaluate 1 --forces", "--evaluate 1 --accumulate 2"])
def test_validation_is_in_no_log(runs: Runs, arguments: str) -> None:
    """Also one with gradients, and one between two micro-batches."""
    runs.called_back("a", "1 2", arguments.replace("--evaluate 1", "").replace("--forces", ""))
    runs.called_back("b", "1 2", arguments)
    for plain, evaluated in zip(runs.logs("a").values(), runs.logs("b").values(), strict=True):
        assert [key for key in plain.keys if "net" in key] == [key for key in evaluated.keys if "net" in key]
        assert len(plain.rows) - 1 <= len(evaluated.rows) <= len(plain.rows)  # perhaps without the next batch


def test_a_resumed_run_goes_on_counting(runs: Runs) -> None:
    saved = runs.path("checkpoint")
    runs.plain(f"--accumulate 2 --max-steps 2 --save {saved}")
    resumed = f"--accumulate 2 --resume {saved}"
    assert runs.called_back("a", "1 3 4", resumed) == runs.captured("b", "1 2", resumed)
    assert list(runs.logs("a")) == ["step_3/rank_0_activations.log", "step_4/rank_0_activations.log"]
    for ours, theirs in ((3, 1), (4, 2)):
        assert agree(runs.path("a") / "numerics" / f"step_{ours}", runs.path("b") / "numerics" / f"step_{theirs}")


def test_optimizers_that_take_turns_are_one_step(runs: Runs) -> None:
    saved = runs.path("checkpoint")
    arguments = f"--gan --max-steps 4 --save {saved}"
    assert runs.called_back("a", "1 2", arguments) == runs.captured("b", "1 2", arguments)
    for step, log in zip((1, 2), runs.logs("a").values(), strict=True):
        assert log.run["coverage"]["optimizers"] == [2, 2]
        assert agree(runs.path("a") / "numerics" / f"step_{step}", runs.path("b") / "numerics" / f"step_{step}")
    runs.called_back("c", "3", f"--gan --max-steps 8 --resume {saved}")
    assert [log.run["step"] for log in runs.logs("c").values()] == [3]


def test_calls_of_an_evaluation_alone_are_recorded(runs: Runs) -> None:
    check_calls_alone(runs, "--calls --evaluate 1")


def test_an_exception_leaves_an_incomplete_log(runs: Runs) -> None:
    with pytest.raises(ZeroDivisionError):
        runs.called_back("a", "2", "--fail-after 1")
    (log,) = runs.logs("a").values()
    assert log.run["step"] == 2
    assert log.run["incomplete"] == "ZeroDivisionError: as asked for"
    assert log.of("addmm", "net.0")


def test_every_rank_writes_its_log(tmp_path: Path) -> None:
    """Two ranks that Lightning starts, and the same under a launcher that starts `numtui capture`."""
    arguments = [str(SCRIPT), "--ranks", "2", "--accumulate", "2"]
    ours = run_python([*arguments, "--callback", "a", "--steps", "1", "2"], tmp_path)
    assert ours.returncode == 0, ours.stderr[-4000:]
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())]
    command = ["-m", "numtui", "capture", "-o", "b", "--steps", "1,2", "--", *arguments]
    theirs = run_python([*launcher, *command], tmp_path)
    assert theirs.returncode == 0, theirs.stderr[-4000:]
    states = {line for done in (ours, theirs) for line in done.stdout.splitlines() if line.startswith("state ")}
    assert len(states) == 1
    for step in (1, 2):
        for rank in (0, 1):
            name = f"numerics/step_{step}/rank_{rank}_activations.log"
            assert agree(tmp_path / "a" / name, tmp_path / "b" / name)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_callback_is_of_the_package_that_is_imported(tmp_path: Path, package: str) -> None:
    lines = (
        f"import sys, {package} as pl",
        "from numtui.integrations.lightning import CaptureCallback",
        "assert issubclass(CaptureCallback, pl.Callback)",
        f"assert {[other for other in PACKAGES if other != package]!r}[0] not in sys.modules",
    )
    done = run_python(["-c", "; ".join(lines)], tmp_path)
    assert done.returncode == 0, done.stderr
