"""Start of every Python under `NUMTUI_CAPTURE`, called by `numtui_capture.pth`: wait until the program looks for torch.

Most processes never do, so this imports nothing that Python has not imported itself; not even annotations that need it.
"""

import atexit
import os
import sys
import time

__all__ = ["arm"]

_FOLDER, _SESSION = "NUMTUI_CAPTURE", "NUMTUI_CAPTURE_SESSION"


def arm() -> None:
    """Capture this process as the environment asks, when it imports torch."""
    if any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        return  # a virtual environment reads its `.pth` files twice
    try:  # noqa: SIM105 - contextlib costs an import
        # children may start in another folder
        os.environ[_FOLDER] = os.path.abspath(os.environ[_FOLDER])
    except OSError:  # of a deleted folder, which a program that trains is told
        pass
    # as in capture/session.py, which this does not import
    if not os.environ.get(_SESSION):
        folder = f"numtui-capture-{os.getpid()}-{time.time_ns():x}"
        os.environ[_SESSION] = os.path.join(os.environ.get("TMPDIR") or "/tmp", folder)  # noqa: S108 - no other has this name
    sys.meta_path.insert(0, _Waiting())  # type: ignore[arg-type] # the names of its annotations cost an import
    atexit.register(_ends, os.environ[_SESSION], os.getpid())


class _Waiting:
    """Import hook that finds nothing itself, and loads the capture when torch is looked for."""

    def __init__(self) -> None:
        self._process, self._over = os.getpid(), False

    def find_spec(self, name: str, *place: object) -> object:
        """Begin the capture, whose own hook then finds torch."""
        if name != "torch" or self._over:
            return None
        self._over = True
        begun = _begin(forked=self._process != os.getpid())
        finder: object = sys.meta_path[0]
        return finder.find_spec(name, *place) if begun else None  # type: ignore[attr-defined]


def _begin(*, forked: bool) -> bool:
    try:
        inherited = __import__("numtui.capture.inherited", fromlist=["begin"])
        return bool(inherited.begin(forked=forked))
    except Exception as error:  # noqa: BLE001 a program does not fail because its capture does
        if sys.stderr is not None:
            sys.stderr.write(f"numtui capture: nothing is captured: {error!r}\n")
        return False


def _ends(session: str, process: int) -> None:
    """Tell of the logs that the children of this process have written, if it never looked for torch itself."""
    mine = os.environ.get(_SESSION) == session and os.getpid() == process
    if mine and os.path.isdir(session) and _begin(forked=False):
        __import__("numtui.capture.process", fromlist=["close"]).close()
