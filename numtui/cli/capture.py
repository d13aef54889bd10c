"""`numtui capture`: the capture's own command line, here for help, completion and the manual page."""

from __future__ import annotations

import argparse
import sys

from capture.options import ABOUT, EXAMPLES, add_options
from numtui.cli.arguments import Commands, add_command, file_argument

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "capture", _run, ABOUT, help="")
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    add_options(parser)
    file_argument(parser, "command", nargs="*", metavar="-- script.py ARGS | -m module ARGS", help="what is captured")


def _run(_: argparse.Namespace) -> int:
    # `numtui.__main__` comes here only when it is not what was started
    from numtui.capture import launch

    return launch.main(sys.argv[2:], prog="numtui capture")
