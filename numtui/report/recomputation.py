"""Recompute mismatches of a report: recomputed copies that do not repeat what they did in the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matchers.comparison import Comparison
from matchers.explain.notes import recompute_note

__all__ = ["MismatchFacts", "mismatch_facts", "mismatch_groups"]


@dataclass(frozen=True, slots=True)
class MismatchFacts:
    """One recompute mismatch.

    Attributes:
        row: of the comparison; `side` is the run.
        key, original: the copy, and the operation of the forward pass that it repeats.
        location: source line of the copy.
        reason: in words.
        error: relative difference of the norms, as shown; empty where unknown.
        undone_by: the later operation that provably undoes it; empty for none.
        alike: the other run has the same mismatch in its partner.
        red: it is neither undone nor in both runs alike.
    """

    side: str
    row: int
    key: str
    original: str
    location: str
    reason: str
    error: str
    undone_by: str
    alike: bool
    red: bool


def mismatch_facts(c: Comparison) -> tuple[MismatchFacts, ...]:
    """Describe the recompute mismatches, those of a first."""
    from matchers.explain.sentences import format_error

    told = []
    for found in c.recompute_mismatches:
        log, at, m = (c.a, c.at_a, found.mismatch) if found.side == "a" else (c.b, c.at_b, found.mismatch)
        told.append(
            MismatchFacts(
                side=found.side,
                row=int(at[m.row]),
                key=log.keys[m.row],
                original=log.keys[m.original],
                location=log.location_text(m.row),
                reason=m.text,
                error="" if m.error != m.error else format_error(m.error, True),
                undone_by="" if found.stays else log.keys[m.undone],
                alike=found.alike,
                red=found.red,
            )
        )
    return tuple(told)


def mismatch_groups(c: Comparison) -> Iterator[tuple[MismatchFacts, int, str]]:
    """Yield the first mismatch of each source line and operation, their number, and what is said of the first.

    What both runs have alike is told of a.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for k, found in enumerate(c.recompute_mismatches):
        if found.alike and found.side == "b":
            continue
        log, record = (c.a if found.side == "a" else c.b), found.mismatch.row
        place = (found.side, log.location_text(record), log.op_name(record), found.mismatch.reason, found.stays)
        groups.setdefault(place, []).append(k)
    facts = mismatch_facts(c)
    for first, *others in groups.values():
        found = c.recompute_mismatches[first]
        log = c.a if found.side == "a" else c.b
        yield facts[first], 1 + len(others), recompute_note(log, found).removeprefix("recompute mismatch: ")
