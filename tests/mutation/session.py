"""Plugin for pytest: it collects tests once, and runs them in processes forked from that, one for each change.

Nothing runs in the process that collects, so that each fork finds everything imported and nothing computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutation.constants import Constant, Sources
from tests.mutation.moved import Package

__all__ = ["Session"]

_WITHOUT = "not (torch or pty or browser or screen or compiler)"
_PATIENCE = 600
"""Seconds after which a process is killed: a change that makes a loop endless is noticed, too."""


class Session:
    """Finds the tests that run the lines which read a constant, and whether one of them fails if it is changed."""

    def __init__(self, sources: Sources, kept: Path, seconds: float) -> None:
        """Keep what each test runs in a folder; run tests of so many seconds for a change, but one at least."""
        self._sources, self._kept, self._seconds = sources, kept, seconds
        self._items: dict[str, pytest.Item] = {}
        self._digests: dict[Path, str] = {}
        self._package: Package
        self._runs: dict[str, tuple[float, set[tuple[str, str]]]] = {}
        self._then: Callable[[], None]

    def run(self, tests: Sequence[str], then: Callable[[], None]) -> None:
        """Collect tests and call a function, which may ask `noticed`."""
        self._then = then
        options = "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb", "line", "--assert", "plain", "-m", _WITHOUT
        code = pytest.main([*options, "--hypothesis-profile", "mutation", *tests], plugins=[self])
        if code:
            sys.exit(f"pytest ended with {code}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Let tests with random examples fail at once, without looking for simpler ones."""
        phases = Phase.explicit, Phase.generate
        settings.register_profile("mutation", settings.get_profile("fast"), phases=phases)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do what is to be done in place of running the tests one after the other."""
        self._items = {item.nodeid: item for item in session.items}
        for path in {item.path for item in session.items}:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        self._package = Package(self._sources)
        self._runs = dict(self._traced())
        self._then()
        return True

    def noticed(self, constant: Constant, factor: str) -> bool | None:
        """True if a test that reads a constant fails with it changed; None if no test reads it."""
        lines = {(file, self._line(file, line)) for file, line in self._sources.read_at(constant)}
        room, _, file = f"tests/{constant.file}".rpartition("/")
        tests = sorted(
            (not test.startswith(f"{room}/test_{file}::"), not test.startswith(room), took, test)
            for test, (took, run) in self._runs.items()
            if not lines.isdisjoint(run)
        )
        if not tests:
            return None
        left, chosen = self._seconds, list[str]()
        for *_, took, test in tests:
            if chosen and took > left:
                break
            left -= took
            chosen.append(test)

        def changed() -> int:
            self._package.move(constant, factor)
            return int(any(_failed(self._items[test]) for test in chosen))

        return _forked(changed) != 0

    def _line(self, file: str, line: int) -> str:
        return self._sources.text[file].splitlines()[line - 1].strip()

    def _traced(self) -> Iterable[tuple[str, tuple[float, set[tuple[str, str]]]]]:
        """Yield for each test its seconds and the lines that it runs of those that read a constant.

        Lines are known by their text, so that what is kept of a file of tests counts until that file changes, or other
        lines are looked for.
        """
        every = {
            place
            for file in self._sources.text
            for constant in self._sources.constants(file)
            for place in self._sources.read_at(constant)
        }
        wanted: dict[str, dict[int, tuple[str, str]]] = {}
        for file, line in every:
            wanted.setdefault(file, {})[line] = file, self._line(file, line)
        texts = sorted({place for lines in wanted.values() for place in lines.values()})
        looked_for = hashlib.sha256(repr(texts).encode()).hexdigest()[:8]
        files: dict[Path, list[pytest.Item]] = {}
        for item in self._items.values():
            files.setdefault(item.path, []).append(item)
        for path, items in files.items():
            name = path.relative_to(Path.cwd()).as_posix().replace("/", ".")
            kept = self._kept / f"{name}.{self._digests[path]}.{looked_for}.json"
            if not kept.exists():
                _forked(lambda items=items, kept=kept: _trace(items, wanted, kept))  # type: ignore[misc]
            if kept.exists():
                for test, took, run in json.loads(kept.read_text("utf-8")):
                    if test in self._items:
                        yield test, (took, {(file, text) for file, text in run})


def _trace(items: Sequence[pytest.Item], wanted: Mapping[str, Mapping[int, tuple[str, str]]], kept: Path) -> int:
    """Run tests; write the seconds of each that passes and which of the wanted lines it runs."""
    root = str(Path.cwd()) + os.sep
    in_code: dict[int, tuple[CodeType, dict[int, tuple[str, str]]]] = {}  # by id: to hash code takes long
    run: set[tuple[str, str]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        known = in_code.get(id(code))
        if known is None:
            lines = wanted.get(code.co_filename.removeprefix(root), {})
            of_code = {line for _, _, line in code.co_lines()}
            known = in_code[id(code)] = code, {line: place for line, place in lines.items() if line in of_code}
        places = known[1]
        if event == "line" and (place := places.get(frame.f_lineno)):
            run.add(place)
        return trace if places and not run.issuperset(places.values()) else None

    found = []
    for item in items:
        run.clear()
        begin = time.process_time()
        sys.settrace(trace)
        try:
            failed = _failed(item)
        finally:
            sys.settrace(None)
        if failed:
            print(f"left out, for it fails unchanged: {item.nodeid}", file=sys.stderr)
        else:
            found.append((item.nodeid, time.process_time() - begin, sorted(run)))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found), "utf-8")
    return 0


def _failed(item: pytest.Item) -> bool:
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _forked(work: Callable[[], int]) -> int:
    """The result of a function in a forked process; not 0 if it raises, is killed or takes too long."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        code = 3
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE)
            code = work()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1]
