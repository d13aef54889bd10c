"""Time to apply one more rule of each kind, on logs of any size.

    python -m benchmarks.rematch A.log B.log

prints the wall-clock seconds of reading and of the first comparison, and for each kind of rule the milliseconds of the
comparison after one more rule (median and worst of some, and median processor time), the delay between the key and the
screen. Every rule changes something: a pair joins two unpaired operations, a template pairs in each layer an operation
with another one of the same module, and a rename gives the modules of all layers other names.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

import numpy as np

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.rules.model import ModuleRule, PairRule, Rule, RuleSet, TemplateRule
from matchers.rules.resolve import key_reference, warm
from matchers.status import Status

_RULES = 12


def main(arguments: Sequence[str]) -> int:
    """Compare, then apply some rules of each kind, each as a separate rule set."""
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
    print(f"reading             {read - start:8.2f} s")
    print(f"first comparison    {compared - read:8.2f} s")
    for kind, rules in (("pair", _pairs(comparison)), ("template", _templates(a)), ("module rename", _renames(a))):
        _measure(kind, comparison, islice(rules, _RULES))
    return 0


def _measure(kind: str, comparison: Comparison, rules: Iterator[Rule]) -> None:
    took, worked, changed = [], [], []
    before = comparison.pairing.partner_of_a
    for rule in rules:
        wall, work = time.perf_counter(), time.process_time()
        now = comparison.with_rules(RuleSet((rule,)))
        took.append(1000 * (time.perf_counter() - wall))
        worked.append(1000 * (time.process_time() - work))
        changed.append(int(np.count_nonzero(now.pairing.partner_of_a != before)))
    if took:
        print(
            f"{kind:20}{statistics.median(took):8.0f} ms (median of {len(took)}; worst {max(took):.0f} ms; "
            f"processor {statistics.median(worked):.0f} ms; {statistics.median(changed):.0f} rows get another partner)"
        )


def _pairs(c: Comparison) -> Iterator[Rule]:
    alone_a = c.row_a[c.status == Status.ONLY_A].tolist()
    alone_b = c.row_b[c.status == Status.ONLY_B].tolist()
    for i, j in zip(alone_a[::3], alone_b[::3], strict=False):
        yield PairRule(a=(key_reference(c.a, i),), b=(key_reference(c.b, j),))


def _templates(log: OpLog) -> Iterator[Rule]:
    """Pair an operation of a module in all layers with the next one of the same name there."""
    first: dict[tuple[str, str], str] = {}
    made = set()
    for key in log.keys:
        module, _, tail = key.rpartition("/")
        found = re.fullmatch(r"op_\d+_(.*)", tail)
        place = _in_all_layers(module)
        if found is None or place is None or (place, found[1]) in made:
            continue
        before = first.setdefault((module, found[1]), tail)
        if before != tail:
            made.add((place, found[1]))
            yield TemplateRule(a=(f"{place}/{before}",), b=(f"{place}/{tail}",))


def _renames(log: OpLog) -> Iterator[Rule]:
    places = list(dict.fromkeys(filter(None, map(_in_all_layers, log.modules))))
    for place, other in pairwise([*places, *places[:1]]):
        yield ModuleRule(a=place, b=other)


def _in_all_layers(module: str) -> str | None:
    """Return the template of a module in a numbered place, such as `layers.{i}.attention`."""
    place, numbers = re.subn(r"(?<=\.)\d+(?=\.|$)", "{i}", module, count=1)
    return place if numbers else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
