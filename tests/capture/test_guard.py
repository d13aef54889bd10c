"""What breaks in the capture, or meets it by chance, leaves the training as it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from capture import TrainerCapture
from capture.guard import no_harm
from capture.messages import describe, say
from capture.mode_stack import insert_below
from tests.capture.conftest import HEAD, LOOP, Script
from tests.capture.runs import run_plain

SHOWN = "print(model[0].weight.double().sum().item().hex())\n"


class Late(Exception):
    """Of the program."""


class Program:
    """A program with a timer."""

    def late(self, _number: int, _frame: Any) -> None:
        raise Late


def late(*_: Any) -> None:
    raise Late


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training prints without a capture."""
    path = tmp_path_factory.mktemp("plain") / "script.py"
    path.write_text(HEAD + LOOP + SHOWN)
    return run_plain(path)


@pytest.fixture(params=[late, Program().late])
def timer(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, request.param)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("timer")
def test_what_a_signal_raises_is_the_programs() -> None:
    with pytest.raises(Late), no_harm("no"):
        signal.raise_signal(signal.SIGALRM)


def test_what_is_raised_otherwise_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with no_harm("broken"):
        late(1, None)
    assert capsys.readouterr().err == "numtui capture: broken: Late\n"


def fail(*_: Any, **__: Any) -> Any:
    raise KeyError("ours")


@pytest.mark.filterwarnings("ignore:.*numtui capture:RuntimeWarning")
@pytest.mark.parametrize(
    "broken",
    [
        *("capture.recorder.StepTracer", "capture.tracer.StepTracer.start", "capture.tracer.StepTracer.finish"),
        *("capture.tracer.StepTracer._before", "capture.tracer.StepTracer._after", "capture.tracer.kind_of"),
        *("capture.modules.weakref", "capture.modules.threading", "capture.modules.Running"),
        *("capture.schedule.AutomaticSchedule._made", "capture.schedule.AutomaticSchedule._over"),
        *("capture.recorder.write_log", "capture.recorder.StepStart", "capture.weights_schedule.WeightsLog"),
    ],
)
def test_an_error_of_the_capture_changes_nothing(
    script: Script, monkeypatch: pytest.MonkeyPatch, broken: str, trained: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(broken, fail)
        options = "--weights every" if "weights" in broken else "--steps 1,2"
        assert script(LOOP + SHOWN, options).printed == trained


def test_optimizers_and_messages_of_any_kind(script: Script, trained: str) -> None:
    """An optimizer without a hash, and a program that shows warnings in its own way."""
    run = script(
        "import warnings\n"
        "class Equal(torch.optim.SGD):\n    def __eq__(self, other): return True\n"
        + LOOP.replace("torch.optim.SGD", "Equal")
        + SHOWN
    )
    assert run.printed == trained
    assert run.log.complete


def test_messages_are_one_line_and_never_raise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("a\x1b[31m\nb\u202e\udcffé")
    assert capsys.readouterr().err == "numtui capture: a\\x1b[31m\\nb\\u202e\\udcffé\n"
    monkeypatch.setattr("sys.stderr.write", fail)
    say("not heard")

    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError

    assert describe(Mute()) == "Mute"


def test_modes_of_the_program_stay_where_the_captures_own_cannot_enter() -> None:
    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Broken(Own):
        def __enter__(self) -> Any:
            raise KeyError("ours")

    with Own() as own:
        with pytest.raises(KeyError):
            insert_below(Broken())
        assert _get_current_dispatch_mode_stack() == [own]


def test_a_callback_that_breaks_ends_its_capture_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("capture.process._current", None)
    monkeypatch.setattr("capture.schedule.AutomaticSchedule.batch_begins", fail)
    with TrainerCapture(tmp_path) as steps:
        steps.begin(nn.Linear(1, 1))
        for step in (1, 2):
            steps.batch_begins(step)
            steps.batch_ends(step)
    assert capsys.readouterr().err.count("the training goes on without capture: KeyError: 'ours'") == 1
