"""Placements of plain parameters, inferred from shapes: the parts that together have the other run's shape.

Megatron's layers hold plain tensors, and their logs say nothing of parts. Shapes tell which dimension is cut, digests
before the step which ranks hold the same part. A part with wrong values is a part all the same: its reader is red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matchers.logs.op_log import OpLog
from matchers.ops.last_contents import LastContents
from matchers.ops.shapes import side_by_side
from matchers.ops.stacks import parts_of_stack, singles
from matchers.runs.rank_logs import RankLogs

__all__ = ["with_inferred_placements"]

Shape = tuple[int, ...]
Share = tuple[int, ...]
"""By rank, the first one that holds the same part."""


def with_inferred_placements(ranks: RankLogs, other: OpLog) -> RankLogs:
    """The ranks with placements in their run info, for parameters of which the logs give none.

    Args:
        other: the log of one process, with whole parameters.
    """
    if any(ranks.table(rank, "parameter_placements") for rank in ranks.logs):
        return ranks
    sizes = {_elements(log) for log in ranks.logs.values()}
    if None not in sizes and sizes == {_elements(other)}:
        return ranks  # all hold the whole model
    found = _placements([LastContents(log, tuple(log.modules)) for log in ranks.logs.values()], other)
    placed = {rank: {name: where[k] for name, where in found.items()} for k, rank in enumerate(ranks.logs)}
    logs = {
        rank: replace(log, header=replace(log.header, run={**log.header.run, "parameter_placements": placed[rank]}))
        for rank, log in ranks.logs.items()
    }
    return RankLogs(ranks.run, logs) if found else ranks


def _elements(log: OpLog) -> int | None:
    """The number of elements of all parameters; None if the log does not say it."""
    held = log.header.run.get("parameters")
    found = held.get("elements") if isinstance(held, dict) else None
    return found if isinstance(found, int) else None


def _placements(parts: Sequence[LastContents], other: OpLog) -> dict[str, list[Mapping[str, Any]]]:
    """By parameter in parts, the placement of each rank."""
    theirs = LastContents(other, tuple(other.modules))
    shapes: dict[str, tuple[Shape, list[Shape]]] = {}
    for name in parts[0].start:
        if name in theirs.last and all(name in each.last for each in parts):
            whole, local = theirs.left(name).shape, [each.left(name).shape for each in parts]
            known = {shape for shape in local if shape is not None}
            if whole is not None and known and known != {whole} and (None not in local or len(known) == 1):
                one = known.pop()  # that of a rank that does not update the parameter, too
                shapes[name] = whole, [one if shape is None else shape for shape in local]
    shapes |= _stacks(parts, theirs)
    shares = {name: _share([each.start.get(name) for each in parts]) for name in shapes}
    cut = {name: dimension for name in shapes if (dimension := _dimension(*shapes[name], shares[name])) is not None}
    usual = Counter(shares[name] for name in cut).most_common(1)
    out: dict[str, list[Mapping[str, Any]]] = {}
    for name, (whole, of_ranks) in shapes.items():
        # parts of zeros or ones, or loaded wrongly, have the same digests
        share = shares[name] if name in cut else usual[0][0] if usual else tuple(range(len(parts)))
        dimension = _dimension(whole, of_ranks, share)
        if dimension is not None:
            out[name] = [_placement(dimension, whole, of_ranks, share, rank) for rank in range(len(parts))]
    return out


def _stacks(parts: Sequence[LastContents], theirs: LastContents) -> dict[str, tuple[Shape, list[Shape]]]:
    """Whole and local shapes of parameters of which each rank has a stack, and the other run its parts one by one."""
    out: dict[str, tuple[Shape, list[Shape]]] = {}
    single, own = singles(theirs, parts[0]), [singles(each, theirs) for each in parts]
    for name in own[0] if single else ():
        if all(name in of for of in own) and len({each.start.get(name) for each in parts}) == len(parts):
            numel, l1 = (sum(of[name][k] for of in own) for k in range(2))
            local = [each.left(name).shape for each in parts]
            if parts_of_stack(name, int(numel), l1, single) and all(local):
                known = [shape for shape in local if shape is not None]
                out[name] = (sum(shape[0] for shape in known), *known[0][1:]), known
    return out


def _share(digests: Sequence[int | None]) -> Share:
    return tuple(rank if digest is None else digests.index(digest) for rank, digest in enumerate(digests))


def _dimension(whole: Shape, local: Sequence[Shape], share: Share) -> int | None:
    """The dimension along which the parts make the whole; None for none."""
    parts = [local[rank] for rank in sorted(set(share))]
    if len(parts) == 1 or whole not in side_by_side(parts):
        return None
    return next(k for k, (length, of_part) in enumerate(zip(whole, parts[0], strict=True)) if length != of_part)


def _placement(dimension: int, whole: Shape, local: Sequence[Shape], share: Share, rank: int) -> Mapping[str, Any]:
    """In the form of the run info; the parts are taken in the order of ranks."""
    offsets = [0] * len(whole)
    offsets[dimension] = sum(local[other][dimension] for other in sorted(set(share)) if other < share[rank])
    return {"placements": [f"Shard({dimension})"], "shape": list(whole), "offsets": offsets}
