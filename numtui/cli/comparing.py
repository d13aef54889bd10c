"""Reading and comparing two logs for the commands without a screen."""

from __future__ import annotations

import os
from pathlib import Path

from matchers.comparison import Comparison, Progress, compare
from matchers.errors import RulesError
from matchers.logs.op_log import OpLog
from matchers.rules.model import RuleSet
from numtui.cli.output import briefly
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import keep_all_until_the_end
from numtui.session.expectation import expectation_of
from numtui.session.pair import read_pair
from numtui.terminal.progress import ProgressLine

__all__ = ["compare_logs", "compared", "load_rules", "warnings_of"]


def compared(request: OpenRequest, rules_path: Path | None, *, final: bool = False) -> Comparison:
    """Return the comparison of a request under the rules of a file, if any; a progress line is shown meanwhile.

    `final`: as of `compare`.

    Raises:
        UserError: a log or the rules cannot be read.
    """
    keep_all_until_the_end()
    with ProgressLine() as progress:
        return compare_logs(request, rules_path, progress, final=final)


def compare_logs(
    request: OpenRequest, rules_path: Path | None, progress: Progress | None = None, *, final: bool = False
) -> Comparison:
    """Do the same without a progress line.

    Raises:
        UserError: a log or the rules cannot be read.
    """
    rules = None if rules_path is None else load_rules(rules_path)
    a, b = read_pair(request, progress, rules)
    expectation = expectation_of(request, a, b, progress)
    return compare(a, b, rules, expectation=expectation, progress=progress, final=final)


def load_rules(path: Path) -> RuleSet:
    """Return the rules of a file; what is wrong with single ones is in its `problems`.

    Raises:
        RulesError: nothing of it can be read.
    """
    if str(path) == os.devnull:
        return RuleSet(path=str(path))
    from matchers.rules.file import RuleFile  # imports PyYAML: 20 ms that most reports do not need

    file = RuleFile.load(path)
    if not file.readable:
        problems = "; ".join(map(str, file.rules.problems))
        raise RulesError(problems or f"{path}: cannot be read as rules")
    return file.rules


def warnings_of(c: Comparison, *, rules_too: bool, hints_too: bool = False) -> list[str]:
    """Return the caveats that weaken "nothing red".

    `rules_too` adds rules that match nothing (listed by the text report), `hints_too` the unneeded ones.
    """
    told = [*_warnings_of_log(c.a), *_warnings_of_log(c.b)]
    wrong = [str(problem) for problem in c.rules.problems]
    if rules_too:
        wrong += [use.problem for use in c.usage if use.problem]
    told += briefly(wrong, "{} more rules need a look".format)
    if hints_too:
        hints = [use.hint for use in c.usage if use.hint]
        told += briefly(hints, "{} more rules are not needed for these two logs".format)
    return told


def _warnings_of_log(log: OpLog) -> list[str]:
    told = []
    promised = log.header.declared
    if log.complete is False:
        of = f" of {promised}" if promised is not None and promised > len(log) else ""
        why = f" ({log.header.incomplete})" if log.header.incomplete else ""
        told.append(f"{log.path}: the log is cut off: {len(log)}{of} operations were read{why}")
    elif not len(log):
        told.append(f"{log.path}: the log has no operations")
    return told + briefly(
        [f"{log.path}:{problem.line}: {problem.message}" for problem in log.problems],
        lambda more: f"{log.path}: {more} more spots could not be read",
        number=log.problem_count,
    )
