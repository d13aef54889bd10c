"""Session: all processes of one run, which write their logs without overwriting each other's.

The first captured process of a run names the session in the environment, and its children inherit that. Who writes
which log is noted in a folder of temporary files, which that first process deletes.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .messages import say

__all__ = ["SESSION", "Places", "end", "join", "written"]

SESSION = "NUMTUI_CAPTURE_SESSION"
_SINCE = time.time_ns()
"""Process numbers come again in a long run."""


def join() -> bool:
    """Join the session of the environment, or begin one; True for the process that has begun it."""
    if not os.environ.get(SESSION):
        folder = f"numtui-capture-{os.getpid()}-{time.time_ns():x}"
        os.environ[SESSION] = os.path.join(os.environ.get("TMPDIR") or "/tmp", folder)  # noqa: S108 - no other has this name
    return os.path.basename(os.environ[SESSION]).startswith(f"numtui-capture-{os.getpid()}-")


def end() -> None:
    """End the session that this process began."""
    import shutil

    if folder := os.environ.pop(SESSION, None):
        shutil.rmtree(folder, ignore_errors=True)


def written(folder: Path) -> set[Path]:
    """Return the logs of operations in an absolute folder that the session's processes of this machine have written."""
    found = set()
    with suppress(OSError):
        for note in Path(os.environ.get(SESSION, "")).iterdir():
            path = Path(os.fsdecode(note.read_bytes().partition(b"\n")[2]))
            if path.name.endswith("_activations.log") and path.is_relative_to(folder) and path.exists():
                found.add(path)
    return found


def _claim(path: Path, owner: str) -> bool:
    """Take a path for an owner; False if the session has another owner of it."""
    import hashlib

    folder = Path(os.environ.get(SESSION, ""))
    name = os.fsencode(os.path.abspath(path))
    note = folder / hashlib.sha256(name).hexdigest()
    draft = folder / f"{os.getpid()}.draft"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        draft.write_bytes(owner.encode() + b"\n" + name)
        try:
            # whole from the start, and only where there is none
            os.link(draft, note)
        except FileExistsError:
            return note.read_bytes().startswith(owner.encode() + b"\n")
        finally:
            draft.unlink()
    except OSError:
        pass  # without a place for notes the logs are written as if no other process wrote any
    return True


def _process() -> str:
    return f"process {os.getpid()} {_SINCE}"


def _job() -> str:
    """Name the ranks that run together: their logs belong into one folder, and those of no others."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        world = distributed.get_world_size()
    else:
        try:
            world = int(os.environ.get("WORLD_SIZE") or 1)
        except ValueError:  # of another program
            world = 1
    if world == 1:
        return _process()
    port = os.environ.get("MASTER_PORT")
    # ranks that one process has started know it; those that started each other know where they meet
    meet = f"port {port}" if port and "TORCHELASTIC_RUN_ID" not in os.environ else f"parent {os.getppid()}"
    return f"{world} ranks, {meet}"


class Places:
    """Paths of this process's logs: in DIR, or where another one of the same rank writes there, in DIR/run_2, …

    Args:
        folder: DIR.

    Attributes:
        taken: the paths that this process has taken.
    """

    def __init__(self, folder: Path) -> None:
        self.taken: set[Path] = set()
        self._folder = folder
        self._known: dict[Path, Path] = {}
        self._run = 1

    def __call__(self, path: Path) -> Path:
        """Return where a log is written that belongs at `path`, which is in DIR."""
        if path not in self._known:
            for run in itertools.count(self._run):
                folder = self._folder if run == 1 else self._folder / f"run_{run}"
                place = folder / path.relative_to(self._folder)
                if _claim(folder, _job()) and _claim(place, _process()):
                    break
            if run > self._run:
                say(f"another process of this run writes {path}; this one writes to {folder}")
            self._run, self._known[path] = run, place
            self.taken.add(place.absolute())
        return self._known[path]
