"""A graph network: messages over edges are summed at nodes, by scatter, by index, sorted, dense or sparse."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("index-add", "scatter", "dense", "sparse", "by-segment")
BUGS = (
    Bug(name="degrees", module=r"layers\.{}", sizes=(1e-3, 0.5), layers=True),
    Bug(name="reversed", module=r"layers\.{}", layers=True),
    Bug(name="no-loops", module=r"layers\.{}"),
    Bug(name="residual", module=r"layers\.{}", sizes=(1e-3, 0.3), layers=True),
    Bug(name="all-nodes"),
    Bug(name="readout-by-mean"),
    Bug(name="detached", module=r"layers\.{}", phase="backward"),
)
NODES, EDGES, DIM = 20, 60, 10


class Layer(nn.Module):
    """x + relu(A x W), A the edges and loops, divided by the roots of degrees."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.linear = nn.Linear(DIM, DIM)

    def summed(self, x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """The messages of the edges at each node."""
        form = self.run.form
        if form in ("dense", "sparse"):
            ends = torch.stack((target, source))
            edges = torch.sparse_coo_tensor(ends, weight, (NODES, NODES), check_invariants=False)
            return edges.to_dense() @ x if form == "dense" else torch.sparse.mm(edges, x)
        sent = x[source] * weight[:, None]
        if form == "index-add":
            return torch.zeros_like(x).index_add(0, target, sent)
        if form == "scatter":
            return torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(sent), sent)
        order = target.argsort(stable=True)
        return torch.segment_reduce(sent[order], "sum", lengths=torch.bincount(target, minlength=NODES))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        run = self.run
        source, target = edges.flip(0) if run.has("reversed", self.layer) else edges  # bug: reversed
        if not run.has("no-loops", self.layer):
            # bug: no-loops, reversed
            source, target = (torch.cat((ends, torch.arange(NODES))) for ends in (source, target))
        degrees = torch.bincount(target, minlength=NODES).clamp(min=1).to(x.dtype)  # bug: reversed, no-loops
        degrees = degrees ** (-0.5 * run.factor("degrees", self.layer))  # bug: degrees
        weight = degrees[source] * degrees[target]  # bug: degrees, no-loops, reversed
        made = self.summed(self.linear(x), source, target, weight)  # bug: reversed, no-loops, degrees
        made = functional.relu(made)
        made = made.detach() if run.has("detached", self.layer) else made
        return x + made * run.factor("residual", self.layer)  # bug: residual, detached


def build(run: Run) -> nn.Module:
    layers = nn.ModuleList(Layer(run, n) for n in range(3))
    return nn.ModuleDict({"stem": nn.Linear(6, DIM), "layers": layers, "head": nn.Linear(DIM, 3)})


def batch(run: Run) -> dict[str, Tensor]:
    graphs = torch.arange(NODES) // 5
    return {
        "x": torch.randn(NODES, 6),
        "edges": torch.randint(NODES, (2, EDGES)),
        "graphs": graphs,
        "y": torch.randint(3, (4,)),
    }


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = model["stem"](data["x"])
    for layer in model["layers"]:
        x = layer(x, data["edges"])
    if run.has("all-nodes"):
        x = x.sum(0).expand(4, -1) / 4  # bug: all-nodes
    else:
        x = torch.zeros(4, DIM, dtype=x.dtype).index_add(0, data["graphs"], x)  # bug: all-nodes
    x = x / 5 if run.has("readout-by-mean") else x  # bug: readout-by-mean
    loss = functional.cross_entropy(model["head"](x), data["y"])  # bug: readout-by-mean, all-nodes
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
