"""Ranks of a run, and parallelism over them: DDP, FSDP2, tensor parallelism."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from bugs import NO_BUG, Planted
from parallel_faults import UnreducedRowwise, load_wrong_shards, reduce_apart, reduce_wrongly, replace_collectives
from settings import Settings
from simulated import give_each_rank_a_copy, shard_fully
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """This process among the ranks; None for meshes without a dimension.

    `simulated`: one process simulates all ranks, and each tensor stands for one per rank.
    """

    bug: Planted = NO_BUG
    simulated: bool = False
    data_mesh: Any = None
    tensor_mesh: Any = None

    @property
    def data_size(self) -> int:
        """Number of ranks with data of their own."""
        return self.data_mesh.size() if self.data_mesh else 1

    @property
    def data_rank(self) -> int:
        """Index of this process among them; of the first of simulated ranks."""
        return self.data_mesh.get_local_rank() if self.data_mesh and not self.simulated else 0

    @property
    def tensor_size(self) -> int:
        """Number of ranks that share the matrices of a layer."""
        return self.tensor_mesh.size() if self.tensor_mesh else 1

    @property
    def shards(self) -> int:
        """Number of parts of the rows of a matrix."""
        return self.tensor_size * self.data_size

    def sum(self, value: Tensor) -> Tensor:
        """Sum over the ranks that see different data."""
        if self.data_mesh:
            dist.all_reduce(value, group=self.data_mesh.get_group())
        return value


@contextmanager
def open_world(settings: Settings) -> Iterator[World]:
    """Join the other ranks, real (gloo, under `torchrun`) or simulated, and leave them at the end."""
    if settings.parallel == "none":
        yield World(settings.planted(0, 1))
        return
    simulated = settings.local_tensor or settings.fake_world
    if simulated:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=simulated, store=FakeStore())
    elif "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=settings.timeout))
    else:
        raise SystemExit("--parallel: start it with torchrun, or with --fake-world or --local-tensor")
    with ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        if settings.local_tensor:
            from torch.distributed._local_tensor import LocalTensorMode

            stack.enter_context(LocalTensorMode(settings.local_tensor))
        # A bug of one simulated rank is planted there alone.
        bug = NO_BUG if settings.local_tensor else settings.planted(dist.get_rank(), dist.get_world_size())
        yield _meshes(settings, bug, dist.get_world_size())


def _meshes(settings: Settings, bug: Planted, size: int) -> World:
    tensor_size = {"tp": size, "fsdp2+tp": min(2, size)}.get(settings.parallel, 1)
    if size % tensor_size or settings.kv_heads % tensor_size or settings.seq_len % tensor_size:
        raise SystemExit(f"--kv-heads, --seq-len and the number of ranks must be multiples of {tensor_size}")
    simulated = settings.local_tensor > 0
    if settings.parallel == "tp":
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
        return World(bug, simulated, tensor_mesh=mesh)
    if settings.parallel == "fsdp2+tp":
        shape = (size // tensor_size, tensor_size)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        return World(bug, simulated, data_mesh=mesh["dp"], tensor_mesh=mesh["tp"])
    return World(bug, simulated, data_mesh=init_device_mesh("cpu", (size,), mesh_dim_names=("dp",)))


def split_matrices(model: Any, world: World) -> None:
    """Apply tensor parallelism with norms over slices of the sequence; every rank starts with the same full weights."""
    if world.simulated:
        give_each_rank_a_copy(model)
    bug = world.bug
    if bug.has("wrong-shard"):
        load_wrong_shards(model.get_parameter(bug.parameter("attention.wq.weight")), world.shards)
    if world.tensor_mesh is None:
        return
    whole_input = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    layer_plan = {
        "attention_norm": SequenceParallel(),
        "attention": whole_input,
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": whole_input,
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }
    model_plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    odd_plan = dict(layer_plan)
    if bug.has("partial-as-replicated"):
        odd_plan["attention.wo"] = UnreducedRowwise(output_layouts=Shard(1))
    for k, layer in enumerate(model.layers):
        parallelize_module(layer, world.tensor_mesh, odd_plan if k == bug.layer else layer_plan, src_data_rank=None)
    parallelize_module(model, world.tensor_mesh, model_plan, src_data_rank=None)
    if not world.data_mesh:
        reduce_wrongly(model.layers[bug.layer].attention_norm, bug, world.tensor_size)


def divide_data(model: Any, settings: Settings, world: World) -> Any:
    """Return the module to call so that gradients are summed over the ranks that see different data."""
    if settings.parallel == "ddp":
        if world.bug.name in ("not-reduced", "wrong-group", "sum-not-mean"):
            reduce_apart(model, world.bug)
        replicated = DistributedDataParallel(
            model,
            device_mesh=world.data_mesh,
            init_sync=not world.bug.has("not-broadcast"),
            find_unused_parameters=settings.unused,
        )
        # DDP refuses a bucket annotation other than its private type; a lambda has none.
        reduce = _keep_gradients if world.bug.here("skipped-collective") else _sum_gradients
        hook = lambda group, bucket: reduce(group, bucket)  # noqa: E731, PLW0108
        replicated.register_comm_hook(world.data_mesh.get_group(), hook)
        return replicated
    if settings.parallel.startswith("fsdp2"):
        modules = [*model.layers, model]
        if world.simulated:
            shard_fully(modules, world.data_mesh)
        else:
            for module in modules:
                fully_shard(module, mesh=world.data_mesh)
        odd = model.layers[world.bug.layer]
        replace_collectives(odd, world.bug, world.tensor_mesh.get_group() if world.tensor_mesh else None)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                # The loss is divided by the tokens of all ranks, so gradients are added up, not averaged.
                averaged = world.bug.has("sum-not-mean") and module is odd
                module.set_gradient_divide_factor(float(world.data_size) if averaged else 1.0)
                module.set_force_sum_reduction_for_comms(True)
    return model


def synchronised(module: Any, last: bool) -> Any:
    """Open a context in which gradients are exchanged only with the last micro-batch of a step (DDP)."""
    if isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return ExitStack()


def _sum_gradients(group: Any, bucket: Any) -> Any:
    """Sum gradients over the ranks: DDP's own reduction is the mean."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _keep_gradients(_group: Any, bucket: Any) -> Any:
    kept: Any = Future()
    kept.set_result(bucket.buffer())
    return kept


def number(value: Any) -> float:
    """Return a scalar that all ranks have, of simulated ones that of the first: NaN is not equal to NaN."""
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    ranks = getattr(value, "_local_tensors", {0: value})
    return float(ranks[0].item())
