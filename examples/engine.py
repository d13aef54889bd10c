# mypy: allow-subclassing-any
"""Serve the example's model with a key-value cache, or score the same tokens as a trainer does, in one pass.

`python examples/engine.py` scores a prompt (the prefill) and decodes some tokens, a call of the model each;
`--trainer` scores the prompt with the model of the training, which has no cache. Both print log-probabilities in full.
With `--given` the tokens after the prompt are given: the engine decodes these, and the trainer scores all.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import torch
from data import initialise, micro_batch
from model import Attention, LayerConfig, Linear, ModelConfig, Transformer
from moe import MixtureOfExperts
from torch import Tensor, nn
from torch.nn import functional

BUGS = {
    "rope-bf16": "the rotation of one layer is rounded to bfloat16",
    "stale-weight": "one matrix is that of an earlier step",
    "zero-buffer": "the rotations of one layer were never filled",
    "temperature": "the logits are divided by 0.7 before the log-probabilities",
    "mask": "each token also sees the next one",
    "position": "decoded tokens have the position of the token before them",
    "norm-eps": "the norms of one layer add 1e-4 instead of 1e-5",
    "router-bf16": "a router computes in bfloat16 (--experts)",
}
LAYER = 1
"""Number of the layer that has the bug."""


class CachedAttention(Attention):
    """Attention that keeps the keys and values of what it has seen."""

    keys: Tensor
    values: Tensor

    def __init__(self, config: ModelConfig, layer: LayerConfig, batch: int, bug: str) -> None:
        super().__init__(config, layer)
        self.bug = bug
        self.length = 0
        for name in ("keys", "values"):
            empty = torch.zeros(batch, config.seq_len, config.kv_heads, config.head_dim)
            self.register_buffer(name, empty, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, new tokens, dim) to the same."""
        heads = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = self.wq(x).view(heads), self.wk(x).view(heads), self.wv(x).view(heads)
        start, end = self.length, self.length + x.shape[1]
        at = start - 1 if self.bug == "position" and start else start
        turns = self.rope.turns[at : at + x.shape[1], None]
        if self.bug == "rope-bf16":
            turns = torch.view_as_complex(torch.view_as_real(turns).bfloat16().float())
        q, k = rotated(q, turns), rotated(k, turns)
        self.keys[:, start:end] = k
        self.values[:, start:end] = v
        self.length = end

        k = self.keys[:, :end].repeat_interleave(self.groups, dim=2)
        v = self.values[:, :end].repeat_interleave(self.groups, dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        future = self.future[start:end, :end]
        if self.bug == "mask":
            future = future.triu(2)
        scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores.float(), dim=-1).to(v.dtype) @ v
        return self.wo(mixed.transpose(1, 2).flatten(-2))


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate heads (batch, sequence, heads, head_dim) by the turns of their positions."""
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class SplitLinear(Linear):
    """A projection that adds up parts of its sum, of few rows more parts: so kernels fill a device.

    In bfloat16 each part is rounded, so that a row's result depends on the batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        rows = x.flatten(0, -2)
        parts = next(number for number in (1, 2, 4) if number * len(rows) >= 64 or number == 4)
        if parts == 1:
            return super().forward(x)
        weights = self.weight.view(self.out_features, parts, -1).permute(1, 2, 0)
        return torch.bmm(rows.view(len(rows), parts, -1).transpose(0, 1), weights).sum(0).view(*x.shape[:-1], -1)


class Router(nn.Linear):
    """A router with a dtype of its own, whatever the model's."""

    def __init__(self, like: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__(like.in_features, like.out_features, bias=False)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """Return scores in this dtype."""
        return functional.linear(x.to(self.dtype), self.weight.to(self.dtype))


def build(config: ModelConfig, batch: int, bug: str, *, trainer: bool, split: bool, narrow: bool) -> Transformer:
    """Build the model of the training, or that of the engine, with the same weights but for the bug.

    Of a narrow model the router stays wide, as trainings have it.
    """
    model = Transformer(config)
    for number, (block, layer) in enumerate(zip(model.layers, config.layers, strict=True)):
        planted = bug if number == LAYER else ""
        if not trainer:
            block.attention = CachedAttention(config, layer, batch, planted)
        if planted == "norm-eps":
            block.attention_norm.eps = block.feed_forward_norm.eps = 1e-4
        if isinstance(block.feed_forward, MixtureOfExperts):
            if narrow or planted == "router-bf16":
                dtype = torch.bfloat16 if planted == "router-bf16" else torch.float32
                block.feed_forward.router = Router(block.feed_forward.router, dtype)
        elif split:
            block.feed_forward.w2 = SplitLinear(config.hidden, config.dim)
        if split:
            block.attention.wo = SplitLinear(config.dim, config.dim)
    torch.manual_seed(42)
    initialise(model, 42)
    attention = model.layers[LAYER].attention
    with torch.no_grad():
        if bug == "stale-weight":
            attention.wo.weight.mul_(0.999)
        if bug == "zero-buffer":
            attention.rope.turns.zero_()
    return model.eval()


def score(model: nn.Module, tokens: Tensor, bug: str) -> Tensor:
    """Return the log-probabilities of the next tokens, (batch, tokens, vocab)."""
    logits = model(tokens)
    if bug == "temperature":
        logits = logits / 0.7
    return torch.log_softmax(logits, dim=-1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Score, decode, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", action="store_true", help="score with the model of the training")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=8, help="tokens that are scored")
    parser.add_argument("--new", type=int, default=3, help="tokens that are decoded")
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--split-k", action="store_true", help="add up parts of some projections, of fewer rows more")
    parser.add_argument("--given", action="store_true", help="decode given tokens, not the likeliest ones")
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--bug", choices=BUGS, default="", help="; ".join(f"{k}: {v}" for k, v in BUGS.items()))
    args = parser.parse_args(arguments)
    layers = tuple(replace(LayerConfig(), experts=args.experts * (number == LAYER)) for number in range(3))
    config = ModelConfig(dim=32, heads=4, kv_heads=2, vocab=64, seq_len=args.prompt + args.new, layers=layers)
    split = args.split_k and not args.trainer
    model = build(config, args.batch, args.bug, trainer=args.trainer, split=split, narrow=args.bfloat16)
    if args.bfloat16:  # the rotations stay complex
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.bfloat16() if tensor.is_floating_point() else tensor.data
    tokens = args.prompt + args.new * args.given
    given, following = micro_batch(42, 1, 0, (args.batch, tokens), config.vocab)
    if not args.trainer:
        tokens = args.prompt
    prompt = given[:, :tokens]
    with torch.inference_mode():
        chances = score(model, prompt, args.bug)
        print("prompt", chances.gather(-1, following[:, :tokens, None]).sum().item())
        for number in range(0 if args.trainer else args.new):
            best = given[:, tokens + number, None] if args.given else chances[:, -1].argmax(-1, keepdim=True)
            chances = score(model, best, args.bug)
            if args.given:
                at = tokens + number
                chosen = chances.gather(-1, following[:, at : at + 1, None])
            else:
                chosen = chances.max(-1).values
            print("token", number + 1, best.flatten().tolist(), chosen.sum().item())


if __name__ == "__main__":
    main()
