"""Move each numeric constant of `matchers` by 3 and by 1/3 and run the tests that use it: which does none notice?

    python -m tests.mutation [--only FILE …] [--every N] [--tests PATH …] [--most N] [--again]

Works on a copy in `build/mutation`, where the calls of each test (computed once) and the results are kept: a run that
was stopped goes on, and only constants of files that have changed since are tried again. Prints a table of the
constants that no test holds, and the time it took.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.mutation.constants import FACTORS, Constant, constants

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutation"
COPY = KEPT / "copy"
_COPIED = ("matchers", "numtui", "capture", "tests", "examples", "pyproject.toml")
_PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile", "fast")
_WITHOUT = "not (torch or pty or browser or screen or compiler)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the constants that have no result yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="FILE", help="files below matchers; default: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th constant alone")
    parser.add_argument("--tests", nargs="+", default=["tests/matchers"], metavar="PATH", help="tests that may notice")
    parser.add_argument("--most", type=int, default=80, metavar="N", help="tests for each constant, the fastest first")
    parser.add_argument("--again", action="store_true", help="try what no test noticed again: tests have changed")
    args = parser.parse_args(arguments)
    begin = time.perf_counter()
    _copy()
    room = COPY / "matchers"
    files = args.only or sorted(path.relative_to(room).as_posix() for path in room.rglob("*.py"))
    chosen = [constant for file in files for constant in constants(room, file)][:: args.every]
    calls = _calls(args.tests, again=args.again)
    known = {key: noticed for key, noticed in _results().items() if noticed or not args.again}
    for constant in chosen:
        for factor in FACTORS:
            key = _key(constant, factor)
            if key not in known:
                known[key] = _noticed(constant, factor, calls, args.most)
                with (KEPT / "results.jsonl").open("a", encoding="utf-8") as out:
                    out.write(json.dumps([key, known[key]]) + "\n")
    print(_table([(c, {f: known[_key(c, f)] for f in FACTORS}) for c in chosen]))
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


def _copy() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for name in _COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, COPY / name)


def _pytest(*arguments: str, **environment: str) -> int:
    """Run tests in the copy; the exit code of pytest."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *_PYTEST, *arguments],
        cwd=COPY,
        env={**os.environ, **environment, "PYTHONPATH": str(COPY), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode


def _calls(tests: Sequence[str], *, again: bool) -> dict[str, tuple[float, list[str]]]:
    """The seconds and calls of each test."""
    path = KEPT / f"calls-{hashlib.sha256(' '.join(tests).encode()).hexdigest()[:8]}.json"
    if again or not path.exists():
        _pytest("-p", "tests.mutation.calls", "-m", _WITHOUT, *tests, CALLS=str(path))
    found: dict[str, tuple[float, list[str]]] = json.loads(path.read_text("utf-8"))
    return found


def _results() -> dict[str, bool | None]:
    path = KEPT / "results.jsonl"
    return dict(map(json.loads, path.read_text("utf-8").splitlines())) if path.exists() else {}


def _key(constant: Constant, factor: str) -> str:
    digest = hashlib.sha256((COPY / "matchers" / constant.file).read_bytes()).hexdigest()[:8]
    return f"{constant.file}:{constant.line}:{constant.begin} {constant.text} {factor} {digest}"


def _noticed(constant: Constant, factor: str, calls: dict[str, tuple[float, list[str]]], most: int) -> bool | None:
    """True if a test that calls a user of the constant fails with it changed; None if no test does."""
    using = sorted(
        (took, test)
        for test, (took, called) in calls.items()
        if not constant.users.isdisjoint(called) or any(name in _text(test) for name in constant.names)
    )
    if not using:
        return None
    path = COPY / "matchers" / constant.file
    source = path.read_bytes()
    path.write_bytes(constant.moved(source, factor))
    try:
        code = _pytest("-x", *(test for _, test in using[:most]))
        if code > 2:  # 2: the module cannot be imported
            sys.exit(f"pytest ended with {code}: if tests have changed, use --again")
        return code > 0
    finally:
        path.write_bytes(source)


@cache
def _text(test: str) -> str:
    """The source of the file of a test."""
    return (COPY / test.partition("::")[0]).read_text("utf-8")


def _table(found: Sequence[tuple[Constant, dict[str, bool | None]]]) -> str:
    """The constants that not every change of which is noticed, and how many are."""
    words = {True: "noticed", False: "UNNOTICED", None: "no test"}
    lines = [
        f"{constant.file}:{constant.line:<5} {constant.text:<20} "
        + "  ".join(f"{factor} {words[result]}" for factor, result in results.items())
        for constant, results in found
        if not all(results.values())
    ]
    changes = [result for _, results in found for result in results.values()]
    held = sum(result is True for result in changes)
    return "\n".join([*lines, f"{held:,} of {len(changes):,} changes of {len(found):,} constants are noticed"])


if __name__ == "__main__":
    sys.exit(main())
