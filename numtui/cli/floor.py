"""`numtui floor`: what rounding alone does to a run, kept beside its log as limits."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, file_argument, positive_number
from numtui.cli.output import ExitCode, complain
from numtui.paths import typed_path
from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from numtui.experiments.journal import Journal

__all__ = ["add_parser"]

_DESCRIPTION = """\
Captures a command, and again with weights and floating-point inputs moved by one rounding error.
How far an operation moves is its noise floor, kept beside the log as rank_N_floor.jsonl.
numtui diff --floor A B and the explorer then allow four times as much, whatever the layout of B.

exit codes:
  0  the floor is there
  2  trouble: a run does not start, or begins with other weights or another batch
"""
_OPTIONS = "--deterministic"
_FOLDER = "numtui-floor"
_RUNS = 2
_ASKED = ("command", "runs", "capture", "python", "timeout")


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "floor", _run, _DESCRIPTION, help="")
    parser.add_argument("-n", "--runs", metavar="N", type=positive_number, help=f"perturbed runs (default: {_RUNS})")
    parser.add_argument(
        "--capture",
        metavar="OPTIONS",
        help=f"options of numtui capture (--capture='--steps 2'; default: {_OPTIONS})",
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_number, help="end a run that takes longer")
    file_argument(parser, "--python", metavar="FILE", help="Python that captures")
    file_argument(
        parser,
        "-o",
        "--output",
        metavar="DIR",
        default=_FOLDER,
        help=f"reference and floor (default: {_FOLDER})",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the floor of DIR, as it was asked for")
    file_argument(parser, "command", nargs="*", metavar="-- script.py ARGS | -m module ARGS", help="what is captured")


def _run(args: argparse.Namespace) -> int:
    from numtui.experiments.journal import Journal

    folder = Path(typed_path(args.output)).absolute()
    asked = {name: getattr(args, name) for name in _ASKED}
    if args.resume:
        with Journal.resumed(folder) as journal:
            return _measured(args, folder, journal, asked)
    if not args.command:
        raise InputError("numtui floor -- COMMAND: name what is captured")
    try:
        options = shlex.split(args.capture or "")
    except ValueError as error:
        raise InputError(f"--capture {args.capture}: {error}") from None
    if {"-o", "--output", "--perturb"} & set(options):
        raise InputError("--capture: floor chooses folders and perturbations; leave -o and --perturb out")
    with Journal.begin(folder, asked) as journal:
        return _measured(args, folder, journal, asked)


def _measured(args: argparse.Namespace, folder: Path, journal: Journal, now: Mapping[str, object]) -> int:
    from numtui.experiments.capturing import CaptureCommand
    from numtui.experiments.floor import measure_floor

    journal.check_asked(now)
    command, runs, options, python, patience = map(journal.asked.get, _ASKED)
    options = shlex.split(_OPTIONS if options is None else options)
    capture = CaptureCommand(command or [], options, python or sys.executable, patience)
    runs = runs or _RUNS
    for path, differ, of in measure_floor(capture, folder, runs, journal, complain):
        sys.stdout.write(f"{safe_text(str(path))}: {differ:,} of {of:,} operations move in {runs:,} perturbed runs\n")
    sys.stdout.write(f"next: numtui diff --floor {shlex.quote(safe_text(args.output))} OTHER_RUN\n")
    return ExitCode.SAME
