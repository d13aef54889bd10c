"""The regions of a comparison in words: which module, what lies in them, and what their values say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import numpy as np

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from matchers.ops.module_path import canonical
from matchers.regions.find import Kind

__all__ = ["RegionFacts", "regions_of"]

_REASONS: Final = {
    Kind.COVERED: "its results agree, reached in another way",
    Kind.FIRST_CAUSE: "what it reads agrees, its results do not",
    Kind.CONSEQUENCE: "what it reads differs already",
}


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """A stretch that the two runs compute in other ways.

    Attributes:
        kind: label of `Kind`.
        reason: why it is of this kind, a clause.
        module: the innermost module around all of it; empty for none.
        a, b: rows of its operations in each run, ascending.
        inputs, outputs: rows of the judged pairs that it reads, and of those that read it.
    """

    kind: str
    reason: str
    module: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def regions_of(c: Comparison, row: int | None = None) -> Iterator[RegionFacts]:
    """Yield the regions in which one run has operations of its own, and of which a value tells something.

    `row`: only those that it is in.
    """
    if c.single or c.flow is None:
        return
    regions = c.regions
    not_merged = next((part.why for part in c.coverage.parts if part.layout), "")
    own = np.zeros(len(regions), bool)
    for of, pairs in ((regions.of_a, c.pairing.of_a), (regions.of_b, c.pairing.of_b)):
        own[of[(of >= 0) & (pairs < 0)]] = True
    if row is not None:
        mine = [
            int(of[k])
            for of, records in zip((regions.of_a, regions.of_b), c.members(row), strict=True)
            for k in records
        ]
        own &= np.isin(np.arange(len(own)), mine)
    for k in np.flatnonzero(own & (regions.kind != Kind.UNKNOWN)).tolist():
        a, b = regions.members(k)
        kind = Kind(regions.kind[k])
        yield RegionFacts(
            kind.label,
            _REASONS.get(kind) or not_merged,
            _around([*_modules(c.a, a.tolist()), *_modules(c.b, b.tolist())]),
            tuple(np.unique(c.at_a[a]).tolist()),
            tuple(np.unique(c.at_b[b]).tolist()),
            tuple(np.unique(c.row_of_pair[regions.inputs[k]]).tolist()),
            tuple(np.unique(c.row_of_pair[regions.outputs[k]]).tolist()),
        )


def _modules(log: OpLog, rows: Sequence[int]) -> list[list[str]]:
    return [canonical(name).split(".") for name in {log.module_name(row) for row in rows}]


def _around(paths: list[list[str]]) -> str:
    """The innermost module that all paths have in common."""
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return ".".join(names[0] for names in shared)
