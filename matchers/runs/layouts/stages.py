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

from matchers.arrays import Bool, Int64
from matchers.laws.law import Kind
from matchers.logs.columns import KeyColumn, Strings, Texts
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.raw_record import MEMBERS
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.json_values import integers, parsed_object
from matchers.ops.last_contents import LastContents
from matchers.ops.module_path import canonical
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.unused_passes import unused_passes
from matchers.runs.calls import Group
from matchers.runs.layouts.pieces import Piece, joined
from matchers.runs.rank_logs import RankLogs, connected

__all__ = ["with_names_of", "with_stages_joined"]

_OF_PARAMETERS = ("parameter_digests", "buffer_digests", "parameter_placements", "end_state", "start_sketches")
"""Tables of the run info by name of a tensor."""


def with_stages_joined(ranks: RankLogs, other: OpLog) -> RankLogs:
    """The ranks, where those that send each other what they compute are one: the first of them.

    As they are where that is not understood: a pipeline is to have one rank of each role, and a message both ends.

    Args:
        other: the log of one process, whose names the modules of stages get.
    """
    role_of = {rank: k for k, role in enumerate(ranks.roles) for rank in role.ranks}
    pipelines = connected(group.ranks for group in ranks.messages)
    many = len(ranks.roles)
    if many < 2 or not all(map(_answered, ranks.messages)):
        return ranks
    whole = all(sorted(role_of.get(rank, -1) for rank in of) == [*range(many)] for of in pipelines)
    if not whole or sum(map(len, pipelines)) != len(ranks.logs):
        return ranks
    first = {rank: of[0] for of in pipelines for rank in of}
    return RankLogs(ranks.run, {of[0]: _joined(ranks, list(_in_turn(ranks, of)), other, first) for of in pipelines})


def with_names_of(ranks: RankLogs, other: OpLog) -> RankLogs:
    """The ranks, of which those that give one name to other parameters each have the names of another log: experts."""
    named: dict[str, set[int]] = defaultdict(set)
    for rank, held in ranks.start.items():
        placed = ranks.table(rank, "parameter_placements")
        for name, digest in held.items():
            if name not in placed:
                named[name].add(digest)
    if all(len(of) == 1 for of in named.values()):
        return ranks
    names = _names(ranks, list(ranks.logs), other)
    return RankLogs(ranks.run, {rank: _renamed(log, names[rank]) for rank, log in ranks.logs.items()})


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


def _joined(ranks: RankLogs, stages: Sequence[int], other: OpLog, first: Mapping[int, int]) -> OpLog:
    """The log of a pipeline, whose ranks are given in the order of their stages; `first`: of each rank's pipeline."""
    names = _names(ranks, stages, other)
    pieces, places, keys = list[Piece](), list[Int64](), list[Int64]()
    start = 0
    for stage, rank in enumerate(stages):
        rows = np.flatnonzero(~_serving(ranks, rank) & ~unused_passes(ranks.logs[rank]))
        number = _numbers(ranks.logs[rank]).astype(np.int32)
        log = _renamed(replace(ranks.logs[rank], micro_batch=number), names[rank])
        place = np.full(len(log), -1)
        place[rows] = start + np.arange(len(rows))
        start += len(rows)
        pieces.append(Piece(log, rows, None, rank))
        places.append(place)
        keys.append(_order(log, stage, len(stages))[:, rows])
    for source, row, target, received in _messages(ranks, stages):
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
        return np.where(np.isin(log.phase, (Phase.FORWARD, Phase.BACKWARD)) & ~log.updates, 0, -1)
    used = np.unique(number[(number >= 0) & ~unused_passes(log)])
    return np.where(np.isin(number, used), np.searchsorted(used, number), -1)


def _order(log: OpLog, stage: int, stages: int) -> Int64:
    """int64[3, n]: micro-batch, direction, and turn of the stage, by which records are sorted.

    What is of no micro-batch stays behind the record before it.
    """
    n, number = len(log), log.micro_batch.astype(np.int64)
    backward = (log.phase == Phase.BACKWARD).astype(np.int64)
    last = np.flatnonzero(number >= 0)[-1:]
    at = np.maximum.accumulate(np.where(number >= 0, np.arange(n), -1))
    key = np.stack((number[at], backward[at], np.where(backward[at] > 0, stages - 1 - stage, stage)))
    key[:, at < 0] = np.array([[-1], [0], [stage]])
    key[:, np.arange(n) > (last[0] if len(last) else -1)] = np.array([[n], [0], [stage]])
    return key


def _serving(ranks: RankLogs, rank: int) -> Bool:
    """bool[n]: messages, and what prepares them, or is read from them, and serves nothing else."""
    log, flow = ranks.logs[rank], ranks.flows[rank]
    messages = np.zeros(len(log), bool)
    messages[[call.row for call in ranks.calls[rank] if call.peer >= 0]] = True
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


def _answered(pair: Group) -> bool:
    """True if each message of two ranks has both ends: it is known which is which."""
    return all(len(sent) == len(got) for sent, got in (pair.messages(*pair.ranks), pair.messages(*pair.ranks[::-1])))


def _together(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of tensors that the run info of every stage has, each as one."""
    out: dict[str, Any] = {}
    for table in _OF_PARAMETERS:
        found = [of for info in infos if isinstance(of := info.get(table), dict)]
        if len(found) == len(infos):
            out[table] = {name: value for of in found for name, value in of.items()}
    return out


def _names(ranks: RankLogs, stages: Sequence[int], other: OpLog) -> dict[int, dict[str, str]]:
    """By rank, the name that modules have in the other log, where a stage counts its modules anew.

    By the digests of parameters that only one parameter has.
    """
    whole = LastContents(other, tuple(other.modules)).start
    many = Counter(whole.values())
    by_digest = {digest: name for name, digest in whole.items() if many[digest] == 1}
    out = dict[int, dict[str, str]]()
    for rank in stages:
        votes = defaultdict[str, Counter[str]](Counter)
        for name, digest in LastContents(ranks.logs[rank], tuple(ranks.logs[rank].modules)).start.items():
            theirs = by_digest.get(digest, "").split(".")
            mine = name.split(".")
            if len(mine) == len(theirs) and all(
                x == y or (x.isdigit() and y.isdigit()) for x, y in zip(mine, theirs, strict=True)
            ):
                for k, part in enumerate(mine):
                    if part.isdigit():
                        votes[".".join(mine[: k + 1])][".".join(theirs[: k + 1])] += 1
        out[rank] = {name: of.most_common(1)[0][0] for name, of in votes.items()}
    return out


def _renamed(log: OpLog, names: Mapping[str, str]) -> OpLog:
    """The log with other names of modules: of what is in the longest path that has one."""
    if all(name == new for name, new in names.items()):
        return log

    def new(text: str) -> str:
        path = canonical(text)
        known = max((of for of in names if f"{path}.".startswith(f"{of}.")), key=len, default="")
        return names[known] + path[len(known) :] if known else text

    def of_record(raw: bytes) -> bytes:
        module, slash, op = raw.rpartition(b"/")
        return new(module.decode(errors="surrogateescape")).encode(errors="surrogateescape") + slash + op

    modules = Strings(tuple(new(name).encode(errors="surrogateescape") for name in log.modules))
    keys = KeyColumn(b"".join(of_record(log.keys.raw(row)) + b"\n" for row in range(len(log))))
    texts = {row: ";".join(map(new, text.split(";"))).encode() for row, text in log.texts("Parameter").items()}
    run = dict(log.header.run)
    for table in _OF_PARAMETERS:
        if isinstance(found := run.get(table), dict):
            run[table] = {new(name): value for name, value in found.items()}
    return replace(
        log,
        modules=modules,
        keys=keys,
        header=replace(log.header, run=run),
        extra={**log.extra, "Parameter": log.texts("Parameter").changed(texts)},
    )
