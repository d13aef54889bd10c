"""Records of ranks that hold parts of one model, merged into records of global tensors.

Of a *shard*, norms and counts add (L2 in squares), extremes fold, and sketches, which are taken at global positions,
add. Of a *replica* all ranks have the same bits, and one of them stands for all. Of the terms of a *partial* sum the
sketches add, and norms are unknown. Norms of shards add in their powers. What ranks hold is known by `holdings.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.logs.columns import Ragged, Texts
from matchers.logs.input_statistics import FIELD
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog
from matchers.ops.combine import combine, joined, with_values
from matchers.ops.json_values import number
from matchers.ops.placement import CONTRADICTED, LAYOUT, MERGED
from matchers.ops.run_info import HELD_BY_RANKS, MERGED_FINDINGS, MERGED_RANKS, contradictions
from matchers.ops.shapes import dimensions
from matchers.ops.share import Holds, Share, first_alike, placed_share
from matchers.ops.sketch import PROJECTIONS, decode_sketches, encode_sketch
from matchers.ops.start import known_digests
from matchers.ops.values import Values, first_outputs, further
from matchers.runs.layouts.declared import stand_in
from matchers.runs.layouts.holdings import Holdings, agree
from matchers.runs.layouts.wholes import Wholes, whole_of
from matchers.verdict.tolerance import EPSILON

__all__ = ["merged"]

_WITHOUT_NORMS = (Holds.PARTIAL, Holds.UNKNOWN)


def merged(logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> OpLog:
    """Merge the logs of some ranks into one, with the rows of the first.

    Args:
        rows: int64[ranks, n], the record of each rank that is the counterpart of each of the first, -1 for none.
        wholes: the shapes of whole tensors.
    """
    return _Merge(logs, rows, wholes).log() if len(logs) > 1 else logs[0]


class _Merge:
    """Columns of the merged log."""

    def __init__(self, logs: Sequence[OpLog], rows: Int64, wholes: Wholes) -> None:
        self._logs, self._rows = logs, rows
        self._first = logs[0]
        self._wholes = wholes
        self._held = Holdings(logs, rows, wholes)

    def log(self) -> OpLog:
        """Put the columns together."""
        log, held = self._first, self._held
        outputs, digests = self._outputs()
        inputs, input_digests = self._inputs()
        changed = np.flatnonzero((held.holds != Holds.REPLICA) | np.isin(np.arange(len(log)), list(held.odd)))
        texts = {"Placement": log.texts("Placement"), LAYOUT: log.texts(LAYOUT)}
        texts |= dict.fromkeys(("User hash", FIELD), changed.tolist())
        run = _run_info([of.header.run for of in self._logs])
        told = {row: self._begins_otherwise(row) for row in held.begin_otherwise}
        if told:
            run |= {MERGED_FINDINGS: [*contradictions(run), *told.values()]}
        out = replace(
            log,
            header=replace(log.header, run=run),
            outputs=outputs,
            digests=digests,
            inputs=inputs,
            input_digests=input_digests,
            extra={
                **log.extra,
                **{name: log.texts(name).changed(dict.fromkeys(rows, b"")) for name, rows in texts.items()},
                MERGED: Texts.of(self._told()),
                CONTRADICTED: Texts.of({row: of.encode(errors="backslashreplace") for row, of in told.items()}),
            },
        )
        whole, unknown = self._further()
        out = with_values(out, joined([self._first_outputs(changed), whole]), unknown)
        # without counts, a norm that is not known would be one that is not finite
        lost = np.flatnonzero(np.isin(held.holds, _WITHOUT_NORMS) & (out.counts[0] < 0))
        return replace(out, outputs=out.outputs.replaced(lost), digests=out.digests.replaced(lost))

    def _begins_otherwise(self, row: int) -> str:
        """The sentence of a parameter that differs before the step."""
        own = self._held.odd[row]
        rank = self._logs[own].header.run.get("rank", own)
        name = self._held.begin_otherwise[row]
        return f"{name}: parameter differs before the step on ranks that must agree, rank {rank}"

    def _first_outputs(self, rows: Int64) -> Values:
        """The first outputs of some records, merged."""
        held, log, holds = self._held, self._first, self._held.holds[rows]
        shares = [held.shares.get(row, Share()) for row in rows.tolist()]
        terms = np.array([held.terms(row) for row in rows.tolist()], np.int64)
        at = self._rows[:, np.where(holds == Holds.PARTIAL, terms, rows)]
        # of a rank that lacks a record, as an empty log lacks all, no part is taken
        known = [(each, own) if len(each) else (log, rows) for each, own in zip(self._logs, at, strict=True)]
        parts = joined([first_outputs(*each) for each in known])
        whole = _of_ranks(parts, np.arange(at.size).reshape(at.shape).T, shares)
        lost, counts, shape, digest = np.isin(holds, _WITHOUT_NORMS), whole.counts, whole.shape, whole.digest
        counts[:, lost] = log.counts[:, rows[lost]]
        for k in np.flatnonzero((holds == Holds.UNKNOWN) & (log.shape[rows] >= 0)).tolist():
            row = int(rows[k])
            is_whole = dimensions(log.shape_text(row)) in self._wholes.of(log.op_name(row), log.module_name(row))
            shape[k] = log.shape[row] if is_whole else -1
        # numbers that do not round are known by their norms only: their bits are not those of the whole
        rounds = np.array([name in EPSILON for name in log.dtypes] + [False])[log.dtype[rows]]
        digest[rounds & (holds != Holds.REPLICA) & np.array(list(map(bool, whole.sketch)), bool)] = OF_PARTS
        return replace(whole, maker=rows)

    def _further(self) -> tuple[Values, list[tuple[int, int]]]:
        """The other values of records, merged; and (record, slot) of those that are not known.

        A rank that does not list an input left it as it was.
        """
        tables = [further(log) for log in self._logs]
        places = [{at: v for v, at in enumerate(zip(*_slots(of), strict=True))} for of in tables]
        start = np.cumsum([0, *map(len, tables)]).tolist()
        keys, at, shares, unknown = list[tuple[int, int]](), list[list[int]](), list[Share](), list[tuple[int, int]]()
        unchanged = list[Values]()
        for row, slot in self._listed_anywhere(tables):
            records = self._rows[:, row].tolist()
            of = [own.get((record, slot), -1) for own, record in zip(places, records, strict=True)]
            if min(records) < 0 or (slot > 0 and min(of) < 0):
                unknown.append((row, slot))
                continue
            share = self._share(row, slot, tables, of)
            if share is None:
                unknown.append((row, slot))
                continue
            like = next(rank for rank, v in enumerate(of) if v >= 0)
            for rank, v in enumerate(of):
                if v < 0:
                    norm = float(dict(enumerate(self._logs[rank].inputs[records[rank]])).get(-1 - slot, np.nan))
                    unchanged.append(_unchanged(tables[like].taken(np.array([of[like]])), norm))
            new = iter(range(start[-1] + len(unchanged) - of.count(-1), start[-1] + len(unchanged)))
            at.append([start[rank] + v if v >= 0 else next(new) for rank, v in enumerate(of)])
            keys.append((row, slot))
            shares.append(share)
        whole = _of_ranks(joined([*tables, *unchanged]), np.array(at, np.int64).reshape(-1, len(tables)), shares)
        whole.shape[[k for k, share in enumerate(shares) if share.holds == Holds.UNKNOWN and share.whole is None]] = -1
        return replace(whole, maker=np.array([row for row, _ in keys], np.int64)), unknown

    def _listed_anywhere(self, tables: Sequence[Values]) -> list[tuple[int, int]]:
        """(record, slot) of the outputs after the first that the first rank has, and that differ between ranks; and of
        the inputs that any rank changed.
        """
        found, members = set[tuple[int, int]](), list(zip(self._logs, self._rows, strict=True))
        for row, slot in zip(*_slots(tables[0]), strict=True):
            if slot > 0 and len({log.texts(f"Output {slot}").raw(int(at[row])) for log, at in members}) > 1:
                found.add((row, slot))
        for (_, at), of in zip(members, tables, strict=True):
            here = {record: row for row, record in enumerate(at.tolist())}
            left = ((here.get(record, -1), slot) for record, slot in zip(*_slots(of), strict=True) if slot < 0)
            found |= {(row, slot) for row, slot in left if row >= 0}
        return sorted(found, key=lambda one: (one[0], -one[1]))

    def _share(self, row: int, slot: int, tables: Sequence[Values], of: Sequence[int]) -> Share | None:
        """The share in another value than a first output; None if the log does not tell.

        Args:
            of: its row in the table of each rank; -1 where that left an input as it was.
        """
        held, n = self._held, len(of)
        listed = [(table, v) for table, v in zip(tables, of, strict=True) if v >= 0]
        digests = [NO_DIGEST if v < 0 else table.digest[v] for table, v in zip(tables, of, strict=True)]
        one, first = listed[0]
        parts = [part for table, v in listed if table.placed[v] >= 0 and (part := table.part(v)) is not None]
        if len(parts) == len(listed):
            every = iter(parts)
            share = placed_share([next(every) if v >= 0 else parts[0] for v in of], held.coordinates)
            alike = [rank if v < 0 else same for rank, (v, same) in enumerate(zip(of, share.alike, strict=False))]
            share = replace(share, alike=alike or (0,))
            if share.holds != Holds.REPLICA and len(share.ranks) == 1:
                return Share(Holds.REPLICA, whole=parts[0].whole)
        elif slot > 0:
            shapes = [dimensions(table.shapes[table.shape[v]]) if table.shape[v] >= 0 else () for table, v in listed]
            known = self._wholes.of_further(self._first.op_name(row), slot)
            # all of the shape that the other run has, too, they may be terms
            whole = None if known.issuperset(shapes) else whole_of(shapes, known)
            return None if whole is None else Share(Holds.SHARD, range(n), whole)
        else:
            copies = len(set(digests)) == 1 or held.declared.holds(one.name[first]) == Holds.REPLICA
            share = Share(Holds.REPLICA if copies else Holds.UNKNOWN)
        return replace(share, alike=(stand_in(digests),)) if share.holds == Holds.REPLICA else share

    def _outputs(self) -> tuple[Ragged, Ragged]:
        """L1 norms and digests of all outputs: NaN where ranks differ, but for copies; and for what not all have."""
        of = self._first.outputs
        norms, digests = self._side_by_side("outputs", "digests")
        known = agree(digests, norms)
        known[of.start[:-1][(self._held.holds == Holds.REPLICA) & (of.count > 0)]] = True
        return self._lists(
            "outputs", "digests", np.where(known, norms[0], np.nan), np.where(known, digests[0], NO_DIGEST)
        )

    def _inputs(self) -> tuple[Ragged, Ragged]:
        """The same of all inputs: added where ranks differ; of named ones by what is declared of them."""
        log, held = self._first, self._held
        norms, digests = self._side_by_side("inputs", "input_digests")
        same, made = agree(digests, norms), np.full(len(log.inputs.value), Holds.SHARD, np.int8)
        if np.array_equal(log.inputs.start, log.producers.start):
            known = log.producers.value >= 0
            made[known] = held.holds[log.producers.value[known]]
        lost = np.isin(made, (*_WITHOUT_NORMS, Holds.NORM))
        norm = np.where(same, norms[0], np.where(lost, np.nan, norms.sum(axis=0)))
        digest = np.where(same, digests[0], NO_DIGEST)
        for row, rank in held.odd.items():  # it computes with what it was given
            of = slice(*log.inputs.start[row : row + 2].tolist())
            norm[of], digest[of] = norms[rank, of], digests[rank, of]
        for row, names in log.texts("Parameter").items():
            for k, name in zip(range(*log.inputs.start[row : row + 2].tolist()), names.split(";"), strict=False):
                declared = held.declared.holds(name) if name else Holds.UNKNOWN
                if made[k] in (Holds.PARTIAL, Holds.NORM):  # a state of another form than its parameter's
                    continue
                if declared == Holds.SHARD:
                    norm[k], digest[k] = norms[held.declared.distinct(name), k].sum(), NO_DIGEST
                elif declared == Holds.REPLICA and not same[k]:
                    rank = stand_in(digests[:, k].tolist())
                    norm[k], digest[k] = norms[rank, k], digests[rank, k]
        return self._lists("inputs", "input_digests", norm, digest)

    def _side_by_side(self, values: str, digests: str) -> tuple[Float64, Hash]:
        """The norms and digests of all ranks, [ranks, m], for each value in the lists of the first.

        NaN and NO_DIGEST where a rank lacks the record, or has lists of another length.
        """
        of, marks = getattr(self._first, values), getattr(self._first, digests)
        both = zip(self._logs, self._rows, strict=True)
        members = [(getattr(log, values), getattr(log, digests), at) for log, at in both]
        listed: Bool = np.asarray((self._rows >= 0).all(axis=0))
        for lists, prints, at in members:
            there = np.flatnonzero(listed)
            same = lists.count[at[there]] == of.count[there]
            listed[there] = same & (prints.count[at[there]] == marks.count[there])
        norms = np.full((len(members), len(of.value)), np.nan)
        found = np.full(norms.shape, NO_DIGEST)
        row, slot = of.row, np.arange(len(of.value)) - of.start[of.row]
        known, told = listed[row], (listed & (marks.count == of.count))[row]
        for rank, (lists, prints, at) in enumerate(members):
            norms[rank, known] = lists.value[lists.start[at[row[known]]] + slot[known]]
            found[rank, told] = prints.value[prints.start[at[row[told]]] + slot[told]]
        return norms, found

    def _lists(self, values: str, digests: str, norm: Float64, digest: Hash) -> tuple[Ragged, Ragged]:
        """The lists of the first log with these numbers; digests that do not belong to them are unknown."""
        of, marks = getattr(self._first, values), getattr(self._first, digests)
        told = (of.count == marks.count)[marks.row]
        found = np.full(len(marks.value), NO_DIGEST)
        at = of.start[marks.row] + np.arange(len(marks.value)) - marks.start[marks.row]
        found[told] = digest[at[told]]
        return Ragged(of.start, norm), Ragged(marks.start, found)

    def _told(self) -> dict[int, bytes]:
        """The members of each merged record: `4 ranks, Shard(1) on tp`, `4 ranks, shard by its shape`."""
        held, out = self._held, {}
        for row in held.here.tolist():
            if self._first.shape[row] >= 0:
                odd = f", rank {held.odd[row]} differs" if row in held.odd else ""
                out[row] = f"{len(self._logs)} ranks, {held.told(row)}{odd}".encode()
        return out


def _of_ranks(parts: Values, at: Int64, shares: Sequence[Share]) -> Values:
    """The wholes of parts; `at`: int64[g, ranks], the rows with the part of each rank."""
    of = [share.ranks for share in shares]
    rows = [int(at[g, rank]) for g, ranks in enumerate(of) for rank in ranks]
    return combine(parts.taken(np.array(rows, np.int64)), np.cumsum([0, *map(len, of)])[:-1], shares)


def _slots(values: Values) -> tuple[list[int], list[int]]:
    return values.maker.tolist(), values.slot.tolist()


def _unchanged(like: Values, norm: float) -> Values:
    """An input of which only its norm is known, in the form that it has on another rank; if it is zero, all else is."""
    numel = like.counts[:1]
    zero = norm == 0 and int(numel[0, 0]) >= 0
    return replace(
        like,
        present=np.full(1, 31 if zero else 1, np.uint8),
        stats=np.zeros((5, 1)) if zero else np.array([[norm], *[[np.nan]] * 4]),
        counts=np.concatenate((numel, [[0], [0]], numel)) if zero else np.full((4, 1), -1),
        digest=np.array([NO_DIGEST]),
        sketch=[encode_sketch(np.zeros(PROJECTIONS)) if zero else b""],
    )


def _run_info(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The run info of ranks together: without what a rank says of its own parts, and of the layout."""
    own = (
        *("world_size", "rank", "mesh", "mesh_coordinates", "launcher", "backend", "parameter_placements"),
        *("parameters_digest", "start_sketches", "parameters", *_CONTENTS),
    )
    return {
        **{name: value for name, value in runs[0].items() if name not in own},
        **(dict(_contents(runs)) if _replicas(runs) else _of_slices(runs)),
        MERGED_RANKS: sum(int(run.get(MERGED_RANKS, 1)) for run in runs),
        HELD_BY_RANKS: sorted({str(held) for run in runs for held in known_digests(run, "parameter_digests").values()}),
    }


_OF_A_SLICE = 4
"""Length of an entry of `end_state` that has a sketch."""
_CONTENTS = ("parameter_digests", "buffer_digests", "end_state")


def _replicas(runs: Sequence[Mapping[str, Any]]) -> bool:
    """True if each rank says that it begins with the same parameters, and with the whole of each.

    Single ones may be equal by chance where they are parts: norms begin with ones.
    """
    digests = [run.get("parameter_digests") for run in runs]
    return bool(digests[0]) and all(of == digests[0] for of in digests) and "parameter_placements" not in runs[0]


def _contents(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the run info of each rank says alike of named tensors."""
    for table in _CONTENTS:
        one, *others = (of if isinstance(of := run.get(table), dict) else {} for run in runs)
        same = {name: value for name, value in one.items() if all(of.get(name) == value for of in others)}
        if same:
            yield table, same


def _of_slices(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Start and end, in the run info, of named tensors of which each rank holds a stretch.

    The digest of a whole is made of those of its parts, which no whole tensor has: it tells whether it changed.
    """
    starts, placements, ends = (
        [of if isinstance(of := run.get(name), dict) else {} for run in runs]
        for name in ("parameter_digests", "parameter_placements", "end_state")
    )
    digests, contents = dict[str, str](), dict[str, list[Any]]()
    for name in ends[0]:
        parts = [end[name] for end in ends if isinstance(end.get(name), list) and len(end[name]) == _OF_A_SLICE]
        where = [of.get(name) for of in placements]
        if len(parts) < len(runs) or not all(isinstance(of, dict) for of in where):
            continue
        held = sorted(set(first_alike(str(of.get("offsets")) for of in where if isinstance(of, dict))))
        digests[name] = _together(str(starts[rank].get(name)) for rank in held)
        sketch = decode_sketches([str(parts[rank][3]) for rank in held]).sum(axis=0)
        norm = math.hypot(*(number(parts[rank][1]) for rank in held if parts[rank][1] is not None))
        contents[name] = [_together(str(parts[rank][0]) for rank in held), norm, None, encode_sketch(sketch).decode()]
    return {"parameter_digests": digests, "end_state": contents} if contents else {}


def _together(digests: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]
