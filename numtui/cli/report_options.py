"""Options of commands that write reports: the form, further files, conditions for the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from matchers.errors import InputError
from numtui.cli.arguments import add_output, file_argument
from numtui.paths import typed_path
from numtui.report.options import FORMATS, SUFFIXES, Target, format_of
from numtui.text.safe import safe_text

__all__ = ["add_report_options", "form_of", "listed", "targets_of"]


def add_report_options(parser: argparse.ArgumentParser, conditions: Collection[str], default: Sequence[str]) -> None:
    """Add the options; `default` are the conditions on which the command fails unless the user names others."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORM",
        help="the form (default: by the ending of -o, else text)",
    )
    add_output(parser)
    file_argument(
        parser,
        "--also",
        metavar="FILE",
        action="append",
        default=[],
        help="write a second report to FILE, in the form its name ends in; as often as wanted",
    )
    parser.add_argument(
        "--fail-on",
        metavar="CONDITION",
        type=partial(_conditions, conditions),
        action="extend",
        help=f"conditions for exit code 1, comma-separated (default: {','.join(default)})",
    )


def listed(meanings: Mapping[str, str]) -> str:
    """Return lines for the help of a command: forms or conditions with their meaning."""
    return "\n".join(f"     {name:<18} {meaning}" for name, meaning in meanings.items())


def form_of(args: argparse.Namespace) -> str:
    """Return the form of the first report: by `--format`, or by the ending of `-o`; text without either.

    Raises:
        InputError: the ending is of no known form.
    """
    if args.format or args.output is None:
        return args.format or "text"
    path: Path = args.output
    form = format_of(str(path))
    if form is None and path.suffix:
        raise InputError(f"-o {path}: {path.suffix} is no known form ({', '.join(SUFFIXES)}); --format says which")
    return form or "text"


def targets_of(args: argparse.Namespace) -> list[Target]:
    """Return all reports to write.

    Raises:
        InputError: the ending of a file is of no known form.
    """
    return [Target(form_of(args), args.output), *map(_also, args.also)]


def _also(name: str) -> Target:
    form = format_of(name)
    if form is None:
        raise InputError(f"--also {name}: the form follows from the ending: {', '.join(SUFFIXES)}")
    return Target(form, typed_path(name))


def _conditions(known: Collection[str], text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{safe_text(name, 40)!r} is none of {', '.join(known)}")
    return names
