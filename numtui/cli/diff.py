"""The comparison without a screen: read, compare, report."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from matchers.comparison import Comparison, compare
from matchers.errors import InputError, RulesError
from matchers.logs.parser import read_log
from numtui.inputs import STDIN, OpenRequest
from numtui.report.model import Report
from numtui.report.options import ReportOptions, Target
from numtui.report.write import write
from numtui.session.expectation import expectation_of
from numtui.terminal.progress import ProgressLine
from numtui.terminal.tty import give_up_stdout, wants_color
from numtui.text.safe import safe_text

__all__ = ["compared", "complain", "deliver", "report", "suggest"]


def report(
    request: OpenRequest,
    targets: Sequence[Target],
    *,
    fail_on: tuple[str, ...] = ("diverged",),
    allow: Path | None = None,
) -> bool:
    """Compare and write the reports that are asked for; returns whether the comparison fails.

    Args:
        targets: what to write; `Target.path` None is standard output.
        fail_on: some of `numtui.report.options.CONDITIONS`.
        allow: the file of known differences.

    Raises:
        UserError: a log, the rules or the known differences cannot be read, a report cannot be written.
        BrokenPipeError: whoever read standard output is gone.
    """
    known = None
    if allow is not None:
        from numtui.report.known_differences import load_allow_list  # with PyYAML, as the rules

        known = load_allow_list(allow)
    comparison, rules_path = compared(request)
    shown = any(target == ("text", None) for target in targets)
    _warn(comparison, rules_too=not shown)
    if all(target.form in _ROWS_ONLY for target in targets):
        comparison = comparison.final()
    paths = request.path_a, request.path_b
    options = ReportOptions(
        names=(request.name_a, request.name_b),
        paths=None if STDIN in paths else paths,
        rules_path=None if rules_path is None else str(rules_path),
        fail_on=fail_on,
        allow=known,
    )
    made = Report(comparison, options)
    for form, path in targets:
        color = path is None and wants_color(sys.stdout, no_color=not request.color)
        deliver(partial(write, made, form=form, color=color), path)
    if fail_on != ("diverged",) or known is not None:
        _tell_gate(made)
    return bool(made.failures)


_ROWS_ONLY = frozenset({"jsonl", "csv"})
"""Forms that tell the rows and nothing about how the two logs were matched."""
_MOST_FAILURES = 10


def _tell_gate(made: Report) -> None:
    """Say why the exit code is 1, where it is not just that something is red; and what is allowed for nothing."""
    told = [f"fails on {failure.condition}: {failure.text}" for failure in made.failures]
    if "stale-rule" not in made.options.fail_on:
        told += made.allowed.stale
    for text in told[:_MOST_FAILURES]:
        complain(text)
    if len(told) > _MOST_FAILURES:
        complain(f"{len(told) - _MOST_FAILURES} more reasons")


def suggest(request: OpenRequest, form: str, output: Path | None = None) -> None:
    """Compare and write what rules could settle, to `output` or to standard output.

    Raises:
        UserError, BrokenPipeError: as `report`.
    """
    comparison, _ = compared(request)
    _warn(comparison, rules_too=True)
    hints = [use.hint for use in comparison.usage if use.hint]
    for text in hints[:_MOST_WARNINGS]:
        complain(text)
    if len(hints) > _MOST_WARNINGS:
        complain(f"{len(hints) - _MOST_WARNINGS} more rules are not needed for these two logs")
    from matchers.drift.suggest import suggest as find
    from numtui.report.suggestions import write_suggestions

    suggestions = find(comparison)
    names = request.name_a, request.name_b
    deliver(lambda out: write_suggestions(comparison, suggestions, out, form, names), output)


def compared(request: OpenRequest) -> tuple[Comparison, Path | None]:
    """The comparison that is asked for, and the rule file that was read for it.

    Raises:
        UserError: a log or the rules cannot be read.
    """
    # Millions of small objects are made and none is dropped before the end: looking for cycles only costs time.
    gc.disable()
    rules_path = _rules_to_read(request)
    with ProgressLine() as progress:
        a = read_log(request.path_a, progress=progress)
        b = read_log(request.path_b, progress=progress)
        rules = None
        if rules_path is not None:
            from matchers.rules.file import RuleFile  # with PyYAML: 20 ms that most reports do not need

            file = RuleFile.load(rules_path)
            if not file.readable and request.rules_given:
                raise RulesError("; ".join(map(str, file.rules.problems)) or f"{rules_path}: cannot be read as rules")
            rules = file.rules
        expectation = expectation_of(request, a, b, progress)
        comparison = compare(a, b, rules, expectation=expectation, progress=progress)
    return comparison, rules_path


def deliver(produce: Callable[[TextIO], None], output: Path | None) -> None:
    """Have a report written to `output`, or to standard output.

    Raises:
        InputError: it cannot be written there.
        BrokenPipeError: whoever read standard output is gone.
    """
    if output is None:
        _to_stdout(produce)
        return
    from matchers.atomic_write import atomic_writer  # with tempfile, which standard output does not need

    try:
        with atomic_writer(output) as out:
            produce(out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from None


_MOST_WARNINGS = 5


def _warn(c: Comparison, *, rules_too: bool) -> None:
    """Say on standard error what makes "nothing red" mean less than it says.

    Rules that match nothing are in the text report; who reads something else is told of them here (`rules_too`).
    """
    for log in (c.a, c.b):
        promised = log.header.declared
        if log.complete is False:
            of = f" of {promised}" if promised is not None and promised > len(log) else ""
            why = f" ({log.header.incomplete})" if log.header.incomplete else ""
            complain(f"{log.path}: the log is cut off: {len(log)}{of} operations were read{why}")
        elif not len(log):
            complain(f"{log.path}: the log has no operations")
        for problem in log.problems[:_MOST_WARNINGS]:
            complain(f"{log.path}:{problem.line}: {problem.message}")
        if log.problem_count > _MOST_WARNINGS:
            complain(f"{log.path}: {log.problem_count - _MOST_WARNINGS} more spots could not be read")
    wrong = [str(problem) for problem in c.rules.problems]
    if rules_too:
        wrong += [use.problem for use in c.usage if use.problem]
    for text in wrong[:_MOST_WARNINGS]:
        complain(text)
    if len(wrong) > _MOST_WARNINGS:
        complain(f"{len(wrong) - _MOST_WARNINGS} more rules need a look")


def complain(text: str) -> None:
    """Say something on standard error."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"numtui: {safe_text(text)}\n")


def _rules_to_read(request: OpenRequest) -> Path | None:
    """The rule file; None when the default one does not exist.

    Raises:
        InputError: a file that the user named does not exist.
    """
    if os.path.exists(request.rules_path):
        return request.rules_path
    if request.rules_given:
        raise InputError(f"{request.rules_path}: no such rule file")
    return None


def _to_stdout(produce: Callable[[TextIO], None]) -> None:
    out: TextIO | None = sys.stdout
    if out is None:
        raise InputError("standard output is closed; write to a file with -o FILE")
    try:
        produce(out)
        # Here, where a full disk can still be reported; at exit it would be too late.
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up_stdout()
        raise InputError(f"standard output cannot be written: {error.strerror or error}") from None
