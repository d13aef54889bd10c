"""Clicks from sparse and dense features: bags of embeddings, products of pairs, a weighted logistic loss, Adagrad."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("bags", "gathered", "one-table", "einsum", "loss-by-hand")
BUGS = (
    Bug(name="bag-mean", module=""),
    Bug(name="with-squares"),
    Bug(name="modulo"),
    Bug(name="positive-weight", sizes=(1e-3, 0.5)),
    Bug(name="dense-scale", sizes=(1e-3, 0.3)),
    Bug(name="by-sum"),
    Bug(name="decay", phase="optimizer", parameters="top.*", sizes=(0.5,)),
)
B, TABLES, ROWS, BAG, DIM = 8, 3, 11, 4, 6


def build(run: Run) -> nn.Module:
    tables = nn.ModuleList(nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(TABLES))
    bottom = nn.Sequential(nn.Linear(5, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
    pairs = (TABLES + 1) * TABLES // 2
    top = nn.Sequential(nn.Linear(DIM + pairs, 8), nn.ReLU(), nn.Linear(8, 1))
    return nn.ModuleDict({"tables": tables, "bottom": bottom, "top": top})


def optimizer(model: Any, run: Run) -> Any:
    rest = [*model["tables"].parameters(), *model["bottom"].parameters()]
    decay = 1e-2 * run.factor("decay")
    groups = [{"params": rest}, {"params": list(model["top"].parameters()), "weight_decay": decay}]
    return torch.optim.Adagrad(groups, lr=0.05, initial_accumulator_value=0.1)


def batch(run: Run) -> dict[str, Tensor]:
    return {
        "dense": torch.randn(B, 5),
        "ids": torch.randint(1000, (TABLES, B, BAG)),
        "y": torch.randint(2, (B,)).float(),
    }


def embedded(model: Any, ids: Tensor, run: Run) -> list[Tensor]:
    """A vector for each table, the sum of its bag: (B, DIM) each."""
    ids = ids % (ROWS - 1 if run.has("modulo") else ROWS)  # bug: modulo
    tables = model["tables"]
    share = BAG if run.has("bag-mean") else 1
    if run.form == "one-table":
        weight = torch.cat([table.weight for table in tables])
        ids = ids + torch.arange(TABLES)[:, None, None] * ROWS
        made = functional.embedding(ids, weight).sum(2) / share  # bug: bag-mean, modulo
        return list(made.unbind())
    if run.form == "gathered":
        return [table.weight[ids[n]].sum(1) / share for n, table in enumerate(tables)]  # bug: bag-mean, modulo
    return [table(ids[n]) / share for n, table in enumerate(tables)]  # bug: bag-mean, modulo


def products(vectors: Tensor, run: Run) -> Tensor:
    """Products of all pairs of vectors: (B, pairs)."""
    if run.form == "einsum":
        made = torch.einsum("bid,bjd->bij", vectors, vectors)
    else:
        made = torch.bmm(vectors, vectors.transpose(1, 2))
    n = vectors.shape[1]
    i, j = torch.tril_indices(n, n, offset=-1)
    if run.has("with-squares"):
        j = torch.where(j == 0, i, j)  # bug: with-squares
    return made[:, i, j]  # bug: with-squares


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    dense = model["bottom"](data["dense"]) * run.factor("dense-scale")  # bug: dense-scale
    vectors = torch.stack([dense, *embedded(model, data["ids"], run)], 1)
    logits = model["top"](torch.cat((dense, products(vectors, run)), 1))[:, 0]
    weight = torch.tensor(3.0, dtype=logits.dtype) * run.factor("positive-weight")  # bug: positive-weight
    y = data["y"]
    if run.form == "loss-by-hand":
        wrong = weight * y * functional.softplus(-logits)  # bug: positive-weight
        each = wrong + (1 - y) * functional.softplus(logits)  # bug: positive-weight
    else:
        # bug: positive-weight
        each = functional.binary_cross_entropy_with_logits(logits, y, pos_weight=weight, reduction="none")
    loss = each.sum() if run.has("by-sum") else each.mean()  # bug: by-sum
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
