"""`numtui plan`: what the next capture of two runs should keep whole."""

from __future__ import annotations

import argparse

from matchers.errors import InputError
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_logs,
    add_output,
    requested,
    whole_number,
)
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.user_cache import keep_for_later

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "plan",
        _run,
        "Writes what the next capture should keep whole to see why two runs differ: first causes, what\n"
        "made their inputs, what reads them; JSON, one operation a line with its reason, to be edited.\n"
        "Then run both again under numtui capture --save FILE, and numtui replay the two.",
        help="",
    )
    add_logs(parser)
    add_log_options(parser)
    add_expectation(parser)
    parser.add_argument("--step", type=whole_number, metavar="S", help="captured step, where there are several")
    add_output(parser)


def _run(args: argparse.Namespace) -> int:
    from numtui.cli.comparing import compared, warnings_of
    from numtui.cli.rule_files import rule_files
    from numtui.report.plan import plan_records, write_plan

    request = requested(args)
    c = compared(request, rule_files(request).applied)
    for text in warnings_of(c, rules_too=True):
        complain(text)
    if c.a.members or c.b.members:
        raise InputError("merged ranks have no operations to keep: name one rank with --rank")
    if not plan_records(c):
        raise InputError("nothing to keep: no compared operation differs")
    deliver(lambda out: write_plan(c, (request.name_a, request.name_b), out), args.output)
    keep_for_later(request)
    return ExitCode.SAME
