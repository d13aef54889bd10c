"""`numtui merge`: the parts of a comparison of two runs, joined."""

from __future__ import annotations

import argparse

from numtui.cli.arguments import Commands, add_command, file_argument
from numtui.cli.ranks import write_runs
from numtui.cli.report_options import add_report_options, listed, targets_of
from numtui.paths import typed_path
from numtui.report.options import CONDITIONS, FAIL_ON

__all__ = ["add_parser"]

_DESCRIPTION = """\
Joins the parts of a comparison of two runs that numtui diff RUN_A RUN_B --shard i/n wrote,
and reports on all ranks as numtui diff does.

exit codes:
  0  the comparison fails on nothing
  1  it fails on one of the conditions of --fail-on, or a part is missing:
{conditions}
  2  trouble: a part cannot be read, the parts belong to different comparisons
"""


def add_parser(commands: Commands) -> None:
    """Add the sub-command `merge`."""
    parser = add_command(commands, "merge", _run, _DESCRIPTION.format(conditions=listed(CONDITIONS)), help="")
    file_argument(parser, "parts", metavar="PART", nargs="+", help="file that numtui diff --shard wrote")
    add_report_options(parser, CONDITIONS, FAIL_ON)
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")


def _run(args: argparse.Namespace) -> int:
    from matchers.runs.diff.comparison import RunComparison
    from matchers.runs.diff.part_file import joined, read_part
    from numtui.report.runs.model import RunsReport

    parts = {name: read_part(typed_path(name)) for name in args.parts}
    first = next(iter(parts.values()))
    fail_on = tuple(dict.fromkeys(args.fail_on or FAIL_ON))
    report = RunsReport(
        RunComparison(first.names, joined(parts), first.broken_rules), first.runs, first.criteria, fail_on
    )
    return write_runs(report, targets_of(args), color=not args.no_color)
