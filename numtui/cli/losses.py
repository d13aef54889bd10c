"""`numtui losses`: the first step at which losses and gradient norms of runs differ."""

from __future__ import annotations

import argparse
import math
import shutil
import sys

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, add_output, file_argument
from numtui.cli.output import ExitCode, complain_briefly, deliver
from numtui.cli.states import chosen
from numtui.inputs import run_names
from numtui.terminal.tty import is_dumb_terminal, is_terminal

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "losses",
        _run,
        "Shows at which step the losses and gradient norms of runs differ first, by how much, and\n"
        "within which tolerance they agree: from logs of weights (numtui capture --weights every),\n"
        "event files of TensorBoard, and lines that a trainer prints ('step: 1  loss: 8.13').",
        help="",
    )
    file_argument(
        parser, "runs", metavar="RUN", nargs="+", help="run folder, log of weights, event file, or printed log"
    )
    parser.add_argument("--against", metavar="NAME", help="run to compare the others with (default: the first)")
    parser.add_argument(
        "--rtol", type=_tolerance, default=0.0, metavar="X", help="relative differences up to X are none"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text for people (default), or json")
    add_output(parser)


def _tolerance(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a tolerance of 0 or more")
    return value


def _run(args: argparse.Namespace) -> int:
    if len(args.runs) < 2:
        raise InputError(f"{args.runs[0]}: give two or more runs to compare")
    names = run_names(args.runs)
    reference = 0 if args.against is None else chosen(args.against, args.runs, names)
    from matchers.curves.compare import compare_curves
    from matchers.curves.curves import read_curves
    from numtui.report.losses import LossReport, write_json, write_text

    runs = [read_curves(path) for path in args.runs]
    for run in runs:
        complain_briefly(run.problems, lambda more: f"{more:,} more lines could not be read")
    found = (
        () if k == reference else tuple(compare_curves(runs[reference], run, args.rtol)) for k, run in enumerate(runs)
    )
    plotted = args.output is None and is_terminal(sys.stdout) and not is_dumb_terminal()
    width = max(shutil.get_terminal_size().columns - max(map(len, names)) - 6, 10) if plotted else 0
    report = LossReport(tuple(names), tuple(runs), reference, tuple(found), args.rtol, width)
    deliver(lambda out: (write_json if args.format == "json" else write_text)(report, out), args.output)
    return ExitCode.RED if report.differs else ExitCode.SAME
