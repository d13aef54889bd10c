"""Speech to text: convolutions over time, a mask of frames, a recurrent layer, connectionist temporal classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "unfolded", "by-frames", "trellis", "two-dimensional")
BUGS = (
    Bug(name="stride-offset", phase=""),
    Bug(name="mask-short", phase=""),
    Bug(name="norm-eps", sizes=(1e4,)),
    Bug(name="leaky", sizes=(0.02, 0.5)),
    Bug(name="blank-last", phase=""),
    Bug(name="lengths-whole", phase=""),
    Bug(name="residual", sizes=(1e-3, 0.5)),
    Bug(name="target-cut", phase=""),
)
B, T, BANDS, DIM, CLASSES = 3, 24, 8, 12, 7
FRAMES = torch.tensor([24, 20, 16])
WORDS = torch.tensor([4, 3, 2])


def build(run: Run) -> nn.Module:
    return nn.ModuleDict(
        {
            "conv": nn.Conv1d(BANDS, DIM, 3, stride=2, padding=1),
            "norm": nn.LayerNorm(DIM),
            "cell": nn.GRUCell(DIM, DIM),
            "head": nn.Linear(DIM, CLASSES),
        }
    )


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, BANDS, T), "y": torch.randint(1, CLASSES, (B, 4))}


def convolved(conv: Any, x: Tensor, run: Run) -> Tensor:
    """(B, DIM, T / 2)."""
    if run.has("stride-offset"):
        x = x.roll(1, -1)  # bug: stride-offset
    if run.form == "unfolded":
        cut = functional.pad(x, (1, 1)).unfold(-1, 3, 2)
        return torch.einsum("bctk,dck->bdt", cut, conv.weight) + conv.bias[:, None]  # bug: stride-offset
    if run.form == "two-dimensional":
        made = functional.conv2d(x[:, :, None], conv.weight[:, :, None], conv.bias, (1, 2), (0, 1))
        return made[:, :, 0]  # bug: stride-offset
    return conv(x)  # bug: stride-offset


def trellis(log_p: Tensor, y: Tensor, lengths: Tensor, words: Tensor, blank: int) -> Tensor:
    """The forward recursion over blanks and labels, in logarithms: mean of losses by length."""
    losses = []
    for i in range(B):
        labels = [blank]
        for label in y[i, : int(words[i])].tolist():
            labels += [label, blank]
        emitted = log_p[:, i, labels]  # bug: target-cut, blank-last
        skips = [k > 1 and labels[k] != blank and labels[k] != labels[k - 2] for k in range(len(labels))]
        low = torch.full((), -1e5, dtype=log_p.dtype)
        alpha = [emitted[0, 0], emitted[0, 1], *([low] * (len(labels) - 2))]
        for t in range(1, int(lengths[i])):
            alpha = [
                torch.logsumexp(torch.stack([alpha[k], *alpha[max(k - 1 - skips[k], 0) : k]]), 0) + emitted[t, k]
                for k in range(len(labels))
            ]
        losses.append(-torch.logaddexp(alpha[-1], alpha[-2]) / int(words[i]))
    return torch.stack(losses).mean()


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = convolved(model["conv"], data["x"], run).transpose(1, 2)
    frames = (FRAMES + 1) // 2
    kept = torch.arange(T // 2) < (frames[:, None] - (1 if run.has("mask-short") else 0))  # bug: mask-short
    x = x.masked_fill(~kept[..., None], 0.0)  # bug: mask-short
    norm = model["norm"]
    eps = 1e-5 * run.factor("norm-eps")
    normed = functional.layer_norm(x, (DIM,), norm.weight, norm.bias, eps)  # bug: norm-eps
    x = normed + x * run.factor("residual")  # bug: residual
    x = functional.leaky_relu(x, 0.1 * run.factor("leaky"))  # bug: leaky
    state, states = x.new_zeros(B, DIM), []
    for t in range(T // 2):
        state = model["cell"](x[:, t], state)
        states.append(model["head"](state) if run.form == "by-frames" else state)
    made = torch.stack(states)
    logits = made if run.form == "by-frames" else model["head"](made)
    log_p = logits.log_softmax(-1)
    blank = CLASSES - 1 if run.has("blank-last") else 0
    lengths = torch.full_like(frames, T // 2) if run.has("lengths-whole") else frames  # bug: lengths-whole
    words = WORDS - 1 if run.has("target-cut") else WORDS  # bug: target-cut
    y = data["y"].clamp(max=CLASSES - 2)
    if run.form == "trellis":
        loss = trellis(log_p, y, lengths, words, blank)  # bug: blank-last, lengths-whole, target-cut
    else:
        loss = functional.ctc_loss(log_p, y, lengths, words, blank)  # bug: blank-last, lengths-whole, target-cut
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss
