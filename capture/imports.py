"""A call when a module of the program has been imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` as soon as a module has been imported, at once if it has been."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting:
    """Import hook that finds nothing itself, and calls `then` when the module that others find has been executed."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, *place: Any) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            find = None if isinstance(finder, _Waiting) else getattr(finder, "find_spec", None)
            spec = find and find(fullname, *place)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Wrap the execution by this loader, which is made for one module."""
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module
