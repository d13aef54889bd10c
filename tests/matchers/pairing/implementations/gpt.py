# mypy: ignore-errors
"""Train one GPT-2 in the style that is asked for.

`conv1d` stores weights as (in, out), as Hugging Face does; `linear` has the same fused projection as (out, in), and
`separate` one for queries, keys and values each.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional

DIM, HEADS, HIDDEN, VOCAB, LENGTH = 32, 4, 80, 64, 16


class Conv1D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


def attend(q, k, v, scale, split):
    q, k, v = (x.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for x in (q, k, v))
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    scores = q @ k.transpose(-2, -1)
    # two factors in one run, one in the other
    scores = scores / math.sqrt(q.size(-1)) * scale if split else scores * (scale / math.sqrt(q.size(-1)))
    scores = scores.masked_fill(future, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class HFBlock(nn.Module):
    NAMES = ("ln_1", "c_attn", "c_proj", "ln_2", "c_fc", "c_out")

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.ln_1, self.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.c_attn, self.c_proj = Conv1D(DIM, 3 * DIM), Conv1D(DIM, DIM)
        self.c_fc, self.c_out = Conv1D(DIM, HIDDEN), Conv1D(HIDDEN, DIM)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(DIM, -1)
        x = self.c_proj(attend(q, k, v, self.scale, split=True)) + x
        return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x))))


class Block(nn.Module):
    NAMES = ("norm1", "qkv", "proj", "norm2", "fc1", "fc2")

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.projections()
        self.proj, self.fc1, self.fc2 = nn.Linear(DIM, DIM), nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

    def projections(self):
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def project(self, x):
        return self.qkv(x).split(DIM, -1)

    def forward(self, x):
        x = x + self.proj(attend(*self.project(self.norm1(x)), self.scale, split=False))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class SeparateBlock(Block):
    NAMES = ("norm1", "q k v", "proj", "norm2", "fc1", "fc2")

    def projections(self):
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))

    def project(self, x):
        return self.q(x), self.k(x), self.v(x)


STYLES = {"conv1d": ("h", HFBlock), "linear": ("blocks", Block), "separate": ("layers", SeparateBlock)}


class GPT(nn.Module):
    def __init__(self, style, bug):
        super().__init__()
        name, block = STYLES[style]
        self.embed, self.head = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB, bias=False)
        self.add_module(name, nn.ModuleList(block(1.01 if bug == f"softmax-scale@{k}" else 1.0) for k in range(2)))
        self.blocks_of = name
        with torch.no_grad():
            self.load()

    def load(self):
        """The same weights in every style."""
        g = torch.Generator().manual_seed(3)
        for parameter in (self.embed.weight, self.head.weight):
            parameter.copy_(torch.randn(parameter.shape, generator=g) * DIM**-0.5)
        for block in getattr(self, self.blocks_of):
            for names, (n_out, n_in) in zip(
                block.NAMES, ((DIM, 0), (3 * DIM, DIM), (DIM, DIM), (DIM, 0), (HIDDEN, DIM), (DIM, HIDDEN)), strict=True
            ):
                weight = (
                    torch.randn(n_out, n_in, generator=g) * n_in**-0.5 if n_in else 1 + torch.rand(n_out, generator=g)
                )
                bias, modules = torch.randn(n_out, generator=g) * 0.1, [getattr(block, n) for n in names.split()]
                for module, w, b in zip(modules, weight.chunk(len(modules)), bias.chunk(len(modules)), strict=True):
                    module.weight.copy_(w.T if isinstance(module, Conv1D) else w)
                    module.bias.copy_(b)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in getattr(self, self.blocks_of):
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("style", choices=STYLES)
    parser.add_argument("--optimizer", choices=("foreach", "loop", "fused"), default="foreach")
    parser.add_argument("--bug", default="")
    args = parser.parse_args()
    model = GPT(args.style, args.bug)
    tokens = torch.randint(VOCAB, (2, LENGTH + 1), generator=torch.Generator().manual_seed(4))
    form = args.optimizer
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=form == "foreach", fused=form == "fused")
    optimizer.zero_grad()
    model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=form != "loop")
    optimizer.step()


if __name__ == "__main__":
    main()
