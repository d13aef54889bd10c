"""Captures of a trainer that says where its steps are, as callbacks do: its numbers, its batches, its evaluations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from capture import TrainerCapture, install, process
from tests.capture.logs import Log, read_logs
from tests.capture.runs import process_restored


class Model(nn.Module):
    """Never called itself, like a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def loss(self, batch: Any) -> Any:
        return self.head(self.body(batch).relu()).square().sum()


class Trainer:
    """A loop with accumulation, that tells its callback what it does."""

    def __init__(self, capture: TrainerCapture, accumulate: int = 1, completed: int = 0) -> None:
        torch.manual_seed(0)
        self.capture, self.accumulate, self.completed = capture, accumulate, completed
        self.model = Model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def begin(self, optimizer: Any = None) -> None:
        self.capture.begin(self.model, [optimizer or self.optimizer], self.completed)

    def batch(self) -> None:
        self.capture.batch_begins(self.completed + 1)
        self.model.loss(torch.randn(4, 8)).backward()

    def step(self, *, skipped: bool = False) -> None:
        for number in range(self.accumulate):
            self.batch()
            if number < self.accumulate - 1:
                self.capture.batch_ends(self.completed)
                self.between(number)
        if not skipped:
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.completed += 1
        self.capture.batch_ends(self.completed)

    def between(self, number: int) -> None:
        """What runs between two batches of a step."""

    def evaluate(self) -> None:
        """With gradients, as of a potential."""
        batch = torch.randn(4, 8, requires_grad=True)
        torch.autograd.grad(self.model.loss(batch), batch)
        with torch.no_grad():
            self.model.loss(torch.randn(4, 8)).cosh()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Every test leaves the process as it was."""
    before = _state()
    with process_restored():
        yield
    assert _state() == before
    assert not process.is_captured()


def _state() -> tuple[Any, ...]:
    hooks = torch.nn.modules.module
    return (
        len(_get_current_dispatch_mode_stack()),
        len(hooks._global_forward_pre_hooks),
        len(hooks._global_forward_hooks),
        len(hooks._global_module_registration_hooks),
        torch.optim.Optimizer.__init__,
        sorted(name for name in os.environ if name.startswith("NUMTUI")),
    )


class Capturing:
    """What `capture.install` begins, ended within the process."""

    def __init__(self, folder: Path, options: str) -> None:
        install(folder, options)

    def end(self) -> None:
        assert process._current is not None
        process._current.close()
        for name in ("NUMTUI_CAPTURE", "NUMTUI_CAPTURE_ARGS"):
            del os.environ[name]


def only(folder: Path) -> Log:
    (log,) = read_logs(folder).values()
    return log


def test_a_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2, 6, 7]), completed=5)
    trainer.begin()
    for _ in range(3):
        trainer.step()
    trainer.capture.end()
    logs = read_logs(tmp_path)
    assert {name: (log.run["step"], log.complete) for name, log in logs.items()} == {
        "step_6/rank_0_activations.log": (6, True),
        "step_7/rank_0_activations.log": (7, True),
    }


def test_the_log_is_that_of_a_program_captured_from_its_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names of modules and models, phases, coverage: only the hooks came later than the model."""
    trainer = Trainer(TrainerCapture(tmp_path / "a", steps=[1, 2]))
    trainer.begin()
    for _ in range(3):
        trainer.step()
    trainer.capture.end()
    with_hooks = Capturing(tmp_path / "b", "--steps 1,2")
    trainer = Trainer(TrainerCapture(tmp_path / "c"))
    for _ in range(3):
        trainer.step()
    with_hooks.end()
    for (name, ours), theirs in zip(read_logs(tmp_path / "a").items(), read_logs(tmp_path / "b").values(), strict=True):
        assert [(row.key, row.values, row.phase, row.parameters) for row in ours] == [
            (row.key, row.values, row.phase, row.parameters) for row in theirs
        ], name
        assert ours.run["coverage"] == theirs.run["coverage"]
    assert "numtui capture: step 1: " in capfd.readouterr().err


def test_accumulated_batches_are_micro_batches(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2]), accumulate=3)
    trainer.begin()
    for _ in range(3):
        trainer.step()
    trainer.capture.end()
    log = only(tmp_path)
    assert [row.fields["Micro-batch"] for row in log.of("addmm", "head")] == ["0", "1", "2"]
    assert log.run["coverage"]["parameters"] == [4, 4]


@pytest.mark.parametrize("steps", [[2], [1, 2]])
def test_evaluation_between_steps_is_no_part_of_one(tmp_path: Path, steps: list[int]) -> None:
    """With gradients too, which in a script that says nothing would be a forward pass of the next step."""
    for folder, evaluations in (("a", 0), ("b", 2)):
        trainer = Trainer(TrainerCapture(tmp_path / folder, steps=steps))
        trainer.begin()
        for _ in range(3):
            trainer.step()
            with torch.random.fork_rng():
                for _ in range(evaluations):
                    trainer.evaluate()
        trainer.capture.end()
    plain, evaluated = read_logs(tmp_path / "a"), read_logs(tmp_path / "b")
    assert list(plain) == list(evaluated)
    for name, log in plain.items():
        assert [(row.key, row.values) for row in log] == [(row.key, row.values) for row in evaluated[name]]


def test_evaluation_between_the_batches_of_a_step_is_no_part_of_it(tmp_path: Path) -> None:
    class Evaluating(Trainer):
        def between(self, number: int) -> None:
            if number == 1:
                with torch.random.fork_rng():
                    torch.randperm(5)
                    self.evaluate()

    logs = []
    for name, kind in (("a", Trainer), ("b", Evaluating)):
        trainer = kind(TrainerCapture(tmp_path / name), accumulate=3)
        trainer.begin()
        trainer.step()
        trainer.capture.end()
        logs.append([(row.key, row.values, row.fields.get("Micro-batch")) for row in only(tmp_path / name)])
    assert logs[0] == logs[1]


def test_what_runs_between_batches_without_an_evaluation_is_recorded(tmp_path: Path) -> None:
    class Communicating(Trainer):
        def between(self, number: int) -> None:
            torch.randperm(5)

    trainer = Communicating(TrainerCapture(tmp_path), accumulate=2)
    trainer.begin()
    trainer.step()
    trainer.capture.end()
    assert only(tmp_path).ops["randperm"] == 1


def test_a_step_that_is_skipped_has_its_number_and_its_log(tmp_path: Path) -> None:
    """Gradients that overflow: nothing is updated, and the next step is not its continuation."""
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2, 3, 4]))
    trainer.begin()
    for number in range(4):
        trainer.step(skipped=number in (1, 2))
    trainer.capture.end()
    logs = list(read_logs(tmp_path).values())
    assert [log.run["step"] for log in logs] == [2, 3, 4]
    assert [log.complete for log in logs] == [True] * 3
    assert [log.run["coverage"]["optimizers"] for log in logs] == [[0, 1], [0, 1], [1, 1]]
    assert [log.ops["addmm"] for log in logs] == [2, 2, 2]


def test_a_step_in_which_an_optimizer_steps_twice_is_one(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[1, 2]), accumulate=2)
    trainer.begin()
    for _ in range(2):
        trainer.batch()
        trainer.optimizer.step()
        trainer.step()
    trainer.capture.end()
    logs = list(read_logs(tmp_path).values())
    assert [log.run["step"] for log in logs] == [1, 2]
    assert [log.ops["addmm"] for log in logs] == [6, 6]


def test_a_trainer_that_only_says_when_steps_end_is_recorded_too(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2]))
    trainer.begin()
    for _ in range(3):
        trainer.model.loss(torch.randn(4, 8)).backward()
        trainer.optimizer.step()
        trainer.completed += 1
        trainer.capture.batch_ends(trainer.completed)
    trainer.capture.end()
    assert only(tmp_path).run["step"] == 2


def test_numbers_that_leave_some_out_are_the_trainers(tmp_path: Path) -> None:
    """One that counts what all its optimizers did, or its batches."""
    trainer = Trainer(TrainerCapture(tmp_path, steps=[11]))
    trainer.begin()
    for _ in range(3):
        trainer.step()
        trainer.completed += 9
        trainer.capture.batch_ends(trainer.completed)
    trainer.capture.end()
    assert only(tmp_path).run["step"] == 11


def test_optimizers_that_take_turns_are_a_step_where_the_trainer_has_no_number(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2]))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (trainer.model.body, trainer.model.head)]
    trainer.capture.begin(trainer.model, optimizers)
    for _ in range(3):
        trainer.capture.batch_begins(None)
        for optimizer in optimizers:
            trainer.model.loss(torch.randn(4, 8)).backward()
            optimizer.step()
        trainer.capture.batch_ends(None)
        trainer.evaluate()
    trainer.capture.end()
    log = only(tmp_path)
    assert (log.run["step"], log.ops["addmm"]) == (2, 4)
    assert log.run["coverage"]["optimizers"] == [2, 2]


def test_an_exception_leaves_an_incomplete_log(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[2]))
    trainer.begin()
    trainer.step()
    trainer.batch()
    trainer.capture.end(ZeroDivisionError("by zero"))
    log = only(tmp_path)
    assert not log.complete
    assert log.run["incomplete"] == "ZeroDivisionError: by zero"
    trainer.capture.end()
    assert not only(tmp_path).complete


def test_an_optimizer_inside_of_others_that_call_it_counts_once(tmp_path: Path) -> None:
    class Wrapper(torch.optim.Optimizer):
        """As those of accelerate and DeepSpeed."""

        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

    trainer = Trainer(TrainerCapture(tmp_path))
    trainer.begin(Wrapper(Wrapper(trainer.optimizer)))
    trainer.step()
    trainer.step()
    trainer.capture.end()
    assert only(tmp_path).run["coverage"]["optimizers"] == [1, 1]


def test_after_the_last_step_nothing_is_left_to_slow_the_training(tmp_path: Path) -> None:
    before = _state()
    trainer = Trainer(TrainerCapture(tmp_path))
    trainer.begin()
    trainer.step()
    assert _state() != before
    trainer.step()
    assert _state() == before
    assert only(tmp_path).complete


def test_steps_that_are_over_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[1, 2]), completed=5)
    trainer.begin()
    trainer.step()
    trainer.capture.end()
    assert "no log: the last step requested is 2, the training goes on with 6" in capfd.readouterr().err
    assert not read_logs(tmp_path)


def test_a_process_that_is_captured_already_is_left_to_that(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outer = Capturing(tmp_path / "outer", "")
    trainer = Trainer(TrainerCapture(tmp_path / "inner"))
    trainer.begin()
    trainer.step()
    trainer.capture.end()
    outer.end()
    assert "inner: this process is captured already" in capfd.readouterr().err
    assert only(tmp_path / "outer").complete
    assert not (tmp_path / "inner").exists()


def test_a_training_that_begins_anew_replaces_the_one_before(tmp_path: Path) -> None:
    """As after a batch size that did not fit."""
    capture = TrainerCapture(tmp_path)
    first = Trainer(capture)
    first.begin()
    first.batch()
    second = Trainer(capture)
    second.begin()
    second.step()
    capture.end()
    assert only(tmp_path).complete


def test_weights_are_recorded_by_the_numbers_of_the_trainer(tmp_path: Path) -> None:
    trainer = Trainer(TrainerCapture(tmp_path, steps=[6], weights="every"), completed=5)
    trainer.begin()
    trainer.step()
    trainer.step()
    trainer.capture.end()
    text = (tmp_path / "numerics" / "rank_0_weights.log").read_text()
    assert '"step": 6' in text
    assert '"step": 7' in text
    assert '"step": 1,' not in text


def test_a_forked_process_records_nothing(tmp_path: Path) -> None:
    """Trainers fork to load data, in the middle of a step."""
    trainer = Trainer(TrainerCapture(tmp_path))
    trainer.begin()
    child = os.fork()
    if child == 0:
        clean = not _get_current_dispatch_mode_stack() and not torch.nn.modules.module._global_forward_pre_hooks
        os._exit(0 if clean else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    trainer.step()
    trainer.capture.end()
    assert only(tmp_path).complete


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"steps": []}, ValueError),
        ({"steps": [0]}, ValueError),
        ({"module": ["layers.0"]}, TypeError),
        ({"hash": "nowhere"}, ValueError),
    ],
)
def test_wrong_arguments_are_an_error_at_once(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        TrainerCapture("runs/a", **arguments)
