"""`numtui weights`: first diverging step and parameter of weight logs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.cli.arguments import (
    WEIGHT_FORMATS,
    Commands,
    add_command,
    add_output,
    add_rank,
    add_screen,
    file_argument,
    on_screen,
)
from numtui.cli.explore import configured
from numtui.cli.output import ExitCode, complain, complain_briefly, deliver
from numtui.cli.overview import has_screen, show
from numtui.cli.states import chosen, report_states
from numtui.inputs import DEFAULT_RULES, OpenRequest, run_names
from numtui.terminal.progress import ProgressLine
from numtui.weight_inputs import resolve_states, resolve_weights

if TYPE_CHECKING:
    from matchers.weights.log import WeightLog
    from matchers.weights.matrix import Matrix

__all__ = ["add_parser", "report_weights"]


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "weights",
        _run,
        "Shows at which step, and in which parameter, logs of weights diverge first:\n"
        "of two runs in detail, of more as a matrix of runs and steps. On a terminal it is a\n"
        "screen, from which enter opens the explorer. Checkpoints (safetensors, files of\n"
        "torch.save, distributed ones; nothing in them is executed) are compared weight by\n"
        "weight, also under other names, fused or stacked.",
        help="",
    )
    file_argument(
        parser,
        "logs",
        metavar="RUN",
        nargs="+",
        help="run folder, rank_N_weights.log, also .gz, or a checkpoint: a file or folder",
    )
    add_rank(parser)
    parser.add_argument("--against", metavar="NAME", help="run to compare the others with (default: the first)")
    parser.add_argument(
        "--pair",
        type=_words,
        metavar="X:Y",
        help="of a sweep: compare each run with Y in its name with the one that has X there (eager:graph)",
    )
    parser.add_argument(
        "--format",
        choices=WEIGHT_FORMATS,
        help="print: text for people, json or jsonl for programs (default: text, without a terminal)",
    )
    add_output(parser)
    add_screen(parser)


def _words(text: str) -> tuple[str, str]:
    first, colon, other = text.partition(":")
    if not (first and colon and other) or first == other:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two words of names, as in eager:graph")
    return first, other


def _run(args: argparse.Namespace) -> int:
    if (moments := resolve_states(args.logs, rank=args.rank)) is not None:
        return report_states(moments, args.format or "text", args.output, against=args.against)
    paths = resolve_weights(args.logs, rank=args.rank)
    if args.format or args.output or args.pair or not has_screen():
        return report_weights(paths, args.format or "text", args.output, against=args.against, pair=args.pair)
    return _show(_read(paths, args.against), args)


def _show(matrix: Matrix, args: argparse.Namespace) -> int:
    """Show the matrix; return the exit code."""
    from numtui.session.weights import WeightsCursor
    from numtui.tui.screens.weights import WeightsScreen

    name_a = matrix.names[matrix.reference]
    request = OpenRequest(path_a="", path_b="", name_a=name_a, name_b="", rules_path=DEFAULT_RULES)
    request = configured(on_screen(request, args))
    cursor = WeightsCursor(matrix)
    if partly := [name for name, log in zip(matrix.names, matrix.logs, strict=True) if log.cut_off or log.problems]:
        cursor.message = f"only partly readable: {', '.join(partly)}"
    return show(cursor, lambda: WeightsScreen(cursor), request) or _exit_code(matrix)


def report_weights(
    paths: Sequence[str],
    form: str,
    output: Path | None,
    *,
    against: str | None = None,
    pair: tuple[str, str] | None = None,
) -> int:
    """Compare logs with one of them, and write a report; return the exit code.

    Args:
        against: the one that the others are compared with; None for the first.
        pair: two words: each run with the second one in its name is compared with that which has the first one there.

    Raises:
        UserError: a log cannot be read, the report cannot be written.
        BrokenPipeError: the reader of standard output is gone.
    """
    from numtui.report import weights_json
    from numtui.report.weights import write_text

    writers = {"text": write_text, "json": weights_json.write_json, "jsonl": weights_json.write_jsonl}
    matrix = _read(paths, against, pair)
    deliver(lambda out: writers[form](matrix, out), output)
    return _exit_code(matrix)


def _read(paths: Sequence[str], against: str | None, pair: tuple[str, str] | None = None) -> Matrix:
    if len(paths) < 2:
        raise InputError(f"{paths[0]}: give two or more logs of weights to compare")
    names = run_names(paths)
    references = None if pair is None else _references(names, pair)
    reference = 0 if against is None else chosen(against, paths, names)
    from matchers.weights.log import read_weights
    from matchers.weights.matrix import compare_runs

    logs = []
    with ProgressLine() as progress:
        for i, (path, name) in enumerate(zip(paths, names, strict=True)):
            progress(f"reading {name}", i / (len(paths) + 1))
            logs.append(read_weights(path))
        progress("comparing", len(paths) / (len(paths) + 1))
        matrix = compare_runs(logs, names, reference, references)
    for log in logs:
        _warn(log)
    if not any(matrix.cells):
        have = " and ".join(_steps(log) for log in logs)
        raise InputError(f"{' and '.join(paths)}: no step is in both: {have}")
    return matrix


def _references(names: Sequence[str], pair: tuple[str, str]) -> dict[int, int]:
    """By run with the second word in its name, the one whose name has the first word there.

    Raises:
        InputError: there is none.
    """
    first, other = pair
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(other)}(?![A-Za-z0-9])")
    number = {name: run for run, name in enumerate(names)}
    found = {}
    for run, name in enumerate(names):
        reference = number.get(word.sub(lambda _: first, name, count=1), run)
        if reference != run:
            found[run] = reference
    if not found:
        raise InputError(f"--pair {first}:{other}: no two names differ in these words; there are {', '.join(names)}")
    if alone := [name for run, name in enumerate(names) if run not in found and run not in found.values()]:
        complain(f"--pair {first}:{other}: without partner: {', '.join(alone)}")
    return found


def _exit_code(matrix: Matrix) -> int:
    return ExitCode.RED if matrix.first is not None or matrix.not_compared else ExitCode.SAME


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
