"""Opening two logs: their heads at once, the whole of them in a thread.

The head of each log is read before the first frame, so that a person sees rows of both runs immediately, however
large the logs are; pairs and verdicts come when everything has been read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import monotonic

from matchers.comparison import Comparison, Progress, compare, preview
from matchers.logs.parser import read_log
from matchers.rules import key_index
from matchers.rules.file import RuleFile
from matchers.rules.model import RuleSet
from matchers.single_run import single_run
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import give_memory_back
from numtui.session.expectation import expectation_of
from numtui.session.journal import Journal
from numtui.session.session import Session
from numtui.session.store import SessionStore

__all__ = ["Cancelled", "Loaded", "Stamps", "Throttled", "load", "open_heads", "stamps_of", "warm"]

HEAD = 96 << 10
"""Bytes of each log that are read for the first screen: some 280 operations, more than any terminal has lines."""


class Cancelled(Exception):
    """The work was given up because nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a session needs of the disk."""

    comparison: Comparison
    file: RuleFile
    stamps: Stamps


def open_heads(request: OpenRequest) -> Session:
    """A session over the heads of the logs, nothing paired yet.

    Raises:
        LogError: one of them is no log.
    """
    heads = [read_log(path, head=HEAD) for path in (request.path_a, request.path_b) if path]
    journal = Journal(request.path_a, request.path_b, request.rules_path)
    store = SessionStore(request.path_a, request.path_b) if request.resume else None
    if store is not None:
        store.load()
    names = (request.name_a, request.name_b)
    shown = single_run(*heads) if request.single else preview(*heads)
    return Session(shown, RuleFile.empty(request.rules_path), names=names, journal=journal, store=store)


Stamps = tuple[tuple[int, int], ...]
"""Size and time (ns) of the last change of each log."""


def stamps_of(request: OpenRequest) -> Stamps:
    """The stamps of the logs as they are now; (-1, -1) for one that is not there at the moment."""
    found = []
    for path in filter(None, (request.path_a, request.path_b)):
        try:
            status = os.stat(path)
        except OSError:
            found.append((-1, -1))
        else:
            found.append((status.st_size, status.st_mtime_ns))
    return tuple(found)


def load(request: OpenRequest, progress: Progress, rules: RuleSet | None = None) -> Loaded:
    """Read and compare everything. Touches nothing but the disk, so that any thread may do it.

    Args:
        rules: to compare under in place of those of the file.

    Raises:
        LogError, RulesError: something cannot be read.
    """
    stamps = stamps_of(request)
    if request.single:
        log = read_log(request.path_a, progress=lambda _what, fraction: progress(f"reading {request.name_a}", fraction))
        return Loaded(single_run(log), RuleFile.empty(request.rules_path), stamps)
    file = RuleFile.open(request.rules_path)

    def reading(name: str, start: float) -> Progress:
        # Reading both logs is about as much work as comparing them.
        return lambda _what, fraction: progress(f"reading {name}", start + fraction / 4)

    a = read_log(request.path_a, progress=reading(request.name_a, 0.0))
    b = read_log(request.path_b, progress=reading(request.name_b, 0.25))
    expectation = expectation_of(request, a, b, lambda what, _fraction: progress(f"noise: {what}", 0.5))

    def comparing(what: str, fraction: float) -> None:
        progress(what, 0.5 + fraction / 2)

    comparison = compare(a, b, file.rules if rules is None else rules, expectation=expectation, progress=comparing)
    _ = comparison.comparability  # asked for on the screen's own thread, where nothing may take long
    give_memory_back()
    return Loaded(comparison, file, stamps)


def warm(loaded: Loaded) -> None:
    """Make what takes long on large logs: the index of keys, which the first change of a rule needs, and what follows
    from the first causes.
    """
    _ = loaded.comparison.consequences
    for log in (loaded.comparison.a, loaded.comparison.b):
        key_index.warm(log)
    give_memory_back()


class Throttled:
    """A `Progress` that passes on at most ten reports a second, and gives the work up when told to."""

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
