"""Move each numeric constant of `matchers` by 3 and by 1/3 and run the tests that read it: which does none notice?

    python -m tests.mutation [--only PLACE …] [--every N] [--tests PATH …] [--seconds N]

Tests are those that run a line which reads the constant, those of its module first, then those of its room, the
fastest first. What each test runs (traced once) and the changes that were noticed are kept in `build/mutation`: a run
that was stopped goes on, and only what no test noticed, and files that have changed since, are tried again. The limits
of work (`tests/matchers/work_limits.py`) are not tried: no test may notice them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.matchers.work_limits import LIMITS
from tests.mutation.constants import FACTORS, Constant, Sources
from tests.mutation.session import Session

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutation"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the constants that no test is known to notice; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PLACE", help="files or rooms below matchers")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th constant alone")
    parser.add_argument("--tests", nargs="+", default=["tests/matchers"], metavar="PATH", help="tests that may notice")
    parser.add_argument("--seconds", type=float, default=30, metavar="N", help="of tests for each change")
    args = parser.parse_args(arguments)
    sources = Sources(ROOT / "matchers")
    chosen = [
        constant
        for file in sources.text
        if file.removeprefix("matchers/").startswith(tuple(args.only))
        for constant in sources.constants(file)
    ][:: args.every]
    deciding = [constant for constant in chosen if not _is_limit(constant)]
    session = Session(sources, KEPT / "traced", args.seconds)
    found: list[tuple[Constant, dict[str, bool | None]]] = []

    def work() -> None:
        known = _results()
        for constant in deciding:
            results = {}
            for factor in FACTORS:
                key = _key(sources, constant, factor)
                results[factor] = key in known or session.noticed(constant, factor)
                if results[factor] and key not in known:
                    with (KEPT / "noticed.txt").open("a", encoding="utf-8") as out:
                        out.write(json.dumps(key) + "\n")
            found.append((constant, results))
            if not all(results.values()):
                print(_line(constant, results), flush=True)

    begin = time.perf_counter()
    session.run(args.tests, work)
    print(_table(found, len(chosen) - len(deciding)))
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


def _is_limit(constant: Constant) -> bool:
    return any((constant.file, name) in LIMITS for name in constant.names)


def _results() -> set[str]:
    path = KEPT / "noticed.txt"
    return set(map(json.loads, path.read_text("utf-8").splitlines())) if path.exists() else set()


def _key(sources: Sources, constant: Constant, factor: str) -> str:
    digest = hashlib.sha256(sources.text[constant.file].encode()).hexdigest()[:8]
    return f"{constant.file}:{constant.line}:{constant.begin} {constant.text} {factor} {digest}"


def _line(constant: Constant, results: dict[str, bool | None]) -> str:
    words = {True: "noticed", False: "UNNOTICED", None: "no test"}
    name = ", ".join(sorted(constant.names)) or "in a function"
    return f"{constant.file}:{constant.line:<5} {name} {constant.text:<20} " + "  ".join(
        f"{factor} {words[result]}" for factor, result in results.items()
    )


def _table(found: Sequence[tuple[Constant, dict[str, bool | None]]], limits: int) -> str:
    """The number of changes that are noticed, room by room, and of constants that only limit work."""
    rooms: dict[str, list[bool]] = {}
    for constant, results in found:
        room = constant.file.removeprefix("matchers/").partition("/")[0]
        rooms.setdefault(room, []).extend(result is True for result in results.values())
    held = [result for results in rooms.values() for result in results]
    return "\n".join(
        [
            *(f"{room:<20} {sum(results):>4} of {len(results):>4}" for room, results in rooms.items()),
            f"{sum(held):,} of {len(held):,} changes of {len(found):,} constants are noticed",
            f"{limits:,} more limit work: results are equal whatever they are (tests/matchers/test_work_limits.py)",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
