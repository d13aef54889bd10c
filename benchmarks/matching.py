"""CPU time and memory of `numtui diff --format jsonl`: by size, by drift, beside key-first matching, in the worst case.

    python -m benchmarks.matching [--large] [--repeat 3]
    python -m benchmarks.matching --logs A.log B.log

Commands run in separate processes, in turns; of times the best repetition counts, because other load on the machine
only adds to it, of ratios the median of the turns. numtui's time is that of the whole command (start of Python,
imports, report and cache written), that of key-first its parsing and matching alone. `exponent` is that of the time in
the size, from the smallest size on. The first open of two logs leaves them in an empty cache, the second finds them
there; by size and for your own logs it is the first. `rematch` is a further rule, as benchmarks.rematch measures it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parent.parent
_SIZES = (9_000, 91_000)
_LARGE = 908_000
_DRIFTS = ("usual", "every micro-batch", "noise 1e-3")
"""Nine tenths of the rows are equal to the digit in the first, four tenths in the second, none in the third."""
_WORST_SIZE = 100_000
_TAIL = 4096
_WORST = {
    "normal": frozenset[str](),
    "one operation": frozenset({"operation"}),
    "all values equal": frozenset({"values"}),
    "all in <none>": frozenset({"module"}),
    "one operation, all values equal": frozenset({"operation", "values"}),
    "all in <none>, all values equal": frozenset({"module", "values"}),
    "one operation in <none>, all values equal": frozenset({"operation", "module", "values"}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a process: CPU seconds (user and system, all threads), peak resident memory in MB, seconds; last output.

    A process inherits the peak of its parent, so the parent must stay small.
    """

    cpu: float
    peak: float
    output: bytes
    wall: float


def run(command: Sequence[str], **environment: str) -> Cost:
    """Run a command to its end, with compiled modules cached even where Python is configured not to."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, cwd=_REPOSITORY, env=environment)
        # wait4 returns the usage of this child; getrusage would add up all children.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        out.seek(max(out.seek(0, os.SEEK_END) - _TAIL, 0))
        output = out.read()
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)} failed; see above")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output, wall)


def numtui(a: Path, b: Path, **environment: str) -> Cost:
    """Run the whole command of numtui."""
    command = ["diff", str(a), str(b), "--format", "jsonl", "--rules", os.devnull]
    return run([sys.executable, "-m", "numtui", *command], **environment)


def key_first(a: Path, b: Path) -> Cost:
    """Run the baseline; its time is that of parsing and matching."""
    cost = run([sys.executable, "-m", "benchmarks.keyfirst", str(a), str(b)])
    found = re.search(rb"parse and match +([\d.]+) s", cost.output)
    if found is None:
        raise SystemExit("the baseline printed no time")
    return replace(cost, cpu=float(found[1]))


def opened(a: Path, b: Path, cache: Path) -> tuple[Cost, Cost]:
    """Run the whole command twice: the logs are not in the cache, and there."""
    for entry in cache.rglob("*.columns"):
        entry.unlink()
    first, second = (numtui(a, b, XDG_CACHE_HOME=str(cache)) for _ in range(2))
    return first, second


def turns_of(a: Path, b: Path, cache: Path, repeat: int) -> list[tuple[Cost, Cost, Cost]]:
    """Return the first open, the second and the baseline, in turns."""
    numtui(a, b, XDG_CACHE_HOME=str(cache))  # compiles what is compiled
    return [(*opened(a, b, cache), key_first(a, b)) for _ in range(repeat)]


def ratio(ours: Sequence[Cost], others: Sequence[Cost]) -> str:
    """Return the median ratio of the CPU times of a turn."""
    return f"{statistics.median(one.cpu / other.cpu for one, other in zip(ours, others, strict=True)):.3f}"


def best(costs: Sequence[Cost]) -> Cost:
    """Return the fastest run."""
    return min(costs, key=lambda cost: cost.cpu)


def _line(name: str, ours: Cost, *more: str) -> None:
    print(f"{name:<44}{ours.cpu:9.2f} s{ours.peak:8.0f} MB" + "".join(f"{text:>14}" for text in more))


def by_size(logs: Sequence[tuple[Path, Path]], cache: Path, repeat: int) -> None:
    """Print a line for each pair of logs, the smallest first."""
    print(f"{'operations':<44}{'CPU':>11}{'peak':>11}{'key-first':>14}{'ratio':>14}{'exponent':>14}")
    first: tuple[int, float] | None = None
    for a, b in logs:
        firsts, _, others = zip(*turns_of(a, b, cache, repeat), strict=True)
        ours, other = best(firsts), best(others)
        with a.open("rb") as log:
            size = sum(line.startswith(b"[") for line in log)
        grown = f"{math.log(ours.cpu / first[1]) / math.log(size / first[0]):.2f}" if first else ""
        first = first or (size, ours.cpu)
        _line(f"{size:,}", ours, f"{other.cpu:.2f} s", ratio(firsts, others), grown)


def by_drift(folder: Path, repeat: int) -> None:
    """Print a line for each kind of drift and open, and of the rules that benchmarks.rematch applies."""
    print(f"\n{f'{_SIZES[-1]:,} operations':<44}{'CPU':>11}{'peak':>11}{'wall':>14}{'ratio':>14}")
    for drift in _DRIFTS:
        a, b = _written(folder / drift, _SIZES[-1], drift=drift)
        firsts, seconds, others = zip(*turns_of(a, b, folder / "cache", repeat), strict=True)
        for name, costs in (("first open", firsts), ("second open", seconds)):
            wall = min(cost.wall for cost in costs)
            _line(f"{drift}, {name}", best(costs), f"{wall:.2f} s", ratio(costs, others))
        told = run([sys.executable, "-m", "benchmarks.rematch", str(a), str(b)]).output.decode()
        for kind, processor in re.findall(r"^(pair|template|module rename) .*processor (\d+) ms", told, re.MULTILINE):
            print(f"{f'{drift}, rematch: {kind}':<44}{int(processor) / 1000:9.2f} s")
        shutil.rmtree(folder / drift)


def worst_cases(folder: Path, repeat: int) -> None:
    """Print a line for each kind of log with little evidence, beside the normal log of that size."""
    pairs = {name: _written(folder / f"worst {k}", _WORST_SIZE, flat) for k, (name, flat) in enumerate(_WORST.items())}
    turns = [{name: numtui(*pair) for name, pair in pairs.items()} for _ in range(repeat)]
    costs = {name: best([turn[name] for turn in turns]) for name in pairs}
    print(f"\n{f'{_WORST_SIZE:,} operations':<44}{'CPU':>11}{'peak':>11}{'of normal':>14}")
    for name, cost in costs.items():
        _line(name, cost, f"{cost.cpu / costs['normal'].cpu:.2f}")


def _written(folder: Path, size: int, flat: frozenset[str] = frozenset(), drift: str = _DRIFTS[0]) -> tuple[Path, Path]:
    of = ("--size", str(size), "--drift", drift, "--flat", *flat)
    run([sys.executable, "-m", "benchmarks.drifting_logs", str(folder), *of])
    return folder / "a.log", folder / "b.log"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--logs", nargs=2, metavar=("A.log", "B.log"), type=Path, help="these instead of made ones")
    parser.add_argument("--large", action="store_true", help=f"also {_LARGE:,} operations, which takes minutes")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.logs:
            by_size([tuple(path.resolve() for path in args.logs)], folder / "cache", args.repeat)
            return 0
        sizes = (*_SIZES, _LARGE) if args.large else _SIZES
        by_size([_written(folder / str(size), size) for size in sizes], folder / "cache", args.repeat)
        by_drift(folder, args.repeat)
        worst_cases(folder, args.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
