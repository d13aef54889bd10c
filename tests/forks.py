"""Python programs in processes that are forked from one which has imported torch, so that none takes seconds to start.

`python -m tests.forks` is that one: it reads a program per line and writes how it ended.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.two_ranks import prepare_to_fork

__all__ = ["Forks"]

_PATIENCE = 300
"""Seconds after which a program that has not ended is killed by SIGALRM."""


class Forks:
    """`forks(arguments, folder)`: what `python -m …` or `python script.py` does in a folder."""

    @cached_property
    def _server(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __call__(
        self, arguments: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; what it leaves running is killed, and after some minutes it dies of SIGALRM."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as printed:
            paths = [Path(printed, name) for name in ("stdout", "stderr")]
            environment = {**os.environ, **(variables or {}), "OMP_NUM_THREADS": "1"}
            program = (list(arguments), str(folder), environment, [*map(str, paths)])
            self._server.stdin.write(json.dumps(program) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in paths))

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the process end that forks the others, if one was asked for."""
        if "_server" in vars(self):
            self._server.communicate()


def main() -> None:
    """See the module; each program ends as a Python of its own does, after the last line of this."""
    prepare_to_fork()
    for line in sys.stdin:
        arguments, folder, environment, printed = json.loads(line)
        if (pid := os.fork()) == 0:
            os.setsid()
            signal.alarm(_PATIENCE)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            for descriptor, path in enumerate((os.devnull, *printed)):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
            sys.path[0:1] = [folder, str(REPOSITORY)]
            _become(arguments)
            return
        _, status = os.waitpid(pid, 0)
        with suppress(ProcessLookupError):  # what it has started and left
            os.killpg(pid, signal.SIGKILL)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(arguments: list[str]) -> None:
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
