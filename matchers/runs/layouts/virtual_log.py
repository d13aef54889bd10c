"""The virtual log of a run: all ranks as one log of global tensors, which is compared like any log.

Ranks that read one batch hold parts of one model: their records are merged (`merge.py`). Those that read different
batches divide the batch: they are micro-batches of one log (`batches.py`), and their updates, of parameters that are
replicated or sharded over all ranks, are merged again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from matchers.arrays import Int64
from matchers.logs.columns import Texts
from matchers.logs.op_log import LeftOut, OpLog, Phase
from matchers.logs.raw_record import MEMBERS
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.dataflow import fed_by
from matchers.ops.json_values import integers
from matchers.ops.laws import communicating, filling
from matchers.ops.placement import AS_PARTS, CONTRADICTED, MERGED, NOT_SUMMED, unsummed
from matchers.ops.run_info import MERGED_FINDINGS, contradictions
from matchers.ops.shapes import dimensions
from matchers.runs.check import check_logs
from matchers.runs.data import readers_of_batches
from matchers.runs.finding import Check, listed
from matchers.runs.layouts.batches import as_micro_batches
from matchers.runs.layouts.inferred import with_inferred_placements
from matchers.runs.layouts.merge import merged
from matchers.runs.layouts.names import with_names_of
from matchers.runs.layouts.not_merged import not_merged
from matchers.runs.layouts.own_updates import in_order, with_own_updates
from matchers.runs.layouts.samples import FIRST, first_results, same_samples
from matchers.runs.layouts.stages import with_stages_joined
from matchers.runs.layouts.wholes import Wholes
from matchers.runs.rank_logs import RankLogs, Role
from matchers.runs.run import MAX_WORLD

__all__ = ["virtual_log"]

_OF_EACH = (Check.FINITE, Check.RECOMPUTE)
"""Checks of each rank by itself."""
_WITH_PLACE = (Check.DATA, Check.REPLICAS, Check.REPLICATED_STAYS, Check.TRAINED, Check.ODD_ONE_OUT)
"""Checks that say at which record ranks begin to be wrong. Parameters that nothing updates have a forward one at most.
"""
_NOT_MERGED = (
    "could not be merged",
    ": the logs do not say which parts of tensors, or copies, each rank holds; one rank stands for itself alone",
    "capture with numtui, which logs what ranks hold, or say it by rules (layout)",
)
_NOT_MATCHED = (
    "matched nothing in the other run",
    ": other samples, or wrong values; the passes are left out",
    "compare these ranks one by one with --rank",
)
_OF_LAYOUT = ": this layout is not merged, and what differs in it need not be wrong"
_UNSUMMED = {
    NOT_SUMMED: "a term on each rank, read though no collective adds them up",
    AS_PARTS: "declared Shard, acts as Partial: a term on each rank, gathered as parts",
}


def virtual_log(
    ranks: RankLogs,
    others: Sequence[OpLog],
    parts: int = 1,
    *,
    leads: bool = False,
    checked: RankLogs | None = None,
) -> OpLog:
    """Merge the logs of all ranks; those that cannot be are left out, and named in `OpLog.left_out`.

    Of ranks with different parts of the model, such as the stages of a pipeline, those with the first part are merged.

    Args:
        others: the log to compare it with, or those of its ranks; the first has the shapes of whole tensors.
        parts: ranks of that run that hold parts of one model each.
        leads: the ranks of the other run take over the order of these, not these that of the others.
        checked: the ranks as they were read, where their stages are joined already.
    """
    checked = checked or ranks
    ranks = with_stages_joined(with_names_of(ranks, others[0]) if parts == 1 else ranks, others[0])
    role = ranks.joined
    left = [
        replace(_left_out(ranks, of, why, _OF_LAYOUT, helps), layout=True)
        for of, (why, helps) in not_merged(ranks, role, others)
    ]
    left += _without_log(checked)
    joins, ranks = checked is not ranks, RankLogs(ranks.run, {rank: ranks.logs[rank] for rank in role.ranks})
    checked = checked if joins else ranks
    ranks = with_inferred_placements(ranks, others[0]) if parts == 1 else ranks
    log = _without_buffers(_virtual_log(ranks, others, Wholes(others[0], parts), leads))
    log = _with_unsummed(_with_findings(log, checked) if log.members else log)
    return _as_whole_as(ranks, replace(log, left_out=(*log.left_out, *left)))


def _without_log(ranks: RankLogs) -> Iterator[LeftOut]:
    said = [size for log in ranks.logs.values() if type(size := log.header.run.get("world_size")) is int]
    world = min(max((max(ranks.logs) + 1, *said)), MAX_WORLD)
    if missing := [rank for rank in range(world) if rank not in ranks.logs]:
        yield _left_out(ranks, missing, "left no log")


def _left_out(ranks: RankLogs, which: Sequence[int], why: str, note: str = "", helps: str = "") -> LeftOut:
    operations = sum(len(ranks.logs[rank]) for rank in which if rank in ranks.logs)
    return LeftOut(tuple(which), f"rank{'s' * (len(which) > 1)} {listed(which)}", operations, why, note, helps)


def _as_whole_as(ranks: RankLogs, log: OpLog) -> OpLog:
    """The log, which is cut off if that of a rank is, with as many problems as all have."""
    problems = sum(of_rank.problem_count for of_rank in ranks.logs.values())
    if not ranks.cut:
        return replace(log, problem_count=problems)
    many = len(ranks.cut) > 1
    why = f"the log{'s' * many} of rank{'s' * many} {listed(ranks.cut)} {'are' if many else 'is'} cut off"
    header = replace(log.header, run={**log.header.run, "incomplete": why})
    return replace(log, header=header, complete=False, problem_count=problems)


def _virtual_log(ranks: RankLogs, others: Sequence[OpLog], wholes: Wholes, leads: bool) -> OpLog:
    role = ranks.joined
    groups = _by_batch(ranks, role, wholes)
    if len(groups) == 1 and not any(log.header.run for log in ranks.logs.values()):
        rest = [rank for rank in role.ranks if rank != role.reference]
        left = [_left_out(ranks, rest, *_NOT_MERGED)] if rest else []
        return replace(ranks.logs[role.reference], left_out=tuple(left))
    together = with_own_updates(_merged(ranks, role, role.ranks, wholes), ranks, role)
    if len(groups) == 1:
        return in_order(together, ranks, role)
    first = same_samples([ranks.logs[group[0]] for group in groups], others)
    places = {group: of[0] for group, of in zip(groups, first, strict=True)}
    known = [group for group in groups if places[group] >= 0]
    if not leads or len(others) == 1:
        known.sort(key=lambda group: places[group])
    if len({places[group] for group in known}) < len(known) or not known or _make_up(ranks, groups, others):
        known = groups  # first results do not tell which samples are the same
    unknown = sorted(rank for group in groups if group not in known for rank in group)
    of = next((k for k, group in enumerate(known) if role.reference in group), -1)
    of_batch = wholes.over(len(known)) if len(others) == 1 else wholes
    log = as_micro_batches(
        [_merged(ranks, role, group, of_batch) for group in known], together, of, others[:1] if leads else others
    )
    log = in_order(log, ranks, role)
    return replace(log, left_out=(_left_out(ranks, unknown, *_NOT_MATCHED),) if unknown else ())


def _make_up(ranks: RankLogs, groups: Sequence[tuple[int, ...]], others: Sequence[OpLog]) -> bool:
    """True if the one micro-batch of the other run is as large as those of all groups together, as the logs tell."""
    if len(others) > 1 or micro_batch_numbers(others[0]).max(initial=0) > 0:
        return False
    of_groups, of_other = (
        [sum(math.prod(integers(tensor.get("shape")) or ()) for tensor in each.batch_tensors(rank)) for rank in which]
        for each, which in (
            (ranks, [group[0] for group in groups]),
            (RankLogs(ranks.run, {0: others[0]}), [0]),
        )
    )
    return sum(of_groups) == sum(of_other) > 0


def _without_buffers(log: OpLog) -> OpLog:
    """The log without the content of flat buffers, which is cut otherwise for each number of ranks."""
    rows = np.flatnonzero(filling(log)).tolist()
    return replace(log, extra={**log.extra, "Mutated": log.texts("Mutated").changed(dict.fromkeys(rows, b""))})


def _with_unsummed(log: OpLog) -> OpLog:
    """The log with what its ranks read as whole or as parts, though each has a term of it."""
    how = dict.fromkeys((log.keys[row], read) for row in log.texts(MERGED) if (read := unsummed(log, row)))
    told = [f"{key}: {_UNSUMMED[read]}" for key, read in how]
    run = {**log.header.run, MERGED_FINDINGS: [*contradictions(log.header.run), *told]} if told else log.header.run
    return replace(log, header=replace(log.header, run=run))


def _with_findings(log: OpLog, ranks: RankLogs) -> OpLog:
    """The log with what its ranks contradict each other in, which the merged records do not show."""
    found = [one for one in check_logs(ranks.run, ranks.logs).findings if one.check not in _OF_EACH]
    told = [
        f"{'' if one.text.startswith(one.subject) else f'{one.subject}: '}{one.text}, ranks {listed(one.ranks)}"
        for one in found
    ]
    run = {**log.header.run, MERGED_FINDINGS: [*contradictions(log.header.run), *_mistaken(ranks), *told]}
    begins = {
        f"{place.rank}:{place.line}": text.encode(errors="backslashreplace")
        for one, text in reversed([*zip(found, told, strict=True)])
        if one.check in _WITH_PLACE
        for place in one.places[:1]
        if one.check in (Check.DATA, Check.REPLICATED_STAYS) or ranks.logs[place.rank].phase[place.row] != Phase.FORWARD
    }
    odd = [
        (one.places[0], text)
        for one, text in zip(found, told, strict=True)
        if one.check == Check.SAME_PROGRAM and one.places[0].rank in one.ranks
    ]
    lines = {member for _, members in log.texts(MEMBERS).items() for member in members.split()} if odd else ()
    begins |= {
        at: text.encode(errors="backslashreplace")
        for place, text in reversed(odd)
        if (at := _first_reader(ranks, place.rank, place.row, lines))
    }
    marks = {row: log.texts(CONTRADICTED).raw(row) for row in log.texts(CONTRADICTED)}
    marks |= {
        row: begins[first]
        for row, members in (log.texts(MEMBERS).items() if begins else ())
        if (first := next(filter(begins.__contains__, members.split()), ""))
    }
    return replace(log, header=replace(log.header, run=run), extra={**log.extra, CONTRADICTED: Texts.of(marks)})


def _first_reader(ranks: RankLogs, rank: int, row: int, lines: Collection[str]) -> str:
    """The first of merged records, `rank:line`, to read what one rank alone runs, such as a dropout; empty for none."""
    members = [f"{rank}:{line}" for line in ranks.logs[rank].line.tolist()]
    merged = np.array([member in lines for member in members], bool)
    readers = np.flatnonzero(fed_by(ranks.flows[rank], [row], ~merged) & merged)
    return members[readers[0]] if len(readers) else ""


def _mistaken(ranks: RankLogs) -> Iterator[str]:
    """Yield what logs say of their own place that their names, or their number, contradict."""
    for rank, log in ranks.logs.items():
        said, size = (log.header.run.get(name) for name in ("rank", "world_size"))
        if type(said) is int and said != rank:
            yield f"the log of rank {rank} says that it is that of rank {said}"
        elif type(size) is int and size <= max(ranks.logs):
            yield f"the log of rank {rank} says that there are {size:,} ranks"


def _by_batch(ranks: RankLogs, role: Role, wholes: Wholes) -> list[tuple[int, ...]]:
    """The ranks that read one batch.

    Where the logs say nothing of their batches, each has one of its own if they compute with whole tensors, and have no
    first result in common; else all have one.
    """
    if any(ranks.batch.values()):
        return readers_of_batches(RankLogs(ranks.run, {rank: ranks.logs[rank] for rank in role.ranks}))
    first = [first_results(ranks.logs[rank], by_bits=False)[0] for rank in role.ranks]
    apart = all(first) and len(set().union(*first)) == sum(map(len, first))
    log = ranks.logs[role.reference]
    rows = np.flatnonzero((log.phase == Phase.FORWARD) & (log.shape >= 0) & ~communicating(log))[:FIRST].tolist()
    whole = all(dimensions(log.shape_text(row)) in wholes.of(log.op_name(row)) for row in rows)
    return [(rank,) for rank in role.ranks] if apart and whole else [role.ranks]


def _merged(ranks: RankLogs, role: Role, group: Sequence[int], wholes: Wholes) -> OpLog:
    """The logs of some ranks, with the records of the reference if it is among them, else of the first."""
    first = role.reference if role.reference in group else group[0]
    members = [first, *(rank for rank in group if rank != first)]
    rows = _counterparts(ranks, role, members)
    log = merged([ranks.logs[rank] for rank in members], rows, wholes)
    lines = np.stack([np.append(ranks.logs[rank].line, 0)[at] for rank, at in zip(members, rows, strict=True)])
    told = {
        row: " ".join(f"{rank}:{line}" for rank, line in zip(members, column, strict=True) if line).encode()
        for row, column in enumerate(lines.T.tolist())
    }
    return replace(log, extra={**log.extra, MEMBERS: Texts.of(told)}, members=dict(ranks.run.paths))


def _counterparts(ranks: RankLogs, role: Role, members: Sequence[int]) -> Int64:
    """int64[ranks, n], the record of each rank for each of the first, over those of the reference."""
    of_first = role.partner[members[0]]
    known = of_first >= 0
    out = np.full((len(members), len(ranks.logs[members[0]])), -1, np.int64)
    for k, rank in enumerate(members):
        out[k, of_first[known]] = role.partner[rank][known]
        if rank in role.odd:
            out[k] = _reading_the_same(ranks.logs[members[0]], ranks.logs[rank], out[k])
        out[k] = _naming_the_same(ranks.logs[members[0]], ranks.logs[rank], out[k])
    out[0] = np.arange(out.shape[1])
    return out


def _reading_the_same(one: OpLog, other: OpLog, partner: Int64) -> Int64:
    """The partners that read what partners made; others are looked for by what they read, -1 where there is none.

    Of a run of one operation, such as the squares of all gradients, a rank may have only some.
    """
    by_flow: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for record in range(len(other) - 1, -1, -1):
        by_flow.setdefault((other.op_name(record), tuple(other.producers[record].tolist())), []).append(record)
    out = partner.copy()
    for row in np.flatnonzero(partner >= 0).tolist():
        makers, theirs = one.producers[row], other.producers[int(partner[row])]
        read = np.where(makers >= 0, out[makers], -1)
        if len(read) != len(theirs) or ((read >= 0) & (read != theirs)).any():
            left = by_flow.get((one.op_name(row), tuple(read.tolist())))
            out[row] = left.pop() if left else -1
    return out


def _naming_the_same(one: OpLog, other: OpLog, partner: Int64) -> Int64:
    """The partners, of updates those of the same tensors: ranks may divide them."""
    names, theirs, out = one.texts("Parameter"), other.texts("Parameter"), partner.copy()
    updates = [row for row in names if one.updates[row]]
    if all(partner[row] < 0 or names.raw(row) == theirs.raw(int(partner[row])) for row in updates):
        return out
    by_name: dict[tuple[str, bytes], list[int]] = {}
    for record in reversed([row for row in theirs if other.updates[row]]):
        by_name.setdefault((other.op_name(record), theirs.raw(record)), []).append(record)
    for row in updates:
        left = by_name.get((one.op_name(row), names.raw(row)))
        out[row] = left.pop() if left else -1
    return out
