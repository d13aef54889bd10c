# mypy: allow-subclassing-any
"""Faults in the communication of one layer under DDP, FSDP2 and tensor parallelism."""

from typing import Any

import torch
import torch.distributed as dist
from bugs import Planted
from faults import wait_and_corrupt
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import RowwiseParallel
from torch.nn.parallel import DistributedDataParallel


def reduce_apart(model: nn.Module, bug: Planted) -> None:
    """Reduce one gradient beside DDP: over half of the ranks, to a mean where others are summed, or not at all."""
    name = bug.parameter("attention.wq.weight")
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [name])  # noqa: SLF001, no public way
    size = dist.get_world_size()
    group, _ = dist.new_subgroups(size // 2 if bug.has("wrong-group") else size)

    def reduce(parameter: nn.Parameter) -> None:
        dist.all_reduce(parameter.grad, group=group)
        if bug.has("sum-not-mean"):
            parameter.grad /= size

    if not bug.has("not-reduced"):
        model.get_parameter(name).register_post_accumulate_grad_hook(reduce)


def reduce_wrongly(norm: Any, bug: Planted, tensor_size: int) -> None:
    """Make partial gradients of a norm's weight pass for complete, or average them where others are summed."""
    if bug.has("sum-not-mean"):
        norm.weight.register_hook(lambda gradient: gradient / tensor_size)
    elif bug.has("not-reduced"):
        norm.forward = _on_local_slice(norm)


def _on_local_slice(norm: Any) -> Any:
    def forward(x: Any) -> DTensor:
        local = x.to_local()
        scale = torch.rsqrt(local.square().mean(-1, keepdim=True) + norm.eps)
        # The gradient of `to_local` is partial here, of which it has to be told.
        return DTensor.from_local(local * scale * norm.weight.to_local(), x.device_mesh, x.placements)

    return forward


def load_wrong_shards(weight: nn.Parameter, parts: int) -> None:
    """Move the rows of a weight on by one shard, so that each of `parts` ranks will hold that of its neighbour."""
    with torch.no_grad():
        weight.copy_(weight.roll(len(weight) // parts, dims=0))


def clip_by_local_norm(model: nn.Module, limit: float) -> Tensor:
    """Clip gradients by the norm of this rank's shards, a term of the whole norm; return that term."""
    gradients: list[Any] = [p.grad for p in model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm([gradient.to_local() for gradient in gradients])
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return norm


class UnreducedRowwise(RowwiseParallel):
    """Row-wise parallelism whose results, terms of a sum over ranks, pass for the sum."""

    @staticmethod
    def _prepare_output_fn(output_layouts: Any, use_local_output: bool, module: Any, outputs: Any, mesh: Any) -> Any:
        taken = DTensor.from_local(outputs.to_local(), mesh, (Replicate(),))
        return RowwiseParallel._prepare_output_fn(output_layouts, use_local_output, module, taken, mesh)  # noqa: SLF001, what the class overrides


def replace_collectives(layer: FSDPModule, bug: Planted, tensor_group: Any) -> None:
    """Give a layer under FSDP2 the communication of the bug; `tensor_group` is None without tensor parallelism."""
    if bug.here("stale-gather"):
        layer.set_custom_all_gather(StaleAllGather())
    elif bug.has("corrupt-reduce-scatter"):
        layer.set_custom_reduce_scatter(CorruptReduceScatter(here=bug.here(bug.name)))
    elif bug.has("not-reduced") or bug.here("skipped-collective"):
        layer.set_custom_reduce_scatter(NoReduceScatter())
    elif bug.has("wrong-group"):
        layer.set_custom_reduce_scatter(ReduceScatterOver(tensor_group))


class StaleAllGather(DefaultAllGather):
    """All-gather to which this rank sends its buffer of the previous gather, at first zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Tensor | None = None

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        """Gather into `output_tensor`."""
        fresh = input_tensor.clone()
        stale = torch.zeros_like(fresh) if self.sent is None else self.sent
        self.sent = fresh
        return super().__call__(output_tensor, stale, group, async_op)


class CorruptReduceScatter(DefaultReduceScatter):
    """Reduce-scatter that returns a wrong element on one rank."""

    def __init__(self, *, here: bool) -> None:
        super().__init__()
        self.here = here

    def __call__(self, output_tensor: Tensor, **options: Any) -> Any:
        """Reduce into `output_tensor`."""
        work = super().__call__(output_tensor, **{**options, "async_op": True})
        wait_and_corrupt(work, output_tensor, here=self.here)
        return work


class NoReduceScatter(DefaultReduceScatter):
    """No communication: this rank keeps a part of its own gradient."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, **_options: Any) -> Any:
        """Copy into `output_tensor`."""
        output_tensor.copy_(input_tensor.chunk(dist.get_world_size(group))[dist.get_rank(group)])


class ReduceScatterOver(DefaultReduceScatter):
    """Reduce-scatter over another group of the same size."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def __call__(self, **options: Any) -> Any:
        """Reduce into its output."""
        return super().__call__(**{**options, "group": self.group})
