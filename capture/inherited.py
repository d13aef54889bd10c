"""Capture by the environment: `NUMTUI_CAPTURE=DIR` in it captures whatever Python process trains.

Every Python that starts calls `numtui.armed` where the variable is set, through a `.pth` file (`numtui_capture.pth`);
that calls `begin` when the program looks for torch.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .messages import say
from .process import Capture, close, is_captured

if TYPE_CHECKING:
    from argparse import Namespace

    from .settings import Settings

__all__ = ["begin", "install", "passed_on"]

FOLDER, OPTIONS = "NUMTUI_CAPTURE", "NUMTUI_CAPTURE_ARGS"
WITH_FORWARD = "NUMTUI_CAPTURE_FORWARD"
"""The command of the first process with `--forward`."""


def begin(*, forked: bool = False) -> bool:
    """Capture this process as the environment asks, when it has imported torch; False if it is captured already.

    Args:
        forked: it has been forked since it started to wait for torch.
    """
    if is_captured():
        return False
    folder = Path(os.environ[FOLDER])
    try:
        folder = folder.absolute()
    except OSError:
        say(f"nothing is captured: {FOLDER}={folder}: the current folder was deleted; give a path that begins with /")
        return False

    def options() -> tuple[Namespace, Settings]:
        from .options import from_text, settings_of

        try:
            args = from_text(shlex.split(os.environ.get(OPTIONS, "")), folder)
            if args.hash is not None and sys.flags.isolated:
                say(f"{OPTIONS}: --hash is left out, as `python -I` runs no code that the environment names")
                args.hash = None
            return args, settings_of(args)
        except ValueError as error:
            raise ValueError(f"{OPTIONS}: {error}") from None

    said = os.environ.get(OPTIONS, "")
    with_forward = os.environ.get(WITH_FORWARD) or f"{OPTIONS}={shlex.quote(f'{said} --forward'.strip())}"
    capture = Capture(options, folder, inherited=True, with_forward=with_forward)
    capture.begin()
    if forked:
        capture.forked()
    return True


def install(folder: str | os.PathLike[str], options: str = "") -> None:
    """Capture what this process and its children train from now on, as in a notebook.

    Args:
        folder: logs go to `numerics/` in it.
        options: of the command line, such as `"--steps 2"`.
    """
    os.environ |= {FOLDER: os.path.abspath(folder), OPTIONS: options}
    close(quiet=True)
    begin()


@contextmanager
def passed_on(folder: Path, options: Sequence[str], with_forward: str) -> Iterator[None]:
    """Let the processes that start meanwhile be captured with these options."""
    new = {FOLDER: os.path.abspath(folder), OPTIONS: shlex.join(options), WITH_FORWARD: with_forward}
    before = {name: os.environ.get(name) for name in new}
    os.environ |= new
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
