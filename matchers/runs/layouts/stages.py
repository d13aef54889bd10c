"""Stages of a pipeline, joined: parts of one graph, of which a rank sends the next one what that goes on with.

A message is one value, on both ranks: what was sent is what is read. The passes of each micro-batch follow each other
by its number, whatever the schedule was.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Int64, marked, one_of
from matchers.laws.law import Kind
from matchers.logs.columns import Ragged, Texts
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.raw_record import MEMBERS
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.json_values import integers, parsed_object
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.unused_passes import unused_passes
from matchers.runs.layouts.names import TABLES, names_in, renamed
from matchers.runs.layouts.pieces import Piece, joined
from matchers.runs.rank_logs import RankLogs, connected

__all__ = ["why_apart", "with_stages_joined"]


def with_stages_joined(ranks: RankLogs, other: OpLog | None = None) -> RankLogs:
    """The ranks, where those that send each other what they compute are one: the first of them.

    As they are where that is not understood: a pipeline is to have one rank of each role, and a message both ends.

    Args:
        other: the log of one process, whose names the modules of stages get; None to keep their own.
    """
    if len(ranks.roles) < 2 or why_apart(ranks):
        return ranks
    pipelines = connected(group.ranks for group in ranks.messages)
    first = {rank: of[0] for of in pipelines for rank in of}
    return RankLogs(ranks.run, {of[0]: _joined(ranks, list(_in_turn(ranks, of)), other, first) for of in pipelines})


def why_apart(ranks: RankLogs) -> tuple[str, str] | None:
    """The property for which stages are not joined, a clause, and what would settle it; None if they are joined."""
    for group in ranks.messages:
        for sender, receiver in (group.ranks, group.ranks[::-1]):
            sent, got = group.messages(sender, receiver)
            if len(sent) != len(got):
                why = f"rank {sender} sends rank {receiver} {len(sent):,} messages, which receives {len(got):,}"
                return why, "capture the whole step on all ranks"
    pipelines, beside = connected(group.ranks for group in ranks.messages), "compare two runs with these stages"
    if alone := sorted(ranks.logs.keys() - {rank for of in pipelines for rank in of}):
        return f"no message of rank {alone[0]} is logged", beside
    role_of = {rank: k for k, role in enumerate(ranks.roles) for rank in role.ranks}
    for of in pipelines:
        held = Counter(role_of.get(rank, -1) for rank in of)
        if len(held) < len(ranks.roles) or max(held.values()) > 1 or -1 in held:
            many = ", ".join(str(held[k]) for k in range(len(ranks.roles)))
            return f"its pipeline has not one rank for each stage ({many})", beside
    return None


def _in_turn(ranks: RankLogs, pipeline: Sequence[int]) -> Iterator[int]:
    """The ranks of a pipeline by their stages: of two ranks, the earlier one sends first."""
    within = [group for group in ranks.messages if group.ranks[0] in pipeline]
    begins = {group.ranks: group.calls[group.ranks[0]][:1] for group in within}
    earlier = defaultdict[int, set[int]](set)
    for (one, other), calls in begins.items():
        first, second = (one, other) if calls and calls[0].kind is Kind.SEND else (other, one)
        earlier[second].add(first)
    left = list(pipeline)
    while left:
        ready = next((rank for rank in left if not earlier[rank] & {*left}), left[0])
        left.remove(ready)
        yield ready


def _joined(ranks: RankLogs, stages: Sequence[int], other: OpLog | None, first: Mapping[int, int]) -> OpLog:
    """The log of a pipeline, whose ranks are given in the order of their stages; `first`: of each rank's pipeline."""
    names = {} if other is None else names_in(other, ranks, stages)
    pieces, places, keys = list[Piece](), list[Int64](), list[Int64]()
    numbers, messages = [_numbers(ranks.logs[rank]) for rank in stages], list(_messages(ranks, stages))
    passes = [_passes(ranks.logs[rank], number) for rank, number in zip(stages, numbers, strict=True)]
    turns = _turns([ranks.flows[rank] for rank in stages], numbers, passes, messages)
    start = 0
    for stage, rank in enumerate(stages):
        rows = np.flatnonzero(~_serving(ranks, rank) & ~unused_passes(ranks.logs[rank]))
        number = numbers[stage].astype(np.int32)
        log = renamed(replace(ranks.logs[rank], micro_batch=number), names.get(rank, {}))
        place = np.full(len(log), -1)
        place[rows] = start + np.arange(len(rows))
        start += len(rows)
        pieces.append(Piece(log, rows, None, rank))
        places.append(place)
        keys.append(_order(numbers[stage], passes[stage], turns[stage], stage)[:, rows])
    for source, row, target, received in messages:
        places[target][received] = places[source][row]
    log = joined(pieces[0].log, pieces, places)
    told = {
        int(at): f"{piece.source}:{int(piece.log.line[row])}".encode()
        for piece, place in zip(pieces, places, strict=True)
        for row, at in zip(piece.rows.tolist(), place[piece.rows].tolist(), strict=True)
    }
    order = np.lexsort(np.concatenate(keys, axis=1)[::-1])
    run = {**log.header.run, **_together([piece.log.header.run for piece in pieces]), MERGED_RANKS: len(stages)}
    groups = _of_pipelines(log.texts("Group"), first)
    log = replace(log, extra={**log.extra, MEMBERS: Texts.of(told), "Group": groups}, members=dict(ranks.run.paths))
    log = joined(log, [Piece(log, order, None, 0)])
    return replace(log, header=replace(log.header, run=run))


def _of_pipelines(groups: Texts, first: Mapping[int, int]) -> Texts:
    """The process groups of records, of pipelines in place of their stages."""
    changed = dict[int, bytes]()
    for row, text in groups.items():
        group = parsed_object(text) or {}
        members = [first.get(rank, rank) for rank in integers(group.get("ranks")) or ()]
        changed[row] = json.dumps({**group, "ranks": [*dict.fromkeys(members)]}).encode()
    return groups.changed(changed)


def _numbers(log: OpLog) -> Int64:
    """int64[n], the micro-batch of each record of the passes, but those that nothing uses; -1 for all other records."""
    number = micro_batch_numbers(log).copy()
    if number.max(initial=-1) < 0:
        return np.where(one_of(log.phase, (Phase.FORWARD, Phase.BACKWARD)) & ~log.updates, 0, -1)
    used = np.unique(number[(number >= 0) & (log.phase != Phase.PREPARE) & ~unused_passes(log)])
    return np.where(np.isin(number, used), np.searchsorted(used, number), -1)


def _passes(log: OpLog, number: Int64) -> Int64:
    """int64[n]: which pass a record belongs to, that of the record before it if to none; -1 before the first one.

    Twice the micro-batch, and one more for the backward pass.
    """
    at = np.maximum.accumulate(np.where(number >= 0, np.arange(len(log)), -1))
    return np.where(at >= 0, 2 * number[at] + (log.phase[at] == Phase.BACKWARD), -1)


def _turns(
    flows: Sequence[Ragged],
    numbers: Sequence[Int64],
    passes: Sequence[Int64],
    messages: Sequence[tuple[int, int, int, int]],
) -> list[Int64]:
    """Of each stage int64[n]: how many messages of its pass, one after the other, a record comes after.

    A rank that computes several stages has several turns in a pass.

    Args:
        numbers, passes, messages: as of `_numbers`, `_passes` and `_messages`.
    """
    turns = [np.zeros(len(of), np.int64) for of in passes]
    sends = {(source, passes[source][row], row) for source, row, _, _ in messages}
    left = list[tuple[int, int, int, Int64]]()
    for source, row, target, received in messages:
        flow = flows[target]
        reader = flow.row[flow.value == received]
        if not (numbers[target][reader] >= 0).any():
            continue
        at = int(reader[numbers[target][reader] >= 0][0])
        of = passes[target][at]
        began = any(stage == target and each == of and sent < at for stage, each, sent in sends)
        behind = np.flatnonzero(passes[target] == of)
        left.append((source, row, target, behind[behind >= at] if began else behind))
    for _ in left:  # a message follows at most all others
        late = [one for one in left if turns[one[2]][one[3]].min() <= turns[one[0]][one[1]]]
        if not late:
            break
        for source, row, target, behind in late:
            turns[target][behind] = np.maximum(turns[target][behind], turns[source][row] + 1)
    return turns


def _order(number: Int64, passes: Int64, turn: Int64, stage: int) -> Int64:
    """int64[3, n]: pass, turn, and stage, by which records are sorted.

    What is of no micro-batch stays behind the record before it; of what comes before and after all of them, stages
    follow each other.
    """
    n = len(number)
    after = np.arange(n) > np.flatnonzero(number >= 0)[-1:].max(initial=-1)
    outside = (passes < 0) | after
    key = np.stack((np.where(after & (passes >= 0), np.iinfo(np.int64).max, passes), turn, np.full(n, stage)))
    key[1, outside] = stage
    return key


def _serving(ranks: RankLogs, rank: int) -> Bool:
    """bool[n]: messages, and what prepares them, or is read from them, and serves nothing else."""
    log, flow = ranks.logs[rank], ranks.flows[rank]
    messages = marked([call.row for call in ranks.calls[rank] if call.peer >= 0], len(log))
    prepares = log.phase == Phase.PREPARE
    every = np.ones(len(log), bool)
    used = upstream(flow, ~prepares & ~messages, every)
    around = upstream(flow, messages, every) | downstream(flow, messages, every)
    return np.asarray(messages | (prepares & ~used & ~log.updates & around))


def _messages(ranks: RankLogs, stages: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield of each message the stage and record that made it, and the stage and record that received it."""
    number = {rank: k for k, rank in enumerate(stages)}
    for group in ranks.messages:
        if group.ranks[0] not in number:
            continue
        for sender, receiver in (group.ranks, group.ranks[::-1]):
            for one, other in zip(*group.messages(sender, receiver), strict=True):
                read = ranks.flows[sender][one.row].tolist()
                if read and read[0] >= 0:
                    yield number[sender], read[0], number[receiver], other.row


def _together(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of tensors that the run info of every stage has, each as one."""
    out: dict[str, Any] = {}
    for table in TABLES:
        found = [of for info in infos if isinstance(of := info.get(table), dict)]
        if len(found) == len(infos):
            out[table] = {name: value for of in found for name, value in of.items()}
    return out
