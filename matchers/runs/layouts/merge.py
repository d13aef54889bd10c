"""Records of ranks that hold parts of one model, merged into records of global tensors.

What the ranks hold of a tensor is known by its placement. Of a *shard*, norms and counts add (L2 in squares), extremes
fold, and sketches, which are taken at global positions, add. Of a *replica* all ranks have the same bits, and one of
them stands for all. Of the terms of a *partial* sum the sketches add, and norms are unknown. The placement is logged
(`Placement`), or follows from the data flow (`matchers.ops.shards`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.logs.columns import Ragged, Strings, repeated
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog, Phase
from matchers.ops.collectives import communicating
from matchers.ops.dataflow import sources
from matchers.ops.folding import folded_counts, folded_statistics
from matchers.ops.json_values import integers, named_integers, number, parsed_object
from matchers.ops.op_names import ADDITIONS, rows_named
from matchers.ops.placement import MERGED, describe_placement
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.shapes import dimensions, numel
from matchers.ops.shards import ShardInfo, infer_shards
from matchers.runs.layouts.apart import apart, norm_of_norms, power_of_norms
from matchers.runs.layouts.changes import encoded_sum, merged_changes, merged_entry
from matchers.runs.layouts.declared import Declared, stand_in
from matchers.runs.layouts.holds import Holds
from matchers.runs.layouts.wholes import Wholes, whole_of
from matchers.verdict.tolerance import EPSILON

__all__ = ["merged"]

_ADDS_UP = re.compile(r"_?Partial\((sum)?\)")
"""Placements whose terms add up, as those of norms and of extremes do not."""
_WITHOUT_NORMS = (Holds.PARTIAL, Holds.UNKNOWN)
_ARRANGES = frozenset({"clone", "cat", "copy_", "_to_copy"})


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
        owner, place: int64[m], the record (as a place in `_Merge.here`) and the slot of each value.
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
    """Columns of the merged log.

    Attributes:
        here: int64, records that all ranks have.
        holds: int8[n] of `Holds`.
        odd: by record whose replicas differ, the rank that stands for all.
    """

    def __init__(self, logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> None:
        self._logs, self._rows = logs, rows
        self._first = logs[0]
        self._info: ShardInfo = infer_shards(self._first)
        self._wholes = wholes
        self._declared = Declared([log.header.run for log in logs])
        self._coordinates = [named_integers(log.header.run.get("mesh_coordinates")) for log in logs]
        self.here = np.flatnonzero((rows >= 0).all(axis=0))
        self.odd: dict[int, int] = {}
        self._powers: dict[int, float] = {}
        """By record with norms of parts, the power in which they add up."""
        self.holds, self._whole = self._holdings()

    def log(self) -> OpLog:
        """Put the columns together."""
        log, holds = self._first, self.holds
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
            stats[:, row] = self._norm(row)
        for row, number_ in self.odd.items():
            odd, its = self._logs[number_], int(self._rows[number_][row])
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
            "User hash": dict.fromkeys(changed, b""),
            "Mutated": merged_changes(self._logs, self._rows, self._declared),
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

    # -- what the ranks hold

    def _holdings(self) -> tuple[NDArray[np.int8], dict[int, tuple[int, ...]]]:
        """int8[n] of `Holds`, and the shape of the whole of each shard."""
        log, info = self._first, self._info
        holds = np.full(len(log), Holds.UNKNOWN, np.int8)
        prints = np.stack([each.digests.first(at, NO_DIGEST) for each, at in self._here()])
        norms = np.stack([each.outputs.first(at) for each, at in self._here()])
        same = _agree(prints, norms)
        holds[self.here[same]] = Holds.REPLICA
        buffers, updates, reduced = communicating(log), log.updates, self._reduced_with_others()
        terms, divided = self._summed_over_these(), self._divided_replicas()
        of_norms: set[int] = set()
        wholes: dict[int, tuple[int, ...]] = {}
        for k, (row, equal) in enumerate(zip(self.here.tolist(), same.tolist(), strict=True)):
            if log.shape[row] < 0:
                holds[row] = Holds.REPLICA  # nothing is returned
                continue
            placed = int(info.placed[row])
            local = dimensions(log.shape_text(row))
            if reduced[row]:
                holds[row] = Holds.UNKNOWN
            elif row in divided:
                holds[row] = divided[row]
            elif placed < 0 and not buffers[row] and self._reads(row, of_norms):
                holds[row] = Holds.UNKNOWN
                of_norms.add(row)
            elif placed >= 0:
                part = info.parts[placed]
                if part.partial:
                    adds_up, power = all(map(_ADDS_UP.match, part.partial)), power_of_norms(part.partial)
                    holds[row] = Holds.PARTIAL if adds_up else Holds.UNKNOWN
                    if power is not None:
                        of_norms.add(row)
                        self._powers[row] = power
                        holds[row] = Holds.UNKNOWN if local else Holds.NORM
                elif part.whole != part.shape:
                    holds[row], wholes[row] = Holds.SHARD, part.whole
                elif not equal:
                    holds[row] = Holds.REPLICA
                    self.odd[row] = stand_in(prints[:, k].tolist())
            elif updates[row] and (whole := self._whole_of_named(row, local)) is not None:
                holds[row], wholes[row] = Holds.SHARD, whole
            elif not equal and buffers[row]:
                continue  # flat buffers are cut otherwise in each layout
            elif not equal and (info.partial[row] or (terms[row] and local in self._wholes.of(log.op_name(row)))):
                holds[row] = Holds.PARTIAL
            elif (info.share[row] > 1 and not equal) or local not in self._wholes.of(log.op_name(row)):
                whole = self._whole_of(row)
                if whole is not None:
                    holds[row], wholes[row] = Holds.SHARD, whole
        return holds, wholes

    def _divided_replicas(self) -> dict[int, Holds]:
        """By record, the share of a rank in what all have: the bias of a sum over ranks is divided by their number."""
        log, info, out = self._first, self._info, dict[int, Holds]()
        part_of = [info.parts[placed] if placed >= 0 else None for placed in info.placed.tolist()]
        for row in np.flatnonzero(rows_named(log, {"div"}) & (info.placed < 0)).tolist():
            read = [part_of[maker] for maker in log.producers[row].tolist() if maker >= 0]
            readers = log.producers.row[log.producers.value == row].tolist()
            summed = {part.partial for reader in readers if (part := part_of[reader]) is not None and part.partial}
            if len(summed) != 1 or any(part is None or part.partial for part in read):
                continue
            (partial,) = summed
            if all(map(_ADDS_UP.match, partial)):
                out[row] = Holds.PARTIAL
            elif (power := power_of_norms(partial)) is not None and log.counts[0, row] == 1:
                out[row], self._powers[row] = Holds.NORM, power
        return out

    def _reads(self, row: int, norms: set[int]) -> bool:
        """True if a record computes with norms of parts, of which only the powers add up."""
        log = self._first
        return log.op_name(row) != "pow" and not norms.isdisjoint(log.producers[row].tolist())

    def _reduced_with_others(self) -> Bool:
        """bool[n]: records of the passes with what is reduced over other ranks, too: of gradients in buckets."""
        log, own = self._first, {each.header.run.get("rank", 0) for each in self._logs}
        out = np.zeros(len(log), bool)
        passes = (log.phase == Phase.BACKWARD) & ~log.updates
        texts = log.texts("Group")
        for row in (row for row in texts if passes[row] and "reduce" in log.op_name(row)):
            out[row] = not own.issuperset(integers((parsed_object(texts[row]) or {}).get("ranks")) or ())
        if out.any():
            flow = sources(log)
            for row in np.flatnonzero(passes).tolist():
                out[row] |= any(maker >= 0 and out[maker] for maker in flow[row].tolist())
        return out

    def _summed_over_these(self) -> Bool:
        """bool[n]: records of the passes whose results these ranks sum up, arranged or added to others first."""
        log, own = self._first, {each.header.run.get("rank", 0) for each in self._logs}
        out = np.zeros(len(log), bool)
        texts, flow = log.texts("Group"), sources(log)
        hands_on = rows_named(log, ADDITIONS | _ARRANGES)
        for row in np.flatnonzero(~log.updates)[::-1].tolist():
            group = (parsed_object(texts[row]) or {}) if row in texts and "reduce" in log.op_name(row) else {}
            if group.get("op") == "sum" and own == set(integers(group.get("ranks")) or ()):
                # what it writes to comes first, what it gives last
                makers = flow[row].tolist()[-1:]
            else:
                makers = flow[row].tolist() if out[row] and hands_on[row] else []
            out[[maker for maker in makers if maker >= 0]] = True
        return out

    def _whole_of_named(self, row: int, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of a parameter, or of a state of it, whose shard the record makes or writes to; None for others."""
        name, op = self._name(row), self._first.op_name(row)
        return self._declared.whole(name, local) if op.endswith(("_like", "_")) else None

    def _name(self, row: int) -> str:
        """The name of the first input, empty without one."""
        return self._first.texts("Parameter").get(row, "").partition(";")[0]

    def _whole_of(self, row: int) -> tuple[int, ...] | None:
        """The shape of a tensor of which each rank has a part, as the other log has it; None for none."""
        pairs = zip(self._logs, self._rows, strict=True)
        return whole_of(
            [dimensions(log.shape_text(int(at[row]))) for log, at in pairs], self._wholes.of(self._first.op_name(row))
        )

    def _here(self) -> list[tuple[OpLog, Int64]]:
        return [(log, at[self.here]) for log, at in zip(self._logs, self._rows, strict=True)]

    def _distinct(self, row: int) -> list[int]:
        """The ranks that hold different parts of a tensor, or terms; those with the same are replicas of each other."""
        if self._info.placed[row] >= 0:
            texts = [log.texts("Placement").raw(int(at[row])) for log, at in zip(self._logs, self._rows, strict=True)]
            return apart([parsed_object(text) or {} for text in texts], self._coordinates)
        name = self._name(row)
        declared = self.holds[row] == Holds.SHARD == self._declared.holds(name)
        return list(self._declared.distinct(name) if declared else range(len(self._logs)))

    def _norm(self, row: int) -> float:
        """The norm of a tensor of whose shards the ranks have the norms."""
        norms = [float(self._logs[rank].outputs.first()[self._rows[rank][row]]) for rank in self._distinct(row)]
        return norm_of_norms(norms, self._powers[row])

    def _members(self, rows: Int64) -> tuple[Int64, Int64, Int64]:
        """(place in `rows`, rank, its record) of all parts."""
        found = [
            (k, rank, int(self._rows[rank][row])) for k, row in enumerate(rows.tolist()) for rank in self._distinct(row)
        ]
        owner, rank, at = np.array(found, np.int64).reshape(-1, 3).T
        return owner, rank, at

    def _column(self, name: str, rank: Int64, at: Int64) -> NDArray[np.float64]:
        """float64[k, m], a column of some records of some ranks."""
        parts: list[NDArray[np.float64]] = []
        for number_, log in enumerate(self._logs):
            column = numel(log)[log.shape][None] if name == "size" else getattr(log, name)
            parts.append(column[:, at[rank == number_]].astype(np.float64))
        out = np.empty((parts[0].shape[0], len(at)))
        for number_, part in enumerate(parts):
            out[:, rank == number_] = part
        return out

    # -- numbers

    def _outputs(
        self, sketched: Bool, further: Mapping[tuple[int, int], Mapping[str, Any] | None]
    ) -> tuple[Ragged, Ragged]:
        """L1 norms and digests of all outputs: added where ranks differ; what is not known is NaN.

        Args:
            sketched: bool[n], the record has a sketch, by which it is judged.
            further: the merged outputs after the first, by record and number.
        """
        listed = self._listed("outputs", "digests")
        row, same = self.here[listed.owner], _agree(listed.digests, listed.norms)
        head = listed.place == 0
        holds = np.where(head, self.holds[row], np.where(same, Holds.REPLICA, Holds.UNKNOWN))
        norms, digests = listed.norms[0].copy(), listed.digests[0].copy()
        for k in np.flatnonzero(head & np.isin(row, list(self.odd))).tolist():
            rank = self.odd[int(row[k])]
            norms[k], digests[k] = listed.norms[rank, k], listed.digests[rank, k]
        norms[holds != Holds.REPLICA] = np.nan
        for k in np.flatnonzero(holds == Holds.SHARD).tolist():
            norms[k] = listed.norms[self._distinct(int(row[k])), k].sum()
        for k in np.flatnonzero(holds == Holds.NORM).tolist():
            norms[k] = self._norm(int(row[k]))
        for k in np.flatnonzero(~head & ~same).tolist():
            norms[k] = number((further.get((int(row[k]), int(listed.place[k]))) or {}).get("l1"))
        digests[holds != Holds.REPLICA] = NO_DIGEST
        digests[(holds != Holds.REPLICA) & head & sketched[row]] = OF_PARTS
        return self._with(listed, norms, digests)

    def _inputs(self) -> tuple[Ragged, Ragged]:
        """The same of all inputs; of named ones by what is declared of them."""
        listed = self._listed("inputs", "input_digests")
        row, same = self.here[listed.owner], _agree(listed.digests, listed.norms)
        lost = np.isin(self._held_by_input(self._first.inputs.start[row] + listed.place), (*_WITHOUT_NORMS, Holds.NORM))
        norms = np.where(same, listed.norms[0], np.where(lost, np.nan, listed.norms.sum(axis=0)))
        digests = np.where(same, listed.digests[0], NO_DIGEST)
        for k, name in self._named(listed):
            declared = self._declared.holds(name)
            if declared == Holds.SHARD:
                norms[k], digests[k] = listed.norms[list(self._declared.distinct(name)), k].sum(), NO_DIGEST
            elif declared == Holds.REPLICA and not same[k]:
                rank = stand_in(listed.digests[:, k].tolist())
                norms[k], digests[k] = listed.norms[rank, k], listed.digests[rank, k]
        return self._with(listed, norms, digests)

    def _named(self, listed: _Listed) -> Iterator[tuple[int, str]]:
        """The place in the lists, and the name, of each input that the log names."""
        texts = self._first.texts("Parameter")
        for begin in np.flatnonzero(listed.place == 0).tolist():
            row = int(self.here[listed.owner[begin]])
            for slot, name in enumerate(texts[row].split(";") if row in texts else ()):
                if name and slot < self._first.inputs.count[row]:
                    yield begin + slot, name

    def _listed(self, values: str, digests: str) -> _Listed:
        counts = np.stack([getattr(log, values).count[at] for log, at in self._here()])
        listed = np.stack([getattr(log, digests).count[at] for log, at in self._here()])
        rows = np.flatnonzero((counts == counts[0]).all(axis=0) & (listed == listed[0]).all(axis=0))
        owner, place = repeated(rows, counts[0][rows])
        norms, prints, known = [], [], counts[0][owner] == listed[0][owner]
        for log, at in self._here():
            lists, marks = getattr(log, values), getattr(log, digests)
            norms.append(lists.value[lists.start[at[owner]] + place])
            found = np.full(len(owner), NO_DIGEST)
            found[known] = marks.value[marks.start[at[owner[known]]] + place[known]]
            prints.append(found)
        of = getattr(self._first, values), getattr(self._first, digests)
        return _Listed(*of, owner, place, np.stack(norms), np.stack(prints), known)

    def _with(self, listed: _Listed, norms: Float64, digests: Hash) -> tuple[Ragged, Ragged]:
        """The lists of the first log with these numbers; those of records that not all ranks have are unknown."""
        row, known = self.here[listed.owner], listed.known
        total, mark = np.full(len(listed.of.value), np.nan), np.full(len(listed.marks.value), NO_DIGEST)
        total[listed.of.start[row] + listed.place] = norms
        mark[listed.marks.start[row[known]] + listed.place[known]] = digests[known]
        return Ragged(listed.of.start, total), Ragged(listed.marks.start, mark)

    def _held_by_input(self, at: Int64) -> NDArray[np.int8]:
        """What the ranks hold of some inputs (places among all), by the records that made them; SHARD for no record."""
        log = self._first
        out = np.full(len(at), Holds.SHARD, np.int8)
        if np.array_equal(log.inputs.start, log.producers.start):
            maker = log.producers.value[at]
            out[maker >= 0] = self.holds[maker[maker >= 0]]
        return out

    def _shapes(self) -> tuple[Strings, NDArray[np.int32]]:
        """The table of shapes and the shape of each record: those of whole tensors, as far as they are known."""
        log = self._first
        table = {text: k for k, text in enumerate(log.shapes)}
        shape = log.shape.copy()
        for row in np.flatnonzero((self.holds == Holds.UNKNOWN) & (shape >= 0)).tolist():
            if dimensions(log.shape_text(row)) not in self._wholes.of(log.op_name(row)):
                shape[row] = -1
        for row, whole in self._whole.items():
            shape[row] = table.setdefault(str(list(whole)), len(table))
        more = [text.encode() for text in list(table)[len(log.shapes) :]]
        return Strings((*log.shapes.raw, *more)), shape

    # -- texts

    def _sketches(self, rows: Sequence[int]) -> dict[int, bytes]:
        """The sketches of merged records; empty where the positions of the parts are not known."""
        out: dict[int, bytes] = {}
        for row in rows:
            placed = self._info.placed[row] >= 0
            adds = self.holds[row] == Holds.PARTIAL or (self.holds[row] == Holds.SHARD and placed)
            out[row] = self._sketch(row) if adds else b""
        return out

    def _sketch(self, row: int) -> bytes:
        texts = [self._logs[rank].texts("Sketch").raw(int(self._rows[rank][row])) for rank in self._distinct(row)]
        return encoded_sum(texts)

    def _further_outputs(self) -> dict[tuple[int, int], Mapping[str, Any] | None]:
        """By record and number, the outputs after the first that differ between ranks, merged; None where unknown."""
        found: dict[tuple[int, int], Mapping[str, Any] | None] = {}
        for name in (name for name in self._first.extra if name.startswith("Output ")):
            number_ = int(name.removeprefix("Output "))
            for row in self._first.texts(name):
                raw = [log.texts(name).raw(int(at[row])) for log, at in zip(self._logs, self._rows, strict=True)]
                if len(set(raw)) > 1:
                    parts = [parsed_object(text) for text in raw]
                    known = [part for part in parts if part is not None]
                    found[row, number_] = self._further(row, number_, known) if len(known) == len(parts) else None
        return found

    def _further(self, row: int, number_: int, parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """An output after the first, of its parts: where nothing is placed, shards of what the other log has."""
        placements = [placement if isinstance(placement := part.get("placement"), dict) else {} for part in parts]
        if all(placements):
            return merged_entry([parts[k] for k in apart(placements, self._coordinates)], self._declared)
        shapes = [integers(part.get("shape")) or () for part in parts]
        whole = whole_of(shapes, self._wholes.of_further(self._first.op_name(row), number_))
        return None if whole is None else merged_entry(parts, self._declared, whole)

    def _told(self) -> dict[int, bytes]:
        """What is said of each merged record: `4 ranks, Shard(1) on tp`."""
        log, texts, out = self._first, self._first.texts("Placement"), {}
        for row in self.here.tolist():
            if log.shape[row] >= 0:
                placement = describe_placement(parsed_object(texts.raw(row))) if row in texts else ""
                how = placement.partition(" of [")[0] or Holds(self.holds[row]).label
                apart = f", rank {self.odd[row]} differs" if row in self.odd else ""
                out[row] = f"{len(self._logs)} ranks, {how}{apart}".encode()
        return out


def _agree(digests: Hash, norms: Float64) -> Bool:
    """bool[n]: all ranks have the same digest; where they have none, the same norm. Both are of [ranks, n]."""
    same_norms = ((norms == norms[0]) | (np.isnan(norms) & np.isnan(norms[0]))).all(axis=0)
    return np.asarray((digests == digests[0]).all(axis=0) & ((digests[0] != NO_DIGEST) | same_norms))


def _texts(further: Mapping[tuple[int, int], Mapping[str, Any] | None]) -> dict[str, dict[int, bytes]]:
    """The fields of merged outputs after the first; empty where nothing is known."""
    out: dict[str, dict[int, bytes]] = defaultdict(dict)
    for (row, number_), entry in further.items():
        out[f"Output {number_}"][row] = b"" if entry is None else json.dumps(entry).encode()
    return out


def _run_info(run: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The run info of so many ranks: without what a rank says of its own parts, and of the layout."""
    own = (
        *("world_size", "rank", "mesh", "mesh_coordinates", "launcher", "backend", "parameter_placements"),
        *("parameters_digest", "parameter_digests", "buffer_digests", "parameters", "end_state"),
    )
    return {name: value for name, value in run.items() if name not in own} | {MERGED_RANKS: ranks}
