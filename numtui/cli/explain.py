"""`numtui explain`: the whole chain of one row's verdict."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_logs,
    add_output,
    add_step,
    requested,
    requested_of_one,
)
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.user_cache import keep_for_later
from numtui.terminal.tty import wants_color
from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from matchers.comparison import Comparison

__all__ = ["add_parser"]

_MOST_CANDIDATES = 8


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "explain",
        _run,
        "Explains the verdict on one row in sentences: its cause, the pair, its inputs, the operation\n"
        "and its arguments, what repeats, the error and its limit, and what would change it.",
        help="",
    )
    add_logs(parser)
    told = "number of the row, as the explorer shows it, or a key of either run, or its beginning; without B, of A"
    parser.add_argument("row", metavar="ROW", nargs="?", help=told)
    add_log_options(parser)
    add_expectation(parser)
    add_step(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="the form (default: text)")
    add_output(parser)
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")


def _run(args: argparse.Namespace) -> int:
    if args.row is None and os.path.lexists(args.b):
        raise InputError(f"which row of {args.a} and {args.b}? A number, as the explorer shows it, or a key")
    if args.row is None:
        args.b, args.row = None, args.b
    request = requested(args) if args.b is not None else requested_of_one(args)
    if request.single:
        from matchers.logs.cache import read_cached
        from matchers.single_run import single_run

        c: Comparison = single_run(read_cached(request.path_a, request.cache, step=request.step))
    else:
        from numtui.cli.comparing import compared, warnings_of
        from numtui.cli.rule_files import rule_files

        c = compared(request, rule_files(request).applied)
        for text in warnings_of(c, rules_too=True):
            complain(text)
    from numtui.report.explain import write_json, write_text
    from numtui.report.explanation import explain_row

    told = explain_row(c, _row_of(c, args.row))
    color = args.output is None and wants_color(sys.stdout, no_color=args.no_color)
    deliver(
        partial(write_json, c, told) if args.format == "json" else partial(write_text, c, told, color=color),
        args.output,
    )
    keep_for_later(request)
    return ExitCode.SAME


def _row_of(c: Comparison, text: str) -> int:
    """Return the row of a number or key.

    Raises:
        InputError: there is none, or several have it.
    """
    number = text.replace(",", "")
    if number.isascii() and number.isdigit():
        if not 1 <= int(number) <= len(c):
            raise InputError(f"there is no row {safe_text(text, 40)}: rows are numbered from 1 to {len(c):,}")
        return int(number) - 1
    rows: dict[int, str] = {}
    for fits in (str.__eq__, str.startswith, str.__contains__):
        for (_, log), at in zip(c.logs, (c.at_a, c.at_b), strict=False):
            for record, key in enumerate(log.keys):
                if not rows.get(int(at[record])) and fits(key, text):
                    rows[int(at[record])] = key
        if rows:
            break
    if len(rows) == 1:
        return next(iter(rows))
    if not rows:
        raise InputError(f"no row has a key with {safe_text(text, 100)!r}")
    names = [f"{row + 1} {safe_text(key, 100)}" for row, key in sorted(rows.items())[:_MOST_CANDIDATES]]
    more = f", and {len(rows) - len(names):,} more" if len(rows) > len(names) else ""
    raise InputError(f"{len(rows):,} rows have a key with {safe_text(text, 100)!r}: {', '.join(names)}{more}")
