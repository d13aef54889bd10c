"""The entries of `Mutated` merged from all ranks: contents that operations left in their inputs."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from matchers.arrays import Int64
from matchers.logs.op_log import OpLog
from matchers.ops.folding import folded_counts, folded_statistics
from matchers.ops.holds import Holds
from matchers.ops.json_values import integers, number, parsed
from matchers.runs.layouts.apart import adds_up, apart, averaged_over, names_of, norm_of_norms, power_of_norms
from matchers.runs.layouts.declared import Declared, stand_in
from matchers.verdict.sketches import decode_sketches

__all__ = ["encoded_sum", "merged_changes", "merged_entry"]

_STATISTICS = ("l1", "l2", "min", "max", "mean")
_OF_PARTS = ("digest", "hash", "sketch", *_STATISTICS)
_NO_SKETCH = b64encode(bytes(16 * 8)).decode()
"""The sketch of zeros."""

Entry = Mapping[str, Any]


def merged_changes(
    logs: Sequence[OpLog], rows: Int64, declared: Declared, coordinates: Sequence[Mapping[str, int]]
) -> dict[int, bytes]:
    """The text of the field by row of the first log; empty where not all ranks have the record.

    Args:
        rows: int64[ranks, n], the record of each rank for each of the first.
        coordinates: of each rank in the mesh.
    """
    of_first: set[int] = set()
    for log, at in zip(logs, rows, strict=True):
        of_first |= set(np.flatnonzero(np.isin(at, list(log.texts("Mutated")))).tolist())
    out: dict[int, bytes] = {}
    for row in of_first:
        records = rows[:, row].tolist()
        changed = [_by_slot(log, at) for log, at in zip(logs, records, strict=True)] if min(records) >= 0 else []
        slots = sorted({slot for each in changed for slot in each})
        entries = [merged_entry(_at_slot(logs, records, changed, slot), declared, coordinates) for slot in slots]
        out[row] = json.dumps(entries).encode() if entries else b""
    return out


def _by_slot(log: OpLog, record: int) -> dict[int, Entry]:
    entries = parsed(log.texts("Mutated").raw(record)) or []
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {slot: entry for entry in found if type(slot := entry.get("input")) is int}


def _at_slot(
    logs: Sequence[OpLog], records: Sequence[int], changed: Sequence[Mapping[int, Entry]], slot: int
) -> list[Entry]:
    """The content of an input afterwards, on each rank. A rank that does not list it left it as it was."""
    like = next(each[slot] for each in changed if slot in each)
    parts = []
    for rank, (log, record, each) in enumerate(zip(logs, records, changed, strict=True)):
        norms = log.inputs[record]
        before = float(norms[slot]) if slot < len(norms) else math.nan
        parts.append(each[slot] if slot in each else _unchanged(like, before, rank))
    return parts


def _unchanged(like: Entry, norm: float, rank: int) -> Entry:
    """An input of which only its norm is known; if that is zero, all else is."""
    entry = {name: value for name, value in like.items() if name not in _OF_PARTS} | {"l1": norm}
    if isinstance(placement := like.get("placement"), dict):
        entry["placement"] = {**placement, "offsets": f"of rank {rank}"}
    counts = integers(like.get("counts"), 4)
    if norm == 0 and counts is not None:
        return entry | dict.fromkeys(_STATISTICS, 0.0) | {"counts": [counts[0], 0, 0, counts[0]], "sketch": _NO_SKETCH}
    return {name: value for name, value in entry.items() if name != "counts"}


def merged_entry(
    parts: Sequence[Entry],
    declared: Declared,
    coordinates: Sequence[Mapping[str, int]],
    shape: Sequence[int] | None = None,
) -> Entry:
    """The entry of a whole tensor: of an input after an operation, or of an output after the first.

    Args:
        parts, coordinates: of each rank.
        shape: of the whole, if the parts have no placement and are shards; None where this is not known.
    """
    one = parts[0]
    placement = found if isinstance(found := one.get("placement"), dict) else {}
    names = names_of(placement)
    if isinstance(placement.get("shape"), list):
        shape = placement["shape"]
    partial = any("artial" in name for name in names)
    sharded = any("Shard" in name for name in names) or (shape is not None and not placement)
    digests = [str(each.get("digest")) for each in parts]
    whole = {name: value for name, value in one.items() if name != "placement"}
    known = whole | ({} if shape is None else {"shape": list(shape)})
    parted = sharded or partial
    if not parted and len(set(digests)) == 1:
        return known
    if (placement and not parted) or declared.holds(str(one.get("name"))) == Holds.REPLICA:
        return parts[stand_in(digests)]
    if placement:
        placements = [found if isinstance(found := each.get("placement"), dict) else {} for each in parts]
        parts = [parts[k] for k in apart(placements, coordinates)]
        if len(parts) == 1:
            return known
    whole = {name: value for name, value in whole.items() if name not in (*_OF_PARTS, "counts", "shape")}
    if shape is not None:
        whole["shape"] = list(shape)
    power = power_of_norms(names)
    if power is not None and shape is not None and not len(shape):
        norm = norm_of_norms([number(each.get("l1")) for each in parts], power)
        return whole | dict.fromkeys(_STATISTICS, norm)
    if placement:
        known_sum = not partial or adds_up([name for name in names if "artial" in name])
        sketches = [str(each.get("sketch") or "") for each in parts]
        whole["sketch"] = encoded_sum(sketches, averaged_over(placement, coordinates)).decode() if known_sum else ""
    return whole if partial or not sharded else {**whole, **_folded(parts)}


def _folded(shards: Sequence[Entry]) -> Entry:
    """The statistics and counts of a tensor from those of its shards."""
    counts = [integers(each.get("counts"), 4) for each in shards]
    if None in counts:
        total = sum(number(each.get("l1")) for each in shards)
        return {"l1": total} if math.isfinite(total) else {}
    values = np.array([[number(each.get(name)) for each in shards] for name in _STATISTICS])
    numbers = np.array(counts, np.int64).T
    start = np.zeros(1, np.int64)
    told = folded_statistics(values, numbers, numbers[0].astype(np.float64), start)[:, 0]
    known = {name: value for name, value in zip(_STATISTICS, told.tolist(), strict=True) if math.isfinite(value)}
    return known | {"counts": folded_counts(numbers, start)[:, 0].tolist()}


def encoded_sum(sketches: Sequence[bytes | str], divisor: int = 1) -> bytes:
    """The sum of sketches, divided by a number, as base64; empty if one is missing, or the number is 0."""
    total = decode_sketches(sketches).sum(axis=0) / (divisor or np.nan)
    return b64encode(total.astype("<f8").tobytes()) if np.isfinite(total).all() else b""
