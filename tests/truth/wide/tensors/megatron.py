"""A GPT with LayerNorm and biases in Megatron-LM's manner, over ranks that divide matrices, sequences and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import tensor
from tests.truth.wide.subject import Bug, Run
from tests.truth.wide.tensor import LAYOUTS, LENGTH, common_bugs, divided_over, group, part_of, positions_of

DIM, HEADS, VOCABULARY, BATCH = 16, 4, 24, 4
HEAD = DIM // HEADS

DTYPES = ("float32", "bfloat16")
FORMS = tuple(LAYOUTS)
RANKS = {form: layout.ranks for form, layout in LAYOUTS.items()}
PAIRS = [
    *((FORMS[0], form) for form in FORMS[1:]),
    *(("micro2", form) for form in ("dp2", "tp2-dp2")),
    ("tp2", "tp2-sp"), ("tp2", "cp2"), ("tp2-cp2", "tp2-dp2"),
]  # fmt: skip
optimizer = tensor.optimizer
_NORM = "blocks.1.norm1.weight"


def _able(*parts: str) -> tuple[str, ...]:
    return tuple(form for form in FORMS if any(part in form.split("-") for part in parts))


BUGS = (
    Bug(name="table", module=r"embed", phase="", forms=_able("tp2")),
    Bug(name="input", module=r"blocks\.1\.out", forms=_able("tp2")),
    Bug(name="group", module=r"blocks\.1\.out", forms=tuple(form for form in FORMS if RANKS[form] == 4)),
    Bug(name="early", module=r"blocks\.1\.out", forms=("tp2", "tp2-dp2")),
    Bug(name="gradient", module=r"blocks\.1(\..*)?", phase="backward", forms=_able("cp2")),
    Bug(name="scale", module=r"blocks\.1", sizes=(1e-3, 0.1), ranks=(-1, 1)),
    *common_bugs(_NORM.replace(".", r"\.")),
)


class Embedding(nn.Module):
    """Words, of which a rank knows some, and positions."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.words = divided_over(torch.randn(VOCABULARY, DIM), 0, run)
        self.places = nn.Parameter(torch.randn(LENGTH, DIM))

    def forward(self, tokens: Tensor) -> Tensor:
        ranks = group(self.run, "tensor")
        rows = tokens - ranks.rank * len(self.words)
        absent = (rows < 0) | (rows >= len(self.words))
        if self.run.has("table"):
            absent = rows < 0
            rows = rows.clamp(max=len(self.words) - 1)
        known = functional.embedding(rows.masked_fill(absent, 0), self.words)  # bug: table
        words = ranks.reduced_from(known.masked_fill(absent.unsqueeze(-1), 0.0))  # bug: table
        x = words + self.places[positions_of(self.run)]  # bug: table
        return ranks.taken(x, 1) if LAYOUTS[self.run.form].sequence else x


class Norm(nn.LayerNorm):
    """A norm, of slices of the sequence where ranks divide it."""

    def __init__(self) -> None:
        super().__init__(DIM)
        for parameter in self.parameters():
            parameter.sliced = True  # read by `tensor.train`


class Columns(nn.Module):
    """A matrix of whose outputs a rank has some."""

    def __init__(self, run: Run, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.run, self.product = run, functional.linear
        whole = nn.Linear(DIM, outputs, bias=bias)
        self.weight, self.bias = (None if p is None else divided_over(p, 0, run) for p in (whole.weight, whole.bias))

    def forward(self, x: Tensor) -> Tensor:
        ranks, sliced = group(self.run, "tensor"), LAYOUTS[self.run.form].sequence
        return self.product(ranks.gathered_for(x, 1) if sliced else ranks.copied_to(x), self.weight, self.bias)


class Rows(nn.Module):
    """A matrix of whose inputs a rank has some; results are added up."""

    def __init__(self, run: Run, layer: int, inputs: int) -> None:
        super().__init__()
        self.run, self.layer, self.product = run, layer, functional.linear
        whole = nn.Linear(inputs, DIM)
        self.weight, self.bias = divided_over(whole.weight, 1, run), whole.bias
        self.bias.sliced = True  # added after the reduction, to slices

    def forward(self, x: Tensor) -> Tensor:
        run, ranks = self.run, group(self.run, "tensor")
        found = self.product(x, self.weight)
        if run.has("input", self.layer):
            found = found + self.bias  # bug: input
        if run.has("group", self.layer):
            ranks = group(run, "parts")
        if run.has("early", self.layer):
            read = found.clone()
            _, work = ranks.started(found)
            work.wait()
            return read + self.bias  # bug: early
        whole = ranks.reduced_to_part(found, 1) if LAYOUTS[run.form].sequence else ranks.reduced_from(found)
        return whole if run.has("input", self.layer) else whole + self.bias  # bug: group, input


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2 = Norm(), Norm()
        self.query, self.key, self.value = (Columns(run, DIM, bias=k != 1) for k in range(3))
        self.out, self.up, self.down = Rows(run, layer, DIM), Columns(run, 2 * DIM), Rows(run, -1, 2 * DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attended(x)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def attended(self, x: Tensor) -> Tensor:
        """The residual after attention."""
        y = self.norm1(x)
        q, k, v = (of(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for of in (self.query, self.key, self.value))
        return x + self.out(self._mixed(q, k, v).transpose(1, 2).flatten(2))

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        run, ranks = self.run, group(self.run, "context")
        back = ranks.split if run.has("gradient", self.layer) else None
        k, v = (ranks.gathered_for(x, 2, back) for x in (k, v))  # bug: gradient
        later = torch.arange(LENGTH) > positions_of(run).unsqueeze(-1)
        scores = q @ k.mT * (HEAD**-0.5 * run.factor("scale", self.layer))  # bug: scale
        return torch.softmax(scores.float().masked_fill(later, -1e9), -1).to(v.dtype) @ v


class Model(nn.Module):
    """Tokens to logits of the next ones."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = Embedding(run)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.norm, self.head = Norm(), Columns(run, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return group(self.run, "tensor").joined(self.head(self.norm(x)), -1)


def build(run: Run) -> nn.Module:
    """The model with this rank's parts."""
    return Model(run)


def batch(run: Run) -> dict[str, Tensor]:
    """Tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return part_of({"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}, run)


def loss(model: Any, part: dict[str, Tensor]) -> Tensor:
    """The sum over the tokens of a part."""
    return functional.cross_entropy(model(part["x"]).float().flatten(0, 1), part["y"].flatten(), reduction="sum")


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return tensor.train(model, data, optimizer, run, loss, {"norms": _NORM})


def canonical(tensors: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Whole tensors."""
    columns = ("query", "key", "value", "up", "head")
    dims = {"embed.words": 0, "out.weight": 1, "down.weight": 1}
    return tensor.canonical(
        tensors, run, {**dims, **{f"{name}.{of}": 0 for name in columns for of in ("weight", "bias")}}
    )
