"""`numtui suggest`: the known kinds of drift between two logs, and the rules that settle them."""

from __future__ import annotations

import argparse

from matchers.errors import InputError
from matchers.weights.recognised import is_weight_log
from numtui.cli.arguments import Commands, add_command, add_log_options, add_logs, add_output, add_step, requested
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.user_cache import keep_for_later

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "suggest",
        _run,
        "Prints the kinds of drift between two logs (renamed modules, shifted counters, lowered collectives\n"
        "and others) whose rules change verdicts, with these rules and their effect. --all prints all.",
        help="",
    )
    add_logs(parser)
    add_log_options(parser)
    add_step(parser)
    parser.add_argument(
        "--format", choices=("text", "yaml"), default="text", help="text for people (default), yaml: a rule file for -r"
    )
    parser.add_argument(
        "--all", action="store_true", help="also rules that change no verdict, and kinds of drift without rules"
    )
    add_output(parser)


def _run(args: argparse.Namespace) -> int:
    for path in (args.a, args.b):
        if is_weight_log(path):
            raise InputError(f"{path}: is a log of weights over steps, which has no operations to pair")
    from matchers.drift.suggest import suggest
    from numtui.cli.comparing import compared, warnings_of
    from numtui.cli.rule_files import rule_files
    from numtui.report.options import found_rules
    from numtui.report.suggestions import write_suggestions

    request = requested(args)
    files = rule_files(request)
    comparison = compared(request, files.applied)
    for text in warnings_of(comparison, rules_too=True, hints_too=True):
        complain(text)
    suggestions = suggest(comparison)
    names = request.name_a, request.name_b
    note = "" if files.found is None else found_rules(str(files.found), applied=files.applied is not None)
    deliver(
        lambda out: write_suggestions(comparison, suggestions, out, args.format, names, note, args.all), args.output
    )
    keep_for_later(request)
    return ExitCode.SAME
