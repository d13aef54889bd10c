"""`numtui diff`: reports of the comparison of two logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from matchers.weights.recognised import is_weight_log
from numtui.cli.arguments import (
    WEIGHT_FORMATS,
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_logs,
    add_run_options,
    file_argument,
    requested,
    requested_of_one,
)
from numtui.cli.output import ExitCode, briefly, complain, complain_of_reader, deliver
from numtui.cli.ranks import are_runs, report_runs
from numtui.cli.report_options import add_report_options, form_of, listed, targets_of
from numtui.cli.user_cache import keep_for_later
from numtui.inputs import STDIN, OpenRequest
from numtui.paths import typed_path
from numtui.report.options import CONDITIONS, FAIL_ON, FORMATS, OF_ONE_LOG, ReportOptions, Target
from numtui.runtime_tuning import keep_all_until_the_end
from numtui.terminal.tty import wants_color

if TYPE_CHECKING:
    from numtui.report.gate import GatedRows

__all__ = ["add_parser", "report"]

_DESCRIPTION = """\
Prints the comparison of two logs, in one form or several. Without B: what one log says
by itself, as text (NaN and Inf, recompute mismatches, largest values).

forms:
{formats}

exit codes:
  0  the comparison fails on nothing
  1  it fails on one of the conditions of --fail-on, or nothing was compared:
{conditions}
  2  trouble: a log or a file of rules cannot be read, a report cannot be written
"""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    description = _DESCRIPTION.format(formats=listed(FORMATS), conditions=listed(CONDITIONS))
    parser = add_command(commands, "diff", _run, description, help="")
    add_logs(parser, or_one=True)
    add_log_options(parser)
    add_expectation(parser)
    add_report_options(parser, CONDITIONS, FAIL_ON)
    add_run_options(parser, parts=True)
    file_argument(parser, "--allow", metavar="FILE", help="known differences, which fail nothing (docs/ci.md)")
    parser.add_argument(
        "--pages",
        action="store_true",
        help="beside the HTML page of many ranks, one with every row for a rank of each class, linked to each other",
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")


def _run(args: argparse.Namespace) -> int:
    form = form_of(args)
    if args.b is None:
        return _of_one(args, form)
    if is_weight_log(args.a) or is_weight_log(args.b):
        return _of_weights(args, form)
    _name_floor(args)
    fail_on = tuple(dict.fromkeys(args.fail_on or FAIL_ON))
    allow = None if args.allow is None else typed_path(args.allow)
    from numtui.cli.steps import at_first_difference

    shown = any(target == ("text", None) for target in targets_of(args))
    args = at_first_difference(args, sys.stdout if shown else None, fail_on, allow)
    if are_runs(args):
        return report_runs(args, targets_of(args), fail_on, allow, report)
    if args.pages:
        raise InputError("--pages is about two runs of many ranks: A and B are their folders, without --rank")
    return report(requested(args), targets_of(args), fail_on=fail_on, allow=allow)


def _name_floor(args: argparse.Namespace) -> None:
    """Name the floor beside a log that is not applied, where nothing is said of what to expect."""
    if any(getattr(args, name) is not None for name in ("floor", "noise", "expect", "rtol")):
        return
    from numtui.session.expectation import floors_beside

    if found := next((floors for path in (args.a, args.b) if (floors := floors_beside(path))), None):
        complain(f"{next(iter(found.values()))}: limits from perturbed runs are not applied; --floor applies them")


def _of_one(args: argparse.Namespace, form: str) -> int:
    """Report one log by itself; reject options for two."""
    if form != "text" or args.also:
        raise InputError(f"one log is reported as text only, and only {args.a} was given")
    conditions = tuple(dict.fromkeys(args.fail_on or ["diverged"]))
    for name in conditions:
        if name not in OF_ONE_LOG:
            raise InputError(f"--fail-on {name} is about two logs, and only {args.a} was given")
    from numtui.cli.single_run import report_single

    return report_single(requested_of_one(args), fail_on=conditions, path=args.output)


def _of_weights(args: argparse.Namespace, form: str) -> int:
    """Report two logs of weights; reject options for operations."""
    if form not in WEIGHT_FORMATS:
        raise InputError(f"logs of weights are reported as {' or '.join(WEIGHT_FORMATS)}, not as {form}")
    for option, given in (("--also", args.also), ("--fail-on", args.fail_on), ("--allow", args.allow)):
        if given:
            raise InputError(f"{option} is about logs of operations; these are logs of weights")
    from numtui.cli.weights import report_weights

    return report_weights([args.a, args.b], form, args.output)


def report(
    request: OpenRequest,
    targets: Sequence[Target],
    *,
    fail_on: tuple[str, ...] = FAIL_ON,
    allow: Path | None = None,
    overview: str | None = None,
) -> int:
    """Compare and write the reports; returns the exit code.

    Args:
        request: the two logs and the criteria.
        targets: the reports; `Target.path` None is standard output.
        fail_on: some of `numtui.report.options.CONDITIONS`.
        allow: the file of known differences.
        overview: as of `ReportOptions`.

    Raises:
        UserError: a log, the rules or the known differences cannot be read, a report cannot be written.
        BrokenPipeError: the reader of standard output is gone.
    """
    keep_all_until_the_end()
    from numtui.cli.rule_files import rule_files

    files = rule_files(request)
    shown = any(target == ("text", None) for target in targets)
    kept = None
    if [target.form for target in targets] == ["text"] and request.cache is not None:
        from numtui.cli.kept_report import KeptReport

        colored = shown and wants_color(sys.stdout, no_color=not request.color)
        kept = KeptReport.of(request, files, fail_on, allow, shown, colored, files=[] if allow is None else [allow])
        if kept is not None and (outcome := kept.outcome()) is not None:
            _tell(outcome.warnings)
            deliver(lambda out: print(outcome.text, end="", file=out), targets[0].path)
            _tell(outcome.reasons)
            return outcome.code
    from numtui.cli.comparing import compared, warnings_of
    from numtui.report.write import write

    known = None
    if allow is not None:
        from numtui.report.known_differences import load_allow_list  # imports PyYAML, as the rules do

        known = load_allow_list(allow)
    rows_only = all(target.form in _ROWS_ONLY for target in targets)
    comparison = compared(request, files.applied, final=rows_only)
    complain_of_reader()
    warnings = warnings_of(comparison, rules_too=not shown)
    _tell(warnings)
    paths = request.path_a, request.path_b
    options = ReportOptions(
        names=(request.name_a, request.name_b),
        paths=None if STDIN in paths else paths,
        step=request.step,
        rules_path=None if files.applied is None else str(files.applied),
        rules_found=None if files.found is None else str(files.found),
        fail_on=fail_on,
        allow=known,
        overview=overview,
    )
    made: GatedRows
    if rows_only:
        from numtui.report.gate import GatedRows

        made = GatedRows(comparison, options)
    else:
        from numtui.report.model import Report  # with what explains single rows in words

        made = Report(comparison, options)
    for form, path in targets:
        color = path is None and wants_color(sys.stdout, no_color=not request.color)
        produce = partial(write, made, form=form, color=color)
        deliver(produce if kept is None else kept.copying(produce), path)
    reasons = _reasons(made)
    _tell(reasons)
    code = ExitCode.RED if made.failures else ExitCode.SAME
    if kept is not None:
        kept.keep((comparison.a.content, comparison.b.content), warnings, reasons, code)
    keep_for_later(request)
    return code


def _tell(messages: Sequence[str]) -> None:
    for message in messages:
        complain(message)


_ROWS_ONLY = frozenset({"jsonl", "csv"})
"""Forms that list rows without details of the matching."""


def _reasons(made: GatedRows) -> list[str]:
    """Return failures, and allowed differences that never occurred; by default, red rows are told by the report."""
    told = [
        f"fails on {failure.condition}: {failure.text}"
        for failure in made.failures
        if failure.condition != "diverged" or made.options.fail_on != FAIL_ON or made.options.allow is not None
    ]
    if "stale-rule" not in made.options.fail_on:
        told += made.allowed.stale
    return briefly(told, "{} more reasons".format, most=10)
