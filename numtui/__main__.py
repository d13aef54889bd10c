"""The program `numtui`, also as `python -m numtui`: what it imports is its own, whatever lies in the user's folder."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType
from typing import NoReturn

from numtui.own_packages import HERE, find_own_packages

__all__ = ["run"]


def run() -> NoReturn:
    """Run the command line. `numtui capture` runs a script, whose modules of these names are the script's own."""
    if sys.argv[1:2] == ["capture"]:
        launch = _loaded_capture()
        sys.exit(launch.main(sys.argv[2:], prog="numtui capture"))  # from here on a traceback is the script's
    find_own_packages()
    gc.disable()  # all that is imported stays; `main` enables it again
    with _TroubleIsTwo():
        from numtui.cli.main import run as run_viewer

        run_viewer()
    raise AssertionError("it ends the process")


def _loaded_capture() -> ModuleType:
    with _TroubleIsTwo():
        from numtui.capture import launch
    return launch


class _TroubleIsTwo:
    """Ends the program with 2 after a traceback, where Python's own 1 would say that something is red."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.exit(128 + 2)
        if isinstance(error, Exception):
            import traceback

            traceback.print_exception(error)
            sys.exit(2)


if __name__ == "__main__":
    # `python -m` puts the current folder first, where any module of the user would be taken for a library; a script
    # that is captured puts its own folder there
    try:
        here = os.getcwd()
    except OSError:  # it was deleted
        here = ""
    if sys.path[0] in ("", here) and here != HERE:
        sys.path[:1] = [os.path.dirname(__file__)] if sys.argv[1:2] == ["capture"] else []
    run()
