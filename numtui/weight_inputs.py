"""Resolve arguments to what holds weights: logs of weights, checkpoints, headers of captured steps."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from matchers.errors import InputError, LogError
from matchers.runs.run import LOG_NAME, FoundLog, find_logs
from matchers.weights.recognised import WEIGHTS_NAME, is_weight_log
from numtui.inputs import STDIN, joined, look

__all__ = ["log_of_step", "resolve_states", "resolve_weights"]


def resolve_weights(paths: Sequence[str], *, rank: int | None = None) -> list[str]:
    """Find the logs of weights that paths name; files are taken as they are, folders are searched.

    Raises:
        InputError: as `resolve_logs`.
    """
    found = {path: look(path, WEIGHTS_NAME) for path in paths}
    folders = {path: {log.rank: str(log.path) for log in logs} for path, logs in found.items() if logs is not None}
    if rank is not None and not folders:
        raise InputError("--rank chooses a log of a folder, and only files were given")
    if rank is None and folders:
        rank = _common_rank(folders)
    for path, logs in folders.items():
        if rank not in logs:
            raise InputError(f"{path} has no log of weights of rank {rank}, only of rank {joined(sorted(logs))}")
    return [folders[path][rank] if path in folders and rank is not None else path for path in paths]


def resolve_states(paths: Sequence[str], *, rank: int | None = None) -> list[str] | None:
    """Find what holds the weights of one moment each: checkpoints, logs of weights, logs of captured steps.

    None: all are logs of weights, which have steps, or nothing says what they are.

    Raises:
        InputError: as `resolve_logs`.
    """
    found = [_moment(path, rank) for path in paths]
    if all(path is None or of_steps for path, of_steps in found):
        return None
    return [path if where is None else where for path, (where, _) in zip(paths, found, strict=True)]


def _moment(path: str, rank: int | None) -> tuple[str | None, bool]:
    """Return what holds the weights of one moment, None for nothing, and True for a log of weights."""
    from matchers.weights.read_state import has_weights, is_checkpoint

    if path == STDIN:
        return path, True
    if is_checkpoint(path):
        return path, False
    if not os.path.isdir(path):
        steps = is_weight_log(path)
        return (path if steps or has_weights(path) else None), steps
    logs = _logs_in(path, WEIGHTS_NAME) or _logs_in(path, LOG_NAME)
    ranks = {log.rank for log in logs}
    if not logs or (len(ranks) > 1 and rank is None):
        return None, False
    of_rank = [log for log in logs if rank is None or log.rank == rank]
    if not of_rank:
        return None, False
    first = min(of_rank, key=lambda log: -1 if log.step is None else log.step).path
    steps = bool(WEIGHTS_NAME.fullmatch(first.name))
    return (str(first) if steps or has_weights(str(first)) else None), steps


def _logs_in(path: str, name: re.Pattern[str]) -> list[FoundLog]:
    try:
        return [log for log in find_logs(Path(path), name) if name.fullmatch(log.path.name)]
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None


def _common_rank(folders: Mapping[str, Mapping[int, str]]) -> int:
    common = sorted(set.intersection(*(set(logs) for logs in folders.values())))
    if len(common) == 1:
        return common[0]
    if common:
        raise InputError(f"there are logs of weights of ranks {joined(common)}; choose one with --rank N")
    have = ", ".join(f"{path} has rank {joined(sorted(logs))}" for path, logs in folders.items())
    raise InputError(f"no rank in common: {have}; name the logs themselves")


def log_of_step(weights: str, step: int) -> str | None:
    """Find the log of operations of a step that belongs to a log of weights: of its rank, in its folder."""
    named = WEIGHTS_NAME.fullmatch(Path(weights).name)
    if named is None:
        return None
    from matchers.logs.head import captured_step

    with suppress(OSError, InputError):
        for log in find_logs(Path(weights).parent):
            if log.rank == int(named[1]):
                with suppress(OSError, LogError):
                    if (log.step if log.step is not None else captured_step(str(log.path))) == step:
                        return str(log.path)
    return None
