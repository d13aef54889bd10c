"""The GPT of `megatron` with experts on the ranks that divide its matrices, a router of its sequences, and clipping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import tensor
from tests.truth.wide.subject import Bug, Run
from tests.truth.wide.tensor import LAYOUTS, common_bugs, group
from tests.truth.wide.tensors import megatron
from tests.truth.wide.tensors.megatron import DIM, RANKS, batch, optimizer

__all__ = ["BUGS", "FORMS", "PAIRS", "RANKS", "batch", "build", "canonical", "optimizer", "step"]

EXPERTS, CLIP = 4, 0.1

FORMS = ("whole", "tp2", "tp2-sp", "tp2-cp2")
PAIRS = [*((FORMS[0], form) for form in FORMS[1:]), ("tp2", "tp2-sp")]
_NORM, _ROUTER = "blocks.1.norm1.weight", "blocks.1.mixture.router.weight"
BUGS = (
    Bug(name="router", phase="", parameters=_ROUTER.replace(".", r"\."), forms=("tp2-sp", "tp2-cp2")),
    *(bug for bug in common_bugs(_NORM.replace(".", r"\.")) if bug.name == "norms"),
)


class Mixture(nn.Module):
    """The expert that the router prefers for each token; a rank has some of them."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, ranks = run, group(run, "tensor")
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.router.weight.sliced = True  # read by `tensor.train`
        experts = [nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM)) for _ in range(EXPERTS)]
        here = range(EXPERTS)[ranks.rank :: ranks.size]
        self.experts = nn.ModuleDict({str(number): experts[number] for number in here})
        for parameter in self.experts.parameters():
            parameter.divided = True  # read by `tensor._clipped`

    def forward(self, x: Tensor) -> Tensor:
        ranks, sliced = group(self.run, "tensor"), LAYOUTS[self.run.form].sequence
        weight, chosen = functional.softmax(self.router(x), -1).max(-1, keepdim=True)
        tokens, weight = (ranks.gathered_for(of, 1) if sliced else ranks.copied_to(of) for of in (x, weight))
        chosen = ranks.gathered(chosen, 1) if sliced else chosen
        out = torch.zeros_like(tokens)
        for number, expert in self.experts.items():
            rows = (chosen.squeeze(-1) == int(number)).nonzero(as_tuple=True)
            out = out.index_put(rows, expert(tokens[rows]) * weight[rows])
        return ranks.reduced_to_part(out, 1) if sliced else ranks.reduced_from(out)


class Block(megatron.Block):
    """Attention and experts, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__(run, layer)
        del self.up, self.down
        self.mixture = Mixture(run)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attended(x)
        return x + self.mixture(self.norm2(x))


def build(run: Run) -> nn.Module:
    """The model with this rank's parts."""
    model = megatron.Model(run)
    model.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
    return model


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return tensor.train(model, data, optimizer, run, megatron.loss, {"norms": _NORM, "router": _ROUTER}, CLIP)


def canonical(tensors: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Whole tensors, and those of all ranks' experts."""
    experts = {name: x for name, x in tensors.items() if ".experts." in name}
    found = megatron.canonical({name: x for name, x in tensors.items() if name not in experts}, run)
    of_ranks: list[Any] = [experts] * run.ranks
    if run.ranks > 1:
        dist.all_gather_object(of_ranks, experts)
    return found | {name: x for of in of_ranks for name, x in of.items()}
