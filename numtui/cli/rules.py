"""`numtui rules`: convert torchtitan's overrides to a rule file, and check rule files."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from matchers.errors import InputError, RulesError
from numtui.cli.arguments import Commands, add_command, add_output, add_rank, file_argument, requested
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.user_cache import keep_for_later
from numtui.paths import typed_path
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

if TYPE_CHECKING:
    from matchers.rules.file import RuleFile
    from matchers.rules.resolve import RuleUsage

__all__ = ["add_parser"]

_MAX_PROBLEMS = 20
_MAX_LINE_LENGTH = 2000


def add_parser(commands: Commands) -> None:
    """Add the sub-command and its own two."""
    about = "Checks and converts rule files."
    parser = commands.add_parser("rules", help="", description=about, allow_abbrev=False)
    own = parser.add_subparsers(metavar="COMMAND", required=True)
    about = "Turns an override file of torchtitan ('key of a, key of b' on each line) into a rule file."
    convert = add_command(own, "convert", _convert, about, help=about)
    file_argument(convert, "source", metavar="FILE", help="the override file (CSV)")
    add_output(convert, "write to FILE instead of standard output")
    convert.add_argument("--force", action="store_true", help="replace FILE when it exists")
    about = "Checks a rule file; with two logs, also reports rules that match nothing or are in doubt."
    check = add_command(own, "check", _check, about, help=about)
    file_argument(check, "rules", metavar="FILE", help="the rule file (YAML)")
    file_argument(check, "a", metavar="A", nargs="?", help="log or run folder of one run")
    file_argument(check, "b", metavar="B", nargs="?", help="log or run folder of the other run")
    add_rank(check)
    check.add_argument("--hints", action="store_true", help="also list the rules that these two logs do not need")


def _convert(args: argparse.Namespace) -> int:
    """Write the pairs of an override file as YAML.

    An invalid line stops the conversion: an incomplete rule file looks like a complete one.

    Raises:
        InputError: the output exists and `--force` is not given, or it cannot be written.
        RulesError: the file cannot be read, or has invalid lines; all but the last are printed.
    """
    from matchers.rules.file import LARGEST
    from matchers.rules.torchtitan_csv import read_overrides

    source, output = args.source, args.output

    def may_write() -> None:
        # Only a regular file can lose content; `/dev/stdout` and pipes exist as well.
        if output is not None and not args.force and output.is_file():
            raise InputError(f"{output}: exists already; choose another file, or replace it with --force")

    may_write()
    try:
        with open(source, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RulesError(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise RulesError(f"{source}: larger than {LARGEST >> 20} MiB: this is no override file")
    overrides = read_overrides(data, source)
    if overrides.problems:
        messages = [f"{problem.path}:{problem.line}: {problem.message}" for problem in overrides.problems]
        for message in messages[:_MAX_PROBLEMS]:
            complain(message)
        more = len(messages) - _MAX_PROBLEMS
        hidden = f" ({more:,} more than shown)" if more > 0 else ""
        lines = plural(len(messages), "line")
        raise RulesError(f"{source}: nothing was converted: {lines} could not be understood{hidden}")
    if len(overrides.yaml.encode()) > LARGEST:
        raise RulesError(f"{source}: as a rule file it would be larger than {LARGEST >> 20} MiB; split it")
    if not overrides.pairs:
        complain(f"{source}: there are no pairs in this file")
    deliver(lambda out: print(overrides.yaml, end="", file=out), output, may_write)
    return ExitCode.SAME


def _check(args: argparse.Namespace) -> int:
    """Print the problems of a rule file, one per line, and a summary.

    Without logs, only problems of the file itself.

    Raises:
        UserError: the file, or a log, cannot be read.
    """
    if args.a is not None and args.b is None:
        raise InputError(f"a rule file is about two logs, and only {args.a} was given")
    path = typed_path(args.rules)
    logs = None if args.a is None else requested(args)
    from matchers.rules.file import RuleFile

    file = RuleFile.load(path)
    usage: Sequence[RuleUsage] = ()
    if logs is not None:
        from numtui.cli.comparing import compared

        usage = compared(logs, path).usage
        keep_for_later(logs)
    wrong = [str(problem) for problem in file.rules.problems] + [use.problem for use in usage if use.problem]
    needless = [use.hint for use in usage if use.hint]
    lines = [safe_text(text, _MAX_LINE_LENGTH) for text in (*wrong, *(needless if args.hints else ()))]
    lines.append(f"{safe_text(args.rules, 200)}: {', '.join(_summary(file, logs is not None, usage, needless))}")
    deliver(lambda out: write_lines(lines, out), None)
    return ExitCode.RED if wrong else ExitCode.SAME


def _summary(file: RuleFile, matched: bool, usage: Sequence[RuleUsage], needless: Sequence[str]) -> Iterator[str]:
    rules = file.rules.rules
    sections = Counter(rule.section for rule in rules)
    kinds = ", ".join(f"{n:,} {name.removesuffix('s') if n == 1 else name}" for name, n in sections.items())
    yield f"{plural(len(rules), 'rule')}{f' ({kinds})' if kinds else ''}"
    if disabled := sum(not rule.enabled for rule in rules):
        yield f"{disabled:,} disabled"
    if file.rules.problems:
        yield f"{plural(len(file.rules.problems), 'rule')} broken"
    if matched:
        doubtful = [use for use in usage if use.problem]
        idle = sum(not use.matched for use in doubtful)
        for number, one, many in ((idle, "matches", "match"), (len(doubtful) - idle, "is in doubt", "are in doubt")):
            if number:
                yield f"{number:,} {one if number == 1 else many}{' nothing' if one == 'matches' else ''}"
        if needless:
            is_are = "is" if len(needless) == 1 else "are"
            yield f"{len(needless):,} {is_are} not needed for these two logs (--hints lists them; others may need them)"
    if not file.rules.problems and not any(use.problem for use in usage):
        yield "nothing is wrong" if matched else "all are understood"
