"""Layouts over ranks as people write them: how a model, a batch, the gradients and the update are divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "LAYOUTS",
    "Layout",
    "Replicated",
    "divided",
    "canonical",
    "odd_parameter",
    "own_labelled",
    "own_part",
    "pairs",
]


@dataclass(frozen=True)
class Layout:
    """How a run is divided.

    Attributes:
        kind: what exchanges gradients: `""` (one process), `ddp`, `hand` (all_reduce after backward), `fsdp`.
        data: ranks that read different samples; `replicas` of them hold the same shard (HSDP).
        tensor: ranks that share the matrices of a layer.
        micro: parts into which a rank splits what it reads.
        option: the variant of its kind.
        precision: the dtype that gradients or the model are rounded to.
    """

    kind: str = ""
    data: int = 1
    tensor: int = 1
    micro: int = 1
    replicas: int = 1
    option: str = ""
    precision: str = "float32"

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return self.data * self.tensor


LAYOUTS: Mapping[str, Layout] = {
    "whole": Layout(),
    "micro2": Layout(micro=2),
    "micro4": Layout(micro=4),
    "ddp2": Layout("ddp", 2),
    "ddp4": Layout("ddp", 4),
    "ddp2-static": Layout("ddp", 2, option="static_graph"),
    "ddp2-unused": Layout("ddp", 2, option="find_unused_parameters"),
    "ddp4-unused": Layout("ddp", 4, option="find_unused_parameters"),
    "ddp2-accumulate-unused": Layout("ddp", 2, micro=2, option="find_unused_parameters"),
    "ddp2-views": Layout("ddp", 2, option="gradient_as_bucket_view"),
    "ddp2-accumulate": Layout("ddp", 2, micro=2),
    "ddp2-hook": Layout("ddp", 2, option="hook"),
    "ddp2-bf16": Layout("ddp", 2, option="bf16_compress_hook", precision="bfloat16"),
    "ddp2-fp16": Layout("ddp", 2, option="fp16_compress_hook", precision="float16"),
    "flat2": Layout("hand", 2, option="flat"),
    "flat4": Layout("hand", 4, option="flat"),
    "each2": Layout("hand", 2, option="each"),
    "sum2": Layout("hand", 2, option="each sum"),
    "fsdp1": Layout("fsdp"),
    "fsdp2": Layout("fsdp", 2),
    "fsdp4": Layout("fsdp", 4),
    "fsdp2-keep": Layout("fsdp", 2, option="keep"),
    "fsdp2-factor": Layout("fsdp", 2, option="factor"),
    "fsdp2-accumulate": Layout("fsdp", 2, micro=2),
    "fsdp1-mixed": Layout("fsdp", option="mixed", precision="bfloat16"),
    "fsdp2-mixed": Layout("fsdp", 2, option="mixed", precision="bfloat16"),
    "fsdp4-mixed": Layout("fsdp", 4, option="mixed", precision="bfloat16"),
    "hsdp": Layout("fsdp", 4, replicas=2),
    "tp2": Layout(tensor=2),
    "tp2-sequence": Layout(tensor=2, option="sequence"),
    "tp4-sequence": Layout(tensor=4, option="sequence"),
    "fsdp-tp": Layout("fsdp", 2, tensor=2),
    "fsdp-tp-sequence": Layout("fsdp", 2, tensor=2, option="sequence"),
}
"""By form."""


def pairs(forms: Sequence[str]) -> list[tuple[str, str]]:
    """Each form with the first one, and some of the others with each other."""
    return [*((forms[0], form) for form in forms[1:]), *list(combinations(forms[1:], 2))[::8]]


class Replicated(ParallelStyle):
    """A module whose parameters all tensor-parallel ranks hold whole; `output`: how they share its result."""

    def __init__(self, output: Any = None) -> None:
        super().__init__()
        self._output = output or Replicate()

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        def whole(_: nn.Module, inputs: Any, mesh: Any) -> Any:
            return tuple(DTensor.from_local(x, mesh, [Replicate()], run_check=False) for x in inputs)

        def shared(_: nn.Module, output: Any, mesh: Any) -> Any:
            return output.redistribute(mesh, [self._output]).to_local()

        return distribute_module(module, device_mesh, None, whole, shared)


class _UnreducedRowwise(RowwiseParallel):
    """Row-wise parallelism whose results, terms of a sum over ranks, pass for the sum."""

    @staticmethod
    def _prepare_output_fn(output_layouts: Any, use_local_output: bool, module: Any, outputs: Any, mesh: Any) -> Any:
        taken = DTensor.from_local(outputs.to_local(), mesh, (Replicate(),))
        return RowwiseParallel._prepare_output_fn(output_layouts, use_local_output, module, taken, mesh)


class _LocalNorm(ParallelStyle):
    """A norm over a slice of the sequence whose gradients, terms of a sum over ranks, pass for the sum."""

    def _apply(self, module: Any, device_mesh: Any) -> nn.Module:
        def sliced(x: Any) -> DTensor:
            x = x.to_local() if isinstance(x, DTensor) else x
            y = functional.layer_norm(x, x.shape[-1:], module.weight.to_local(), module.bias.to_local(), module.eps)
            return DTensor.from_local(y, device_mesh, [Shard(1)])

        distribute_module(module, device_mesh)
        module.forward = sliced
        return module


def divided(model: Any, run: Any, plan: Callable[[Any, bool], dict[str, Any]] | None = None) -> Any:
    """The module to call: replicated or sharded over ranks. It has `blocks`.

    Args:
        plan: the style of each module of a tensor-parallel model, with its sequence divided or not.
    """
    layout = LAYOUTS[run.form]
    if run.ranks == 1 and dist.is_initialized():
        dist.destroy_process_group()
    if layout.kind and run.ranks == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if run.has("start"):
        with torch.no_grad():
            odd_parameter(model).mul_(run.factor("start"))
    if layout.ranks > 1 or layout.kind:
        mesh = init_device_mesh("cpu", (layout.data, layout.tensor), mesh_dim_names=("data", "tensor"))
        if layout.tensor > 1 and plan is not None:
            styles = plan(model, layout.option == "sequence")
            if run.has("unreduced"):
                styles["blocks.1.attention.out"] = _UnreducedRowwise(
                    output_layouts=Shard(1) if layout.option else Replicate()
                )
            if run.has("unreduced-norm"):
                styles["blocks.1.norm1"] = _LocalNorm()
            parallelize_module(model, mesh["tensor"], styles, src_data_rank=None)
        if layout.kind == "ddp":
            model = _replicated(model, run, layout)
        elif layout.kind == "fsdp":
            shape = (layout.replicas, layout.data // layout.replicas)
            both = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
            _shard(model, run, layout, both if layout.replicas > 1 else mesh["data"])
    if run.has("old"):
        odd = odd_parameter(model)
        odd.grad = 0.01 * torch.ones_like(odd)
    return model


def odd_parameter(model: Any) -> nn.Parameter:
    """The parameter of bugs that one has: the first matrix of the last block."""
    return next(p for p in getattr(model, "module", model).blocks[-1].parameters() if p.dim() > 1)


def _replicated(model: Any, run: Any, layout: Layout) -> Any:
    option = layout.option
    if run.has("missing"):
        name = next(name for name, p in model.named_parameters() if p is odd_parameter(model))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [name])
    options = {option: True} if option and "hook" not in option else {}
    whole = DistributedDataParallel(model, init_sync=run.bug != "start", **options)
    if "hook" in option:
        hook = _mean_of_bucket if option == "hook" else getattr(default_hooks, option)
        # DDP looks at annotations, and takes the one of bfloat16 for GPUs only
        whole.register_comm_hook(run if option == "hook" else None, lambda state, bucket: hook(state, bucket))  # noqa: PLW0108
    return whole


def _mean_of_bucket(run: Any, bucket: Any) -> Any:
    """A hook written by hand: the mean over ranks."""
    buffer = bucket.buffer()
    if run.has("rounded"):
        buffer.copy_(buffer.bfloat16())  # bug: rounded
    buffer /= 1 if run.has("sum") else dist.get_world_size()  # bug: sum
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0])  # bug: rounded, sum


def _shard(model: Any, run: Any, layout: Layout, mesh: Any) -> None:
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy: dict[str, Any] = {"mp_policy": mixed} if layout.option == "mixed" else {}
    keep: dict[str, Any] = {"reshard_after_forward": False} if layout.option == "keep" else {}
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, **policy, **keep)
        if layout.option == "factor" or run.has("factor"):
            part.set_gradient_divide_factor(1.0 if layout.option == "factor" else float(layout.data))
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other
    odd = model.blocks[-1]
    if run.has("factor"):
        odd.set_gradient_divide_factor(float(layout.data) if layout.option == "factor" else 1.0)
    elif run.has("missing-shard"):
        odd.set_custom_reduce_scatter(_NoReduceScatter())
    elif run.has("zeros-shard"):
        odd.set_custom_all_gather(_GatherOfZeros())


class _NoReduceScatter(DefaultReduceScatter):
    """No communication: this rank keeps a part of its own gradient."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, **_: Any) -> None:
        output_tensor.copy_(input_tensor.chunk(dist.get_world_size(group))[dist.get_rank(group)])  # bug: missing-shard


class _GatherOfZeros(DefaultAllGather):
    """An all-gather to which this rank gives zeros in place of its shard."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        return super().__call__(output_tensor, torch.zeros_like(input_tensor), group, async_op)  # bug: zeros-shard


def rank_of(run: Any) -> int:
    """Which rank of the run this is."""
    return dist.get_rank() if run.ranks > 1 else 0


def canonical(tensors: Mapping[str, Any], run: Any) -> dict[str, Any]:
    """Tensors by the names that they have in one process."""
    return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}


def own_part(data: dict[str, Tensor], run: Any) -> dict[str, Tensor]:
    """The samples that this rank reads."""
    layout = LAYOUTS[run.form]
    own = (rank_of(run) // layout.tensor + run.has("samples")) % layout.data
    return {name: tensor.chunk(layout.data)[own].clone() for name, tensor in data.items()}


def own_labelled(data: dict[str, Tensor], run: Any) -> dict[str, Tensor]:
    """The samples that this rank reads; the bug `labels` gives each class to the next one."""
    if run.has("labels"):
        data["label"] = data["label"].roll(1)
    return own_part(data, run)
