"""Reading of the two logs of a request: apart from loading, so that reports do not import the session."""

from __future__ import annotations

from matchers.comparison import Progress
from matchers.logs.cache import read_cached
from matchers.logs.op_log import OpLog
from matchers.rules.model import RuleSet
from numtui.inputs import OpenRequest

__all__ = ["head_of", "read_pair"]


def read_pair(request: OpenRequest, progress: Progress | None, rules: RuleSet | None = None) -> tuple[OpLog, OpLog]:
    """Read both logs; the folder of a run stands for all its ranks, which are merged under the rules.

    Raises:
        UserError: a log cannot be read.
    """
    if request.merges_ranks:
        from matchers.runs.layouts.read import read_both

        return read_both((request.path_a, request.path_b), request.cache, progress, rules)

    def half(k: int) -> Progress | None:
        return None if progress is None else lambda what, fraction: progress(what, (k + fraction) / 2)

    a = read_cached(request.path_a, request.cache, progress=half(0))
    return a, read_cached(request.path_b, request.cache, progress=half(1))


def head_of(request: OpenRequest, path: str) -> str:
    """Return the log whose first rows are shown before all is read: of a folder, that of its first rank."""
    if not request.merges_ranks:
        return path
    from matchers.runs.layouts.read import one_log_of

    return one_log_of(path)
