"""Process groups of collectives: their members, what they reduce by, and the completion of their work."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

__all__ = ["GroupCall", "ProcessGroup", "has_result", "is_done", "process_group", "reduction", "work_of"]


@dataclass(frozen=True)
class ProcessGroup:
    """A process group as its members see it.

    Attributes:
        name: equal on all members, which meet under it; groups of the same ranks differ by it.
        ranks: global ranks of the members, in their order in the group.
        rank: of this process.
        simulated: the groups of the other simulated ranks besides, in the same order; empty with one rank in this
            process.
    """

    name: str
    ranks: tuple[int, ...]
    rank: int
    simulated: tuple[tuple[int, ...], ...] = ()

    def members(self, rank: int | None) -> tuple[int, ...]:
        """Return the global ranks in the group of a simulated rank; None: of this process."""
        return self.ranks if rank is None else self._of_rank.get(rank, self.ranks)

    def index(self, rank: int | None) -> int:
        """Return the place of a simulated rank in its group; None: of this process; -1 outside of it."""
        members, rank = self.members(rank), self.rank if rank is None else rank
        return members.index(rank) if rank in members else -1

    @cached_property
    def _of_rank(self) -> dict[int, tuple[int, ...]]:
        return {rank: ranks for ranks in self.simulated for rank in ranks}


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A call of a collective.

    Attributes:
        group: its process group.
        nth: number of earlier collectives of that group; of a message, of those in its direction with its peer.
        reduction: what it reduces by, and the factor of a `premul_sum`; None where it does not apply or is unknown.
        root: index in the group of the member that gives or receives alone.
        peer: index of the member that a message goes to or comes from.
    """

    group: ProcessGroup
    nth: int
    reduction: tuple[str | None, float | None] = (None, None)
    root: int | None = None
    peer: int | None = None

    def as_json(self, rank: int | None) -> dict[str, Any]:
        """Return the value of a log's `Group` for a simulated rank; None: for this process."""
        members = self.group.members(rank)
        found: dict[str, Any] = {"ranks": list(members), "nth": self.nth, "name": self.group.name}
        found |= {name: what for name, what in zip(("op", "factor"), self.reduction, strict=True) if what is not None}
        for name, index in (("root", self.root), ("peer", self.peer)):
            if index is not None and 0 <= index < len(members):
                found[name] = members[index]
        return found


def process_group(arguments: Iterable[Any]) -> ProcessGroup | None:
    """Return the process group in a collective's arguments, None if unknown.

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
            ranks = tuple(c10d.get_process_group_ranks(group))
            return ProcessGroup(str(group.group_name), ranks, c10d.get_rank(), _simulated(group))
        except (RuntimeError, ValueError, KeyError, TypeError):
            continue
    return None


def _group_names(c10d: Any) -> set[str]:
    return {str(name) for name in c10d._world.pg_names.values()}


def _simulated(group: Any) -> tuple[tuple[int, ...], ...]:
    """Return the members of all groups that one call stands for while ranks are simulated, as torch divides them."""
    local_tensor: Any = sys.modules.get("torch.distributed._local_tensor")
    if local_tensor is None or local_tensor.local_tensor_mode() is None:
        return ()
    ranks, offsets = local_tensor._c10d._prepare_collective_groups(group.boxed())[:2]
    return tuple(tuple(offset + rank for rank in ranks) for offset in offsets)


def reduction(argument: Any) -> tuple[str | None, float | None]:
    """Return what a collective reduces by (`sum`, `avg`, `premul_sum`, …) and the factor of a `premul_sum`.

    The factor is None where it is a tensor, which would have to be waited for, or torch does not give it away (2.11
    to 2.13).
    """
    if isinstance(argument, str):
        return argument.lower(), None
    try:
        number = argument.op()
    except (AttributeError, RuntimeError):
        return None, None
    from torch.distributed import ReduceOp

    known: Any = ReduceOp.RedOpType
    name = {int(op): name.lower() for name, op in known.__members__.items()}.get(number)
    unbox: Any = getattr(ReduceOp, "unbox", None)
    factor = getattr(unbox(argument), "factor", None) if unbox is not None and name == "premul_sum" else None
    return name, factor if isinstance(factor, float) else None


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


def has_result(work: Any) -> bool | None:
    """Return True if a collective is complete, False if it has failed, as after a time-out; None if unknown.

    Unknown are also messages of gloo, which are complete after a failure too and do not say it.
    """
    if not is_done(work):
        return None
    from torch.distributed import distributed_c10d as c10d

    try:
        future = c10d.Work.unbox(work).get_future()
    except (RuntimeError, TypeError, AttributeError):
        return None
    if not future.done():
        return None
    try:
        future.value()
    except Exception:  # noqa: BLE001 of whatever type the backend raises
        return False
    return True
