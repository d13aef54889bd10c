"""Reliability table of the matching: share of correct pairs by confidence.

    python -m benchmarks.calibration [--size 9000] [--seeds 2]

Compares logs of every kind of drift (benchmarks.drifting_logs); a pair is correct if one of its rows of a is the true
partner of one of its rows of b. Target: of the pairs with a confidence of .9 or more, .98 are correct.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.drifting_logs import DRIFTS, KINDS, Truth, write_pair
from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.pairing.pairing import Method, Pairing

_EDGES = (0.0, 0.5, 0.7, 0.9, 0.97, 0.99, 1.0)
"""Lower edges of the confidence bins; the last bin is exactly 1."""
_SURE = 0.9


@dataclass(frozen=True, slots=True)
class Judged:
    """Pairs of one comparison with confidence, method and correctness, and the operations of a found.

    `precision` is the share of correct pairs, `recall` that of the operations of a with a partner that found it.
    """

    confidence: NDArray[np.float32]
    method: NDArray[np.int8]
    right: NDArray[np.bool_]
    found: NDArray[np.bool_]
    """bool per operation of a that has a partner."""
    kind: NDArray[np.int8]
    """Index into `KINDS` of each of these operations."""

    @property
    def precision(self) -> float:
        return float(self.right.mean())

    @property
    def recall(self) -> float:
        return float(self.found.mean())


def judge(pairing: Pairing, truth: Truth) -> Judged:
    """Compare a pairing with the truth."""
    right = np.zeros(len(pairing), bool)
    found = np.zeros(len(truth.kind), bool)
    for of_b in (truth.partner, truth.starts):
        row_b = np.flatnonzero((of_b >= 0) & (pairing.of_b >= 0))
        row_a = of_b[row_b]
        hit = pairing.of_a[row_a] == pairing.of_b[row_b]
        right[pairing.of_b[row_b[hit]]] = True
        found[row_a[hit]] = True
    partnered = np.unique(truth.partner[truth.partner >= 0])
    return Judged(pairing.confidence, pairing.method, right, found[partnered], truth.kind[partnered])


def compared(size: int, seeds: int) -> Iterator[tuple[str, Judged]]:
    """Compare logs of every kind of drift with every seed."""
    for name, drift in DRIFTS.items():
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                truth = write_pair(Path(folder), size, seed=seed, drift=drift)
                comparison = compare(read_log(Path(folder) / "a.log"), read_log(Path(folder) / "b.log"))
            yield name, judge(comparison.pairing, truth)


def _table(title: str, rows: dict[str, Judged]) -> None:
    heads = [f"{low:g}-{high:g}" for low, high in pairwise(_EDGES)] + [f"{_EDGES[-1]:g}"]
    print(f"\n{title:<30}" + "".join(f"{head:>18}" for head in [*heads, f"≥ {_SURE}"]))
    for name, judged in rows.items():
        bin_of = np.digitize(np.round(judged.confidence, 3), _EDGES) - 1
        masks = [bin_of == k for k in range(len(_EDGES))] + [judged.confidence >= _SURE]
        cells = [f"{judged.right[m].mean():.4f} of {m.sum():>6}" if m.any() else "–" for m in masks]
        print(f"{name:<30}" + "".join(f"{cell:>18}" for cell in cells))


def _joined(parts: list[Judged]) -> Judged:
    return Judged(*(np.concatenate([getattr(part, name) for part in parts]) for name in Judged.__slots__))


def _of_method(judged: Judged, method: Method) -> Judged:
    mask = judged.method == method
    return Judged(judged.confidence[mask], judged.method[mask], judged.right[mask], judged.found, judged.kind)


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size", type=int, default=9000, help="operations, about")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    results: dict[str, list[Judged]] = {}
    for name, judged in compared(args.size, args.seeds):
        results.setdefault(name, []).append(judged)
    drifts = {name: _joined(parts) for name, parts in results.items()}
    print(f"{'drift':<30}{'precision':>11}{'recall':>9}" + "".join(f"{kind:>12}" for kind in KINDS))
    for name, judged in drifts.items():
        by_kind = [judged.found[judged.kind == k] for k in range(len(KINDS))]
        cells = "".join(f"{part.mean():12.4f}" if len(part) else f"{'–':>12}" for part in by_kind)
        print(f"{name:<30}{judged.precision:11.4f}{judged.recall:9.4f}{cells}")
    _table("right, by drift", drifts)
    together = _joined(list(drifts.values()))
    _table("right, by method", {m.label: _of_method(together, m) for m in Method if (together.method == m).any()})
    _table("right", {"all": together})
    return 0


if __name__ == "__main__":
    sys.exit(main())
