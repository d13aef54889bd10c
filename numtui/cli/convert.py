"""`numtui convert`: the logs of another tool, written as numtui's own."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, file_argument, whole_number
from numtui.cli.output import ExitCode, complain, deliver
from numtui.paths import typed_path

if TYPE_CHECKING:
    from matchers.logs.op_log import OpLog

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "convert",
        _run,
        "Writes the logs of a run as numtui's own, a file for each rank, whatever tool they are of.\n"
        "What their numbers show, and what they do not, stays known (docs/importers.md).",
        help="",
    )
    file_argument(parser, "run_", metavar="RUN", help="log, or run folder")
    file_argument(parser, "-o", "--output", metavar="DIR", required=True, help="folder of the new logs")
    parser.add_argument("--step", type=whole_number, metavar="S", help="captured step, where there are several")


def _run(args: argparse.Namespace) -> int:
    from matchers.logs.parser import read_log
    from matchers.runs.run import find_run

    run = find_run(args.run_, step=args.step)
    folder = typed_path(args.output)
    for rank, path in run.paths.items():
        log = read_log(path)
        target = folder / f"rank_{rank}_activations.log"
        if target.exists():
            raise InputError(f"{target}: exists: choose another folder, or remove it")
        for problem in log.problems[:1]:
            more = f" and {log.problem_count - 1:,} more" if log.problem_count > 1 else ""
            complain(f"{path}:{problem.line}: {problem.message}{more}")
        _write(log, target)
    return ExitCode.SAME


def _write(log: OpLog, target: Path) -> None:
    try:
        os.makedirs(target.parent, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent}: {error.strerror or error}") from None
    deliver(partial(_text, log), target)
    complain(f"{len(log):,} operations in {target}")


def _text(log: OpLog, out: TextIO) -> None:
    from matchers.logs.writer import written

    out.writelines(written(log))
