"""Key-first matching, as torchtitan's comparer does it: the baseline that numtui is measured against.

A plain reimplementation from its description: the log is parsed line by line into one object per operation with all
of its fields, and operations are paired in four passes: by override, by the same key, by the same key without the
counter, and by (operation, shape, output hash). It is neither slowed down nor tuned.

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

_COUNTER = re.compile(r"/op_\d+_")
_SHAPE = re.compile(r"Shape: (torch\.Size\(\[.*?\]\)), Dtype: (\S+)")


@dataclass
class Record:
    """One operation and all that the log says about it, numbers as floats."""

    key: str
    shape: str | None = None
    dtype: str | None = None
    l1_norm: float | None = None
    l2_norm: float | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    output_hash: list[float] = field(default_factory=list)
    input_hashes: list[float] = field(default_factory=list)
    input_producers: list[str] = field(default_factory=list)
    location: str | None = None
    phase: str = "forward"


@dataclass
class Pairs:
    """Partner of each record of a in b (-1: none), and how many each pass found."""

    partner: list[int]
    found: dict[str, int]


def parse(path: Path) -> list[Record]:
    """The records of a log, in order."""
    records: list[Record] = []
    current: Record | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for raw in lines:
            line = raw.strip()
            if raw.startswith("["):
                current = Record(key=line[1:-1])
                records.append(current)
            elif current is None or not line:
                continue
            elif found := _SHAPE.match(line):
                current.shape, current.dtype = found.groups()
            else:
                name, _, value = line.partition(": ")
                _set(current, name.rstrip(":"), value)
    return records


def _set(record: Record, name: str, value: str) -> None:
    if name == "L1 norm":
        record.l1_norm = float(value)
    elif name == "L2 norm":
        record.l2_norm = float(value)
    elif name == "Min":
        record.min = float(value)
    elif name == "Max":
        record.max = float(value)
    elif name == "Mean":
        record.mean = float(value)
    elif name == "Output hash":
        record.output_hash = [float(v) for v in value.split(",")]
    elif name == "Input hashes":
        record.input_hashes = [float(v) for v in value.split(",")]
    elif name == "Input producers":
        record.input_producers = [p.strip() for p in value.split(";")]
    elif name == "Location":
        record.location = value
    elif name == "Phase":
        record.phase = value


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
    one_pass("without counter", [_COUNTER.sub("/", r.key) for r in a], [_COUNTER.sub("/", r.key) for r in b])
    one_pass("op, shape, hash", [_signature(r) for r in a], [_signature(r) for r in b])
    return Pairs(partner, found)


def _signature(record: Record) -> tuple[str, str, tuple[float, ...]] | None:
    """What the last pass compares; None for operations that return nothing."""
    if record.shape is None or not record.output_hash:
        return None
    return (_COUNTER.split(record.key)[-1], record.shape, tuple(record.output_hash))


def main(arguments: Sequence[str]) -> int:
    """Parse, match, and print what it cost."""
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
