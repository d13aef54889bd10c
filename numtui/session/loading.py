"""Open two logs: their heads at once, all of them in a thread.

The head of each log is read before the first frame, so that rows of both runs appear immediately, however large the
logs are; pairs and verdicts follow when everything is read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from time import monotonic

from matchers.comparison import Comparison, Progress, compare, preview
from matchers.files.cache_folder import CacheFolder
from matchers.logs.cache import read_cached
from matchers.logs.parser import read_log
from matchers.rules import key_index
from matchers.rules.file import RuleFile
from matchers.rules.model import RuleSet
from matchers.single_run import single_run
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import give_memory_back
from numtui.session.expectation import expectation_of
from numtui.session.journal import Journal
from numtui.session.kept import KeptComparisons, Stamps
from numtui.session.pair import head_of, read_pair
from numtui.session.prepare import prepare
from numtui.session.session import Session
from numtui.session.store import SessionStore

__all__ = ["Cancelled", "Loaded", "Stamps", "Throttled", "load", "open_heads", "stamps_of", "warm"]

HEAD = 96 << 10
"""Bytes of each log read for the first screen: about 280 operations, more than any terminal has lines."""


class Cancelled(Exception):
    """Raised in work that was cancelled."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The comparison, the rule file and the stamps of the logs, as read from disk."""

    comparison: Comparison
    file: RuleFile
    stamps: Stamps


def open_heads(request: OpenRequest) -> Session:
    """Open a session on the heads of the logs, without pairs.

    Raises:
        LogError: a file is not a log.
    """
    heads = [
        read_log(head_of(request, path), head=HEAD, step=request.step)
        for path in (request.path_a, request.path_b)
        if path
    ]
    journal = Journal(request.path_a, request.path_b, request.rules_path)
    store = SessionStore(request.path_a, request.path_b) if request.resume else None
    if store is not None:
        store.load()
    names = (request.name_a, request.name_b)
    shown = single_run(*heads) if request.single else preview(*heads)
    file, named = RuleFile.empty(request.rules_path), request.rules_given
    return Session(shown, file, names=names, journal=journal, store=store, rules_named=named)


def stamps_of(request: OpenRequest) -> Stamps:
    """Return the current stamps of the logs; (-1, -1) for a missing one."""
    found = []
    for path in filter(None, (request.path_a, request.path_b)):
        try:
            status = os.stat(path)
        except OSError:
            found.append((-1, -1))
        else:
            found.append((status.st_size, status.st_mtime_ns))
    return tuple(found)


def load(
    request: OpenRequest, progress: Progress, rules: RuleSet | None = None, kept: KeptComparisons | None = None
) -> Loaded:
    """Read and compare everything. Touches only the disk, so any thread may call it.

    Args:
        rules: rules in place of those of the file.
        kept: where a comparison of the same logs may be, unless they have changed since.

    Raises:
        LogError, RulesError: a log or the rule file cannot be read.
    """
    stamps = stamps_of(request)
    found = None if kept is None else kept.find(request, stamps)
    if request.single:
        if found is not None:
            return Loaded(found, RuleFile.empty(request.rules_path), stamps)
        log = read_cached(
            request.path_a,
            request.cache,
            step=request.step,
            progress=lambda _what, share: progress(f"reading {request.name_a}", share),
        )
        return Loaded(single_run(log), RuleFile.empty(request.rules_path), stamps)
    file = RuleFile.open(request.rules_path)
    rules = file.rules if rules is None else rules
    if found is not None and found.rules == rules:
        return Loaded(found, file, stamps)

    def comparing(what: str, fraction: float) -> None:
        progress(what, 0.5 + fraction / 2)

    if found is not None:
        comparison = found.with_rules(rules, progress=comparing)
    else:
        a, b = read_pair(request, lambda what, fraction: progress(what, fraction / 2), rules)
        expectation = expectation_of(request, a, b, lambda what, _fraction: progress(f"noise: {what}", 0.5))
        again = partial(read_pair, request, None) if request.merges_ranks else None
        comparison = compare(a, b, rules, expectation=expectation, progress=comparing, merge_again=again)
    prepare(comparison)
    give_memory_back()
    return Loaded(comparison, file, stamps)


def warm(loaded: Loaded, cache: CacheFolder | None = None) -> None:
    """Compute what is slow on large logs: the key index for rule changes, and the consequences of the causes.

    What was read goes to the cache, for the next time.
    """
    _ = loaded.comparison.consequences
    for log in (loaded.comparison.a, loaded.comparison.b):
        key_index.warm(log)
    if cache is not None:
        cache.flush()
    give_memory_back()


class Throttled:
    """A `Progress` that forwards at most ten reports a second, and can cancel the work."""

    def __init__(self, report: Progress) -> None:
        self._report = report
        self._next = 0.0
        self.cancelled = False

    def __call__(self, what: str, fraction: float) -> None:
        if self.cancelled:
            raise Cancelled
        if (now := monotonic()) >= self._next:
            self._next = now + 0.1
            self._report(what, fraction)
