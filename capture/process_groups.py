"""Process groups of collectives: their ranks, and the completion of their work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["group_ranks", "is_done", "work_of"]


def group_ranks(arguments: Iterable[Any]) -> tuple[int, ...] | None:
    """Return the global ranks of the process group in a collective's arguments, None if unknown.

    `c10d` operations take the group itself, functional ones its name.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.distributed import distributed_c10d as c10d

    for argument in arguments:
        try:
            if isinstance(argument, torch.ScriptObject):
                group = c10d.ProcessGroup.unbox(argument)
            elif isinstance(argument, c10d.ProcessGroup):
                group = argument
            elif isinstance(argument, str) and argument in _group_names(c10d):
                group = c10d._resolve_process_group(argument)
            else:
                continue
            return tuple(c10d.get_process_group_ranks(group))
        except (RuntimeError, ValueError, KeyError, TypeError):
            continue
    return None


def _group_names(c10d: Any) -> set[str]:
    return {str(name) for name in c10d._world.pg_names.values()}


def work_of(result: Any) -> Any:
    """Return the work handle of a `c10d` operation's result, None without one."""
    for item in result if isinstance(result, tuple) else (result,):
        if isinstance(item, torch.ScriptObject):
            return item
    return None


def is_done(work: Any) -> bool:
    """Return True if a collective is complete, without waiting; False if unknown."""
    if work is None:
        return False
    from torch.distributed import distributed_c10d as c10d

    try:
        return bool(c10d.Work.unbox(work).is_completed())
    except (RuntimeError, TypeError, AttributeError):
        return False
