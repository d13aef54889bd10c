"""Comparison of one rank of two runs: what a worker process does."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import UserError
from matchers.logs.op_log import OpLog
from matchers.runs.diff.part_file import parse_summary, render_summary
from matchers.runs.diff.summarise import summary_of
from matchers.runs.diff.summary import Outcome, RankSummary
from numtui.cli.comparing import compare_logs
from numtui.cli.kept_report import KeptReport
from numtui.cli.rule_files import RuleFiles
from numtui.cli.user_cache import keep_for_later, user_cache
from numtui.inputs import OpenRequest
from numtui.report.evidence_basis import log_trouble
from numtui.report.model import Report
from numtui.report.options import CONDITIONS, ReportOptions
from numtui.text.counts import plural

__all__ = ["RankTask", "failed", "summarise"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """A rank to compare.

    Attributes:
        request: its logs and the criteria, without a cache.
        cached: read logs from the user's cache, and keep them there.
        rules: the applied rule file.
        allow: the file of known differences.
    """

    rank: int
    request: OpenRequest
    cached: bool
    rules: Path | None
    allow: Path | None


def summarise(task: RankTask) -> RankSummary:
    """Compare a rank, or find its summary in the cache; logs that cannot be read are said in the summary."""
    request = replace(task.request, cache=user_cache() if task.cached else None)
    files = [] if task.allow is None else [task.allow]
    kept = KeptReport.of(request, RuleFiles(task.rules, None), task.rank, files=files)
    if kept is not None and (outcome := kept.outcome()) is not None and (known := parse_summary(outcome.text)):
        return known
    before = _stamps(request)
    try:
        comparison = compare_logs(request, task.rules)
        allowed = None
        if task.allow is not None:
            from numtui.report.known_differences import load_allow_list

            allowed = load_allow_list(task.allow)
    except (UserError, MemoryError) as error:
        return failed(task, str(error) or "not enough memory for its logs")
    troubles = list(_troubles(comparison))
    if before != _stamps(request):
        troubles.append("a log was replaced while it was compared")
    report = Report(comparison, ReportOptions(fail_on=tuple(CONDITIONS), allow=allowed))
    # of trouble with logs, this summary has a list of its own
    failures = [(f.condition, f.text) for f in report.failures if f.condition != "incomplete"]
    paths = request.path_a, request.path_b
    summary = summary_of(comparison, task.rank, paths, failures=failures, troubles=troubles)
    if kept is not None:
        kept.copying(lambda out: print(render_summary(summary), file=out))(io.StringIO())
        kept.keep((comparison.a.content, comparison.b.content), (), (), 0)
    keep_for_later(request)
    del comparison, report
    gc.collect()  # before the next one
    return summary


def failed(task: RankTask, why: str) -> RankSummary:
    """Return the summary of a rank whose comparison failed."""
    paths = task.request.path_a, task.request.path_b
    return RankSummary(rank=task.rank, outcome=Outcome.FAILED, why=why, paths=paths)


def _troubles(c: Comparison) -> Iterator[str]:
    for name, log in (("a", c.a), ("b", c.b)):
        yield from (f"{name}: {text}" for text in _trouble(log))


def _trouble(log: OpLog) -> Iterator[str]:
    yield from log_trouble(log)
    if not len(log):
        yield "the log has no operations"
    if log.problem_count:
        yield plural(log.problem_count, "unreadable spot")


def _stamps(request: OpenRequest) -> list[tuple[int, ...]]:
    """The marks of a log that change when a log is written to or replaced."""
    found: list[tuple[int, ...]] = []
    for path in (request.path_a, request.path_b):
        try:
            status = os.stat(path)
        except OSError:
            found.append((-1,))
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found
