"""Every kind of collective once, on each of some ranks: with whole numbers, whose sums are exact in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

__all__ = ["EACH", "KINDS", "TOGETHER", "overtaking", "own"]


def own(*shape: int) -> Any:
    """Numbers of this rank, the same in every run."""
    numbers = torch.arange(float(torch.Size(shape).numel())).view(shape)
    return (numbers * (3 + 4 * dist.get_rank())) % 17 - 8


def parts(*shape: int) -> list[Any]:
    """A tensor for each rank."""
    return [own(*shape) + 20 * rank for rank in range(dist.get_world_size())]


def size() -> int:
    """Number of ranks."""
    return dist.get_world_size()


def everyone() -> Any:
    """The group of all ranks."""
    return dist.group.WORLD


def used(start: Callable[[Any, Any], Any], output: Any, given: Any) -> None:
    """A call whose result is used, of a kind that does not say when it is complete."""
    start(output, given)
    output + 1


def coalesced(start: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """Several calls that become one operation."""
    with dist._coalescing_manager():
        for arguments in calls:
            start(*arguments)


def waited(results: Any) -> None:
    """Results of functional collectives, used."""
    for result in results if isinstance(results, list) else [results]:
        result + 1


def passed_on(given: Any) -> None:
    """A message from every rank to the next."""
    rank, taken = dist.get_rank(), torch.empty_like(given)
    there = dist.P2POp(dist.isend, given, (rank + 1) % size())
    back = dist.P2POp(dist.irecv, taken, (rank - 1) % size())
    for work in dist.batch_isend_irecv([there, back]):
        work.wait()
    taken + 1


def split_unevenly(rows: int) -> None:
    """Every rank sends and gets a row more of the others than of itself."""
    rank = dist.get_rank()
    sizes = [rows + (other != rank) for other in range(size())]
    dist.all_to_all_single(torch.empty(sum(sizes)), own(sum(sizes)), sizes, sizes)


def overtaking(same_ranks: Any) -> None:
    """Two groups of the same ranks, whose collectives the ranks begin in different orders."""
    calls = [(own(4), None), (own(4) * 2, same_ranks)]
    order = calls if dist.get_rank() == 0 else calls[::-1]
    for work in [dist.all_reduce(given, group=group, async_op=True) for given, group in order]:
        work.wait()


Kinds = dict[str, Callable[[], Any]]

EACH: Kinds = {
    "allreduce_": lambda: dist.all_reduce(own(6)),
    "allreduce_coalesced_": lambda: coalesced(dist.all_reduce, (own(6),), (own(3, 4),)),
    "broadcast_": lambda: dist.broadcast(own(6), src=1),
    "allgather_": lambda: dist.all_gather([torch.empty(6) for _ in range(size())], own(6)),
    "_allgather_base_": lambda: dist.all_gather_into_tensor(torch.empty(6 * size()), own(6)),
    "allgather_coalesced_": lambda: dist.all_gather_coalesced(
        [[torch.empty(6), torch.empty(5)] for _ in range(size())], [own(6), own(5)]
    ),
    "allgather_into_tensor_coalesced_": lambda: coalesced(
        dist.all_gather_into_tensor, (torch.empty(6 * size()), own(6)), (torch.empty(5 * size()), own(5))
    ),
    "all_reduce": lambda: waited(functional.all_reduce(own(6), "sum", everyone())),
    "all_reduce_coalesced": lambda: waited(functional.all_reduce_coalesced([own(6), own(5)], "sum", everyone())),
    "broadcast": lambda: waited(functional.broadcast(own(6), 1, everyone())),
    "all_gather_into_tensor": lambda: waited(functional.all_gather_tensor(own(6, 2), 1, everyone())),
    "all_gather_into_tensor_coalesced": lambda: waited(
        functional.all_gather_into_tensor_coalesced([own(6), own(5)], everyone())
    ),
}
"""Operations by which each rank receives all that the ranks give."""
TOGETHER: Kinds = {
    "reduce_": lambda: dist.reduce(own(6), dst=1),
    "gather_": lambda: dist.gather(own(6), parts(6) if dist.get_rank() == 1 else None, dst=1),
    "scatter_": lambda: dist.scatter(torch.empty(6), parts(6) if dist.get_rank() == 1 else None, src=1),
    "reduce_scatter_": lambda: used(dist.reduce_scatter, torch.empty(6), parts(6)),
    "_reduce_scatter_base_": lambda: dist.reduce_scatter_tensor(torch.empty(6), own(6 * size())),
    "reduce_scatter_tensor_coalesced_": lambda: coalesced(
        dist.reduce_scatter_tensor, (torch.empty(6), own(6 * size())), (torch.empty(5), own(5 * size()))
    ),
    "alltoall_base_": lambda: dist.all_to_all_single(torch.empty(4 * size(), 3), own(4 * size(), 3)),
    "reduce_scatter_tensor": lambda: waited(functional.reduce_scatter_tensor(own(4, 3 * size()), "sum", 1, everyone())),
    "reduce_scatter_tensor_coalesced": lambda: waited(
        functional.reduce_scatter_tensor_coalesced([own(6 * size()), own(5 * size())], "sum", [0, 0], everyone())
    ),
    "all_to_all_single": lambda: waited(functional.all_to_all_single(own(4 * size(), 3), None, None, everyone())),
    "send": lambda: passed_on(own(6)),
}
"""Operations by which the ranks receive together what they give together."""
if torch.__version__ >= "2.12":  # a TorchVersion, which compares as versions do; gloo had none before
    TOGETHER["alltoall_"] = lambda: dist.all_to_all(parts(6), parts(6))
UNEVEN: Kinds = {"uneven alltoall_base_": lambda: split_unevenly(3)}
KINDS = EACH | TOGETHER | UNEVEN
