"""Key-first matching, as in torchtitan's comparer: the baseline of numtui's benchmarks.

A plain reimplementation with the same kinds of work in the same order: every line is tried as the head of a record,
then as a statistic (a regular expression each), then as one of the other fields (by its words); statistics stay text
in a dictionary per record; operations are paired in four passes: by override, by the same key, by that key without
counter and root class, and by (operation, shape, output hash). It is neither slowed down nor tuned.

    python -m benchmarks.keyfirst A.log B.log

prints the pairs found, the CPU seconds of parsing and of matching, and the peak memory.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Pairs", "Record", "match", "parse"]

_HEAD = r"^\[(.+)\]"
_STATISTIC = r"^\s+(Shape|L1 norm|L2 norm|Min|Max|Mean):\s+(.+)"
_COUNTER = r"/op_\d+_"
_ROOT_CLASS = r"^[A-Z]\w*[A-Z]\w*\."
_FIELDS = ("Location", "Phase", "Output hash", "Input hashes", "Input producers")


@dataclass
class Record:
    """One operation and all its fields in the log, as text."""

    key: str
    statistics: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Pairs:
    """Partner of each record of a in b (-1: none), and the number of pairs per pass."""

    partner: list[int]
    found: dict[str, int]


def parse(path: Path) -> list[Record]:
    """Parse the records of a log, in order."""
    records: list[Record] = []
    current: Record | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if head := re.match(_HEAD, line):
                current = Record(key=head[1])
                records.append(current)
            elif current is None:
                continue
            elif statistic := re.match(_STATISTIC, line):
                current.statistics[statistic[1]] = statistic[2].strip()
            else:
                for name in _FIELDS:
                    if f"{name}:" in line:
                        current.fields[name] = line.strip().replace(f"{name}: ", "")
                        break
    return records


def match(a: Sequence[Record], b: Sequence[Record], overrides: Mapping[str, str] | None = None) -> Pairs:
    """Pair in four passes; within a pass, first come, first served, in the order of the logs."""
    partner = [-1] * len(a)
    taken = [False] * len(b)
    found: dict[str, int] = {}

    def one_pass(name: str, keys_a: Sequence[object], keys_b: Sequence[object]) -> None:
        waiting: defaultdict[object, list[int]] = defaultdict(list)
        for j in reversed(range(len(b))):
            if not taken[j] and keys_b[j] is not None:
                waiting[keys_b[j]].append(j)
        pairs = 0
        for i in range(len(a)):
            if partner[i] < 0 and keys_a[i] is not None and (queue := waiting.get(keys_a[i])):
                j = queue.pop()
                partner[i], taken[j] = j, True
                pairs += 1
        found[name] = pairs

    rename = overrides or {}
    one_pass("override", [rename.get(r.key) for r in a], [r.key for r in b])
    one_pass("same key", [r.key for r in a], [r.key for r in b])
    one_pass("without counter", [_without_counter(r.key) for r in a], [_without_counter(r.key) for r in b])
    one_pass("op, shape, hash", [_signature(r) for r in a], [_signature(r) for r in b])
    return Pairs(partner, found)


def _without_counter(key: str) -> str:
    return re.sub(_ROOT_CLASS, "", re.sub(_COUNTER, "/", key), count=1)


def _signature(record: Record) -> tuple[str, str, str] | None:
    """Return the key of the last pass; None for operations that return nothing."""
    shape, outputs = record.statistics.get("Shape"), record.fields.get("Output hash")
    if not shape or not outputs:
        return None
    return re.split(_COUNTER, record.key)[-1], shape, outputs


def main(arguments: Sequence[str]) -> int:
    """Parse, match, and print the cost."""
    if len(arguments) != 2:
        print("usage: python -m benchmarks.keyfirst A.log B.log", file=sys.stderr)
        return 2
    start = time.process_time()
    a, b = (parse(Path(path)) for path in arguments)
    parsed = time.process_time()
    pairs = match(a, b)
    matched = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, count in pairs.found.items():
        print(f"{name:<16} {count:>9,} pairs")
    print(f"{'in all':<16} {sum(pairs.found.values()):>9,} of {len(a):,} and {len(b):,} operations")
    print(f"parse            {parsed - start:9.2f} s CPU")
    print(f"match            {matched - parsed:9.2f} s CPU")
    print(f"parse and match  {matched - start:9.2f} s CPU")
    print(f"peak memory      {peak:9.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
