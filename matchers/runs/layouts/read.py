"""Read two logs, or runs of other layouts: a folder stands for the virtual log of all its ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.errors import LogError
from matchers.files.cache_folder import CacheFolder
from matchers.logs.cache import read_cached
from matchers.logs.columns import Ragged, Texts
from matchers.logs.head import read_head
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OTHER_PARTS, OTHER_UNKNOWN, OpLog
from matchers.logs.parser import Progress
from matchers.ops.placement import LAYOUT
from matchers.ops.start import table
from matchers.rules.model import LayoutRule, RuleSet, Side
from matchers.rules.scope import of_layout
from matchers.runs.layouts.dealing import batches_of, dealt_otherwise
from matchers.runs.layouts.stages import with_stages_joined
from matchers.runs.layouts.virtual_log import virtual_log
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import Run, find_run, is_run

__all__ = ["layouts_differ", "one_log_of", "read_both"]

_MAX_RANKS = 4_096


def layouts_differ(a: Run, b: Run) -> bool:
    """True if the ranks of two runs have no partners, and can be merged.

    They have none where their numbers differ, where other ranks hold other parts of the model and read one batch, where
    they deal out one batch otherwise, or hold other stages of a pipeline. To be merged, the logs of all are needed.
    """
    if max(len(a.paths), len(b.paths)) > _MAX_RANKS:
        return False
    as_many = len(a.paths) == len(b.paths)
    last = (_last(a), _last(b)) if as_many else ([], [])
    alike = _mesh(a) == _mesh(b) and batches_of(last[0]).keys() == batches_of(last[1]).keys() and _held_alike(*last)
    if as_many and alike and not _parted_otherwise(*last):
        return False
    infos = _infos(a.paths.values()), _infos(b.paths.values())
    ways = (_parted_otherwise, dealt_otherwise, _staged_otherwise)
    if as_many and not any(differ(*infos) for differ in ways):
        return False
    return _is_whole(a, infos[0]) and _is_whole(b, infos[1])


def _mesh(run: Run) -> dict[str, object]:
    """The dimensions of the mesh that have several ranks, as the first rank says it."""
    first = next(iter(_infos(list(run.paths.values())[:1])), {}).get("mesh")
    return {name: size for name, size in first.items() if size != 1} if isinstance(first, dict) else {}


def _last(run: Run) -> list[Mapping[str, Any]]:
    """The run info of the last rank: the first one's parts begin at zero in any layout."""
    return _infos([run.paths[max(run.paths)]])


def _infos(paths: Iterable[str]) -> list[Mapping[str, Any]]:
    """The run info of each log; empty if one cannot be read."""
    try:
        return [read_head(path).run for path in paths]
    except (OSError, LogError):
        return []


def _updated_otherwise(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if ranks divide the updates of what all of them have in one run, and in the other not, or otherwise.

    A single rank does, as far as it tells, if its optimizer lacks some parameters, or has others than the model.
    """

    def held(info: Mapping[str, Any]) -> tuple[object, ...]:
        found, settings = info.get("optimizer"), info.get("optimizer_settings")
        one = found if isinstance(found, dict) else {}
        groups = [of.get("parameters") for of in settings if isinstance(of, dict)] if isinstance(settings, list) else []
        return one.get("others"), str(one.get("not_held") or ""), str(groups)

    of_a, of_b = (list(map(held, run)) for run in (a, b))
    alone = max(len(a), len(b)) == 1
    divide = (len(set(run)) > 1 or any(of[0] or (alone and of[1]) for of in run) for run in (of_a, of_b))
    return of_a != of_b and any(divide)


def _parted_otherwise(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if the same number of ranks divides the same parameters otherwise."""

    def table(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = info.get(name)
        return found if isinstance(found, dict) else {}

    def offsets(info: Mapping[str, Any]) -> dict[str, object]:
        parts = table(info, "parameter_placements").items()
        return {name: part.get("offsets") for name, part in parts if isinstance(part, dict)}

    def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        if offsets(one) or offsets(other):
            return offsets(one) != offsets(other)
        # of plain tensors, the number of elements tells
        same_names = table(one, "parameter_digests").keys() == table(other, "parameter_digests").keys()
        return same_names and table(one, "parameters").get("elements") != table(other, "parameters").get("elements")

    return len(a) == len(b) and (any(map(differ, a, b)) or _updated_otherwise(a, b))


def _is_whole(run: Run, infos: Sequence[Mapping[str, Any]]) -> bool:
    # without a process group a run has one rank, and says nothing of it
    sizes = {info.get("world_size", 1 if info else 0) for info in infos}
    if not any(infos):  # torchtitan's own logs
        return bool(infos) and sorted(run.paths) == list(range(len(infos)))
    return sizes == {len(infos)} and any(_held(infos))


def _held(infos: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
    """The names of the parameters that each rank holds; none of logs that do not say it."""
    return [frozenset(table(info, "parameter_digests")) for info in infos]


def _whole_values(infos: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
    """The digests of the parameters that each rank holds, but those that are parts by their placement."""
    return [
        frozenset(
            str(digest)
            for name, digest in table(info, "parameter_digests").items()
            if name not in table(info, "parameter_placements")
        )
        for info in infos
    ]


def _held_alike(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if ranks of one number hold the same parameters, by name and value."""
    return _held(a) == _held(b) and _whole_values(a) == _whole_values(b)


def _staged_otherwise(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if ranks of one number hold other parameters of one model, as their names or their values tell."""
    return any(
        of_a != of_b and frozenset().union(*of_a) == frozenset().union(*of_b)
        for of_a, of_b in ((of(a), of(b)) for of in (_held, _whole_values))
    )


def one_log_of(path: str) -> str:
    """The log of the first rank of a run; a log itself."""
    return next(iter(find_run(path).paths.values())) if os.path.isdir(path) else path


def read_both(
    paths: tuple[str, str],
    cache: CacheFolder | None = None,
    progress: Progress | None = None,
    rules: RuleSet | None = None,
    step: int | None = None,
) -> tuple[OpLog, OpLog]:
    """Read two logs, or the virtual logs of folders.

    Args:
        progress: told of both, a half each.
        rules: of which those about layouts say what the ranks hold.
        step: as of `read_cached`.

    Raises:
        LogError, InputError: a log cannot be read, or ranks cannot be merged.
    """
    said = rules.enabled(LayoutRule) if rules is not None else ()
    sides: list[OpLog | RankLogs] = [
        _read(path, cache, _half(progress, k), [rule for rule in said if rule.side in (None, side)], step)
        for k, (path, side) in enumerate(zip(paths, Side, strict=True))
    ]
    whole = _pipelines_joined(*sides)
    logs = [[side] if isinstance(side, OpLog) else list(side.logs.values()) for side in whole]
    parts = [1 if isinstance(side, OpLog) else side.with_one_batch for side in whole]
    a, b = (
        side
        if isinstance(side, OpLog)
        else virtual_log(
            side,
            logs[1 - k],
            parts[1 - k],
            leads=k == 0,
            checked=read if isinstance(read := sides[k], RankLogs) else None,
        )
        for k, side in enumerate(whole)
    )
    return a, _with_other_marks(b) if all(isinstance(side, RankLogs) for side in sides) else b


def _pipelines_joined(a: OpLog | RankLogs, b: OpLog | RankLogs) -> tuple[OpLog | RankLogs, OpLog | RankLogs]:
    """Two pipelines with their stages joined, of which one has the names of the other; anything else as it is."""
    if isinstance(a, OpLog) or isinstance(b, OpLog) or 1 in (len(a.roles), len(b.roles)):
        return a, b
    if a.numbers_anew and not b.numbers_anew:
        return _pipelines_joined(b, a)[::-1]
    joined_a = with_stages_joined(a)
    joined_b = with_stages_joined(b, next(iter(joined_a.logs.values())))
    return (a, b) if joined_a is a or joined_b is b else (joined_a, joined_b)


def _with_other_marks(log: OpLog) -> OpLog:
    """The log as the second of two merged ones."""

    def marked(digests: Ragged) -> Ragged:
        value = digests.value
        parts = np.where(value == OF_PARTS, OTHER_PARTS, value)
        return Ragged(digests.start, np.where(value == NO_DIGEST, OTHER_UNKNOWN, parts))

    return replace(log, digests=marked(log.digests), input_digests=marked(log.input_digests))


def _read(
    path: str, cache: CacheFolder | None, progress: Progress | None, rules: Sequence[LayoutRule], step: int | None
) -> OpLog | RankLogs:
    if not is_run(path):
        return read_cached(path, cache, progress=progress, step=step)
    found: dict[int, OpLog] = {}
    run = find_run(path)
    for done, (rank, log) in enumerate(run.paths.items()):
        if progress is not None:
            progress(f"reading rank {rank}", done / len(run.paths))
        found[rank] = _with_layout(read_cached(log, cache, step=step), rules)
    return RankLogs(run, found)


def _with_layout(log: OpLog, rules: Sequence[LayoutRule]) -> OpLog:
    """The log with what the rules say that ranks hold; the first rule decides."""
    said: dict[int, bytes] = {}
    for rule in reversed(rules):
        said |= dict.fromkeys(np.flatnonzero(of_layout(rule, log)).tolist(), rule.holds.label.encode())
    return replace(log, extra={**log.extra, LAYOUT: Texts.of(said)}) if said else log


def _half(progress: Progress | None, k: int) -> Progress | None:
    return None if progress is None else lambda what, fraction: progress(what, (k + fraction) / 2)
