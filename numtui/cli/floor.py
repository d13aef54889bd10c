"""`numtui floor`: what rounding alone does to a run, kept beside its log as limits."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, file_argument, positive_number
from numtui.cli.output import ExitCode, complain
from numtui.paths import typed_path
from numtui.text.safe import safe_text

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


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "floor", _run, _DESCRIPTION, help="")
    parser.add_argument(
        "-n", "--runs", metavar="N", type=positive_number, default=2, help="perturbed runs (default: 2)"
    )
    parser.add_argument(
        "--capture",
        metavar="OPTIONS",
        help=f"options of numtui capture (--capture='--steps 2'; default: {_OPTIONS})",
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_number, help="end a run that takes longer")
    file_argument(parser, "--python", metavar="FILE", default=sys.executable, help="Python that captures")
    file_argument(
        parser,
        "-o",
        "--output",
        metavar="DIR",
        default=_FOLDER,
        help=f"reference and floor (default: {_FOLDER})",
    )
    file_argument(parser, "command", nargs="*", metavar="-- script.py ARGS | -m module ARGS", help="what is captured")


def _run(args: argparse.Namespace) -> int:
    from numtui.experiments.capturing import CaptureCommand
    from numtui.experiments.floor import measure_floor

    if not args.command:
        raise InputError("numtui floor -- COMMAND: name what is captured")
    try:
        options = shlex.split(_OPTIONS if args.capture is None else args.capture)
    except ValueError as error:
        raise InputError(f"--capture {args.capture}: {error}") from None
    if {"-o", "--output", "--perturb"} & set(options):
        raise InputError("--capture: floor chooses folders and perturbations; leave -o and --perturb out")
    capture = CaptureCommand(args.command, options, args.python, args.timeout)
    folder = Path(typed_path(args.output)).absolute()
    for path, differ, of in measure_floor(capture, folder, args.runs, complain):
        sys.stdout.write(
            f"{safe_text(str(path))}: {differ:,} of {of:,} operations move in {args.runs:,} perturbed runs\n"
        )
    sys.stdout.write(f"next: numtui diff --floor {shlex.quote(safe_text(args.output))} OTHER_RUN\n")
    return ExitCode.SAME
