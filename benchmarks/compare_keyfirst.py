"""CPU time and memory of `numtui diff --format jsonl` against key-first parsing and matching, on the same two logs.

    python -m benchmarks.compare_keyfirst A.log B.log [--repeat 3]

Both run as processes of their own, in turns; the best of the repetitions counts, because other work on the machine only
ever adds. numtui's time is that of the whole command (start of Python, imports, report written), the baseline's is that
of its parsing and matching alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Cost", "measure"]

_REPOSITORY = Path(__file__).resolve().parent.parent


class Cost:
    """What a process used: CPU seconds (user and system, all threads), peak resident memory in MB, and its output."""

    def __init__(self, command: Sequence[str]) -> None:
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(command, stdout=out, cwd=_REPOSITORY)
            # wait4 tells the usage of this one child; getrusage would add up all that ever ran.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.output = out.read()
        self.code = process.returncode
        self.cpu = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss / 1024


def measure(a: str, b: str, repeat: int) -> tuple[Cost, Cost, float]:
    """Best run of numtui, best run of key-first, and the CPU seconds of key-first's parsing and matching."""
    numtui: list[Cost] = []
    baseline: list[tuple[float, Cost]] = []
    for _ in range(repeat):
        numtui.append(Cost([sys.executable, "-m", "numtui", "diff", a, b, "--format", "jsonl"]))
        other = Cost([sys.executable, "-m", "benchmarks.keyfirst", a, b])
        found = re.search(rb"parse and match +([\d.]+) s", other.output)
        if numtui[-1].code not in {0, 1} or found is None:
            raise SystemExit("a run failed; see above")
        baseline.append((float(found[1]), other))
    seconds, other = min(baseline, key=lambda pair: pair[0])
    return min(numtui, key=lambda cost: cost.cpu), other, seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("a", metavar="A.log")
    parser.add_argument("b", metavar="B.log")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    numtui, other, seconds = measure(os.path.abspath(args.a), os.path.abspath(args.b), args.repeat)
    print(
        f"numtui diff --format jsonl    {numtui.cpu:7.2f} s CPU  {numtui.peak:6.0f} MB  {len(numtui.output):>12,} bytes"
    )
    print(f"key-first, parse and match    {seconds:7.2f} s CPU  {other.peak:6.0f} MB")
    print(f"ratio                         {numtui.cpu / seconds:7.2f}        {numtui.peak / other.peak:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
