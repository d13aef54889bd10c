"""`numtui weights`: first diverging step and parameter of weight logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.cli.arguments import WEIGHT_FORMATS, Commands, add_command, add_output, file_argument
from numtui.cli.output import ExitCode, complain, complain_briefly, deliver

if TYPE_CHECKING:
    from matchers.weights.log import WeightLog

__all__ = ["add_parser", "report_weights"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "weights",
        lambda args: report_weights(args.logs, args.format, args.output),
        "Prints at which step, and in which parameter, logs of weights diverge first;\n"
        "of more than two logs, the step for each pair.",
        help="",
    )
    file_argument(parser, "logs", metavar="LOG", nargs="+", help="rank_N_weights.log, also .gz")
    parser.add_argument(
        "--format", choices=WEIGHT_FORMATS, default="text", help="text for people (default), jsonl for programs"
    )
    add_output(parser)


def report_weights(paths: Sequence[str], form: str, output: Path | None) -> int:
    """Compare two logs, or each with each, and write a report; return the exit code.

    Raises:
        UserError: a log cannot be read, the report cannot be written.
        BrokenPipeError: the reader of standard output is gone.
    """
    if len(paths) < 2:
        raise InputError(f"{paths[0]}: give two or more logs of weights to compare")
    from matchers.weights.compare import compare_weights, first_divergent_steps
    from matchers.weights.log import read_weights
    from numtui.report import weights as writers

    logs = [read_weights(path) for path in paths]
    for log in logs:
        _warn(log)
    if len(logs) == 2:
        comparison = compare_weights(*logs)
        if not comparison.steps:
            raise InputError(f"{paths[0]} and {paths[1]}: no step is in both: {_steps(logs[0])} and {_steps(logs[1])}")
        write = writers.write_jsonl if form == "jsonl" else writers.write_text
        deliver(lambda out: write(comparison, out), output)
        return ExitCode.SAME if comparison.first is None else ExitCode.RED
    steps = first_divergent_steps(logs)
    write_matrix = writers.write_matrix_jsonl if form == "jsonl" else writers.write_matrix_text
    deliver(lambda out: write_matrix(list(paths), steps, out), output)
    return ExitCode.RED if any(step is not None for row in steps for step in row) else ExitCode.SAME


def _warn(log: WeightLog) -> None:
    """Print on standard error the caveats that weaken "no difference"."""
    if log.cut_off:
        complain(f"{log.path}: the log is cut off: its last line is left out")
    if not log.states:
        complain(f"{log.path}: the log has no tensors")
    complain_briefly(
        [f"{log.path}:{problem.line}: {problem.message}" for problem in log.problems],
        lambda more: f"{log.path}: {more} more lines could not be read",
        number=log.problem_count,
    )


def _steps(log: WeightLog) -> str:
    return f"steps {min(log.steps)} to {max(log.steps)}" if log.steps else "no steps"
