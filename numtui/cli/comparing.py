"""Reading and comparing two logs for the commands without a screen."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import NamedTuple

from matchers.comparison import Comparison, compare
from matchers.errors import InputError, RulesError
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from numtui.cli.output import complain, complain_briefly
from numtui.inputs import OpenRequest
from numtui.report.options import found_rules
from numtui.session.expectation import expectation_of
from numtui.terminal.progress import ProgressLine

__all__ = ["RuleFiles", "compared", "warn"]


class RuleFiles(NamedTuple):
    """The rule file that is applied, and the one found in this folder that the user did not name; None without one."""

    applied: Path | None
    found: Path | None


def compared(request: OpenRequest) -> tuple[Comparison, RuleFiles]:
    """Return the comparison of a request and its rule files; a file that was found is said on standard error.

    Raises:
        UserError: a log or the rules cannot be read.
    """
    # Millions of small objects live until the end: cycle collection only costs time.
    gc.disable()
    files = _rule_files(request)
    if files.found is not None:
        complain(found_rules(str(files.found), applied=files.applied is not None))
    with ProgressLine() as progress:
        a = read_log(request.path_a, progress=progress)
        b = read_log(request.path_b, progress=progress)
        rules = None
        if files.applied is not None:
            from matchers.rules.file import RuleFile  # imports PyYAML: 20 ms that most reports do not need

            file = RuleFile.load(files.applied)
            if not file.readable:
                problems = "; ".join(map(str, file.rules.problems))
                raise RulesError(problems or f"{files.applied}: cannot be read as rules")
            rules = file.rules
        expectation = expectation_of(request, a, b, progress)
        comparison = compare(a, b, rules, expectation=expectation, progress=progress)
    return comparison, files


def warn(c: Comparison, *, rules_too: bool, hints_too: bool = False) -> None:
    """Print on standard error the caveats that weaken "nothing red".

    `rules_too` adds rules that match nothing (listed by the text report), `hints_too` the unneeded ones.
    """
    for log in (c.a, c.b):
        _warn_of_log(log)
    wrong = [str(problem) for problem in c.rules.problems]
    if rules_too:
        wrong += [use.problem for use in c.usage if use.problem]
    complain_briefly(wrong, "{} more rules need a look".format)
    if hints_too:
        hints = [use.hint for use in c.usage if use.hint]
        complain_briefly(hints, "{} more rules are not needed for these two logs".format)


def _warn_of_log(log: OpLog) -> None:
    promised = log.header.declared
    if log.complete is False:
        of = f" of {promised}" if promised is not None and promised > len(log) else ""
        why = f" ({log.header.incomplete})" if log.header.incomplete else ""
        complain(f"{log.path}: the log is cut off: {len(log)}{of} operations were read{why}")
    elif not len(log):
        complain(f"{log.path}: the log has no operations")
    complain_briefly(
        [f"{log.path}:{problem.line}: {problem.message}" for problem in log.problems],
        lambda more: f"{log.path}: {more} more spots could not be read",
        number=log.problem_count,
    )


def _rule_files(request: OpenRequest) -> RuleFiles:
    """Return the rule files of a request.

    Raises:
        InputError: a file that the user named does not exist.
    """
    path, exists = request.rules_path, os.path.exists(request.rules_path)
    if request.rules_given:
        if not exists:
            raise InputError(f"{path}: no such rule file")
        return RuleFiles(path, None)
    found = path if exists else None
    return RuleFiles(found if request.auto_rules else None, found)
