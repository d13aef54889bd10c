"""Classes of ranks: those that the same divergence reached are one, and the mesh says what they have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

from matchers.runs.diff.summary import Outcome, RankSummary
from matchers.status import LabelledEnum

__all__ = ["Kind", "RankClass", "classes_of", "common_place"]

_NODE = "node"


class Kind(LabelledEnum):
    """State that the ranks of a class share: red, not compared, equal within tolerance, equal to the bit."""

    RED = 0
    NOT_COMPARED = 1
    CLOSE = 2
    EQUAL = 3


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks in one state.

    Attributes:
        ranks: ascending.
        origins: indices of the origins behind the first event of each; empty if nothing differs.
        place: the mesh coordinate, or node, that these ranks have and no others: `tp=0`; empty if none tells.
    """

    kind: Kind
    ranks: tuple[int, ...]
    origins: tuple[int, ...]
    place: str


def classes_of(summaries: Mapping[int, RankSummary], behind: Mapping[int, tuple[int, ...]]) -> tuple[RankClass, ...]:
    """Group the ranks, the worst and largest class first.

    Args:
        behind: by rank, the origins behind its first event.
    """
    found: dict[tuple[Kind, tuple[int, ...], str], list[int]] = defaultdict(list)
    for rank, summary in sorted(summaries.items()):
        kind = _kind(summary)
        origins = behind.get(rank, ()) if kind in (Kind.RED, Kind.CLOSE) else ()
        found[kind, origins, summary.outcome.label if kind == Kind.NOT_COMPARED else ""].append(rank)
    classes = [
        RankClass(kind, tuple(ranks), origins, common_place(ranks, summaries))
        for (kind, origins, _), ranks in found.items()
    ]
    return tuple(sorted(classes, key=lambda each: (each.kind, each.origins, each.ranks)))


def _kind(summary: RankSummary) -> Kind:
    if not summary.read:
        return Kind.NOT_COMPARED
    if summary.red:
        return Kind.RED
    return Kind.EQUAL if summary.outcome == Outcome.EQUAL or summary.difference is None else Kind.CLOSE


def common_place(ranks: Collection[int], summaries: Mapping[int, RankSummary]) -> str:
    """Return the coordinates that exactly these ranks have: `tp=0`, `dp=1, tp=0`, `node n7`; empty if none tells."""
    if len(ranks) == len(summaries):
        return ""
    where = {rank: _coordinates(summary) for rank, summary in summaries.items()}
    inside = set(ranks)
    names = list(dict.fromkeys(name for at in where.values() for name in at))
    for number in (1, 2):
        for chosen in combinations(names, number):
            values = [{where[rank].get(name) for rank in inside} for name in chosen]
            if any(None in each for each in values) or any(
                len(each) == len(_values(where, name)) for each, name in zip(values, chosen, strict=True)
            ):
                continue
            if inside == {
                r for r, at in where.items() if all(at.get(n) in v for n, v in zip(chosen, values, strict=True))
            }:
                return ", ".join(_told(name, each) for name, each in zip(chosen, values, strict=True))
    return ""


def _coordinates(summary: RankSummary) -> dict[str, int | str]:
    """Indices along the mesh, and the node where the ranks have several."""
    node: dict[str, int | str] = {_NODE: summary.host} if summary.host else {}
    return {**summary.coordinates, **node}


def _values(where: Mapping[int, Mapping[str, int | str]], name: str) -> set[int | str | None]:
    return {at.get(name) for at in where.values()}


def _told(name: str, values: Collection[int | str | None]) -> str:
    if name == _NODE:
        return f"{name} {', '.join(sorted(map(str, values)))}"
    indices = sorted(value for value in values if isinstance(value, int))
    begins = [at for at in indices if at - 1 not in values]
    ends = [at for at in indices if at + 1 not in values]
    return f"{name}=" + ", ".join(str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in zip(begins, ends, strict=True))
