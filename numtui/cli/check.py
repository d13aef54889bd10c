"""`numtui check`: one run checked against itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from matchers.errors import InputError
from matchers.weights.recognised import is_weight_log
from numtui.cli.arguments import Commands, add_command, add_no_cache, add_screen, add_step, file_argument, on_screen
from numtui.cli.explore import configured
from numtui.cli.output import ExitCode, complain_briefly, deliver
from numtui.cli.overview import has_screen, show
from numtui.cli.report_options import add_report_options, listed, targets_of
from numtui.cli.user_cache import keep_for_later
from numtui.inputs import DEFAULT_RULES, OpenRequest
from numtui.report.options import CONDITIONS_OF_RUN, FAIL_ON_OF_RUN, Target
from numtui.terminal.progress import ProgressLine
from numtui.terminal.tty import wants_color

if TYPE_CHECKING:
    from matchers.runs.finding import CheckedRun
    from numtui.report.check.model import CheckReport

__all__ = ["add_parser"]

_DESCRIPTION = """\
Checks one run against itself, without another one: replicas that differ, collectives that
do not match or compute something else, data that repeats, parameters that are not
trained, and others (docs/check.md). On a terminal it is a screen, from which enter opens
the explorer on the two ranks of a finding. Reports have the forms of numtui diff.

exit codes:
  0  the run fails on nothing
  1  it fails on one of the conditions of --fail-on:
{conditions}
  2  trouble: there is no such run, a log cannot be read, a report cannot be written
"""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "check", _run, _DESCRIPTION.format(conditions=listed(CONDITIONS_OF_RUN)), help="")
    file_argument(
        parser,
        "path",
        metavar="RUN",
        help="run folder, the log of one rank, or a folder of dumps of torch's flight recorder",
    )
    add_step(parser)
    add_no_cache(parser)
    add_report_options(parser, CONDITIONS_OF_RUN, FAIL_ON_OF_RUN)
    add_screen(parser)


def _run(args: argparse.Namespace) -> int:
    if is_weight_log(args.path):
        raise InputError(f"{args.path}: is a log of weights over steps, which has no operations to check")
    request = on_screen(OpenRequest(path_a="", path_b="", name_a="", name_b="", rules_path=DEFAULT_RULES), args)
    targets = targets_of(args)
    on_terminal = not (args.format or args.output or args.also) and has_screen()
    checked = _checked(args, request)
    from numtui.report.check.model import CheckReport

    report = CheckReport(checked, tuple(dict.fromkeys(args.fail_on or FAIL_ON_OF_RUN)))
    code = 0
    if on_terminal:
        code = _show(checked, configured(request))
    else:
        _write(report, targets, color=request.color)
    keep_for_later(request)
    return code or (ExitCode.RED if report.failures else ExitCode.SAME)


def _checked(args: argparse.Namespace, request: OpenRequest) -> CheckedRun:
    from matchers.runs.check import check_run
    from matchers.runs.run import find_run

    with ProgressLine() as progress:
        run = find_run(args.path, step=args.step, stage=args.stage, dumps=True)
        return check_run(run, cache=request.cache, progress=progress)


def _show(checked: CheckedRun, request: OpenRequest) -> int:
    from numtui.session.findings import FindingsCursor
    from numtui.tui.screens.check import CheckScreen

    cursor = FindingsCursor(checked)
    return show(cursor, lambda: CheckScreen(cursor), request)


def _write(report: CheckReport, targets: Sequence[Target], *, color: bool) -> None:
    from numtui.report.write import write

    for form, path in targets:
        colored = path is None and wants_color(sys.stdout, no_color=not color)
        deliver(partial(write, report, form=form, color=colored), path)
    # findings are told by the report
    told = [f for f in report.failures if f.condition != "finding" or report.fail_on != FAIL_ON_OF_RUN]
    complain_briefly([f"fails on {f.condition}: {f.text}" for f in told], "{} more reasons".format)
