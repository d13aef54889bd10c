"""A long short-term memory over sequences of several lengths: of the library, packed, and a step at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.truth.wide.subject import Bug, Run

FORMS = ("padded", "packed", "cell", "by-hand", "stacked")
BUGS = (
    Bug(name="gates-permuted", forms=("by-hand", "stacked")),
    Bug(name="state-carried", sizes=(1e-3, 1.0)),
    Bug(name="truncated", phase="backward", forms=("cell", "by-hand", "stacked")),
    Bug(name="last-of-padding", forms=("padded", "cell", "by-hand", "stacked")),
    Bug(name="forgets-more", sizes=(1e-3, 0.5), forms=("by-hand", "stacked")),
    Bug(name="output-scale", sizes=(1e-3, 0.3)),
)
B, S, DIM = 4, 7, 12
LENGTHS = torch.tensor([7, 6, 4, 3])


def build(run: Run) -> nn.Module:
    lstm = nn.LSTM(DIM, DIM, batch_first=True)
    if run.form == "cell":
        cell = nn.LSTMCell(DIM, DIM, device="meta")
        for name, p in lstm.named_parameters():
            setattr(cell, name.removesuffix("_l0"), p)
        lstm = cell
    return nn.ModuleDict({"embed": nn.Embedding(15, DIM), "lstm": lstm, "head": nn.Linear(DIM, 4)})


def canonical(tensors: dict[str, Tensor], run: Run) -> dict[str, Tensor]:
    cells = run.form == "cell"
    return {f"{name}_l0" if cells and name.startswith("lstm") else name: x for name, x in tensors.items()}


def batch(run: Run) -> dict[str, Tensor]:
    return {"tokens": torch.randint(15, (B, S)), "y": torch.randint(4, (B,))}


def states(lstm: Any, x: Tensor, run: Run) -> Tensor:
    """The hidden states of all steps, (B, S, DIM)."""
    h, c = x.new_zeros(B, DIM), x.new_zeros(B, DIM)
    if run.has("state-carried"):
        h = h + 0.2 * run.size  # bug: state-carried
    if run.form in ("padded", "packed"):
        if run.form == "padded":
            return lstm(x, (h[None], c[None]))[0]  # bug: state-carried, gates-permuted, truncated, forgets-more
        packed, _ = lstm(pack_padded_sequence(x, LENGTHS, batch_first=True), (h[None], c[None]))  # bug: state-carried
        return pad_packed_sequence(packed, batch_first=True)[0]
    outputs = []
    if run.form != "cell":
        weights = (lstm.weight_ih_l0, lstm.weight_hh_l0)
        both = torch.cat(weights, 1) if run.form == "stacked" else None
        bias = lstm.bias_ih_l0 + lstm.bias_hh_l0
    for t in range(S):
        if run.has("truncated") and t == 2:
            h, c = h.detach(), c.detach()
        if run.form == "cell":
            h, c = lstm(x[:, t], (h, c))  # bug: state-carried, truncated
        else:
            if both is not None:
                gates = functional.linear(torch.cat((x[:, t], h), 1), both, bias)  # bug: state-carried, truncated
            else:
                gates = x[:, t] @ weights[0].t() + h @ weights[1].t() + bias  # bug: state-carried, truncated
            i, f, g, o = gates.chunk(4, 1)
            i, f = (f, i) if run.has("gates-permuted") else (i, f)
            f = torch.sigmoid(f * run.factor("forgets-more"))  # bug: gates-permuted, forgets-more
            c = f * c + torch.sigmoid(i) * torch.tanh(g)  # bug: truncated, gates-permuted
            h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs, 1)


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    hidden = states(model["lstm"], model["embed"](data["tokens"]), run)
    ends = torch.full_like(LENGTHS, S) if run.has("last-of-padding") else LENGTHS
    last = hidden[torch.arange(B), ends - 1]  # bug: last-of-padding
    logits = model["head"](last) * run.factor("output-scale")  # bug: output-scale
    loss = functional.cross_entropy(logits, data["y"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
