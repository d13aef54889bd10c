"""Common parts of `tensors`: which rank holds which part of a matrix and of a sequence, regions between them, the step.

As Megatron-LM does it: plain tensors, process groups and collectives by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.truth.wide.sharing import Data
from tests.truth.wide.subject import Bug, Run

__all__ = [
    "LAYOUTS",
    "LENGTH",
    "Group",
    "Layout",
    "canonical",
    "common_bugs",
    "divided_over",
    "group",
    "optimizer",
    "part_of",
    "positions_of",
    "train",
]

LENGTH = 16


@dataclass(frozen=True)
class Layout:
    """Division of a run.

    Attributes:
        tensor: ranks that share the matrices of a layer; neighbours.
        sequence: these share what lies between matrices, too, by its positions.
        context: ranks that share the positions of a sequence.
        data: ranks, or groups of ranks, that read other samples.
        micro: parts into which a rank splits what it reads.
    """

    tensor: int = 1
    sequence: bool = False
    context: int = 1
    data: int = 1
    micro: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.context * self.data

    @property
    def place(self) -> tuple[int, int, int]:
        """The number of this rank along data, context and tensor."""
        rank = dist.get_rank() if self.ranks > 1 else 0
        return rank // self.tensor // self.context, rank // self.tensor % self.context, rank % self.tensor


LAYOUTS: Mapping[str, Layout] = {
    "whole": Layout(),
    "micro2": Layout(micro=2),
    "tp2": Layout(tensor=2),
    "tp2-sp": Layout(tensor=2, sequence=True),
    "cp2": Layout(context=2),
    "dp2": Layout(data=2),
    "tp2-cp2": Layout(tensor=2, sequence=True, context=2),
    "tp2-dp2": Layout(tensor=2, data=2),
}
"""By form."""


class Group:
    """Ranks that communicate, and Megatron's regions made of their collectives."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.size = len(ranks)
        self.rank = ranks.index(dist.get_rank()) if self.size > 1 else 0
        self.of = _made(ranks) if self.size > 1 else None

    def summed(self, x: Tensor) -> Tensor:
        """The sum over ranks."""
        total = x.clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.all_reduce(total, group=self.of)
        return total

    def largest(self, x: Tensor) -> Tensor:
        """The largest of all ranks."""
        found = x.clone()
        if self.size > 1:
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.of)
        return found

    def started(self, x: Tensor) -> tuple[Tensor, Any]:
        """A tensor that will be the sum over ranks, and what to wait for."""
        total = x.clone(memory_format=torch.contiguous_format)
        return total, dist.all_reduce(total, group=self.of, async_op=True)

    def gathered(self, x: Tensor, dim: int) -> Tensor:
        """The parts of all ranks side by side."""
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.of)
        return torch.cat(parts, dim)

    def split(self, x: Tensor, dim: int) -> Tensor:
        """The part of this rank."""
        return x.chunk(self.size, dim)[self.rank].contiguous()

    def summed_part(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part of the sum over ranks."""
        return self.split(self.summed(x), dim)

    def copied_to(self, x: Tensor) -> Tensor:
        """A tensor that matrices in parts read: each gives a term of its gradient."""
        return self._region(x, _same, self.summed)

    def reduced_from(self, x: Tensor) -> Tensor:
        """The sum of their results."""
        return self._region(x, self.summed, _same)

    def joined(self, x: Tensor, dim: int) -> Tensor:
        """Parts side by side, which all ranks go on with alike."""
        return self._region(x, partial(self.gathered, dim=dim), partial(self.split, dim=dim))

    def taken(self, x: Tensor, dim: int) -> Tensor:
        """A part of what all ranks have."""
        return self._region(x, partial(self.split, dim=dim), partial(self.gathered, dim=dim))

    def gathered_for(self, x: Tensor, dim: int, back: Callable[..., Tensor] | None = None) -> Tensor:
        """Parts side by side, which each rank goes on with otherwise; `back` makes the gradient of its own."""
        return self._region(x, partial(self.gathered, dim=dim), partial(back or self.summed_part, dim=dim))

    def reduced_to_part(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part of the sum of results."""
        return self._region(x, partial(self.summed_part, dim=dim), partial(self.gathered, dim=dim))

    def _region(self, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
        return x if self.size == 1 else _Region.apply(x, forward, backward)


class _Region(torch.autograd.Function):
    """A function of a tensor, and another one of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Any:
        ctx.of_gradient = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.of_gradient(gradients[0]), None, None


def _same(x: Tensor) -> Tensor:
    return x.view_as(x)


@cache
def _made(ranks: tuple[int, ...]) -> Any:
    return dist.new_group(list(ranks), use_local_synchronization=True)


def group(run: Run, along: str) -> Group:
    """The ranks beside this one along a dimension: `tensor`, `context`, `data`, `parts` for the last two, or `all`."""
    layout = LAYOUTS[run.form]
    data, context, tensor = layout.place
    numbers = [[d, c, t] for d in range(layout.data) for c in range(layout.context) for t in range(layout.tensor)]
    fixed = {"tensor": (data, context, None), "context": (data, None, tensor), "data": (None, context, tensor)}
    wanted = {**fixed, "parts": (None, None, tensor), "all": (None, None, None)}[along]
    ranks = [k for k, of in enumerate(numbers) if all(w in (None, at) for w, at in zip(wanted, of, strict=True))]
    return Group(tuple(ranks))


def divided_over(weight: Tensor, dim: int, run: Run) -> nn.Parameter:
    """This rank's part of a matrix."""
    part = nn.Parameter(group(run, "tensor").split(weight.detach(), dim).clone())
    part.divided = True  # read by `_clipped`
    return part


def positions_of(run: Run, context: int | None = None) -> Tensor:
    """The places of a rank's tokens in the sequence."""
    layout = LAYOUTS[run.form]
    return torch.arange(LENGTH).chunk(layout.context)[layout.place[1] if context is None else context]


def part_of(data: Data, run: Run) -> Data:
    """The samples, and positions of them, that this rank reads; tensors are of [batch, length, ...]."""
    layout, at = LAYOUTS[run.form], positions_of(run)
    return {name: x.chunk(layout.data)[layout.place[0]][:, at].contiguous() for name, x in data.items()}


def common_bugs(norm: str) -> tuple[Bug, ...]:
    """The bugs of the step; `norm`: pattern of the name of the first norm of layer 1."""
    sequence = tuple(form for form, layout in LAYOUTS.items() if layout.sequence)
    contexts = tuple(form for form, layout in LAYOUTS.items() if layout.context > 1)
    data = tuple(form for form, layout in LAYOUTS.items() if layout.data > 1)
    return (
        Bug(name="cp-loss", module="", phase="", forms=contexts),
        Bug(name="dp-loss", module="", phase="", forms=data),
        Bug(name="norms", phase="", parameters=norm, forms=sequence),
    )


def optimizer(model: Any, run: Run) -> Any:
    """AdamW."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)


def train(
    model: Any,
    data: Data,
    optimizer: Any,
    run: Run,
    loss: Callable[[Any, Data], Tensor],
    unsummed: Mapping[str, str],
    clip: float = 0.0,
) -> Tensor:
    """Train one step; return the loss over all.

    Args:
        loss: the sum over the tokens of a part.
        unsummed: by bug, the parameter that it leaves out.
        clip: largest norm of all gradients together; 0 for any.
    """
    layout = LAYOUTS[run.form]
    tensor, context, samples = (group(run, along) for along in ("tensor", "context", "data"))
    tokens = data["y"].numel() * layout.context
    if run.has("cp-loss"):
        tokens //= layout.context
    if run.has("dp-loss"):
        tokens *= layout.data
    total = torch.zeros(())
    for of in zip(*(x.chunk(layout.micro) for x in data.values()), strict=True):
        part = loss(model, dict(zip(data, of, strict=True))) / tokens  # bug: cp-loss, dp-loss
        part.backward()  # bug: cp-loss, dp-loss
        total += part.detach().float()
    for name, parameter in model.named_parameters():
        if layout.sequence and getattr(parameter, "sliced", False) and unsummed.get(run.bug) != name:
            parameter.grad = tensor.summed(parameter.grad)  # bug: norms, router
        if layout.context > 1:
            parameter.grad = context.summed(parameter.grad)
        if layout.data > 1:
            parameter.grad = samples.summed(parameter.grad) / layout.data
    if clip:
        _clipped(list(model.parameters()), tensor, clip)
    optimizer.step()
    optimizer.zero_grad()
    if layout.context * layout.data > 1:
        dist.all_reduce(total, group=group(run, "parts").of)
        total /= layout.data
    return total


def _clipped(parameters: list[nn.Parameter], tensor: Group, largest: float) -> None:
    """Scale gradients whose norm, over the parts of all ranks, is too large."""
    of_all = torch.zeros(())
    for divided in (True, False):
        of_one = [p.grad for p in parameters if getattr(p, "divided", False) == divided and p.grad is not None]
        squares = torch.stack([gradient.float().norm() ** 2 for gradient in of_one]).sum()
        of_all = of_all + (tensor.summed(squares) if divided else squares)
    factor = (largest / (of_all.sqrt() + 1e-6)).clamp(max=1.0)
    for p in parameters:
        if p.grad is not None:
            p.grad *= factor.to(p.grad.dtype)


def canonical(tensors: Mapping[str, Any], run: Run, dims: Mapping[str, int]) -> dict[str, Any]:
    """Whole tensors; `dims`: by the last parts of a name, the dimension along which ranks divide it."""
    found, tensor = dict[str, Any](), group(run, "tensor")
    for name, x in tensors.items():
        dim = next((dim for end, dim in dims.items() if name.endswith(end)), None)
        found[name] = x if dim is None or tensor.size == 1 else tensor.gathered(x, dim)
    return found
