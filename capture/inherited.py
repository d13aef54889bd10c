"""Capture by the environment: `NUMTUI_CAPTURE=DIR` in it captures whatever Python process trains.

Every Python that starts calls `arm` where the variable is set, through a `.pth` file (`numtui_capture.pth`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .process import Capture

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["arm", "install", "passed_on"]

FOLDER, OPTIONS = "NUMTUI_CAPTURE", "NUMTUI_CAPTURE_ARGS"


def arm() -> None:
    """Capture this process as the environment asks, when it imports torch."""
    # children may start in another folder
    os.environ[FOLDER] = os.path.abspath(os.environ[FOLDER])
    folder = Path(os.environ[FOLDER])

    def options() -> Namespace:
        from .options import from_text

        try:
            return from_text(shlex.split(os.environ.get(OPTIONS, "")), folder)
        except ValueError as error:
            raise ValueError(f"{OPTIONS}: {error}") from None

    Capture(options, folder, inherited=True).begin()


def install(folder: str | os.PathLike[str], options: str = "") -> None:
    """Capture what this process and its children train from now on, as in a notebook.

    Args:
        folder: logs go to `numerics/` in it.
        options: of the command line, such as `"--steps 2"`.
    """
    os.environ |= {FOLDER: os.path.abspath(folder), OPTIONS: options}
    arm()


@contextmanager
def passed_on(folder: Path, options: Sequence[str]) -> Iterator[None]:
    """Let the processes that start meanwhile be captured with these options."""
    before = {name: os.environ.get(name) for name in (FOLDER, OPTIONS)}
    os.environ |= {FOLDER: os.path.abspath(folder), OPTIONS: shlex.join(options)}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
