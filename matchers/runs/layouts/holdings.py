"""The share of every tensor that each rank holds: the same, a part, a term of a sum; and what tells it.

The placement is logged (`Placement`). Of plain results a rule of the user says it, or it is declared of a parameter and
its states (`declared.py`), or follows from equal bits, from the data flow (`matchers.ops.shards`), or from what the
other run has in the same module: the norm of the parts together, their shape, or the sum of their sketches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.laws.law import Form, Law
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import sources, upstream
from matchers.ops.holds import Holds
from matchers.ops.json_values import integers, named_integers, parsed_object
from matchers.ops.laws import communicating, law_of, rows_where
from matchers.ops.placement import LAYOUT, describe_placement
from matchers.ops.shapes import dimensions
from matchers.ops.shards import ShardInfo, infer_shards
from matchers.rules.model import SHARES
from matchers.runs.layouts.apart import (
    adds_up,
    averaged_over,
    first_alike,
    is_masked,
    norm_of_norms,
    power_of_norms,
    shares,
)
from matchers.runs.layouts.declared import Declared, stand_in
from matchers.runs.layouts.unsummed import read_unsummed
from matchers.runs.layouts.wholes import Wholes, whole_of
from matchers.verdict.sketches import PROJECTIONS, decode_sketches

__all__ = ["Holdings", "agree"]


Shape = tuple[int, ...]


class Holdings:
    """The share of every tensor that each rank holds.

    Attributes:
        here: int64, records that all ranks have.
        holds: int8[n] of `Holds`.
        whole: the shape of the whole of each shard.
        odd: by record whose replicas differ, the rank that stands for all.
        declared: of parameters.
        divisors: by record with terms of a sum, the number by which the sum is divided: more than 1 for averages.
    """

    def __init__(self, logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> None:
        """Arguments as of `merge.merged`."""
        self._logs, self._rows = logs, rows
        self._first = logs[0]
        self._info: ShardInfo = infer_shards(self._first)
        self._flow = sources(self._first)
        self._wholes = wholes
        self._buffers = communicating(logs[0])
        self.declared = Declared([log.header.run for log in logs])
        self.coordinates = [named_integers(log.header.run.get("mesh_coordinates")) for log in logs]
        self.here = np.flatnonzero((rows >= 0).all(axis=0))
        self.odd: dict[int, int] = {}
        self.divisors: dict[int, int] = {}
        self._powers: dict[int, float] = {}
        """By record with norms of parts, the power in which they add up."""
        self._terms: dict[int, int] = {}
        """By record that looks up rows of a table of which each rank has some, the one with the terms of the whole."""
        self._shares: dict[int, Sequence[int]] = {}
        """By record with plain terms of a sum, for each rank the first one that holds the same."""
        self._known_by: dict[int, str] = {}
        """By record without a logged placement, what tells its share."""
        self._by_values: set[int] = set()
        """Records with terms that are known by their values alone."""
        self._unsummed: dict[int, str] = {}
        """By record with terms that are read though no collective adds them up, how they are read."""
        self.holds, self.whole = self._found()

    def distinct(self, row: int) -> list[int]:
        """The ranks that hold different parts of a tensor, or terms; those with the same are replicas of each other."""
        if self.is_placed(row):
            return list(dict.fromkeys(self._placed_shares(row)))
        if row in self._shares:
            return list(dict.fromkeys(self._shares[row]))
        name = self._name(row)
        declared = self.holds[row] == Holds.SHARD == self.declared.holds(name)
        return list(self.declared.distinct(name) if declared else self._parted(row))

    def _placed_shares(self, row: int) -> list[int]:
        """For each rank the first one that holds the same of a tensor whose placement is logged."""
        return shares(self._placements(row), self.coordinates)

    def _placements(self, row: int) -> list[dict[str, Any]]:
        """The logged placement on each rank."""
        texts = [log.texts("Placement").raw(int(at[row])) for log, at in zip(self._logs, self._rows, strict=True)]
        return [parsed_object(text) or {} for text in texts]

    def _read_shares(self, row: int, holds: NDArray[np.int8]) -> Sequence[int]:
        """The same of plain terms, by what the ranks hold of all that was read for them; `holds` of records before."""
        found: list[Sequence[int]] = []
        for maker in self._first.producers[row].tolist():
            if maker >= 0 and self.is_placed(maker):
                found.append(self._placed_shares(maker))
            elif maker < 0 or holds[maker] != Holds.REPLICA:
                found.append(self._shares.get(maker, range(len(self._logs))))
        return first_alike(zip(*found, strict=True)) if found else range(len(self._logs))

    def _divisor(self, row: int, holds: NDArray[np.int8]) -> int:
        """The number by which the sum of terms is divided, as those of an average are; 0 if it is unknown.

        Args:
            holds: of records before.
        """
        if self.is_placed(row):
            return averaged_over(self._placements(row)[0], self.coordinates)
        makers = self._first.producers[row].tolist()
        found = {self.divisors.get(maker, 1) for maker in makers if maker >= 0 and holds[maker] == Holds.PARTIAL}
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

    def norm(self, row: int) -> float:
        """The norm of a tensor of whose shards the ranks have the norms."""
        norms = [float(self._logs[rank].outputs[int(self._rows[rank][row])][0]) for rank in self.distinct(row)]
        return norm_of_norms(norms, self._powers[row])

    def records(self) -> list[tuple[OpLog, Int64]]:
        """Each log, and its records that all ranks have."""
        return [(log, at[self.here]) for log, at in zip(self._logs, self._rows, strict=True)]

    def is_placed(self, row: int) -> bool:
        """True if the log says where the parts belong."""
        return bool(self._info.placed[row] >= 0)

    def told(self, row: int) -> str:
        """The share of the ranks, and what tells it: `Shard(1) on tp` where it is logged, else `shard by its shape`."""
        texts = self._first.texts("Placement")
        placement = describe_placement(parsed_object(texts.raw(row))) if row in texts else ""
        share = placement.partition(" of [")[0] or f"{Holds(self.holds[row]).label}{self._known_by.get(row, '')}"
        return share + self._unsummed.get(row, "")

    def _found(self) -> tuple[NDArray[np.int8], dict[int, Shape]]:
        """int8[n] of `Holds`, and the shape of the whole of each shard."""
        log, info = self._first, self._info
        holds = np.full(len(log), Holds.UNKNOWN, np.int8)
        prints = np.stack([each.digests.first(at, NO_DIGEST) for each, at in self.records()])
        norms = np.stack([each.outputs.first(at) for each, at in self.records()])
        same = agree(prints, norms)
        reduced = self._reduced_with_others()
        terms, divided = self._summed_over_these(), self._divided_replicas()
        self._terms.update(self._masked(terms))
        of_norms: set[int] = set()
        by_rule = log.texts(LAYOUT)
        wholes: dict[int, Shape] = {}
        for k, (row, equal) in enumerate(zip(self.here.tolist(), same.tolist(), strict=True)):
            share, whole, known_by = Holds.UNKNOWN, None, ""
            if log.shape[row] < 0:
                share = Holds.REPLICA  # nothing is returned
            elif info.placed[row] < 0 and row in by_rule:
                share, whole = self._by_rule(row, by_rule[row])
                known_by = " by a rule"
            elif reduced[row]:
                pass
            elif row in divided:
                share, known_by = divided[row], ", divided by the number of ranks"
            elif info.placed[row] >= 0:
                share, whole = self._of_placed(row)
                if info.parts[info.placed[row]].partial and row in self._powers:
                    of_norms.add(row)
                if share == Holds.REPLICA and not equal:
                    self.odd[row] = stand_in(prints[:, k].tolist())
            elif not self._buffers[row] and self._reads(row, of_norms):
                of_norms.add(row)
            else:
                share, whole, known_by = self._of_plain(row, equal, bool(terms[row]))
            if share == Holds.PARTIAL:
                self.divisors[row] = self._divisor(row, holds)
                if not self.divisors[row]:
                    share, known_by = Holds.UNKNOWN, ""
                elif info.placed[row] < 0:
                    self._shares[row] = self._read_shares(row, holds)
            holds[row] = share
            if whole is not None:
                wholes[row] = whole
            if known_by:
                self._known_by[row] = known_by
        self._unsummed = read_unsummed(log, self._flow, holds, info.placed >= 0, terms, sorted(self._by_values))
        return holds, wholes

    def _by_rule(self, row: int, label: str) -> tuple[Holds, Shape | None]:
        """The same of a result by a rule of the user; parts that make no known whole are unknown."""
        share = SHARES[label]
        whole = whole_of(self._shapes(row), self._known_shapes(row)) if share == Holds.SHARD else None
        return (share, whole) if share != Holds.SHARD or whole is not None else (Holds.UNKNOWN, None)

    def _of_placed(self, row: int) -> tuple[Holds, Shape | None]:
        """The share in a result whose placement is logged, and the shape of the whole of a shard."""
        part = self._info.parts[self._info.placed[row]]
        if not part.partial:
            return (Holds.REPLICA, None) if part.whole == part.shape else (Holds.SHARD, part.whole)
        power = power_of_norms(part.partial)
        if power is not None:
            self._powers[row] = power
            return Holds.UNKNOWN if dimensions(self._first.shape_text(row)) else Holds.NORM, None
        masked = not is_masked(part.partial) or row in self._terms
        return Holds.PARTIAL if adds_up(part.partial) and masked else Holds.UNKNOWN, None

    def _of_plain(self, row: int, equal: bool, term: bool) -> tuple[Holds, Shape | None, str]:
        """The share in a plain result, the shape of the whole of a shard, and what tells it.

        Args:
            equal: all ranks have the same bits.
            term: the ranks sum it up.
        """
        log, info = self._first, self._info
        local, known = dimensions(log.shape_text(row)), self._known_shapes(row)
        if not equal and row in self._terms:
            return Holds.PARTIAL, None, ", masked and summed up later"
        if log.updates[row] and (whole := self._whole_of_named(row, local)) is not None:
            return Holds.SHARD, whole, " like its parameter"
        if not equal and self._buffers[row]:
            return Holds.UNKNOWN, None, ""  # flat buffers are cut otherwise in each layout
        if not equal and (info.partial[row] or (term and local in known)):
            return Holds.PARTIAL, None, ", summed up later"
        if not equal and (by_norm := self._whole_by_norm(row)) is not None:
            return Holds.SHARD, by_norm[0], f" by its norm, {by_norm[1]:.0e} off"
        # of one number everywhere, shards are equal, too; other equal results are those of a part of the batch
        if (info.share[row] > 1 and not equal) or (local not in known and not (equal and self._varies(row))):
            whole = whole_of(self._shapes(row), known)
            if whole is not None:
                return Holds.SHARD, whole, " by its shape"
        if not (equal or log.updates[row]) and (off := self._off_sum(row)) is not None:
            self._by_values.add(row)
            return Holds.PARTIAL, None, f" by its values, {off:.0e} off"
        return Holds.REPLICA if equal else Holds.UNKNOWN, None, ""

    def _varies(self, row: int) -> bool:
        """True if the elements of a result are known to be different numbers."""
        least, largest = self._first.stats[2:4, row].tolist()
        return bool(least < largest)

    def _masked(self, terms: Bool) -> dict[int, int]:
        """By record with rows that a rank looks up, and with those of others, the one that sets the others to zero.

        Args:
            terms: bool[n], the ranks sum up the result.
        """
        log, info, out = self._first, self._info, dict[int, int]()
        lookups = np.array([is_masked(part.partial) for part in info.parts] + [False])[info.placed]
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
        total = parts.sum(axis=0)
        known = bool(np.isfinite(total).all() and (parts != total).any(axis=1).all())
        return self._wholes.off_sum(log.module_name(row), log.op_name(row), total) if known else None

    def _divided_replicas(self) -> dict[int, Holds]:
        """By record, the share of a rank in what all have: the bias of a sum over ranks is divided by their number."""
        log, info, out = self._first, self._info, dict[int, Holds]()
        part_of = [info.parts[placed] if placed >= 0 else None for placed in info.placed.tolist()]
        rows = np.flatnonzero(
            rows_where(log, lambda law: law.form is Form.DIVIDE and not (law.in_place or law.on_lists))
            & (info.placed < 0)
        )
        read_by: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for at in np.flatnonzero(np.isin(log.producers.value, rows)).tolist():
            if (reader := part_of[log.producers.row[at]]) is not None and reader.partial:
                read_by[int(log.producers.value[at])].add(reader.partial)
        for row, summed in read_by.items():
            read = [part_of[maker] for maker in log.producers[row].tolist() if maker >= 0]
            if len(summed) != 1 or any(part is None or part.partial for part in read):
                continue
            (partial,) = summed
            if adds_up(partial) and not any("avg" in name for name in partial):  # what all have is its own average
                out[row] = Holds.PARTIAL
            elif (power := power_of_norms(partial)) is not None and log.counts[0, row] == 1:
                out[row], self._powers[row] = Holds.NORM, power
        return out

    def _reads(self, row: int, norms: set[int]) -> bool:
        """True if a record computes with norms of parts, of which only the powers add up."""
        log = self._first
        return law_of(log, row).form is not Form.POWER and not norms.isdisjoint(log.producers[row].tolist())

    def _reduced_with_others(self) -> Bool:
        """bool[n]: records of the passes with what is reduced over other ranks, too: of gradients in buckets."""
        log, own = self._first, {each.header.run.get("rank", 0) for each in self._logs}
        out = np.zeros(len(log), bool)
        passes = (log.phase == Phase.BACKWARD) & ~log.updates
        texts = log.texts("Group")
        for row in (row for row in texts if passes[row] and law_of(log, row).reduces):
            out[row] = not own.issuperset(integers((parsed_object(texts[row]) or {}).get("ranks")) or ())
        if out.any():
            flow = self._flow
            for row in np.flatnonzero(passes).tolist():
                out[row] |= any(maker >= 0 and out[maker] for maker in flow[row].tolist())
        return out

    def _summed_over_these(self) -> Bool:
        """bool[n]: records of the passes whose results these ranks sum up, arranged or added to others first."""
        log, own = self._first, {each.header.run.get("rank", 0) for each in self._logs}
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
