"""One training step of a rank: passes over micro-batches, what is reduced by hand, clipping, the update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.truth.wide.parallel.layouts import LAYOUTS, Layout, odd_parameter

__all__ = ["samples", "train"]

Data = dict[str, Tensor]


def samples(data: Data) -> Tensor:
    """The number of samples with a label."""
    return torch.tensor(len(data["label"]))


def train(
    model: Any,
    data: Data,
    optimizer: Any,
    run: Any,
    terms: Callable[[Any, Data, Any], tuple[Tensor, ...]],
    count: Callable[[Data], Tensor],
    clip: float = 0.0,
) -> Tensor:
    """Train one step; return the loss of all ranks.

    Args:
        terms: the sums of the loss's terms over what `count` counts.
    """
    layout = LAYOUTS[run.form]
    group = _data_group(layout)
    total = count(data)
    if layout.data > 1 and not run.has("local-count"):
        dist.all_reduce(total, group=group)  # bug: local-count
    # all that reduces gradients takes their mean, but for FSDP without a divide factor
    share = (1 if layout.option == "factor" or run.has("local-count") else layout.data) / total  # bug: local-count
    parts = [
        dict(zip(data, of, strict=True)) for of in zip(*(x.chunk(layout.micro) for x in data.values()), strict=True)
    ]
    loss = torch.zeros(())
    for number, part in enumerate(parts):
        last = number == layout.micro - 1 and not run.has("unsynchronised")
        with _exchanging(model, last):
            first, *others = terms(model, part, run)
            total_of_terms = first * share
            for other in others:
                of_term = share / layout.data if run.has("term") else share  # bug: term
                total_of_terms = total_of_terms + other * of_term  # bug: term
            total_of_terms.backward()  # bug: missing, missing-shard, zeros-shard, factor, old, lost, unsynchronised
        if run.has("lost") and not last:
            optimizer.zero_grad(set_to_none=False)  # bug: lost
        loss += total_of_terms.detach()
    if layout.kind == "hand":
        _reduce(model, run, layout)
    if clip:
        _clip(model, run, clip)
    if not run.has("skipped"):
        optimizer.step()
    if layout.data > 1:
        dist.all_reduce(loss, group=group)
    return loss / (1 if layout.option == "factor" or run.has("local-count") else layout.data)


@cache
def _data_group(layout: Layout) -> Any:
    """The ranks that read other samples."""
    if layout.data == 1 or layout.tensor == 1:
        return None
    mesh = dist.device_mesh.init_device_mesh("cpu", (layout.data, layout.tensor), mesh_dim_names=("data", "tensor"))
    return mesh["data"].get_group()


def _exchanging(model: Any, last: bool) -> AbstractContextManager[Any]:
    """Exchange gradients with the last micro-batch only."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()


def _reduce(model: Any, run: Any, layout: Any) -> None:
    """The mean of gradients over ranks, by hand."""
    odd, ranks = odd_parameter(model), layout.data
    parameters = [p for p in model.parameters() if not (p is odd and run.has("missing"))]
    pairs = dist.new_subgroups(2)[0] if run.has("wrong-group") else None
    if layout.option == "flat":
        flat = torch.cat([p.grad.flatten() for p in parameters])  # bug: missing
        if run.has("zeros"):
            flat[: len(flat) // ranks] = 0  # bug: zeros
        dist.all_reduce(flat, group=pairs)  # bug: zeros, wrong-group
        flat /= 1 if run.has("sum") else ranks  # bug: sum
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.grad.copy_(part.view_as(p))
        return
    for p in parameters:
        whole = p is odd and run.has("undivided")
        if "sum" not in layout.option and not whole:
            p.grad /= ranks  # bug: undivided
        dist.all_reduce(p.grad)  # bug: missing, undivided
        if "sum" in layout.option and not whole:
            p.grad /= ranks  # bug: undivided


def _clip(model: Any, run: Any, limit: float) -> None:
    if run.has("local-norm"):
        gradients = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
        norm = nn.utils.get_total_norm(gradients)  # bug: local-norm
        nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)  # bug: local-norm
    else:
        nn.utils.clip_grad_norm_(model.parameters(), limit * (run.factor("limit")))  # bug: limit, local-norm
