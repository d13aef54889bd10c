"""One small model in one process, and on two gloo ranks in layouts that are not merged, with bugs and without.

`python -m tests.examples.layouts FOLDER` captures all of `CASES` in FOLDER/LAYOUT-BUG.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, silu

from tests.two_ranks import fork_two_ranks

LAYOUTS = ("pipeline", "fsdp1", "zero1", "ring")
BUGS = ("", "scaled", "eps")
ALONE = ("whole", "micro")
"""In one process, with the batch whole or in two micro-batches."""
CASES = (*((name, "") for name in ALONE), *itertools.product(LAYOUTS, BUGS))
BLOCKS, DIM, HEADS, VOCAB, SEQUENCE, BATCH = 2, 16, 2, 32, 8, 4


class _Exchange(torch.autograd.Function):
    """What the other rank gives; its gradient goes back to it."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return _exchanged(x)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return _exchanged(gradient)


def _exchanged(x: Tensor) -> Tensor:
    x, other = x.contiguous(), 1 - dist.get_rank()
    received = torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, received, other)]):
        work.wait()
    return received


def _ring(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of this rank's half of the sequence to both halves, by an online softmax."""
    rank, tokens = dist.get_rank(), torch.arange(q.shape[-2])
    blocks = [(k, v, rank), (_Exchange.apply(k), _Exchange.apply(v), 1 - rank)]
    scores = []
    for keys, _, owner in blocks:
        later = (rank * len(tokens) + tokens)[:, None] < (owner * len(tokens) + tokens)[None]
        scores.append((q @ keys.mT * q.shape[-1] ** -0.5).masked_fill(later, -1e30))
    largest = torch.maximum(*(block.amax(-1, keepdim=True) for block in scores)).detach()
    powers = [(block - largest).exp() for block in scores]
    total = powers[0].sum(-1, keepdim=True) + powers[1].sum(-1, keepdim=True)
    return (powers[0] @ blocks[0][1] + powers[1] @ blocks[1][1]) / total


class Block(nn.Module):
    """A transformer block; `bug`: of this one."""

    def __init__(self, ring: bool, bug: str) -> None:
        super().__init__()
        self.ring, self.factor = ring, 1.001 if bug == "scaled" else 1.0
        self.norm1, self.norm2 = nn.LayerNorm(DIM, eps=1e-4 if bug == "eps" else 1e-5), nn.LayerNorm(DIM)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (w(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if self.ring:
            mixed = _ring(q, k, v)
        else:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(later, -1e30)
            mixed = torch.softmax(scores, -1) @ v
        x = x + self.wo(mixed.transpose(1, 2).flatten(-2))
        y = self.down(silu(self.up(self.norm2(x))))
        return x + (y * self.factor if self.factor != 1 else y)


class Model(nn.Module):
    """The blocks between an embedding and an output, of which the stage of a pipeline has a part."""

    def __init__(self, *, ring: bool = False, bug: str = "") -> None:
        super().__init__()
        self.embedding: nn.Module | None = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleDict({str(n): Block(ring, bug if n == 1 else "") for n in range(BLOCKS)})
        self.output: nn.Module | None = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embedding is None else self.embedding(x)
        for block in self.layers.values():
            x = block(x)
        return x if self.output is None else self.output(x)


def _loss(logits: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), target.flatten())


def _optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)


def train(layout: str, bug: str) -> None:
    """Train one step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if layout not in ALONE:
        dist.init_process_group("gloo")
    rank = 0 if layout in ALONE else dist.get_rank()
    model = Model(ring=layout == "ring", bug=bug)
    tokens = torch.randint(0, VOCAB, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(1))
    x, target = tokens[:, :-1], tokens[:, 1:]
    mine, half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2), SEQUENCE // 2
    if layout == "pipeline":
        _pipeline(model, rank, x, target)
    elif layout == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        cpu, policy = torch.device("cpu"), ModuleWrapPolicy({Block})
        sharded = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=cpu, use_orig_params=True)
        _step(sharded, x[mine], target[mine])
    elif layout == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3, foreach=False)
        _step(nn.parallel.DistributedDataParallel(model), x[mine], target[mine], optimizer)
    elif layout == "ring":
        part = slice(rank * half, (rank + 1) * half)
        optimizer = _optimizer(model.parameters())
        (_loss(model(x[:, part]), target[:, part]) / 2).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    else:
        _step(model, x, target, parts=2 if layout == "micro" else 1)
    if layout not in ALONE:
        dist.destroy_process_group()


def _step(
    model: nn.Module, x: Tensor, target: Tensor, optimizer: torch.optim.Optimizer | None = None, *, parts: int = 1
) -> None:
    optimizer = optimizer or _optimizer(model.parameters())
    for given, wanted in zip(x.chunk(parts), target.chunk(parts), strict=True):
        (_loss(model(given), wanted) / parts).backward()
    optimizer.step()


def _pipeline(model: Model, rank: int, x: Tensor, target: Tensor) -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    del model.layers[str(1 - rank)]
    if rank == 0:
        model.output = None
    else:
        model.embedding = None
    schedule = ScheduleGPipe(PipelineStage(model, rank, 2, torch.device("cpu")), 2, loss_fn=_loss)
    optimizer = _optimizer(model.parameters())
    schedule.step(x) if rank == 0 else schedule.step(target=target)
    optimizer.step()


def capture_all(folder: Path, ports: Sequence[int]) -> None:
    """Capture the cases, as the rank that the environment names; the first rank that of one process."""
    from tests.capture.runs import run_captured

    for (layout, bug), port in zip(CASES, ports, strict=True):
        if layout not in ALONE or os.environ["RANK"] == "0":
            alone = {"WORLD_SIZE": "1"} if layout in ALONE else {}
            with mock.patch.dict(os.environ, {"MASTER_PORT": str(port), **alone}):
                run_captured(Path(__file__), folder / f"{layout}-{bug}", f"--layout {layout} --bug={bug}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--layout", default="whole")
    parser.add_argument("--bug", default="")
    args = parser.parse_args()
    if args.folder is None:
        train(args.layout, args.bug)
    else:
        fork_two_ranks(partial(capture_all, args.folder), len(CASES))
