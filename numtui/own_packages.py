"""numtui's own packages of ordinary names, whatever lies in the user's folder; and the start of its processes."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["HERE", "find_own_packages", "start_worker"]

HERE = str(Path(__file__).resolve().parents[1])
"""Folder of the package."""


class _OwnPackages:
    """Import hook: packages of ordinary names are those beside this one."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> ModuleSpec | None:
        """Find them; None for all others."""
        return PathFinder.find_spec(fullname, [HERE]) if fullname in ("capture", "matchers") else None


def find_own_packages() -> None:
    """Import `capture` and `matchers` from beside this package from now on."""
    sys.meta_path.insert(0, _OwnPackages)


def start_worker() -> None:
    """Prepare a process that works for another: it ends with that one, which alone hears the user's ctrl+c."""
    find_own_packages()
    import signal
    from multiprocessing import parent_process
    from threading import Thread

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()
