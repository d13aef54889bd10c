"""One training step of a model, captured: build, divide over ranks, forward, backward, clip, step, average."""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import capture
from matchers.ops.module_path import canonical
from tests.truth.run import Run

__all__ = ["record"]

OWN_CHECKPOINTS = ("conv",)
"""Models whose blocks checkpoint a part of themselves."""
SHARDED = ("packed", "moe")
"""Models whose data-parallel ranks shard parameters and add gradients up; the others replicate and average."""
AVERAGED = ("conv",)
"""Models with a moving average of their weights."""
CLIPPED = ("encdec", "recurrent")
"""Models whose gradients are clipped."""


def record(run: Run, path: Path) -> None:
    """Capture one step of a run in the log `path`; with two ranks, each of them calls this with its own path."""
    torch.manual_seed(run.seed)
    torch._dynamo.reset()
    task = import_module(f"tests.truth.models.{run.model}")
    model = task.build(run)
    if run.dtype == "bfloat16":
        model.bfloat16()
    called = _formed(task, model, run)
    optimizer = make_optimizer(model, run)
    average = copy.deepcopy(model) if run.model in AVERAGED else None
    data = task.batch(run)
    if run.parallel == "dp":
        data = _part(data, dist.get_rank(), dist.get_world_size())
    models = [model] if average is None else [model, average]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with capture.trace(models, path=path):
            _step(task, called, optimizer, data, run)
            if average is not None:
                update_average(average, model, 0.9 if run.bug == "ema-decay" else 0.99)


def _formed(task: Any, model: Any, run: Run) -> Any:
    """The module to call: checkpointed, compiled, divided over ranks."""
    if run.parallel == "tp":
        task.split(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    if run.ac and run.model not in OWN_CHECKPOINTS:
        preserve = run.bug != "random-state-lost"
        for stack in task.stacks(model):
            for index, block in enumerate(stack):
                stack[index] = checkpoint_wrapper(block, preserve_rng_state=preserve)
    if run.compiled:
        for block in [block for stack in task.stacks(model) for block in stack] or [model]:
            block.compile(backend="aot_eager")
    if run.parallel != "dp":
        return model
    if run.model not in SHARDED:
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*(block for stack in task.stacks(model) for block in stack), model):
        fully_shard(part, mesh=mesh)
        # the loss is divided by the samples of all ranks
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return model


def make_optimizer(model: nn.Module, run: Run) -> Any:
    """Weight decay for matrices only."""
    form: dict[str, Any] = {"foreach": run.optimizer == "foreach", "fused": run.optimizer == "fused"}
    named = [(name, p) for name, p in model.named_parameters() if not skipped(run, name)]
    decay = 0.0 if run.bug == "no-decay" else 0.1
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": decay},
        {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0},
    ]
    if run.bug == "decay-of-vectors":
        groups[1]["weight_decay"] = 0.1
    if run.bug == "learning-rate":
        groups[1]["lr"] = 2e-3
    if run.model == "conv":
        dampening = 0.1 if run.bug == "dampening" else 0.0
        optimizer = torch.optim.SGD(groups, lr=1e-3, momentum=0.9, dampening=dampening, **form)
    else:
        betas = (0.9, 0.95 if run.bug == "second-beta" else 0.99)
        eps = 1e-6 if run.bug == "adam-eps" else 1e-8
        kind = torch.optim.Adam if run.model == "recurrent" else torch.optim.AdamW
        optimizer = kind(groups, lr=1e-3, betas=betas, eps=eps, **form)
    _warm_up(optimizer, run)
    return optimizer


def _warm_up(optimizer: Any, run: Run) -> None:
    """Give every parameter its state, as if training had gone on for a while; nothing else changes."""
    rates = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, (rate, decay) in zip(optimizer.param_groups, rates, strict=True):
        group["lr"], group["weight_decay"] = rate, decay
    if run.bug == "step-count":
        for state in optimizer.state.values():
            state["step"].zero_()


def skipped(run: Run, name: str) -> bool:
    """True for a parameter that the planted bug keeps from the optimizer."""
    return run.bug == "skipped-parameter" and canonical(name) == "encoder.1.ffn.inner.weight"


def _step(task: Any, model: Any, optimizer: Any, data: dict[str, Any], run: Run) -> None:
    parts = run.micro_batches * (2 if run.parallel == "dp" and run.model in SHARDED else 1)
    for index in range(run.micro_batches):
        part = _part(data, index, run.micro_batches)
        loss = task.loss(model, part, run)
        if run.bug != "accumulation-scale":
            loss = loss / parts  # bug: accumulation-scale
        loss.backward()  # bug: accumulation-scale
    if run.model in CLIPPED and run.clip:
        limit = 0.3 if run.bug == "clip-norm" else 0.25
        nn.utils.clip_grad_norm_(model.parameters(), limit)  # bug: clip-norm
    optimizer.step()
    optimizer.zero_grad()


def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the averaged weights towards the model's."""
    with torch.no_grad():
        for mean, value in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(value, 1.0 - decay)  # bug: ema-decay
        for mean, value in zip(average.buffers(), model.buffers(), strict=True):
            mean.copy_(value)


def _part(data: dict[str, Any], index: int, parts: int) -> dict[str, Any]:
    """One of several equal parts of a batch."""
    return {name: tensor.chunk(parts)[index] for name, tensor in data.items()}
