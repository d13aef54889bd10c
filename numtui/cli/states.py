"""Weights of single moments for `numtui weights`: checkpoints, last steps of logs, headers of captured steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matchers.errors import InputError
from numtui.cli.output import ExitCode, complain_briefly, deliver
from numtui.inputs import run_names
from numtui.terminal.progress import ProgressLine

__all__ = ["chosen", "report_states"]


def report_states(paths: Sequence[str], form: str, output: Path | None, *, against: str | None = None) -> int:
    """Compare the weights of several moments with those of one, and write a report; return the exit code.

    Raises:
        UserError: one cannot be read, the report cannot be written.
        BrokenPipeError: the reader of standard output is gone.
    """
    if len(paths) < 2:
        raise InputError(f"{paths[0]}: give two or more checkpoints or runs to compare")
    names = run_names(paths)
    reference = 0 if against is None else chosen(against, paths, names)
    from matchers.weights.read_state import read_state
    from matchers.weights.state_compare import compare_states
    from numtui.report import states, states_json

    with ProgressLine() as progress:
        read = [read_state(path) for path in paths]
        comparisons = [
            None if k == reference else compare_states(read[reference], state, progress) for k, state in enumerate(read)
        ]
    for comparison in comparisons:
        problems = () if comparison is None else comparison.problems
        complain_briefly(problems, lambda more: f"{more:,} more could not be read")
    matrix = states.StateMatrix(tuple(names), tuple(read), reference, tuple(comparisons))
    writers = {"text": states.write_text, "json": states_json.write_json, "jsonl": states_json.write_jsonl}
    deliver(lambda out: writers[form](matrix, out), output)
    return ExitCode.SAME if matrix.agrees else ExitCode.RED


def chosen(against: str, paths: Sequence[str], names: Sequence[str]) -> int:
    """Return the index of the run that `--against` names.

    Raises:
        InputError: there is none.
    """
    for known in (names, paths):
        if against in known:
            return known.index(against)
    raise InputError(f"--against {against}: no such run; there are {', '.join(names)}")
