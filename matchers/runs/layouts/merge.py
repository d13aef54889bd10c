"""Records of ranks that hold parts of one model, merged into records of global tensors.

Of a *shard*, norms and counts add (L2 in squares), extremes fold, and sketches, which are taken at global positions,
add. Of a *replica* all ranks have the same bits, and one of them stands for all. Of the terms of a *partial* sum the
sketches add, and norms are unknown. Norms of shards add in their powers. What ranks hold is known by `holdings.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.logs.columns import Ragged, Strings, repeated
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog
from matchers.ops.folding import folded_counts, folded_statistics
from matchers.ops.holds import Holds
from matchers.ops.json_values import integers, number, parsed_object
from matchers.ops.placement import LAYOUT, MERGED
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.shapes import dimensions, numel
from matchers.runs.layouts.changes import encoded_sum, merged_changes, merged_entry
from matchers.runs.layouts.declared import stand_in
from matchers.runs.layouts.holdings import Holdings, agree
from matchers.runs.layouts.wholes import Wholes, whole_of
from matchers.verdict.tolerance import EPSILON

__all__ = ["merged"]

_Further = Mapping[tuple[int, int], Mapping[str, Any] | None]
"""By record and number, the outputs after the first that differ between ranks, merged; None where unknown."""
_WITHOUT_NORMS = (Holds.PARTIAL, Holds.UNKNOWN)


def merged(logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> OpLog:
    """Merge the logs of some ranks into one, with the rows of the first.

    Args:
        rows: int64[ranks, n], the record of each rank that is the counterpart of each of the first, -1 for none.
        wholes: the shapes of whole tensors.
    """
    return _Merge(logs, rows, wholes).log() if len(logs) > 1 else logs[0]


class _Listed(NamedTuple):
    """The values of one field of all records that every rank has with lists of one length.

    Attributes:
        of, marks: the lists of the first rank.
        owner, place: int64[m], the record (as a place in `Holdings.here`) and the slot of each value.
        norms, digests: of [ranks, m].
        known: bool[m], the digests belong to the norms.
    """

    of: Ragged
    marks: Ragged
    owner: Int64
    place: Int64
    norms: Float64
    digests: Hash
    known: Bool


class _Merge:
    """Columns of the merged log."""

    def __init__(self, logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> None:
        self._logs, self._rows = logs, rows
        self._first = logs[0]
        self._wholes = wholes
        self._held = Holdings(logs, rows, wholes)

    def log(self) -> OpLog:
        """Put the columns together."""
        log, holds = self._first, self._held.holds
        shard = np.flatnonzero(holds == Holds.SHARD)
        lost = np.flatnonzero(np.isin(holds, _WITHOUT_NORMS))
        stats, counts, present = log.stats.copy(), log.counts.copy(), log.present.copy()
        if len(shard):
            owner, rank, at = self._members(shard)
            start = np.flatnonzero(np.diff(owner, prepend=-1))
            parts = [self._column(name, rank, at) for name in ("stats", "counts")]
            sizes = self._column("size", rank, at)[0]
            stats[:, shard] = folded_statistics(parts[0], parts[1].astype(np.int64), sizes, start)
            counts[:, shard] = folded_counts(parts[1].astype(np.int64), start)
        stats[:, lost], present[lost] = np.nan, 0
        for row in np.flatnonzero(holds == Holds.NORM).tolist():
            stats[:, row] = self._held.norm(row)
        for row, nth in self._held.odd.items():
            odd, its = self._logs[nth], int(self._rows[nth][row])
            stats[:, row], counts[:, row], present[row] = odd.stats[:, its], odd.counts[:, its], odd.present[its]
        changed = np.flatnonzero(holds != Holds.REPLICA).tolist()
        sketches = self._sketches(changed)
        # numbers that do not round are known by their norms only: their bits are not those of the whole
        rounds = np.array([name in EPSILON for name in log.dtypes] + [False])[log.dtype]
        sketched = rounds & np.isin(np.arange(len(log)), [row for row, text in sketches.items() if text])
        further = self._further_outputs()
        outputs, digests = self._outputs(sketched, further)
        # without counts, a norm that is not known would be one that is not finite
        uncounted = lost[counts[0, lost] < 0]
        outputs, digests = outputs.replaced(uncounted), digests.replaced(uncounted)
        inputs, input_digests = self._inputs()
        shapes, shape = self._shapes()
        texts: dict[str, dict[int, bytes]] = {
            "Sketch": sketches,
            **_texts(further),
            "Placement": dict.fromkeys(log.texts("Placement"), b""),
            LAYOUT: dict.fromkeys(log.texts(LAYOUT), b""),
            "User hash": dict.fromkeys(changed, b""),
            "Mutated": merged_changes(self._logs, self._rows, self._held.declared, self._held.coordinates),
            MERGED: self._told(),
        }
        return replace(
            log,
            header=replace(log.header, run=_run_info(log.header.run, len(self._logs))),
            shapes=shapes,
            shape=shape,
            stats=stats,
            counts=counts,
            present=present,
            outputs=outputs,
            digests=digests,
            inputs=inputs,
            input_digests=input_digests,
            extra={**log.extra, **{name: log.texts(name).changed(of) for name, of in texts.items() if of}},
        )

    def _members(self, rows: Int64) -> tuple[Int64, Int64, Int64]:
        """(place in `rows`, rank, its record) of all parts."""
        found = [
            (k, rank, int(self._rows[rank][row]))
            for k, row in enumerate(rows.tolist())
            for rank in self._held.distinct(row)
        ]
        owner, rank, at = np.array(found, np.int64).reshape(-1, 3).T
        return owner, rank, at

    def _column(self, name: str, rank: Int64, at: Int64) -> NDArray[np.float64]:
        """float64[k, m], a column of some records of some ranks."""
        parts: list[NDArray[np.float64]] = []
        for nth, log in enumerate(self._logs):
            column = numel(log)[log.shape][None] if name == "size" else getattr(log, name)
            parts.append(column[:, at[rank == nth]].astype(np.float64))
        out = np.empty((parts[0].shape[0], len(at)))
        for nth, part in enumerate(parts):
            out[:, rank == nth] = part
        return out

    # -- numbers

    def _outputs(self, sketched: Bool, further: _Further) -> tuple[Ragged, Ragged]:
        """L1 norms and digests of all outputs: added where ranks differ; what is not known is NaN.

        Args:
            sketched: bool[n], the record has a sketch, by which it is judged.
            further: the merged outputs after the first, by record and number.
        """
        listed = self._listed("outputs", "digests")
        row, same = self._held.here[listed.owner], agree(listed.digests, listed.norms)
        head = listed.place == 0
        holds = np.where(head, self._held.holds[row], np.where(same, Holds.REPLICA, Holds.UNKNOWN))
        norms, digests = listed.norms[0].copy(), listed.digests[0].copy()
        for k in np.flatnonzero(head & np.isin(row, list(self._held.odd))).tolist():
            rank = self._held.odd[int(row[k])]
            norms[k], digests[k] = listed.norms[rank, k], listed.digests[rank, k]
        norms[holds != Holds.REPLICA] = np.nan
        for k in np.flatnonzero(holds == Holds.SHARD).tolist():
            norms[k] = listed.norms[self._held.distinct(int(row[k])), k].sum()
        for k in np.flatnonzero(holds == Holds.NORM).tolist():
            norms[k] = self._held.norm(int(row[k]))
        for k in np.flatnonzero(~head & ~same).tolist():
            norms[k] = number((further.get((int(row[k]), int(listed.place[k]))) or {}).get("l1"))
        digests[holds != Holds.REPLICA] = NO_DIGEST
        digests[(holds != Holds.REPLICA) & head & sketched[row]] = OF_PARTS
        return self._with(listed, norms, digests)

    def _inputs(self) -> tuple[Ragged, Ragged]:
        """The same of all inputs; of named ones by what is declared of them."""
        listed = self._listed("inputs", "input_digests")
        row, same = self._held.here[listed.owner], agree(listed.digests, listed.norms)
        made = self._held_by_input(self._first.inputs.start[row] + listed.place)
        lost = np.isin(made, (*_WITHOUT_NORMS, Holds.NORM))
        norms = np.where(same, listed.norms[0], np.where(lost, np.nan, listed.norms.sum(axis=0)))
        digests = np.where(same, listed.digests[0], NO_DIGEST)
        for k, name in self._named(listed):
            if made[k] in (Holds.PARTIAL, Holds.NORM):  # a state of another form than its parameter's
                continue
            declared = self._held.declared.holds(name)
            if declared == Holds.SHARD:
                norms[k], digests[k] = listed.norms[list(self._held.declared.distinct(name)), k].sum(), NO_DIGEST
            elif declared == Holds.REPLICA and not same[k]:
                rank = stand_in(listed.digests[:, k].tolist())
                norms[k], digests[k] = listed.norms[rank, k], listed.digests[rank, k]
        return self._with(listed, norms, digests)

    def _named(self, listed: _Listed) -> Iterator[tuple[int, str]]:
        """The place in the lists, and the name, of each input that the log names."""
        texts = self._first.texts("Parameter")
        for begin in np.flatnonzero(listed.place == 0).tolist():
            row = int(self._held.here[listed.owner[begin]])
            for slot, name in enumerate(texts[row].split(";") if row in texts else ()):
                if name and slot < self._first.inputs.count[row]:
                    yield begin + slot, name

    def _listed(self, values: str, digests: str) -> _Listed:
        counts = np.stack([getattr(log, values).count[at] for log, at in self._held.records()])
        listed = np.stack([getattr(log, digests).count[at] for log, at in self._held.records()])
        rows = np.flatnonzero((counts == counts[0]).all(axis=0) & (listed == listed[0]).all(axis=0))
        owner, place = repeated(rows, counts[0][rows])
        norms, prints, known = [], [], counts[0][owner] == listed[0][owner]
        for log, at in self._held.records():
            lists, marks = getattr(log, values), getattr(log, digests)
            norms.append(lists.value[lists.start[at[owner]] + place])
            found = np.full(len(owner), NO_DIGEST)
            found[known] = marks.value[marks.start[at[owner[known]]] + place[known]]
            prints.append(found)
        of = getattr(self._first, values), getattr(self._first, digests)
        return _Listed(*of, owner, place, np.stack(norms), np.stack(prints), known)

    def _with(self, listed: _Listed, norms: Float64, digests: Hash) -> tuple[Ragged, Ragged]:
        """The lists of the first log with these numbers; those of records that not all ranks have are unknown."""
        row, known = self._held.here[listed.owner], listed.known
        total, mark = np.full(len(listed.of.value), np.nan), np.full(len(listed.marks.value), NO_DIGEST)
        total[listed.of.start[row] + listed.place] = norms
        mark[listed.marks.start[row[known]] + listed.place[known]] = digests[known]
        return Ragged(listed.of.start, total), Ragged(listed.marks.start, mark)

    def _held_by_input(self, at: Int64) -> NDArray[np.int8]:
        """The share of the ranks in some inputs (places among all), by their makers; SHARD for no maker."""
        log = self._first
        out = np.full(len(at), Holds.SHARD, np.int8)
        if np.array_equal(log.inputs.start, log.producers.start):
            maker = log.producers.value[at]
            out[maker >= 0] = self._held.holds[maker[maker >= 0]]
        return out

    def _shapes(self) -> tuple[Strings, Int64]:
        """The table of shapes and the shape of each record: those of whole tensors, as far as they are known."""
        log = self._first
        table = {text: k for k, text in enumerate(log.shapes)}
        shape = log.shape.copy()
        for row in np.flatnonzero((self._held.holds == Holds.UNKNOWN) & (shape >= 0)).tolist():
            if dimensions(log.shape_text(row)) not in self._wholes.of(log.op_name(row), log.module_name(row)):
                shape[row] = -1
        for row, whole in self._held.whole.items():
            shape[row] = table.setdefault(str(list(whole)), len(table))
        more = [text.encode() for text in list(table)[len(log.shapes) :]]
        return Strings((*log.shapes.raw, *more)), shape

    # -- texts

    def _sketches(self, rows: Sequence[int]) -> dict[int, bytes]:
        """The sketches of merged records; empty where the positions of the parts are not known."""
        out: dict[int, bytes] = {}
        for row in rows:
            holds = self._held.holds[row]
            adds = holds == Holds.PARTIAL or (holds == Holds.SHARD and self._held.is_placed(row))
            out[row] = self._sketch(row) if adds else b""
        return out

    def _sketch(self, row: int) -> bytes:
        at = self._rows[:, self._held.terms(row)]
        texts = [self._logs[rank].texts("Sketch").raw(int(at[rank])) for rank in self._held.distinct(row)]
        return encoded_sum(texts, self._held.divisors.get(row, 1))

    def _further_outputs(self) -> _Further:
        """The outputs after the first that differ between ranks."""
        found: dict[tuple[int, int], Mapping[str, Any] | None] = {}
        for name in (name for name in self._first.extra if name.startswith("Output ")):
            nth = int(name.removeprefix("Output "))
            for row in self._first.texts(name):
                raw = [log.texts(name).raw(int(at[row])) for log, at in zip(self._logs, self._rows, strict=True)]
                if len(set(raw)) > 1:
                    parts = [parsed_object(text) for text in raw]
                    known = [part for part in parts if part is not None]
                    found[row, nth] = self._further(row, nth, known) if len(known) == len(parts) else None
        return found

    def _further(self, row: int, nth: int, parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """An output after the first, of its parts: where nothing is placed, shards of what the other log has."""
        placements = [placement if isinstance(placement := part.get("placement"), dict) else {} for part in parts]
        if all(placements):
            return merged_entry(parts, self._held.declared, self._held.coordinates)
        shapes = [integers(part.get("shape")) or () for part in parts]
        whole = whole_of(shapes, self._wholes.of_further(self._first.op_name(row), nth))
        return None if whole is None else merged_entry(parts, self._held.declared, self._held.coordinates, whole)

    def _told(self) -> dict[int, bytes]:
        """The members of each merged record: `4 ranks, Shard(1) on tp`, `4 ranks, shard by its shape`."""
        held, out = self._held, {}
        for row in held.here.tolist():
            if self._first.shape[row] >= 0:
                odd = f", rank {held.odd[row]} differs" if row in held.odd else ""
                out[row] = f"{len(self._logs)} ranks, {held.told(row)}{odd}".encode()
        return out


def _texts(further: _Further) -> dict[str, dict[int, bytes]]:
    """The fields of merged outputs after the first; empty where nothing is known."""
    out: dict[str, dict[int, bytes]] = defaultdict(dict)
    for (row, nth), entry in further.items():
        out[f"Output {nth}"][row] = b"" if entry is None else json.dumps(entry).encode()
    return out


def _run_info(run: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The run info of so many ranks: without what a rank says of its own parts, and of the layout."""
    own = (
        *("world_size", "rank", "mesh", "mesh_coordinates", "launcher", "backend", "parameter_placements"),
        *("parameters_digest", "parameter_digests", "buffer_digests", "parameters", "end_state"),
    )
    return {name: value for name, value in run.items() if name not in own} | {MERGED_RANKS: ranks}
