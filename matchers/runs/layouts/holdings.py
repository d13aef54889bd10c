"""The share of every tensor that each rank holds: the same, a part, a term of a sum; and what tells it.

The placement is logged (`Placement`). Of plain results a rule of the user says it, or it is declared of a parameter and
its states (`declared.py`), or follows from equal bits, from the data flow (`matchers.ops.shards`), or from what the
other run has in the same module: the norm of the parts together, their shape, or the sum of their sketches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.laws.law import Form, Law
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import sources, upstream
from matchers.ops.json_values import integers, named_integers, parsed_object
from matchers.ops.laws import communicating, law_of, rows_where
from matchers.ops.placement import LAYOUT, Part, describe_placement, part_of
from matchers.ops.shapes import dimensions
from matchers.ops.shards import infer_shards
from matchers.ops.share import Holds, Share, first_alike, placed_share, placed_shares
from matchers.ops.sketch import PROJECTIONS, decode_sketches
from matchers.rules.model import SHARES
from matchers.runs.layouts.declared import Declared, stand_in
from matchers.runs.layouts.unsummed import read_unsummed
from matchers.runs.layouts.wholes import Wholes, contracted, whole_of

__all__ = ["Holdings", "agree"]


Shape = tuple[int, ...]
_COPY = Share(Holds.REPLICA)
_BY_VALUES = " by its values"
_COPIED = " like what it copies"
_OF_COPIES = " of copies"
_CONTRACTED = ", a product of parts"
_INFERRED = (_BY_VALUES, _COPIED, _CONTRACTED)
"""Of terms that no collective tells."""
_DIVIDED = ", divided by the number of ranks"


class Holdings:
    """The share of every tensor that each rank holds.

    Attributes:
        here: int64, records that all ranks have.
        shares: of these records.
        holds: int8[n] of `Holds`, the same as a column; UNKNOWN for other records.
        odd: by record whose copies differ, the rank that stands for all.
        begin_otherwise: by record that reads it first, a parameter that differs before the step, of those of copies.
        declared: of parameters.
    """

    def __init__(self, logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> None:
        """Arguments as of `merge.merged`."""
        self._logs, self._rows = logs, rows
        self._first = logs[0]
        self._info = infer_shards(self._first)
        self._flow = sources(self._first)
        self._wholes = wholes
        self._buffers = communicating(logs[0])
        self._ranks = frozenset(each.header.run.get("rank", 0) for each in logs)
        self._by_rule = logs[0].texts(LAYOUT)
        self.declared = Declared([log.header.run for log in logs], wholes.start)
        self.coordinates = [named_integers(log.header.run.get("mesh_coordinates")) for log in logs]
        self.here = np.flatnonzero((rows >= 0).all(axis=0))
        self._reduced = self._reduced_with_others()
        self._summed = self._summed_over_these()
        self._divided = self._divided_replicas()
        self._terms = self._masked(self._summed)
        """By record that looks up rows of a table of which each rank has some, the one with the terms of the whole."""
        self.odd: dict[int, int] = {}
        self.begin_otherwise: dict[int, str] = {}
        self.shares: dict[int, Share] = {}
        self.holds = np.full(len(self._first), Holds.UNKNOWN, np.int8)
        self._find()
        inferred = [row for row, share in self.shares.items() if share.known_by.startswith(_INFERRED)]
        self._unsummed = read_unsummed(
            self._first, self._flow, self.holds, self._info.placed >= 0, self._summed, inferred, self._ranks
        )
        """By record with terms that are read though no collective adds them up, how they are read."""

    def _find(self) -> None:
        """Find the shares, in the order of records: those of later ones follow from those before."""
        prints = np.stack([each.digests.first(at, NO_DIGEST) for each, at in self.records()])
        norms = np.stack([each.outputs.first(at) for each, at in self.records()])
        same, of_norms = agree(prints, norms), set[int]()
        self._copied = self._of_many_numbers(same)
        for k, (row, equal) in enumerate(zip(self.here.tolist(), same.tolist(), strict=True)):
            if self._first.shape[row] < 0:
                share = _COPY  # nothing is returned
            elif not self.is_placed(row) and row in self._by_rule:
                share = self._of_rule(row, self._by_rule[row])
            elif self._reduced[row]:
                share = Share()
            elif row in self._divided:
                share = self._divided[row]
            elif self.is_placed(row):
                share = placed_share(self._parts(row), self.coordinates, masked=row in self._terms)
                if self._parts(row)[0].power is not None:
                    of_norms.add(row)
                if share.holds == Holds.REPLICA and not equal:
                    self.odd[row] = stand_in(prints[:, k].tolist())
                    share = replace(share, alike=(self.odd[row],))
            elif not self._buffers[row] and self._reads(row, of_norms):
                of_norms.add(row)
                share = Share()
            else:
                share = self._of_plain(row, equal)
            self.shares[row] = self._of_ranks(row, share)
            self.holds[row] = self.shares[row].holds

    def _of_ranks(self, row: int, share: Share) -> Share:
        """A share with the ranks that hold different parts of the tensor, or terms."""
        if share.placed or share.holds in (Holds.REPLICA, Holds.UNKNOWN):
            return share
        if share.holds == Holds.PARTIAL:
            divisor = self._divisor(row)
            return replace(share, alike=self._read_shares(row), divisor=divisor) if divisor else Share()
        name = self._name(row)
        declared = share.holds == Holds.SHARD == self.declared.holds(name)
        return replace(share, alike=self.declared.distinct(name) if declared else self._parted(row))

    def _parts(self, row: int) -> list[Part]:
        """The part that each rank holds, of a tensor whose placement is logged."""
        of_first = self._info.parts[self._info.placed[row]]
        found = []
        for log, at in zip(self._logs, self._rows[:, row].tolist(), strict=True):
            shape = dimensions(log.shape_text(at)) if log.shape[at] >= 0 else of_first.shape  # a rank may hold nothing
            found.append(part_of(parsed_object(log.texts("Placement").raw(at)) or {}, shape) or of_first)
        return found

    def _read_shares(self, row: int) -> Sequence[int]:
        """Of plain terms, for each rank the first that holds the same of all that was read for them."""
        found: list[Sequence[int]] = []
        for maker in self._first.producers[row].tolist():
            if maker >= 0 and self.is_placed(maker):
                found.append(placed_shares(self._parts(maker), self.coordinates))
            elif maker < 0 or self.holds[maker] != Holds.REPLICA:
                of_terms = maker >= 0 and self.holds[maker] == Holds.PARTIAL
                found.append(self.shares[maker].alike if of_terms else range(len(self._logs)))
        return first_alike(zip(*found, strict=True)) if found else range(len(self._logs))

    def _divisor(self, row: int) -> int:
        """The number by which the sum of plain terms is divided, as those of an average are; 0 if it is unknown."""
        makers = self._first.producers[row].tolist()
        found = {self.shares[maker].divisor for maker in makers if maker >= 0 and self.holds[maker] == Holds.PARTIAL}
        return found.pop() if len(found) == 1 else int(not found)

    def _parted(self, row: int) -> Sequence[int]:
        """The ranks whose parts make a plain result: of an update, one replica of all that hold those of parameters."""
        usual = self.declared.usual if self._first.updates[row] else ()
        if not usual or not all(self._equal(row, rank, of) for rank, of in enumerate(usual)):
            return range(len(self._logs))
        return tuple(dict.fromkeys(usual))

    def _equal(self, row: int, rank: int, other: int) -> bool:
        """True if two ranks have the same bits, or the same norm without digests."""
        if rank == other:
            return True
        logs, at = (self._logs[rank], self._logs[other]), (int(self._rows[rank][row]), int(self._rows[other][row]))
        digests, norms = (
            [getattr(log, name)[k] for log, k in zip(logs, at, strict=True)] for name in ("digests", "outputs")
        )
        return all(len(x) == len(y) and (x == y).all() for x, y in (digests, norms))

    def terms(self, row: int) -> int:
        """The record with the terms of a sum that stand for those of another: of a lookup, those that are masked."""
        return self._terms.get(row, row)

    def records(self) -> list[tuple[OpLog, Int64]]:
        """Each log, and its records that all ranks have."""
        return [(log, at[self.here]) for log, at in zip(self._logs, self._rows, strict=True)]

    def is_placed(self, row: int) -> bool:
        """True if the log says where the parts belong."""
        return bool(self._info.placed[row] >= 0)

    def told(self, row: int) -> str:
        """The share of the ranks, and what tells it: `Shard(1) on tp` where it is logged, else `shard by its shape`."""
        texts, share = self._first.texts("Placement"), self.shares[row]
        placement = describe_placement(parsed_object(texts.raw(row))) if row in texts else ""
        how = placement.partition(" of [")[0] or f"{share.holds.label}{share.known_by}"
        return how + self._unsummed.get(row, "")

    def _of_rule(self, row: int, label: str) -> Share:
        """The share by a rule of the user; parts that make no known whole are unknown."""
        whole = whole_of(self._shapes(row), self._known_shapes(row)) if SHARES[label] == Holds.SHARD else None
        holds = Holds.UNKNOWN if SHARES[label] == Holds.SHARD and whole is None else SHARES[label]
        return Share(holds, whole=whole, known_by=" by a rule")

    def _of_plain(self, row: int, equal: bool) -> Share:
        """The share in a plain result; `equal`: all ranks have the same bits."""
        log, info = self._first, self._info
        local, known = dimensions(log.shape_text(row)), self._known_shapes(row)
        if not equal and row in self._terms:
            return Share(Holds.PARTIAL, known_by=", masked and summed up later")
        if log.updates[row] and (whole := self._whole_of_named(row, local)) is not None:
            return Share(Holds.SHARD, whole=whole, known_by=" like its parameter")
        if not equal and self._buffers[row]:
            return Share()  # flat buffers are cut otherwise in each layout
        if not equal and (info.partial[row] or (self._summed[row] and local in known)):
            return Share(Holds.PARTIAL, known_by=", summed up later")
        if not equal and self._contracts_parts(row):
            return Share(Holds.PARTIAL, known_by=_CONTRACTED)
        by_norm = None if equal else self._whole_by_norm(row)
        if by_norm is not None and not self._other_samples(row, by_norm[0]):
            return Share(Holds.SHARD, whole=by_norm[0], known_by=f" by its norm, {by_norm[1]:.0e} off")
        # of one number everywhere, shards are equal, too; other equal results, and what they are made of place by
        # place, are those of a part of the batch
        # a gradient of a parameter has the shape of the whole batch's, also where ranks read a part of it
        for shapes in (self._wholes.of_all.of(log.op_name(row), log.module_name(row)), known):
            if (info.share[row] > 1 and not equal) or (local not in shapes and not (equal and self._copied[row])):
                whole = whole_of(self._shapes(row), shapes)
                if whole is not None and not self._other_samples(row, whole):
                    return Share(Holds.SHARD, whole=whole, known_by=" by its shape")
        if not (equal or log.updates[row]) and (off := self._off_sum(row)) is not None:
            return Share(Holds.PARTIAL, known_by=f"{_BY_VALUES}, {off:.0e} off")
        if not equal and self._copies_terms(row):
            return Share(Holds.PARTIAL, known_by=_COPIED)
        if not equal and (odd := self._odd_copy(row, local in known)) is not None:
            self.odd[row] = odd
            return replace(_COPY, alike=(odd,), known_by=_OF_COPIES)
        return _COPY if equal else Share()

    def _odd_copy(self, row: int, whole: bool) -> int | None:
        """The rank that has another copy than one process, for it was given one: of a parameter, or what it made of it.

        All ranks compute alike: the same operation in the same module, with the same numbers, of copies alone.
        """
        log, flow = self._first, self._flow[row]
        makers = [maker for maker in flow.tolist() if maker >= 0]
        given = self.declared.odd(log.module_name(row)) if (~self._reads_alike(row) & (flow < 0)).any() else None
        odd = given[1] if given else next((self.odd[maker] for maker in makers if maker in self.odd), None)
        if odd is None or not whole or not law_of(log, row).repeats:
            return None
        if any(self.holds[maker] != Holds.REPLICA for maker in makers):
            return None
        at = [(each, int(rows[row])) for each, rows in zip(self._logs, self._rows, strict=True)]
        if len({(each.module_name(own), each.texts("Arguments").raw(own)) for each, own in at}) > 1:
            return None
        if given and given[0] not in self.begin_otherwise.values():
            self.begin_otherwise[row] = given[0]
        return odd

    def _contracts_parts(self, row: int) -> bool:
        """True if each rank multiplies its part of what the other run contracts with its part of a parameter."""
        given = self._flow[row] < 0  # what the pass multiplies itself is no parameter
        if law_of(self._first, row).factor is None or not (given & ~self._reads_alike(row)).any():
            return False
        lengths = [contracted(log, int(at[row])) for log, at in zip(self._logs, self._rows, strict=True)]
        place, shapes = (self._first.module_name(row), self._first.op_name(row)), self._shapes(row)
        whole = self._wholes.contracting(*place, sum(lengths))
        if not all(lengths) or len(set(shapes)) > 1 or shapes[0] not in whole:
            return False
        # as many products each: of a part of the result, or of a copy
        own = set[Shape]().union(*(self._wholes.contracting(*place, length) for length in lengths))
        return shapes[0] not in own and whole_of(shapes, own) is None

    def _copies_terms(self, row: int) -> bool:
        """True if it arranges terms that these ranks add up elsewhere, or that are known by what made them."""
        place = law_of(self._first, row).passes_on
        read = self._flow[row].tolist()
        maker = read[place] if place is not None and place < len(read) else -1
        if maker < 0 or self.holds[maker] != Holds.PARTIAL:
            return False
        return bool(self._summed[maker]) or self.shares[maker].known_by in (_CONTRACTED, _COPIED)

    def _other_samples(self, row: int, whole: Shape) -> bool:
        """True if a result has the shape of these ranks' samples, and a whole that of all, read by others, too.

        What is made of terms, or of what all of them have, is no part of a tensor that they do not have.
        """
        log = self._first
        local, batches = dimensions(log.shape_text(row)), self._wholes.batches
        parted = batches > 1 and math.prod(whole) == batches * math.prod(local)
        if not parted or log.phase[row] != Phase.FORWARD or local not in self._known_shapes(row):
            return False
        makers = [maker for maker in self._flow[row].tolist() if maker >= 0]
        return any(self.holds[maker] != Holds.SHARD for maker in makers)

    def _of_many_numbers(self, same: Bool) -> Bool:
        """bool[n]: results of different numbers that all ranks have alike, and what these are made of place by place.

        Args:
            same: bool of each record of `here`, all ranks have the same bits.
        """
        log = self._first
        copies = np.zeros(len(log), bool)
        copies[self.here[same]] = True
        varied = copies & (log.stats[2] < log.stats[3])
        return varied | (copies & upstream(self._flow, varied, rows_where(log, lambda law: law.pointwise) & copies))

    def _masked(self, terms: Bool) -> dict[int, int]:
        """By record with rows that a rank looks up, and with those of others, the one that sets the others to zero.

        Args:
            terms: bool[n], the ranks sum up the result.
        """
        log, info, out = self._first, self._info, dict[int, int]()
        lookups = np.array([part.masked for part in info.parts] + [False])[info.placed]
        rows = np.flatnonzero(rows_where(log, _masks) & (lookups | (terms & (info.placed < 0))))
        looks_up = rows_where(log, lambda law: law.form is Form.LOOKUP)
        for row in rows.tolist():
            read = int(log.producers[row][0]) if log.producers.count[row] else -1
            if read >= 0 and looks_up[read] and lookups[row] == lookups[read]:
                out[read] = out[row] = row
        return out

    def _off_sum(self, row: int) -> float | None:
        """Relative deviation of the sum of the ranks' parts from a result of the other run.

        None where they do not add up to one, or one of them alone is it.
        """
        log = self._first
        texts = [each.texts("Sketch").raw(int(at[row])) for each, at in zip(self._logs, self._rows, strict=True)]
        parts = decode_sketches(texts) if all(texts) else np.full((1, PROJECTIONS), np.nan)
        if not np.isfinite(parts).all():
            return None
        place = log.module_name(row), log.op_name(row)
        off = self._wholes.off_sum(*place, parts.sum(axis=0))
        alone = off is not None and any(self._wholes.off_sum(*place, part) is not None for part in parts)
        return None if alone else off

    def _divided_replicas(self) -> dict[int, Share]:
        """By record, the share of a rank in what all have: the bias of a sum over ranks is divided by their number."""
        log, info, out = self._first, self._info, dict[int, Share]()
        part_of_row = [info.parts[placed] if placed >= 0 else None for placed in info.placed.tolist()]
        divides = rows_where(log, lambda law: law.form is Form.DIVIDE and not (law.in_place or law.on_lists))
        read_by: dict[int, dict[tuple[str, ...], Part]] = defaultdict(dict)
        for at in np.flatnonzero(np.isin(log.producers.value, np.flatnonzero(divides & (info.placed < 0)))).tolist():
            if (reader := part_of_row[log.producers.row[at]]) is not None and reader.partial:
                read_by[int(log.producers.value[at])][reader.partial] = reader
        for row, summed in read_by.items():
            read = [part_of_row[maker] for maker in log.producers[row].tolist() if maker >= 0]
            if len(summed) != 1 or any(part is not None and part.partial for part in read):
                continue
            # a parameter that was gathered is not placed
            if None in read and not (len(alike := self._reads_alike(row)) and alike.all()):
                continue
            (reader,) = summed.values()
            if reader.adds_up and not reader.averaged:  # what all have is its own average
                out[row] = Share(Holds.PARTIAL, known_by=_DIVIDED)
            elif (power := reader.power) is not None and log.counts[0, row] == 1:
                out[row] = Share(Holds.NORM, power=power, known_by=_DIVIDED)
        return out

    def _reads_alike(self, row: int) -> Bool:
        """Bool of each input: all ranks read the same bits."""
        read = [log.input_digests[int(at[row])] for log, at in zip(self._logs, self._rows, strict=True)]
        count = int(self._first.producers.count[row])
        if any(len(of) != count for of in read):
            return np.zeros(count, bool)
        return np.array([len(set(of)) == 1 and NO_DIGEST not in of for of in zip(*read, strict=True)], bool)

    def _reads(self, row: int, norms: set[int]) -> bool:
        """True if a record computes with norms of parts, of which only the powers add up."""
        log = self._first
        return law_of(log, row).form is not Form.POWER and not norms.isdisjoint(log.producers[row].tolist())

    def _reduced_with_others(self) -> Bool:
        """bool[n]: records of the passes with what is reduced over other ranks, too: of gradients in buckets.

        Not of what the backward pass goes on with, such as gradients of keys that other ranks read.
        """
        log, own = self._first, self._ranks
        out = np.zeros(len(log), bool)
        passes = (log.phase == Phase.BACKWARD) & ~log.updates
        texts = log.texts("Group")
        for row in (row for row in texts if passes[row] and law_of(log, row).reduces):
            out[row] = not own.issuperset(integers((parsed_object(texts[row]) or {}).get("ranks")) or ())
        if out.any():
            flow = self._flow
            computes = passes & ~rows_where(log, lambda law: law.linear or law.communicates)
            out &= ~upstream(flow, computes, passes)
            for row in np.flatnonzero(passes).tolist():
                out[row] |= any(maker >= 0 and out[maker] for maker in flow[row].tolist())
        return out

    def _summed_over_these(self) -> Bool:
        """bool[n]: records of the passes whose results these ranks sum up, arranged or added to others first."""
        log, own = self._first, self._ranks
        out = np.zeros(len(log), bool)
        texts, flow = log.texts("Group"), self._flow
        for row in (row for row in texts if not log.updates[row] and law_of(log, row).reduces):
            group = parsed_object(texts[row]) or {}
            if group.get("op") == "sum" and own == set(integers(group.get("ranks")) or ()):
                # what it writes to comes first, what it gives last
                out[[maker for maker in flow[row].tolist()[-1:] if maker >= 0]] = True
        return upstream(flow, out, rows_where(log, lambda law: law.keeps_terms) & ~log.updates)

    def _whole_of_named(self, row: int, local: Shape) -> Shape | None:
        """The shape of a parameter, or of a state of it, whose shard the record makes or writes to; None for others."""
        law = law_of(self._first, row)
        return self.declared.whole(self._name(row), local) if law.blind or law.in_place else None

    def _name(self, row: int) -> str:
        """The name of the first input, empty without one."""
        return self._first.texts("Parameter").get(row, "").partition(";")[0]

    def _whole_by_norm(self, row: int) -> tuple[Shape, float] | None:
        """The shape of a result of the operation in the module that has the norm of the parts; shapes alone repeat.

        With the relative deviation of the norm.
        """
        parts = ((self._logs[rank], int(self._rows[rank][row])) for rank in self._parted(row))
        norm = sum(float(norms[0]) if len(norms := log.outputs[record]) else np.nan for log, record in parts)
        log = self._first
        known = self._wholes.with_norm(log.module_name(row), log.op_name(row), norm) if norm > 0 else {}
        whole = whole_of(self._shapes(row), known) if known else None
        return (whole, known[whole]) if whole is not None else None

    def _known_shapes(self, row: int) -> set[Shape]:
        """The shapes of whole results of the operation."""
        return self._wholes.of(self._first.op_name(row), self._first.module_name(row))

    def _shapes(self, row: int) -> list[Shape]:
        """The shape of each part."""
        return [dimensions(self._logs[rank].shape_text(int(self._rows[rank][row]))) for rank in self._parted(row)]


def _masks(law: Law) -> bool:
    """True if it may set some elements to zero."""
    return law.form in (Form.MASK, Form.MULTIPLY) and not law.on_lists


def agree(digests: Hash, norms: Float64) -> Bool:
    """bool[n]: all ranks have the same digest; where they have none, the same norm. Both are of [ranks, n]."""
    same_norms = ((norms == norms[0]) | (np.isnan(norms) & np.isnan(norms[0]))).all(axis=0)
    return np.asarray((digests == digests[0]).all(axis=0) & ((digests[0] != NO_DIGEST) | same_norms))
