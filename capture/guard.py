"""The guard around all that the training calls of the capture: an error in it is said once, and never ends the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, Protocol

from .messages import describe, say

__all__ = ["Breakable", "ends_no_run", "no_harm", "pass_on"]

_OWN = os.path.dirname(__file__) + os.sep


class Breakable(Protocol):
    """An object with hooks that can break."""

    def broken(self, error: Exception) -> None:
        """Report the error, and go on without what has broken."""


@contextmanager
def no_harm(what: str) -> Iterator[None]:
    """Turn an error inside the block into one line on standard error."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 a program does not fail because its capture does
        pass_on(error)
        # of what the system refuses, it says which file and why
        say(f"{what}: {error if isinstance(error, OSError) else describe(error)}")


def ends_no_run(hook: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method that the training calls, so that an error in it breaks its object and not the training."""

    @wraps(hook)
    def guarded(self: Breakable, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 any error here is the capture's, not the user's
            pass_on(error)
            self.broken(error)

    return guarded


def pass_on(error: BaseException) -> None:
    """Raise an error again that is the program's own.

    A signal, such as that of a timer, may arrive while the capture runs; what its handler raises is for the program.
    """
    traceback = error.__traceback__
    while traceback is not None:
        if _handles_signal(traceback):
            raise error
        traceback = traceback.tb_next


def _handles_signal(traceback: TracebackType) -> bool:
    """Return True for a function of the program that was given the frame that it has interrupted."""
    frame = traceback.tb_frame
    interrupted = frame.f_back
    if interrupted is None or frame.f_code.co_filename.startswith(_OWN):
        return False
    code = frame.f_code
    held = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + bool(code.co_flags & 0x04)]]
    given = [each for one in held for each in (one if isinstance(one, tuple) else (one,))]
    return any(isinstance(one, FrameType) and one is interrupted for one in given)
