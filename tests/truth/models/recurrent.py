"""A tagger: a bidirectional LSTM of torch's, a gated cell written by hand over it, attention pooling, two losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.run import Run

BATCH, LENGTH, VOCABULARY, TAGS, CLASSES = 8, 10, 48, 6, 4
DIM = 24
PADDING = 0
LENGTHS = (10, 7)
"""In turn: every part of a batch has as many tokens."""


class Cell(nn.Module):
    """A gated recurrent unit, a step at a time."""

    def __init__(self, inputs: int, size: int, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.of_input = nn.Linear(inputs, 3 * size)
        self.of_state = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        xr, xz, xn = self.of_input(x).chunk(3, -1)
        hr, hz, hn = self.of_state(state).chunk(3, -1)  # bug: truncated
        reset = torch.sigmoid(xr + hr)
        update = torch.sigmoid(xz + hz)
        before = hn if self.bug == "reset-misplaced" else reset * hn  # bug: reset-misplaced
        new = torch.tanh(xn + before)  # bug: reset-misplaced
        if self.bug == "reset-misplaced":
            new = new * reset  # bug: reset-misplaced
        if self.bug == "gates-swapped":
            return update * new + (1 - update) * state  # bug: gates-swapped
        return (1 - update) * new + update * state  # bug: gates-swapped, truncated


class Pool(nn.Module):
    """The mean of the states, weighted by a learned score."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.score = nn.Linear(DIM, 1)

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        scores = self.score(torch.tanh(states)).squeeze(-1)
        if self.bug != "padding-pooled":
            scores = scores.masked_fill(~real, -1e4)  # bug: padding-pooled
        weights = functional.softmax(scores, 1)  # bug: padding-pooled
        return torch.bmm(weights.unsqueeze(1), states).squeeze(1)


class Tagger(nn.Module):
    """Tokens to the logits of their tags and of the class of the sequence."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.bug = run.bug
        self.embed = nn.Embedding(VOCABULARY, DIM, padding_idx=PADDING)
        self.lstm = nn.LSTM(DIM, DIM // 2, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1 if run.dropout else 0.0)
        self.cell = Cell(DIM, DIM, run.bug)
        self.pool = Pool(run.bug)
        self.norm = nn.LayerNorm(DIM)
        self.tag = nn.Linear(DIM, TAGS)
        self.classify = nn.Linear(DIM, CLASSES)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(tokens)
        state = x.new_zeros(2, tokens.shape[0], DIM // 2)
        if self.bug == "state-not-reset":
            state = state + 0.1  # bug: state-not-reset
        x, _ = self.lstm(x, (state, torch.zeros_like(state)))  # bug: state-not-reset
        x = self.dropout(x)
        h = x.new_zeros(tokens.shape[0], DIM)
        states = []
        for step in range(tokens.shape[1]):
            if self.bug == "truncated" and step == 5:
                h = h.detach()
            h = self.cell(x[:, step], h)
            states.append(h)
        if self.bug == "states-shifted":
            states = [states[0], *states[:-1]]
        mixed = torch.stack(states, 1)  # bug: states-shifted
        mixed = self.norm(mixed)
        return self.tag(mixed), self.classify(self.pool(mixed, tokens != PADDING))


def build(run: Run) -> Any:
    """The model."""
    return Tagger(run)


def stacks(model: Any) -> list[Any]:
    """No list of blocks: the model is compiled as a whole."""
    return []


def batch(run: Run) -> dict[str, Any]:
    """Padded sequences of alternating lengths, with tags and a class."""
    draw = torch.Generator().manual_seed(run.seed)
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=draw)
    tags = torch.randint(TAGS, (BATCH, LENGTH), generator=draw)
    for i in range(BATCH):
        tokens[i, LENGTHS[i % 2] :] = PADDING
    return {
        "tokens": tokens,
        "tags": tags.masked_fill(tokens == PADDING, -100),
        "label": torch.randint(CLASSES, (BATCH,), generator=draw),
    }


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """The sum of both losses."""
    tags, label = model(data["tokens"])
    share = 0.3 if run.bug == "loss-weight" else 0.5
    of_tags = functional.cross_entropy(tags.float().transpose(1, 2), data["tags"])
    of_label = functional.cross_entropy(label.float(), data["label"])
    return of_tags + share * of_label  # bug: loss-weight
