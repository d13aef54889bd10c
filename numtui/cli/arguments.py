"""Shared arguments of sub-commands, and the request made from them.

No slow imports: every `--help` loads this module.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from matchers.errors import InputError
from matchers.runs.run import has_steps
from matchers.typed_number import typed_number
from numtui.cli.user_cache import user_cache
from numtui.inputs import (
    DEFAULT_RULES,
    PRESETS,
    STDIN,
    OpenRequest,
    default_names,
    only_name,
    resolve_log,
    resolve_logs,
)
from numtui.paths import typed_path
from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from matchers.runs.diff.part_file import Shard

__all__ = [
    "SCREEN_SWITCHES",
    "WEIGHT_FORMATS",
    "Commands",
    "add_command",
    "add_expectation",
    "add_log_options",
    "add_logs",
    "add_no_cache",
    "add_output",
    "add_rank",
    "add_run_options",
    "add_screen",
    "file_argument",
    "on_screen",
    "requested",
    "requested_for",
    "requested_of_one",
    "whole_number",
]

WEIGHT_FORMATS = ("text", "json", "jsonl")

_SHARD = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})", re.ASCII)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - has no public name
"""Type of the return value of `add_subparsers`."""


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], description: str, **options: str
) -> argparse.ArgumentParser:
    """Add a sub-command whose parsed arguments have `run`, and `error` to report misuse.

    `options` go to `add_parser`; completion and manual page list the sub-command only with `help`, even empty.
    """
    parser = commands.add_parser(
        name,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter if "\n" in description else argparse.HelpFormatter,
        # Abbreviations become ambiguous with new options.
        allow_abbrev=False,
        **options,  # type: ignore[arg-type]
    )
    parser.set_defaults(run=run, error=parser.error)
    return parser


def file_argument(parser: argparse._ActionsContainer, *names: str, **options: Any) -> None:
    """Add an argument whose value is a path: shells complete file names for it."""
    # Attribute read by shtab; set here so that only `numtui completion` imports shtab.
    parser.add_argument(*names, **options).complete = "file"  # type: ignore[attr-defined]


def add_logs(parser: argparse.ArgumentParser, *, or_one: bool = False) -> None:
    """Add A and B; with `or_one` B may be left out. Their options are `add_log_options`'s."""
    file_argument(parser, "a", metavar="A", help="log or run folder of one run")
    other = "log or run folder of the other run"
    if or_one:
        file_argument(parser, "b", metavar="B", nargs="?", help=f"{other}; without it, A by itself")
    else:
        file_argument(parser, "b", metavar="B", help=other)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the rules, the names of the sides, and the rank."""
    rules = parser.add_mutually_exclusive_group()
    file_argument(rules, "-r", "--rules", metavar="FILE", help="apply the rules of FILE")
    rules.add_argument(
        "--auto-rules",
        action="store_true",
        default=None,
        help=f"apply {DEFAULT_RULES} in this folder, if there is one (the explorer always does)",
    )
    parser.add_argument("--name-a", metavar="NAME", help="name of side a")
    parser.add_argument("--name-b", metavar="NAME", help="name of side b")
    add_no_cache(parser)
    add_rank(parser)
    parser.add_argument(
        "--merged",
        action="store_true",
        default=None,
        help="merge all ranks of each run into one log, also where they would be compared rank by rank",
    )


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Add `--no-cache`."""
    parser.add_argument(
        "--no-cache", action="store_true", help="read and compare anew, and keep nothing (also: NUMTUI_CACHE=0)"
    )


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Add `--rank`."""
    parser.add_argument("--rank", type=whole_number, metavar="N", help="rank to read from run folders")


def add_expectation(parser: argparse.ArgumentParser) -> None:
    """Add the options for the expected differences of the two runs."""
    group = parser.add_argument_group("what to expect (docs/matching.md)")
    group.add_argument(
        "--expect",
        choices=PRESETS,
        help="bitwise: any difference is red; reduction-order: red is what neither an operation's own rounding nor "
        "its inputs explain; low-precision: the same, at the coarsest precision of the two runs",
    )
    group.add_argument("--rtol", type=_tolerance, metavar="X", help="relative tolerance where no rule sets one")
    file_argument(
        group,
        "--noise",
        metavar="C",
        help="a third log or run folder: one of the two runs again, or perturbed (numtui capture --perturb); "
        "what it differs by is noise",
    )
    group.add_argument(
        "--floor",
        action="store_true",
        default=None,
        help="apply the noise floor that numtui floor has kept beside a log (the explorer always does)",
    )


def _tolerance(text: str) -> float:
    value = typed_number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a tolerance is a number from 0 on, not {safe_text(text, 40)!r}")
    return value


def add_output(
    parser: argparse.ArgumentParser, about: str = "write to FILE, which is replaced only when all is written"
) -> None:
    """Add `--output`: a path, None for standard output."""
    file_argument(parser, "-o", "--output", metavar="FILE", type=_output, help=about)


def _output(text: str) -> Path | None:
    return None if text == "-" else typed_path(text)


SCREEN_SWITCHES = ("--no-color", "--mouse", "--no-session")


def add_screen(parser: argparse.ArgumentParser) -> None:
    """Add the options of the explorer's screen and session."""
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    parser.add_argument("--theme", metavar="NAME", help="colour theme of the explorer")
    parser.add_argument(
        "--mouse",
        action="store_true",
        help="clicks move, sort and press keys, the wheel scrolls (otherwise the mouse selects text)",
    )
    parser.add_argument("--no-session", action="store_true", help="do not resume the last session or save this one")


def add_run_options(parser: argparse.ArgumentParser, *, parts: bool) -> None:
    """Add the options for folders of several ranks; `parts` those for comparing them in parts."""
    group = parser.add_argument_group("runs of several ranks (docs/runs.md)")
    add_step(group)
    group.add_argument(
        "--workers", type=_workers, metavar="N", help="processes that compare ranks (default: the cores)"
    )
    group.add_argument("--dask", metavar="ADDRESS", help="compare on a Dask cluster, tcp://host:8786 (numtui[dask])")
    group.add_argument("--read-all", action="store_true", help="read also logs that are equal by their footers")
    if parts:
        group.add_argument(
            "--shard", type=_shard, metavar="i/n", help="compare the i-th part of the ranks, for numtui merge; needs -o"
        )


def add_step(parser: argparse._ActionsContainer) -> None:
    """Add the options that choose logs of a folder: `--step` and `--stage`, None without a choice."""
    parser.add_argument("--step", type=whole_number, metavar="S", help="captured step, where there are several")
    parser.add_argument("--stage", metavar="NAME", help="stage of the program, where each has its logs (verl)")


def _workers(text: str) -> int:
    if not (number := whole_number(text)):
        raise argparse.ArgumentTypeError("at least one process is needed")
    return number


def _shard(text: str) -> Shard:
    from matchers.runs.diff.part_file import Shard

    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"a part is 1/4, 2/4, …, not {text[:40]!r}")
    return Shard(int(match[1]), int(match[2]))


def whole_number(text: str) -> int:
    """Return a rank or a step of the command line.

    Raises:
        ArgumentTypeError: it is no number from 0 on.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a number from 0 on is expected, not {safe_text(text, 40)!r}")
    return int(text)


def positive_number(text: str) -> int:
    """Return a number of runs or seconds of the command line.

    Raises:
        ArgumentTypeError: it is no number from 1 on.
    """
    if not (number := whole_number(text)):
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def requested(args: argparse.Namespace) -> OpenRequest:
    """Return the request of the arguments, with resolved logs. Missing options are None or False.

    Raises:
        InputError: see `resolve_logs`.
    """
    path_a, path_b = resolve_logs(
        args.a,
        args.b,
        rank=args.rank,
        step=getattr(args, "step", None),
        stage=getattr(args, "stage", None),
        merged=bool(getattr(args, "merged", None)),
    )
    return requested_for(args, path_a, path_b, args.rank, default_names(path_a, path_b))


def requested_for(
    args: argparse.Namespace, path_a: str, path_b: str, rank: int | None, names: tuple[str, str]
) -> OpenRequest:
    """Return the request of the arguments for two logs, of a rank if they are those of runs.

    Args:
        names: of the sides, unless the user names them.

    Raises:
        InputError: options exclude each other, or there is no log of `--noise`.
    """
    expect, rtol, noise = (getattr(args, name, None) for name in ("expect", "rtol", "noise"))
    if expect is not None and rtol is not None:
        raise InputError("--expect and --rtol exclude each other: give one of them")
    if expect == "bitwise" and noise is not None:
        raise InputError("--expect bitwise allows no noise: leave out --noise")
    floor = bool(getattr(args, "floor", None))
    if floor and (noise is not None or expect == "bitwise" or rtol is not None):
        raise InputError("--floor says itself what to expect: leave out --noise, --rtol and --expect bitwise")
    request = OpenRequest(
        path_a=path_a,
        path_b=path_b,
        name_a=getattr(args, "name_a", None) or names[0],
        name_b=getattr(args, "name_b", None) or names[1],
        step=_step_inside(args, path_a, path_b),
        rules_path=DEFAULT_RULES if args.rules is None else typed_path(args.rules),
        rules_given=args.rules is not None,
        auto_rules=bool(getattr(args, "auto_rules", None)),
        expect=expect,
        rtol=rtol,
        noise_path=None if noise is None else _third_log(noise, rank),
        floor="required" if floor else "",
    )
    return on_screen(request, args)


def requested_of_one(args: argparse.Namespace) -> OpenRequest:
    """Return the request to open a single log.

    Raises:
        InputError: the log is not there, or an option is about two logs.
    """
    for name in ("rules", "auto_rules", "name_b", "merged", "expect", "rtol", "noise", "floor", "allow"):
        if getattr(args, name, None) is not None:
            raise InputError(f"--{name.replace('_', '-')} is about two logs, and only {args.a} was given")
    path = resolve_log(args.a, rank=args.rank, step=getattr(args, "step", None), stage=getattr(args, "stage", None))
    request = OpenRequest(
        path_a=path,
        path_b="",
        name_a=args.name_a or only_name(path),
        name_b="",
        step=_step_inside(args, path),
        rules_path=DEFAULT_RULES,
    )
    return on_screen(request, args)


def _step_inside(args: argparse.Namespace, *paths: str) -> int | None:
    """Return the step that the reader has to choose, of files that may have several; None: the path says it."""
    step: int | None = getattr(args, "step", None)
    return step if step is not None and any(has_steps(path) for path in paths if path) else None


def on_screen(request: OpenRequest, args: argparse.Namespace) -> OpenRequest:
    """Return the request with the options of `add_screen`; for a command without them, without colours and session."""
    return replace(
        request,
        color=not getattr(args, "no_color", True),
        theme=getattr(args, "theme", None),
        mouse=getattr(args, "mouse", False),
        cache=None if getattr(args, "no_cache", False) else user_cache(),
        resume=not getattr(args, "no_session", True),
    )


def _third_log(path: str, rank: int | None) -> str:
    """Return the log of `--noise`; it cannot be standard input."""
    if path == STDIN:
        raise InputError("--noise reads a file or a run folder, not standard input")
    return resolve_log(path, rank=rank if os.path.isdir(path) else None)
