"""Signature of a cause, by which it is known again in another revision.

All revisions are compared with one reference, whose keys name an operation whatever a revision calls its modules. A
cause is known again by where it begins in the reference (or, if only the other run has it, by its operation and module
in the reference's names), its phase, the kind of its difference, and its order of magnitude.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.arguments import argument_reasons
from matchers.explain.sentences import format_error, headline
from matchers.logs.op_log import Phase
from matchers.ops.module_path import canonical, template
from matchers.status import Status
from numtui.query.commits import locations

__all__ = ["Findings", "Signature", "Verdict", "findings_of", "judge"]

_MAGNITUDES = 1.0
"""Powers of ten by which the errors of one cause may differ between revisions."""
_AGREE = (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE, Status.IGNORED)
_MAX_KEYS = 64
_MAX_LOCATIONS = 12


class Verdict(Enum):
    """Answer of a revision about a cause; HIDDEN: it may have it or not."""

    WITH = "with"
    WITHOUT = "without"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Signature:
    """A cause of one comparison with the reference. Texts are untrusted.

    Attributes:
        operation, module: of its first row; the module in the names of the reference.
        template: of the module, `layers.{}.attention`.
        phase, kind: `forward`; the label of a status, such as `diverged` or `only-b`.
        asked: it was given other arguments.
        error: relative; NaN for unknown, Inf for NaN or Inf in the values.
        keys: of the reference's operations with which it begins; empty where only the other run has it.
        readers: keys of the reference's operations that read what only the other run has.
        key: the operation by its key, in the reference where that has one.
        told: the error as text, empty for none.
        sentence: what is said of the first row.
        places: source lines in the other run: its own, then those on its data path, the nearest first.
    """

    operation: str
    module: str
    phase: str
    kind: str
    template: str = ""
    asked: bool = False
    error: float = math.nan
    keys: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    key: str = ""
    told: str = ""
    sentence: str = ""
    places: tuple[str, ...] = ()

    @property
    def magnitude(self) -> float:
        """The power of ten of the error; NaN where it has none."""
        return math.log10(self.error) if 0 < self.error < math.inf else math.nan

    @property
    def witnesses(self) -> frozenset[str]:
        """Keys of the reference's operations that agree where this cause is not."""
        return self.keys or self.readers

    def same(self, other: Signature) -> bool:
        """True if both are one cause."""
        if (self.phase, self.kind, self.asked) != (other.phase, other.kind, other.asked):
            return False
        if abs(self.magnitude - other.magnitude) > _MAGNITUDES:  # never where one is unknown
            return False
        if self.keys and other.keys:
            return bool(self.keys & other.keys)
        return (self.operation, self.module) == (other.operation, other.module)


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of a revision's run against the reference.

    Attributes:
        trouble: why it tells nothing; empty if it does.
        causes: all independent ones, the first ones first.
        red: something is red.
        start: the trouble is that weights, buffers or the batch differ before the step.
        agree: keys of the reference's operations that agree.
        given: those that were given the same arguments.
    """

    trouble: str = ""
    causes: tuple[Signature, ...] = ()
    red: bool = False
    start: bool = False
    agree: frozenset[str] = field(default=frozenset(), repr=False)
    given: frozenset[str] = field(default=frozenset(), repr=False)

    def others(self, known: Sequence[Signature]) -> list[Signature]:
        """Return the causes that are none of these."""
        return [each for each in self.causes if not any(each.same(one) for one in known)]


def judge(wanted: Signature, found: Findings, known: Sequence[Signature]) -> Verdict:
    """Return whether a revision has a cause.

    A revision that shows other causes alone is without this one only if that is certain: the operation agrees, or was
    given the same arguments, or there is nothing that the bad revision does not have, too, where this cause was seen
    all the same. Else another cause may hide it.

    Args:
        known: all causes of the bad revision.
    """
    if any(wanted.same(each) for each in found.causes):
        return Verdict.WITH
    if not found.red and not found.causes:
        return Verdict.WITHOUT
    if wanted.witnesses and wanted.witnesses <= found.agree:
        return Verdict.WITHOUT
    if wanted.asked and wanted.keys and wanted.keys <= found.given:
        return Verdict.WITHOUT
    if found.causes and not found.others(known):
        return Verdict.WITHOUT
    return Verdict.HIDDEN


def findings_of(comparisons: Sequence[Comparison]) -> Findings:
    """Return what the comparisons of a run with the reference show together, one for each rank, or one of all."""
    causes: list[Signature] = []
    agree: set[str] = set()
    differ: set[str] = set()
    given: set[str] = set()
    for c in comparisons:
        for each in _signatures(c):
            if not any(each.same(one) for one in causes):
                causes.append(each)
        on_both = c.row_a >= 0
        agreed = np.isin(c.status, _AGREE)
        agreed[on_both] |= (c.pair < 0)[on_both] & c.regions.covered("a")[c.row_a[on_both]]
        agree |= {c.a.keys[i] for i in c.row_a[on_both & agreed].tolist()}
        given |= {c.a.keys[i] for i in c.row_a[on_both & (c.row_b >= 0) & ~c.asked_otherwise].tolist()}
        differ |= {c.a.keys[i] for i in c.row_a[on_both & ~agreed].tolist()}
    return Findings(
        causes=tuple(causes),
        red=any(bool(c.red.any()) for c in comparisons),
        agree=frozenset(agree - differ),
        given=frozenset(given),
    )


def _signatures(c: Comparison) -> Iterator[Signature]:
    named = _names_in_reference(c)
    places = (*c.starts, *c.further_causes)
    for rows in (part for place in places for part in _asked_apart(c, place)):
        row = rows[0]
        log, record = c.shown(row)
        module = log.module_name(record)
        module = module if log is c.a else named.get(module, module)
        error = float(c.error[row])
        keys = [c.a.keys[i] for one in rows for i in c.members(one)[0]]
        readers = np.flatnonzero(np.isin(c.edges.value, rows))
        at_reader = c.row_a[np.unique(c.edges.row[readers])]
        j = int(c.row_b[row])
        yield Signature(
            operation=log.op_name(record),
            module=module,
            template=template(canonical(module)).pattern,
            phase=Phase(log.phase[record]).label,
            kind=Status(c.status[row]).label,
            asked=bool(c.asked_otherwise[row]),
            error=error,
            keys=frozenset(keys[:_MAX_KEYS]),
            readers=frozenset() if keys else frozenset(c.a.keys[i] for i in at_reader[at_reader >= 0][:_MAX_KEYS]),
            key=log.keys[record],
            told="" if math.isnan(error) else format_error(error, bool(c.bound[row])),
            sentence=headline(c, row),
            places=tuple(islice(locations(c, "b", j), _MAX_LOCATIONS)) if j >= 0 and c.flow is not None else (),
        )


def _asked_apart(c: Comparison, rows: Sequence[int]) -> list[list[int]]:
    """Split the rows of one place that the reference asks the same and the other run does not: each may have a commit.

    What both ask otherwise from row to row, such as a factor that depends on the layer, stays together.
    """
    asked: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        told = [each for each, why in argument_reasons(c, row) if not why] if c.asked_otherwise[row] else []
        asked.setdefault((str([(each.name, each.a) for each in told]), str([each.b for each in told])), []).append(row)
    in_reference = {one for one, _ in asked}
    return [list(rows)] if len(in_reference) == len(asked) else list(asked.values())


def _names_in_reference(c: Comparison) -> dict[str, str]:
    """By a module's name in b, the name in a of the module whose operations most of its operations are paired with."""
    paired = np.flatnonzero((c.row_a >= 0) & (c.row_b >= 0))
    found = Counter(zip(c.b.module[c.row_b[paired]].tolist(), c.a.module[c.row_a[paired]].tolist(), strict=True))
    named: dict[str, str] = {}
    for (b, a), _ in found.most_common():
        named.setdefault(c.b.modules[b], c.a.modules[a])
    return named
