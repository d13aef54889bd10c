"""An encoder whose feed-forward layers are experts, one for each token while it has room; slots travel, full or not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional

from tests.truth.wide import routing, sharing
from tests.truth.wide.routing import EXPERTS, LAYOUTS, Copied, Experts, Summed, common_bugs, local, own, started
from tests.truth.wide.subject import Bug, Run

DIM, HEADS, CLASSES, LENGTH, BATCH, ROOM = 12, 3, 7, 8, 4, 3

FORMS, PAIRS, RANKS = routing.FORMS, routing.PAIRS, routing.RANKS
optimizer, canonical = sharing.optimizer, routing.canonical
BUGS = (Bug(name="capacity", module=r"blocks\.1\.mixture(\..*)?", ranks=(-1, 1)), *common_bugs())


class Mixture(Experts):
    """The expert of each token that its router prefers, nothing for tokens beyond its room in a sequence."""

    def __init__(self, run: Run, layer: int) -> None:
        experts = [nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM)) for _ in range(EXPERTS)]
        super().__init__(run, layer, list(experts), nn.Linear(DIM, EXPERTS, bias=False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        run, kind = self.run, LAYOUTS[self.run.form].kind
        chances = functional.softmax(self.scores(x), dim=-1)
        weight, chosen = chances.max(-1)
        hot = functional.one_hot(chosen, EXPERTS)
        balance = EXPERTS * (hot.to(x.dtype).mean(1) * chances.mean(1)).sum(-1).mean()
        place = (hot.cumsum(1) * hot).sum(-1) - 1
        room = ROOM - int(run.has("capacity", self.layer))
        sample, position = (place < room).nonzero(as_tuple=True)  # bug: capacity
        slot = (chosen[sample, position], sample, place[sample, position])
        given, weight = (Copied.apply(of) if kind == "sum" else of for of in (x, weight))
        slots = x.new_zeros(EXPERTS, len(x), ROOM, DIM).index_put(slot, given[sample, position])  # bug: capacity
        made = self._all(slots)
        out = made[slot]  # bug: order
        if not run.has("weights", self.layer):
            out = out * weight[sample, position].unsqueeze(-1)  # bug: weights
        out = torch.zeros_like(x).index_put((sample, position), out)  # bug: capacity, weights
        return Summed.apply(out) if kind == "sum" else out, balance  # bug: order

    def _all(self, slots: Tensor) -> Tensor:
        """Outputs of the experts on all ranks for [experts, samples, room, dim]."""
        run, here = self.run, len(local(self.run))
        kind = LAYOUTS[run.form].kind
        if kind == "sum":
            first = local(run)[0]
            made = self._own(slots[first : first + here])
            return torch.cat([torch.zeros_like(slots[:first]), made, torch.zeros_like(slots[first + here :])])
        if not kind:
            return self._own(slots)
        received = all_to_all_single_autograd(slots, None, None, _group())
        of_ranks = received.unflatten(0, (run.ranks, here)).transpose(0, 1)  # [experts here, ranks, samples, room, dim]
        made = self._own(of_ranks.flatten(1, 2)).unflatten(1, (run.ranks, -1)).transpose(0, 1)
        found = all_to_all_single_autograd(made.flatten(0, 1).contiguous(), None, None, _group())
        return found.flip(2) if run.has("order", self.layer) else found  # bug: order

    def _own(self, slots: Tensor) -> Tensor:
        """What this rank's experts make of theirs."""
        run = self.run
        numbers = list(range(len(slots)))
        if run.has("switched", self.layer):
            numbers.reverse()
        if LAYOUTS[run.form].stacked:
            up, bias, down, last = (of[numbers] for of in self.stack.parameters())
            rows = slots.flatten(1, 2)
            rows = torch.relu(torch.baddbmm(bias.unsqueeze(1), rows, up.mT))  # bug: switched
            made = torch.baddbmm(last.unsqueeze(1), rows, down.mT).view_as(slots)  # bug: switched
            if run.has("expert", self.layer):
                made = torch.cat([made[:1] * run.factor("expert", self.layer), made[1:]])  # bug: expert
            return made  # bug: expert
        found = []
        for number, slot in zip(numbers, slots, strict=True):
            each = list(self.experts.values())[number](slot)  # bug: switched
            if number == 0 and run.has("expert", self.layer):
                each = each * run.factor("expert", self.layer)  # bug: expert
            found.append(each)
        return torch.stack(found)  # bug: switched, expert


def _group() -> Any:
    return torch.distributed.group.WORLD


class Block(nn.Module):
    """Attention and the mixture, each before a norm."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.attention = nn.MultiheadAttention(DIM, HEADS, bias=False, batch_first=True)
        self.norm1, self.norm2, self.mixture = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Mixture(run, layer)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        y, balance = self.mixture(x)
        if self.run.has("late", self.layer):
            y = y * self.run.factor("late", self.layer)  # bug: late
        return self.norm2(x + y), balance  # bug: late


class Model(nn.Module):
    """Features of a sequence to the logits of its class, and the balance of all blocks' experts."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inner = nn.Linear(5, DIM)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.classify = nn.Linear(DIM, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x, found = self.inner(x), []  # bug: samples
        for block in self.blocks:
            x, balance = block(x)
            found.append(balance)
        return self.classify(x.mean(1)), found


def build(run: Run) -> nn.Module:
    """The model with this rank's experts."""
    return started(Model(run), run)


def batch(run: Run) -> dict[str, Tensor]:
    """Sequences and their classes."""
    return own({"x": torch.randn(BATCH, LENGTH, 5), "y": torch.randint(CLASSES, (BATCH,))}, run)


def loss(model: Any, data: dict[str, Tensor], run: Run) -> Tensor:
    """The mean over samples, and the balance of experts."""
    logits, balances = model(data["x"])
    total = functional.cross_entropy(logits, data["y"])
    for balance in balances:
        total = total + 0.02 * run.factor("balance") * balance  # bug: balance
    return total


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return routing.train(model, data, optimizer, run, loss)
