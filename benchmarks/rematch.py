"""How long a person waits for a rule: one more pair by hand, on logs of any size.

    python -m benchmarks.rematch A.log B.log

prints the wall-clock seconds of reading, of the first comparison, and the milliseconds of the comparison after one more
pair rule (the median and the worst of some), which is what stands between the key and the screen.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np

from matchers.comparison import compare
from matchers.parse import read_log
from matchers.resolve import key_reference, warm
from matchers.rules import PairRule, RuleSet
from matchers.status import Status

_RULES = 12


def main(arguments: Sequence[str]) -> int:
    """Make some pairs of rows that only one side has, one after the other."""
    if len(arguments) != 2:
        print("usage: python -m benchmarks.rematch A.log B.log", file=sys.stderr)
        return 2
    start = time.perf_counter()
    a, b = (read_log(path) for path in arguments)
    read = time.perf_counter()
    comparison = compare(a, b)
    compared = time.perf_counter()
    for log in (a, b):
        warm(log)
    alone_a = comparison.row_a[comparison.status == Status.ONLY_A].tolist()
    alone_b = comparison.row_b[comparison.status == Status.ONLY_B].tolist()
    rules, took = RuleSet(), []
    for i, j in zip(alone_a[::3], alone_b[::3], strict=False):
        rules = rules.adding(PairRule(a=(key_reference(a, i),), b=(key_reference(b, j),)))
        begin = time.perf_counter()
        now = comparison.with_rules(rules)
        took.append(1000 * (time.perf_counter() - begin))
        assert np.flatnonzero(now.pairing.of_a == now.pairing.of_b[j]).tolist() == [i]
        if len(took) == _RULES:
            break
    print(f"reading             {read - start:8.2f} s")
    print(f"first comparison    {compared - read:8.2f} s")
    if took:
        median = statistics.median(took)
        print(f"one more pair rule  {median:8.0f} ms (median of {len(took)}; worst {max(took):.0f} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
