"""The end of a step where a function of the program returns: `--step-at module:function`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from .imports import when_imported

__all__ = ["StepAt"]

_MAIN = "__main__"


class StepAt:
    """Call `then` whenever a function or method of the program has returned.

    A function of a module is replaced when that has been imported, before others take it from there. Those of the
    script itself are not there before it runs, so that `look` has to be called again until it has found them.

    Args:
        name: `module:function` or `module:Class.method`.
        then: called after each call of it.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self._module, _, self._path = name.partition(":")
        self._then = then
        self._restore: Callable[[], None] | None = None
        self._in_progress = False
        if self._module == os.path.splitext(os.path.basename(sys.argv[0]))[0]:
            self._module = _MAIN
        if self._module != _MAIN:
            when_imported(self._module, self.look)

    @property
    def found(self) -> bool:
        """True once there was such a function."""
        return self._restore is not None

    def look(self) -> None:
        """Replace the function if it is there now."""
        if self.found:
            return
        *outer, last = self._path.split(".")
        owner: Any = sys.modules.get(self._module)
        for part in outer:
            owner = getattr(owner, part, None)
        original = getattr(owner, "__dict__", {}).get(last)
        if not isinstance(original, FunctionType):
            return
        self._in_progress = _runs(original)

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._in_progress:
                # its first call, which had begun before
                self._in_progress = False
                self._then()
            try:
                return original(*args, **kwargs)
            finally:
                self._then()

        setattr(owner, last, call)
        self._restore = lambda: setattr(owner, last, original)

    def remove(self) -> None:
        """Put the function back."""
        if self._restore is not None:
            self._restore()


def _runs(function: FunctionType) -> bool:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is function.__code__:
            return True
        frame = frame.f_back
    return False
