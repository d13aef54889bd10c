"""Command-line parser: one sub-command per module, and the explorer by default."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from matchers.errors import InputError
from numtui.cli.arguments import SCREEN_SWITCHES
from numtui.cli.output import complain

__all__ = ["parse", "root_parser"]

_COMMANDS = (
    "diff",
    "explain",
    "plan",
    "replay",
    "isolate",
    "bisect",
    "floor",
    "merge",
    "check",
    "convert",
    "weights",
    "losses",
    "capture",
    "suggest",
    "demo",
    "rules",
    "kept",
    "cache",
    "completion",
)
"""The sub-commands. Each has a module of its name, which is imported for the one that is asked for."""
_WITH_COMMAND = ("isolate",)
"""Those that are given a command line of their own after `--`, which argparse cuts off behind options."""
_MAY_LACK = ("b", "row")
"""Arguments that may be left out, which argparse does not look for behind options: `explain A B --noise C ROW`."""
_EXPLORE = "explore"
"""The module of the command without a name."""


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
    argv = _command_first(argv)
    argv, command = _with_command(argv)
    if argv[0] in _COMMANDS:
        _tell_of_run(argv[0])
        root = _parser_of(argv[0])
    else:
        _refuse_misspelt(argv[0])
        root = _parser_of(_EXPLORE)
        from numtui.cli.explore import HIDDEN

        argv = [HIDDEN, *argv]
    args, unknown = root.parse_known_args(argv)
    for name in _MAY_LACK:
        if unknown and not unknown[0].startswith("-") and getattr(args, name, "") is None:
            setattr(args, name, unknown.pop(0))
    if command is not None:
        args.command = command
    if unknown:
        # Report with the sub-command's usage; argparse would use the root's.
        args.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _tell_of_run(command: str) -> None:
    """Say how a run is named whose folder has the name of a sub-command."""
    if os.path.isdir(command):
        from matchers.runs.run import find_logs

        with suppress(OSError, InputError):
            if find_logs(Path(command)):
                complain(f"{command} is a command; the run in the folder of that name is ./{command}")


def _with_command(argv: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    """Split off the command line after `--` that a sub-command is given; None for others."""
    if argv[0] not in _WITH_COMMAND or "--" not in argv:
        return argv, None
    cut = list(argv).index("--")
    return argv[:cut], list(argv[cut + 1 :])


def _command_first(argv: Sequence[str]) -> Sequence[str]:
    """Move options of the screen behind the command that follows them: `numtui --no-session demo`."""
    at = 0
    while at < len(argv) - 1 and (argv[at] in SCREEN_SWITCHES or argv[at] == "--theme"):
        at += 1 if argv[at] in SCREEN_SWITCHES else 2
    return [*argv[at:], *argv[:at]] if at < len(argv) and argv[at] in _COMMANDS else argv


def _refuse_misspelt(name: str) -> None:
    """Refuse a word that is no file, but nearly a command.

    Raises:
        InputError: it is one.
    """
    if name.startswith("-") or {".", "/"} & set(name) or os.path.lexists(name):
        return
    from difflib import get_close_matches  # needed only after a mistake

    if like := get_close_matches(name, sorted(_COMMANDS), 1, 0.7):
        raise InputError(f"{name}: no such file or folder; did you mean 'numtui {like[0]}'?")


def root_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, for completion and the manual page."""
    return _parser_of(_EXPLORE, *_COMMANDS)


def _parser_of(*modules: str) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="numtui", allow_abbrev=False)
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True, prog="numtui")
    for module in modules:
        import_module(f"numtui.cli.{module}").add_parser(commands)
    return root
