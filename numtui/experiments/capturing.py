"""Captures of a command in processes of their own, whose output goes to a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from matchers.errors import InputError
from matchers.logs.head import read_ends
from matchers.runs.run import find_logs
from numtui.own_packages import HERE

__all__ = ["OUTPUT", "CaptureCommand", "last_words", "logged_run", "trouble_of"]

OUTPUT = "output.txt"
_GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""
_LAST = 4096


@dataclass(frozen=True, slots=True)
class CaptureCommand:
    """A command to capture, in the same way each time.

    Attributes:
        command: script or `-m module`, with its arguments.
        options: of `numtui capture`.
        python: that captures.
        patience: seconds after which a run is ended, None for none.
        moved: the folder that paths in PYTHONPATH are in, and the one that stands for it in the runs.
    """

    command: Sequence[str]
    options: Sequence[str] = ()
    python: str = sys.executable
    patience: float | None = None
    moved: tuple[Path, Path] | None = None

    def run(self, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        """Capture into a folder without logs; return why there is no whole log, empty if there is one.

        Raises:
            InputError: it cannot be started.
        """
        output.mkdir(parents=True, exist_ok=True)
        line = [self.python, "-m", "numtui", "capture", *self.options, *options, "-o", str(output), "--", *self.command]
        ended = logged_run(line, output / OUTPUT, cwd, self.environment(), self.patience)
        return trouble_of(output, ended)

    def environment(self) -> dict[str, str]:
        """Return the environment of a run: that of this process, in which numtui is found and git as by default."""
        found = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        found.pop("NUMTUI_CAPTURE", None)
        paths = [path for path in found.pop("PYTHONPATH", "").split(os.pathsep) if path]
        if self.moved is not None:
            paths = [_moved(path, *self.moved) for path in paths]
        if Path(HERE).name != "site-packages":  # a checkout
            paths.append(HERE)
        return found | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def _moved(path: str, old: Path, new: Path) -> str:
    with suppress(ValueError):
        return str(new / Path(os.path.realpath(path)).relative_to(os.path.realpath(old)))
    return os.path.abspath(path)


def logged_run(
    line: Sequence[str], output: Path, cwd: Path, environment: Mapping[str, str], patience: float | None
) -> str:
    """Run a command, with all that it prints in a file; return how it ended, empty for exit code 0.

    What it has started ends with it, and with this process's own interruption.

    Raises:
        InputError: it cannot be started.
    """
    with output.open("ab") as out:
        try:
            process = subprocess.Popen(  # noqa: S603 - the command of the user
                line,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=False,  # the lock of the experiment's folder
            )
        except OSError as error:
            raise InputError(f"{line[0]}: {error.strerror or error}") from None
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            return f"took longer than {patience:g} s"
        finally:
            _end(process)
    return "" if code == 0 else f"ended with {'signal ' if code < 0 else ''}{abs(code)}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def trouble_of(folder: Path, ended: str) -> str:
    """Return why a captured run cannot be compared; empty if all its logs are whole, however it ended after them."""
    try:
        logs = find_logs(folder)
    except (OSError, InputError) as error:
        return str(error)
    told = f"{ended}: " if ended else ""
    if not logs:
        return f"{told}{last_words(folder / OUTPUT) or 'no log'}"
    for log in logs:
        ends = read_ends(str(log.path))
        if ends is not None and (ends.footer is None or ends.header.run.get("incomplete")):
            return f"{told}the log of rank {log.rank} is cut off"
    return ""


def last_words(path: Path) -> str:
    """Return the last line of a file that is not empty, untrusted text; empty without one."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
        lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""
