"""Names of modules that a rank numbers anew, such as a pipeline's layers or experts: those of a log of one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from matchers.logs.columns import KeyColumn, Strings
from matchers.logs.op_log import OpLog
from matchers.ops.last_contents import LastContents
from matchers.ops.module_path import canonical, is_within
from matchers.runs.rank_logs import RankLogs

__all__ = ["TABLES", "names_in", "renamed", "with_names_of"]

TABLES = ("parameter_digests", "buffer_digests", "parameter_placements", "end_state", "start_sketches")
"""Tables of the run info by name of a tensor."""


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
    names = names_in(other, ranks, ranks.logs)
    return RankLogs(ranks.run, {rank: renamed(log, names[rank]) for rank, log in ranks.logs.items()})


def names_in(other: OpLog, ranks: RankLogs, of: Iterable[int]) -> dict[int, dict[str, str]]:
    """By rank, of some ranks, the name that its numbered modules have in another log.

    By the digests of parameters that only one parameter of the other log has.
    """
    whole = LastContents(other, tuple(other.modules)).start
    many = Counter(whole.values())
    by_digest = {digest: name for name, digest in whole.items() if many[digest] == 1}
    out = dict[int, dict[str, str]]()
    for rank in of:
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


def renamed(log: OpLog, names: Mapping[str, str]) -> OpLog:
    """The log with other names of modules: of what is in the longest path that has one."""
    if all(name == new for name, new in names.items()):
        return log

    def new(text: str) -> str:
        path = canonical(text)
        known = max((of for of in names if is_within(path, of)), key=len, default="")
        return names[known] + path[len(known) :] if known else text

    def of_record(raw: bytes) -> bytes:
        module, slash, op = raw.rpartition(b"/")
        return new(module.decode(errors="surrogateescape")).encode(errors="surrogateescape") + slash + op

    modules = Strings(tuple(new(name).encode(errors="surrogateescape") for name in log.modules))
    keys = KeyColumn(b"".join(of_record(log.keys.raw(row)) + b"\n" for row in range(len(log))))
    texts = {row: ";".join(map(new, text.split(";"))).encode() for row, text in log.texts("Parameter").items()}
    run = dict(log.header.run)
    for table in TABLES:
        if isinstance(found := run.get(table), dict):
            run[table] = {new(name): value for name, value in found.items()}
    return replace(
        log,
        modules=modules,
        keys=keys,
        header=replace(log.header, run=run),
        extra={**log.extra, "Parameter": log.texts("Parameter").changed(texts)},
    )
