"""A GPT of two blocks: learned positions, LayerNorm, biases, two loss terms over tokens of which some are padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel
from torch.nn import functional

from tests.truth.wide.parallel import layouts
from tests.truth.wide.parallel.faults import of_layouts
from tests.truth.wide.parallel.layouts import LAYOUTS, Replicated, divided, own_part, pairs
from tests.truth.wide.parallel.training import train
from tests.truth.wide.subject import Bug, Run

BLOCKS, DIM, HEADS, VOCABULARY, LENGTH, BATCH = 2, 32, 4, 40, 8, 8
PADDING = -100


class Attention(nn.Module):
    """Causal attention, written out."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.scale = (DIM // HEADS) ** -0.5 * run.factor("scale", layer)
        self.unmasked = run.has("mask", layer)

    def forward(self, x: Tensor) -> Tensor:
        heads = (x.shape[0], LENGTH, -1, DIM // HEADS)
        q, k, v = (part(x).view(heads).transpose(1, 2) for part in (self.query, self.key, self.value))  # bug: start
        scores = q @ k.transpose(-1, -2) * self.scale  # bug: scale
        if not self.unmasked:
            later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -1e4)  # bug: mask
        mixed = torch.softmax(scores, -1) @ v  # bug: mask
        return self.out(mixed.transpose(1, 2).flatten(2))  # bug: unreduced


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.norm2.eps *= run.factor("eps", layer)
        self.attention = Attention(run, layer)
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.dropped = run.has("dropout", layer)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.down(functional.gelu(self.up(self.norm2(x))))  # bug: eps
        if self.dropped:
            y = functional.dropout(y, 0.1)  # bug: dropout
        return x + y  # bug: dropout


class Positions(nn.Module):
    """Learned positions, added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LENGTH, DIM))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Model(nn.Module):
    """Tokens to logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.positions = Positions()
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(BLOCKS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.positions(self.embed(tokens))  # bug: samples
        for block in self.blocks:
            x = block(x)  # bug: missing-shard, zeros-shard, factor, old
        return self.head(self.norm(x))


FORMS = (
    "whole", "micro2", "micro4", "ddp2", "ddp4", "ddp2-static", "ddp2-views", "ddp2-accumulate", "ddp2-hook",
    "ddp2-bf16", "ddp2-fp16", "flat2", "flat4", "each2", "sum2", "fsdp1", "fsdp2", "fsdp4", "fsdp2-keep",
    "fsdp2-factor", "fsdp2-accumulate", "hsdp", "tp2", "tp2-sequence", "tp4-sequence", "fsdp-tp", "fsdp-tp-sequence",
)  # fmt: skip
PAIRS = pairs(FORMS)
canonical = layouts.canonical
PRECISION = {"ddp2-bf16": "bfloat16", "ddp2-fp16": "float16"}
RANKS = {form: LAYOUTS[form].ranks for form in FORMS}
_EXACT = tuple(form for form in FORMS if form not in PRECISION)
BUGS = (
    Bug(
        name="scale", module=r"blocks\.{}\.attention", sizes=(1e-3, 3e-2, 1.0), layers=True, ranks=(-1, 1), forms=_EXACT
    ),
    Bug(name="mask", module=r"blocks\.{}\.attention", layers=True, ranks=(-1, 1), forms=_EXACT),
    Bug(name="eps", module=r"blocks\.{}\.norm2", sizes=(100.0, 1e4), layers=True, ranks=(-1, 1), forms=_EXACT),
    Bug(name="dropout", module=r"blocks\.{}", ranks=(-1, 1), forms=_EXACT),
    Bug(name="labels", module="", phase="", ranks=(1,), forms=tuple(form for form in _EXACT if RANKS[form] > 1)),
    *of_layouts(_EXACT, r"blocks\.1\.attention\.query\.weight", clipped=True, uneven=True),
)


def build(run: Run) -> nn.Module:
    """The model, divided as the run's form says."""
    return divided(Model(run), run, plan)


def plan(model: Any, sequence: bool) -> dict[str, Any]:
    """How tensor-parallel ranks hold the modules; `sequence`: what lies between matrices is divided over tokens."""
    between = Shard(1) if sequence else Replicate()
    whole = PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())
    norm = SequenceParallel() if sequence else Replicated()
    found: dict[str, Any] = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "positions": Replicated(output=between),
        "norm": norm,
        "head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    for layer in range(BLOCKS):
        block = {
            "norm1": norm, "norm2": norm, "attention": whole, "up": ColwiseParallel(input_layouts=between),
            "attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(), "attention.out": RowwiseParallel(output_layouts=between),
            "down": RowwiseParallel(output_layouts=between),
        }  # fmt: skip
        found |= {f"blocks.{layer}.{name}": style for name, style in block.items()}
    return found


def batch(run: Run) -> dict[str, Tensor]:
    """Tokens, and the ones that follow them; each sample ends with another number of padding."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    wanted = tokens[:, 1:].clone()
    if run.has("labels"):
        wanted = wanted.roll(1, 1)
    for sample, length in enumerate((8, 5, 7, 3, 8, 6, 8, 4)):
        wanted[sample, length:] = PADDING
    return own_part({"tokens": tokens[:, :-1].contiguous(), "wanted": wanted}, run)


def count(data: dict[str, Tensor]) -> Tensor:
    """The number of tokens that the loss is the mean over."""
    return (data["wanted"] != PADDING).sum()  # bug: samples, labels


def loss(model: Any, data: dict[str, Tensor], run: Run) -> tuple[Tensor, Tensor]:
    """The sums of both terms over tokens: cross entropy, and the squared logarithm of the softmax's denominator."""
    logits, wanted = model(data["tokens"]).flatten(0, 1), data["wanted"].flatten()
    return (
        functional.cross_entropy(logits, wanted, ignore_index=PADDING, reduction="sum"),  # bug: labels
        1e-2 * (torch.logsumexp(logits, -1).square() * (wanted != PADDING)).sum(),
    )


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return train(model, data, optimizer, run, loss, count, clip=0.5)
