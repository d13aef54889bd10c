"""`numtui plan`: what the next capture of two runs should keep whole."""

from __future__ import annotations

import argparse
from pathlib import Path

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
)
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.user_cache import keep_for_later, user_cache
from numtui.inputs import resolve_log
from numtui.paths import typed_path

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "plan",
        _run,
        "Writes what the next capture should keep whole to see why two runs differ: first causes, what\n"
        "made their inputs, what reads them; JSON, one operation a line with its reason, to be edited.\n"
        "Then run both again under numtui capture --save FILE, and numtui replay the two.\n"
        "With --digests, a table of what a run A computed: numtui capture --against FILE keeps the first\n"
        "operations of another run that differ from it, in that run.",
        help="",
    )
    add_logs(parser, or_one=True)
    parser.add_argument("--digests", action="store_true", help="write the digests of A alone, all its ranks and steps")
    add_log_options(parser)
    add_expectation(parser)
    add_step(parser)
    add_output(parser)


def _run(args: argparse.Namespace) -> int:
    if args.digests:
        return _digests(args)
    if args.b is None:
        raise InputError("a plan is of two runs: name B; --digests writes those of A alone")
    from numtui.cli.comparing import compared, warnings_of
    from numtui.cli.rule_files import rule_files
    from numtui.report.plan import plan_records, write_plan

    args.rank = _rank(args)
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


def _rank(args: argparse.Namespace) -> int | None:
    """Return the rank that was named, or else the one where it began; None of runs without several."""
    from numtui.cli.ranks import are_runs, compare_runs

    if not are_runs(args):
        return int(args.rank) if args.rank is not None else None
    rank = compare_runs(argparse.Namespace(**vars(args), read_all=False, dask=None, workers=None)).began
    if rank is None:
        raise InputError("nothing to keep: no compared operation of any rank differs")
    complain(f"rank {rank}, where it began")
    return rank


def _digests(args: argparse.Namespace) -> int:
    from matchers.logs.cache import read_cached
    from matchers.runs.run import find_logs
    from numtui.report.digests import write_digests

    if args.b is not None:
        raise InputError("--digests is about one run: leave B out")
    path = Path(typed_path(args.a))
    paths = [str(log.path) for log in find_logs(path, stage=args.stage)] if path.is_dir() else [resolve_log(args.a)]
    if not paths:
        resolve_log(args.a)  # says what there is instead
    logs = (read_cached(each, None if args.no_cache else user_cache()) for each in paths)
    deliver(lambda out: write_digests(logs, out), args.output)
    return ExitCode.SAME
