"""Runs of the training example in this process, captured and not: `python -m capture` without the start of a Python."""

from __future__ import annotations

import contextlib
import io
import os
import random
import runpy
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from capture.launch import main
from tests.capture.logs import Log, read_logs

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
SMALL = ("--layers", "2", "--dim", "32", "--seq-len", "16", "--vocab", "64", "--steps", "2", "--print-state")


@dataclass
class Run:
    """What a run printed, what the capture said, and where the logs are."""

    printed: str
    said: str
    folder: Path

    @cached_property
    def logs(self) -> dict[str, Log]:
        """By path below `numerics`."""
        return read_logs(self.folder)

    @property
    def log(self) -> Log:
        """The only log."""
        (only,) = self.logs.values()
        return only


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """What a script may do to its process is undone: arguments, import path, signals, random numbers, torch's flags."""
    argv, path, handler = sys.argv, list(sys.path), signal.getsignal(signal.SIGTERM)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    own_random = random.getstate()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        sys.argv, sys.path[:] = argv, path
        signal.signal(signal.SIGTERM, handler)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        random.setstate(own_random)


def run_python(
    command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A Python of its own in a folder, which finds the packages of this repository."""
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env={**os.environ, **(variables or {}), "PYTHONPATH": str(EXAMPLE.parents[1]), "OMP_NUM_THREADS": "1"},
    )


def run_plain(script: Path, arguments: str = "") -> str:
    """What a script prints without a capture."""
    with process_restored(), contextlib.redirect_stdout(io.StringIO()) as out:
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script), *shlex.split(arguments)]
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def run_captured(script: Path, folder: Path, arguments: str = "", options: str = "") -> Run:
    """The same under `python -m capture OPTIONS -o FOLDER -- SCRIPT ARGUMENTS`; what the script raises goes through."""
    command = [*shlex.split(options), "-o", str(folder), "--", str(script), *shlex.split(arguments)]
    with (
        process_restored(),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        assert main(command) == 0
    return Run(out.getvalue(), said.getvalue(), folder)


class Examples:
    """Runs of the example; each is made once in a session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plain: dict[str, str] = {}
        self._captured: dict[tuple[str, str], Run] = {}

    def plain(self, arguments: str = "") -> str:
        """What the example prints without a capture: losses, gradient norms, a digest of its state."""
        if arguments not in self._plain:
            with _compiler_warnings():
                self._plain[arguments] = run_plain(EXAMPLE, shlex.join(SMALL) + " " + arguments)
        return self._plain[arguments]

    def captured(self, arguments: str = "", options: str = "") -> Run:
        """The example under a capture with these options."""
        key = (arguments, options)
        if key not in self._captured:
            folder = self._folder / str(len(self._captured))
            with _compiler_warnings():
                run = run_captured(EXAMPLE, folder, shlex.join(SMALL) + " " + arguments, options)
            self._captured[key] = run
        return self._captured[key]

    def log(self, arguments: str = "", options: str = "") -> Log:
        """The only log of such a run."""
        return self.captured(arguments, options).log


@contextlib.contextmanager
def _compiler_warnings() -> Iterator[Any]:
    """Warnings of torch about itself are nobody's failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
