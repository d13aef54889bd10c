# mypy: allow-subclassing-any
"""Tensor- and data-parallel groups in Megatron-LM's manner: collectives with their gradients, and random states."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Renamed in torch 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


_JOINED = timedelta(minutes=1)
"""The least time that ranks have to come together."""


class Region(torch.autograd.Function):
    """A function of a tensor, and another one of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Any:
        ctx.of_gradient = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.of_gradient(gradient), None, None


class Group:
    """Ranks that communicate: collectives along a tensor's first dimension, and Megatron's regions made of them."""

    def __init__(self, ranks: Sequence[int], rank: int, group: Any) -> None:
        self.ranks, self.rank, self.size, self.group = ranks, ranks.index(rank), len(ranks), group

    def all_reduce(self, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.all_reduce(total, group=self.group)
        return total

    def all_gather(self, x: Tensor) -> Tensor:
        if self.size == 1:
            return x
        whole = x.new_empty(x.shape[0] * self.size, *x.shape[1:])
        all_gather_single(whole, x.contiguous(), group=self.group)
        return whole

    def reduce_scatter(self, x: Tensor) -> Tensor:
        if self.size == 1:
            return x
        part, work = self.start_reduce_scatter(x)
        work.wait()
        return part

    def start_reduce_scatter(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the part, and the work that fills it."""
        part = x.new_empty(x.shape[0] // self.size, *x.shape[1:])
        return part, reduce_scatter_single(part, x.contiguous(), group=self.group, async_op=True)

    def split(self, x: Tensor, dim: int = 0) -> Tensor:
        """Keep this rank's part."""
        return x.chunk(self.size, dim)[self.rank].contiguous()

    def copy_to_region(self, x: Tensor) -> Tensor:
        """Hand a replicated tensor to matrices that are divided: each gives a part of its gradient."""
        return Region.apply(x, same, self.all_reduce)

    def reduce_from_region(self, x: Tensor) -> Tensor:
        """Add up the partial results of such matrices."""
        return Region.apply(x, self.all_reduce, same)

    def gather_from_region(self, x: Tensor) -> Tensor:
        """Join the parts of the last dimension into a replicated tensor."""

        def join(part: Tensor) -> Tensor:
            return torch.cat(self.all_gather(part).chunk(self.size), dim=-1)

        return Region.apply(x, join, partial(self.split, dim=-1))

    def scatter_sequence(self, x: Tensor) -> Tensor:
        """Keep a slice of a replicated sequence."""
        return Region.apply(x, self.split, self.all_gather)

    def gather_sequence(self, x: Tensor) -> Tensor:
        """`copy_to_region` of a sequence of which each rank has a slice."""
        return Region.apply(x, self.all_gather, self.reduce_scatter)

    def reduce_scatter_sequence(self, x: Tensor) -> Tensor:
        """`reduce_from_region` that leaves each rank a slice of the sequence."""
        return Region.apply(x, self.reduce_scatter, self.all_gather)


def same(x: Tensor) -> Tensor:
    """Return `x`."""
    return x


class RandomStates:
    """Two random states: the one in use is the same on all tensor-parallel ranks, the other differs."""

    def __init__(self, replicated: int, divided: int) -> None:
        torch.manual_seed(divided)
        self._divided = torch.get_rng_state()
        torch.manual_seed(replicated)

    @contextmanager
    def divided(self) -> Iterator[None]:
        """Open a context for tensors of which each rank has a part."""
        replicated = torch.get_rng_state()
        torch.set_rng_state(self._divided)
        yield
        self._divided = torch.get_rng_state()
        torch.set_rng_state(replicated)


@contextmanager
def joined_ranks(tp: int, dp: int, timeout: int) -> Iterator[tuple[Group, Group]]:
    """Join the other ranks; yield this rank's tensor-parallel and its data-parallel group.

    Args:
        tp: Size of a tensor-parallel group, whose ranks are neighbours.
        dp: Number of these groups.
        timeout: Seconds after which ranks that wait in a collective give up.
    """
    if tp * dp == 1:
        yield Group([0], 0, None), Group([0], 0, None)
        return
    if int(os.environ.get("WORLD_SIZE", "1")) != tp * dp:
        raise SystemExit(f"--tp, --dp: start it with torchrun --nproc_per_node {tp * dp}")
    limit = timedelta(seconds=timeout)
    # the ranks do not start at the same moment
    dist.init_process_group("gloo", timeout=max(limit, _JOINED))
    rows = torch.arange(tp * dp).view(dp, tp)
    # Every rank makes every group, and is in one row and one column.
    groups = [(ranks, dist.new_group(ranks, timeout=limit)) for ranks in (*rows.tolist(), *rows.t().tolist())]
    row, column = (Group(ranks, dist.get_rank(), group) for ranks, group in groups if dist.get_rank() in ranks)
    try:
        yield row, column
    finally:
        dist.destroy_process_group()
