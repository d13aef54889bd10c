"""Trainings by the libraries, in this process: with a callback, and under `numtui capture`."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from capture.process import is_captured
from numtui.cli.main import main
from tests.capture.logs import Log, read_logs
from tests.capture.runs import run_captured, run_plain

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of the libraries are nobody's failure."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))


class Runs:
    """Runs of one script, in a folder of their own.

    Args:
        script: the script.
        folder: where it runs.
    """

    def __init__(self, script: Path, folder: Path) -> None:
        self._script, self._folder = script, folder

    def plain(self, arguments: str = "") -> str:
        """The state of the parameters and of the random numbers at the end, without a capture."""
        return self._state(run_plain(self._script, arguments))

    def called_back(self, folder: str, steps: str, arguments: str = "") -> str:
        """The same with the callback."""
        return self.plain(f"{arguments} --callback {self.path(folder)} --steps {steps}")

    def captured(self, folder: str, steps: str, arguments: str = "") -> str:
        """The same under `numtui capture`."""
        options = f"--steps {','.join(shlex.split(steps))}"
        return self._state(run_captured(self._script, self.path(folder), arguments, options).printed)

    def logs(self, folder: str) -> dict[str, Log]:
        return read_logs(self.path(folder))

    def path(self, name: str) -> Path:
        return self._folder / name

    @staticmethod
    def _state(printed: str) -> str:
        return printed.rpartition("state ")[2].strip()


def check_calls_alone(runs: Runs, arguments: str) -> None:
    """Check that two calls of a model are logged of a program that trains nothing, and change nothing."""
    assert runs.called_back("a", "1 2", arguments) == runs.plain(arguments)
    logs = runs.logs("a")
    assert list(logs) == [f"step_{call}/rank_0_activations.log" for call in (1, 2)]
    assert all("forward" in log.run["coverage"] and len(log.rows) > 2 for log in logs.values())


def agree(a: Path, b: Path) -> bool:
    """Whether `numtui diff` says that two logs agree in everything."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(["diff", str(a), str(b)])
    assert (code == 0) == ("No divergence" in out.getvalue()), out.getvalue()
    return code == 0


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No training leaves a hook, a mode or a capture behind, and none writes into the repository."""
    monkeypatch.chdir(tmp_path)
    hooks = torch.nn.modules.module
    before = len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks), torch.optim.Optimizer.__init__
    yield
    assert before == (
        len(hooks._global_forward_pre_hooks),
        len(hooks._global_forward_hooks),
        torch.optim.Optimizer.__init__,
    )
    assert not _get_current_dispatch_mode_stack()
    assert not is_captured()
