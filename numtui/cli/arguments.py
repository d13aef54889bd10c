"""What can be typed: the parsers of all commands, and what their arguments ask for.

Imports nothing that is slow: `--help`, completion and the manual page are made of it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui import __version__
from numtui.cli.completion import SHELLS
from numtui.inputs import (
    DEFAULT_RULES,
    DEMOS,
    PRESETS,
    STDIN,
    OpenRequest,
    default_names,
    only_name,
    resolve_log,
    resolve_logs,
)
from numtui.report.options import CONDITIONS, FORMATS
from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from numtui.cli.parser_model import Command

__all__ = [
    "WEIGHT_FORMATS",
    "commands",
    "completion_parser",
    "demo_parser",
    "diff_parser",
    "main_parser",
    "requested",
    "requested_of_one",
    "rules_parser",
    "suggest_parser",
    "weights_parser",
]

WEIGHT_FORMATS = ("text", "jsonl")

_DESCRIPTION = """\
Shows where two training runs part: compares the per-operation numeric logs of
two runs and leads to the first operation whose inputs agree and whose output
does not."""

_COMMANDS = """\
commands:
  numtui A B             open the explorer (without a terminal: the text report)
  numtui A               explore one log: first NaN or Inf, largest values
  numtui diff A B        print the comparison; see numtui diff --help
  numtui weights A B …   print where logs of weights over steps part
  numtui suggest A B     print the known kinds of drift, and rules for them
  numtui demo            open an example; numtui demo bug: with a planted bug
  numtui rules check F   say what is wrong with a rule file, also for two logs
  numtui rules convert F turn an override file of torchtitan into a rule file
  numtui completion bash print completion for a shell: bash, zsh or fish

A and B are logs (rank_N_activations.log, also .gz; '-' for one of them reads
standard input) or the folders of two runs.

exit codes: 0 nothing red, 1 something red, 2 trouble
"""

_DIFF = """\
Prints the comparison of two logs, in one form or several.

forms:
{formats}

exit codes:
  0  the comparison fails on nothing
  1  it fails on one of the conditions of --fail-on:
{conditions}
  2  trouble: a log or a file of rules cannot be read, a report cannot be written
"""


def commands() -> tuple[Command, ...]:
    """What the command line accepts, for completions and the manual page."""
    from numtui.cli.parser_model import commands_of

    return commands_of(
        {
            "": main_parser(),
            "diff": diff_parser(),
            "weights": weights_parser(),
            "suggest": suggest_parser(),
            "demo": demo_parser(),
            "rules": rules_parser(),
            "completion": completion_parser(),
        }
    )


def main_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui A B`."""
    parser = _new_parser("numtui", _DESCRIPTION, epilog=_COMMANDS)
    _add_logs(parser, or_one=True)
    _add_expectation(parser)
    _add_screen(parser)
    parser.add_argument("--version", action="version", version=f"numtui {__version__}")
    return parser


def diff_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui diff`."""
    formats, conditions = ("\n".join(f"     {k:<15} {v}" for k, v in t.items()) for t in (FORMATS, CONDITIONS))
    parser = _new_parser("numtui diff", _DIFF.format(formats=formats, conditions=conditions))
    _add_logs(parser)
    _add_expectation(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORM",
        help="the form (default: by the ending of -o, else text)",
    )
    _add_output(parser)
    parser.add_argument(
        "--also",
        metavar="FILE",
        action="append",
        default=[],
        help="write a second report to FILE, in the form its name ends in; as often as wanted",
    )
    parser.add_argument(
        "--fail-on",
        metavar="CONDITION",
        type=_conditions,
        action="extend",
        help="what makes the exit code 1, with commas between several (default: diverged)",
    )
    parser.add_argument("--allow", metavar="FILE", help="known differences, which fail nothing (docs/ci.md)")
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    return parser


def weights_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui weights`."""
    parser = _new_parser(
        "numtui weights",
        "Prints at which step, and in which parameter, logs of weights part first;\n"
        "of more than two logs, the step for each pair.",
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="rank_N_weights.log, also .gz")
    parser.add_argument(
        "--format", choices=WEIGHT_FORMATS, default="text", help="text for people (default), jsonl for programs"
    )
    _add_output(parser)
    return parser


def suggest_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui suggest`."""
    parser = _new_parser(
        "numtui suggest",
        "Prints which known kinds of drift two logs show (renamed modules, shifted counters, lowered\n"
        "collectives, …), the rules that say so, and what these rules change.",
    )
    _add_logs(parser)
    parser.add_argument(
        "--format", choices=("text", "yaml"), default="text", help="text for people (default), yaml: a rule file for -r"
    )
    _add_output(parser)
    return parser


def demo_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui demo`."""
    parser = _new_parser(
        "numtui demo",
        "Opens a shipped example: a training step run eagerly and as a traced graph, which agree; or (bug) a step run "
        "twice, once with the attention's output negated in one layer.",
    )
    parser.add_argument("pair", nargs="?", choices=tuple(DEMOS), default="traced", help="default: traced")
    _add_screen(parser)
    return parser


def rules_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui rules`."""
    parser = _new_parser("numtui rules", "What can be done with rule files beside the explorer.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    about = "Turns an override file of torchtitan ('key of a, key of b' on each line) into a rule file."
    convert = commands.add_parser("convert", help=about, description=about, allow_abbrev=False)
    convert.add_argument("source", metavar="FILE", help="the override file (CSV)")
    convert.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")
    convert.add_argument("--force", action="store_true", help="replace FILE when it exists")
    about = "Says whether a rule file is understood; with two logs, also which rules match nothing or are in doubt."
    check = commands.add_parser("check", help=about, description=about, allow_abbrev=False)
    check.add_argument("rules", metavar="FILE", help="the rule file (YAML)")
    check.add_argument("a", metavar="A", nargs="?", help="log or run folder of one run")
    check.add_argument("b", metavar="B", nargs="?", help="log or run folder of the other run")
    check.add_argument("--rank", type=_rank, metavar="N", help="which rank's logs to take from the folders")
    check.add_argument("--hints", action="store_true", help="list the rules that these two logs do not need, too")
    return parser


def completion_parser() -> argparse.ArgumentParser:
    """The arguments of `numtui completion`."""
    parser = _new_parser(
        "numtui completion", "Prints what makes a shell complete numtui; its first line says where that belongs."
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def _new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation that works today is ambiguous tomorrow.
        allow_abbrev=False,
    )


def _add_logs(parser: argparse.ArgumentParser, *, or_one: bool = False) -> None:
    parser.add_argument("a", metavar="A", help="log or run folder of one run")
    other = "log or run folder of the other run"
    if or_one:
        parser.add_argument("b", metavar="B", nargs="?", help=f"{other}; without it, A by itself")
    else:
        parser.add_argument("b", metavar="B", help=other)
    parser.add_argument("-r", "--rules", metavar="FILE", help=f"rule file (default: {DEFAULT_RULES} in this folder)")
    parser.add_argument("--name-a", metavar="NAME", help="what to call side a")
    parser.add_argument("--name-b", metavar="NAME", help="what to call side b")
    parser.add_argument("--rank", type=_rank, metavar="N", help="which rank's logs to take from the folders")


def _add_expectation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to expect (docs/matching.md)")
    group.add_argument(
        "--expect",
        choices=PRESETS,
        help="bitwise: any difference is red; reduction-order: red is what neither an operation's own rounding nor "
        "its inputs explain; low-precision: the same, at the coarsest precision of the two runs",
    )
    group.add_argument(
        "--rtol", type=_tolerance, metavar="X", help="relative error that is close, where no rule says another"
    )
    group.add_argument(
        "--noise",
        metavar="C",
        help="a third log or run folder: one of the two runs again, or perturbed (python -m capture --perturb); "
        "what it differs by is noise",
    )


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a tolerance is a number from 0 on, not {safe_text(text, 40)!r}")
    return value


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, which is replaced only when all is written"
    )


def _add_screen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    parser.add_argument("--theme", metavar="NAME", help="colour theme of the explorer")
    parser.add_argument("--mouse", action="store_true", help="take the mouse (else it selects text as ever)")
    parser.add_argument(
        "--no-session", action="store_true", help="neither go on where the last session ended nor keep this one"
    )


def _conditions(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in CONDITIONS:
            raise argparse.ArgumentTypeError(f"{safe_text(name, 40)!r} is none of {', '.join(CONDITIONS)}")
    return names


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a rank is a number from 0 on, not {safe_text(text, 40)!r}")
    return int(text)


def requested(args: argparse.Namespace) -> OpenRequest:
    """What the arguments ask for, with the logs found.

    Raises:
        InputError: see `resolve_logs`.
    """
    path_a, path_b = resolve_logs(args.a, args.b, rank=args.rank)
    expect, rtol, noise = (getattr(args, name, None) for name in ("expect", "rtol", "noise"))
    if expect is not None and rtol is not None:
        raise InputError("--expect and --rtol are two answers to one question: give one of them")
    if expect == "bitwise" and noise is not None:
        raise InputError("--expect bitwise allows no noise: leave out --noise")
    name_a, name_b = default_names(path_a, path_b)
    return OpenRequest(
        path_a=path_a,
        path_b=path_b,
        name_a=args.name_a or name_a,
        name_b=args.name_b or name_b,
        rules_path=DEFAULT_RULES if args.rules is None else Path(args.rules),
        rules_given=args.rules is not None,
        expect=expect,
        rtol=rtol,
        noise_path=None if noise is None else _third_log(noise, args.rank),
        color=not getattr(args, "no_color", True),
        theme=getattr(args, "theme", None),
        mouse=getattr(args, "mouse", False),
        resume=not getattr(args, "no_session", True),
    )


def _third_log(path: str, rank: int | None) -> str:
    """The log of noise that a path stands for; it is read once, so it may be no standard input."""
    if path == STDIN:
        raise InputError("--noise reads a file or a run folder, not standard input")
    return resolve_log(path, rank=rank if os.path.isdir(path) else None)


def requested_of_one(args: argparse.Namespace) -> OpenRequest:
    """What is asked for of one log by itself.

    Raises:
        InputError: it is not there, or what is asked for takes two.
    """
    for name in ("rules", "name_b", "expect", "rtol", "noise"):
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} is about two logs, and only {args.a} was given")
    path = resolve_log(args.a, rank=args.rank)
    return OpenRequest(
        path_a=path,
        path_b="",
        name_a=args.name_a or only_name(path),
        name_b="",
        rules_path=DEFAULT_RULES,
        color=not args.no_color,
        theme=args.theme,
        mouse=args.mouse,
        resume=not args.no_session,
    )
