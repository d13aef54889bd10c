"""The program `numtui`, also as `python -m numtui`: what it imports is its own, whatever lies in the user's folder."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NoReturn

__all__ = ["run"]

_HERE = str(Path(__file__).resolve().parents[1])


class _OwnPackages:
    """Import hook: packages of ordinary names are those beside this one."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> ModuleSpec | None:
        """Find them; None for all others."""
        return PathFinder.find_spec(fullname, [_HERE]) if fullname in ("capture", "matchers") else None


def run() -> NoReturn:
    """Run the command line. `numtui capture` runs a script, whose modules of these names are the script's own."""
    if sys.argv[1:2] == ["capture"]:
        from numtui.capture import launch

        sys.exit(launch.main(sys.argv[2:], prog="numtui capture"))
    sys.meta_path.insert(0, _OwnPackages)
    from numtui.cli.main import run as run_viewer

    run_viewer()


if __name__ == "__main__":
    # `python -m` puts the current folder first, where any module of the user would be taken for a library; a script
    # that is captured puts its own folder there
    if sys.path[0] in ("", os.getcwd()) and os.getcwd() != _HERE:
        sys.path[:1] = [os.path.dirname(__file__)] if sys.argv[1:2] == ["capture"] else []
    run()
