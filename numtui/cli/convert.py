"""`numtui convert`: the logs of any tool, written as numtui's own, or as tables for SQL."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from matchers.errors import InputError
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_step,
    file_argument,
    requested,
)
from numtui.cli.output import ExitCode, complain, deliver
from numtui.paths import typed_path

if TYPE_CHECKING:
    from matchers.comparison import Comparison
    from matchers.logs.op_log import OpLog
    from numtui.report.tables import Side

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "convert",
        _run,
        "Writes the logs of a run as numtui's own, a file for each rank, whatever tool they are of.\n"
        "What their numbers show, and what they do not, stays known (docs/importers.md). With --to,\n"
        "writes tables of records, and of two runs also of pairs and verdicts (docs/sql.md).",
        help="",
    )
    file_argument(parser, "a", metavar="A", help="log, or run folder")
    file_argument(parser, "b", metavar="B", nargs="?", help="log or run folder of the other run, for --to")
    told = "folder of the new logs or Parquet files, or the DuckDB database"
    file_argument(parser, "-o", "--output", metavar="PATH", required=True, help=told)
    parser.add_argument("--to", choices=("parquet", "duckdb"), help="write tables (needs DuckDB: numtui[sql])")
    add_step(parser)
    add_log_options(parser)
    add_expectation(parser)


def _run(args: argparse.Namespace) -> int:
    target = typed_path(args.output)
    if args.to is None:
        if args.b is not None:
            raise InputError("two runs are written as tables: add --to parquet or --to duckdb")
        _convert(args, target)
        return ExitCode.SAME
    if target.exists() and not (args.to == "parquet" and target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target}: exists: choose another place, or remove it")
    sides, comparison = _compared(args) if args.b is not None else (_ranks(args), None)
    from numtui.report.tables import write_tables

    many = write_tables(sides, comparison, args.to, target)
    complain(f"{', '.join(f'{number:,} {name}' for name, number in many.items())} in {target}")
    return ExitCode.SAME


def _compared(args: argparse.Namespace) -> tuple[list[Side], Comparison]:
    from matchers.runs.run import rank_in
    from numtui.cli.comparing import compared, warnings_of
    from numtui.cli.rule_files import rule_files
    from numtui.report.tables import Side

    request = requested(args)
    c = compared(request, rule_files(request).applied)
    for text in warnings_of(c, rules_too=True):
        complain(text)
    ranks = [rank_in(Path(path)) for path in (request.path_a, request.path_b)]
    logs = zip("ab", ranks, (c.a, c.b), strict=True)
    return [Side(side, -1 if rank is None else rank, log) for side, rank, log in logs], c


def _ranks(args: argparse.Namespace) -> list[Side]:
    from numtui.report.tables import Side

    return [Side("a", rank, log) for rank, log in _logs(args).items()]


def _logs(args: argparse.Namespace) -> dict[int, OpLog]:
    """The logs of a run, by rank; says what could not be read of them."""
    from matchers.logs.parser import read_log
    from matchers.runs.run import find_run

    run = find_run(args.a, step=args.step, stage=args.stage)
    if args.rank is not None and args.rank not in run.paths:
        raise InputError(f"{args.a}: no log of rank {args.rank}")
    logs = {rank: read_log(path, step=args.step) for rank, path in run.paths.items() if args.rank in (None, rank)}
    for rank, log in logs.items():
        for problem in log.problems[:1]:
            more = f" and {log.problem_count - 1:,} more" if log.problem_count > 1 else ""
            complain(f"{run.paths[rank]}:{problem.line}: {problem.message}{more}")
    return logs


def _convert(args: argparse.Namespace, folder: Path) -> None:
    for rank, log in _logs(args).items():
        target = folder / f"rank_{rank}_activations.log"
        if target.exists():
            raise InputError(f"{target}: exists: choose another folder, or remove it")
        _write(log, target)


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
