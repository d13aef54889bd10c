"""Read two logs, or runs of other layouts: a folder stands for the virtual log of all its ranks."""

from __future__ import annotations

import os

from matchers.cache_folder import CacheFolder
from matchers.errors import LogError
from matchers.logs.cache import read_cached
from matchers.logs.head import read_head
from matchers.logs.op_log import OpLog
from matchers.logs.parser import Progress
from matchers.runs.layouts.virtual_log import virtual_log
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import Run, find_run

__all__ = ["layouts_differ", "one_log_of", "read_both"]

_MAX_RANKS = 4_096


def layouts_differ(a: Run, b: Run) -> bool:
    """True if two runs have different numbers of ranks, and their ranks can be merged.

    Then ranks have no partners. To be merged, the logs of all of them are needed, and they must have the same
    parameters, as the stages of a pipeline do not.
    """
    if len(a.paths) == len(b.paths) or max(len(a.paths), len(b.paths)) > _MAX_RANKS:
        return False
    return _is_whole(a) and _is_whole(b)


def _is_whole(run: Run) -> bool:
    try:
        infos = [read_head(path).run for path in run.paths.values()]
    except (OSError, LogError):
        return False
    # without a process group a run has one rank, and says nothing of it
    sizes = {info.get("world_size", 1 if info else 0) for info in infos}
    held = {frozenset(of) for info in infos if isinstance(of := info.get("parameter_digests"), dict)}
    if not any(infos):  # torchtitan's own logs
        return sorted(run.paths) == list(range(len(infos)))
    batches = {repr(info.get("batch")) for info in infos}
    placed = any(info.get("parameter_placements") for info in infos)
    # ranks that read one batch have parts of tensors, which only DTensors tell
    return sizes == {len(infos)} and len(held) == 1 and (placed or len(batches) == len(infos))


def one_log_of(path: str) -> str:
    """The log of the first rank of a run; a log itself."""
    return next(iter(find_run(path).paths.values())) if os.path.isdir(path) else path


def read_both(
    paths: tuple[str, str], cache: CacheFolder | None = None, progress: Progress | None = None
) -> tuple[OpLog, OpLog]:
    """Read two logs, or the virtual logs of folders.

    Args:
        progress: told of both, a half each.

    Raises:
        LogError, InputError: a log cannot be read, or ranks cannot be merged.
    """
    sides = [_read(path, cache, _half(progress, k)) for k, path in enumerate(paths)]
    firsts = [side if isinstance(side, OpLog) else next(iter(side.logs.values())) for side in sides]
    a, b = (
        side if isinstance(side, OpLog) else virtual_log(side, other)
        for side, other in zip(sides, reversed(firsts), strict=True)
    )
    return a, b


def _read(path: str, cache: CacheFolder | None, progress: Progress | None) -> OpLog | RankLogs:
    if not os.path.isdir(path):
        return read_cached(path, cache, progress=progress)
    found: dict[int, OpLog] = {}
    run = find_run(path)
    for done, (rank, log) in enumerate(run.paths.items()):
        if progress is not None:
            progress(f"reading rank {rank}", done / len(run.paths))
        found[rank] = read_cached(log, cache)
    return RankLogs(run, found)


def _half(progress: Progress | None, k: int) -> Progress | None:
    return None if progress is None else lambda what, fraction: progress(what, (k + fraction) / 2)
