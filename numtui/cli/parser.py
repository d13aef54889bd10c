"""Command-line parser: one sub-command per module, and the explorer by default."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from matchers.errors import InputError
from numtui.cli import capture, completion, demo, diff, explore, rules, suggest, weights
from numtui.cli.arguments import Commands

__all__ = ["parse", "root_parser"]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; `run(arguments)` of the result executes it and returns the exit code.

    Raises:
        InputError: there are no arguments.
        SystemExit: after printing help, or for invalid arguments.
    """
    if not argv:
        raise InputError(
            "which logs? numtui A B compares two logs or run folders, numtui demo opens an example, "
            "numtui --help lists the rest"
        )
    root, commands = _build()
    named = argv[0] in commands.choices and argv[0] != explore.HIDDEN
    args, unknown = root.parse_known_args(argv if named else [explore.HIDDEN, *argv])
    if unknown:
        # Report with the sub-command's usage; argparse would use the root's.
        args.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def root_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, also for the manual page."""
    return _build()[0]


def _build() -> tuple[argparse.ArgumentParser, Commands]:
    root = argparse.ArgumentParser(prog="numtui", allow_abbrev=False)
    root.set_defaults(root=root)  # completion is made of it
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True, prog="numtui")
    for module in (explore, diff, weights, capture, suggest, demo, rules, completion):
        module.add_parser(commands)
    return root, commands
