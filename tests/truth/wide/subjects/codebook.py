"""Images through a codebook: convolutions, the nearest code, a straight-through gradient, codes that follow means."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("distances", "expanded", "one-hot", "gathered", "transposed-by-hand")
BUGS = (
    Bug(name="commitment", phase="", sizes=(1e-3, 1.0)),
    Bug(name="no-straight-through", phase=""),
    Bug(name="farthest", phase=""),
    Bug(name="codes-decay", phase="", sizes=(0.01,)),
    Bug(name="counts-raw", phase=""),
    Bug(name="groups", module="encoder"),
    Bug(name="skip-lost", module="encoder"),
    Bug(name="decoder-bias", module="decoder", sizes=(0.1,)),
    Bug(name="loss-sum", phase=""),
)
B, C, SIDE, DIM, CODES, DECAY = 2, 3, 8, 8, 11, 0.97


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(C, DIM, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, DIM)
        self.mix = nn.Conv2d(DIM, DIM, 3, padding=1)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        h = functional.leaky_relu(self.down(x), 0.2)
        groups = 4 if run.has("groups") else 2
        n = functional.group_norm(h, groups, self.norm.weight, self.norm.bias)  # bug: groups
        m = self.mix(functional.silu(n))  # bug: groups
        return m if run.has("skip-lost") else h + m  # bug: skip-lost


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(DIM, DIM, 3, padding=1)
        self.up = nn.ConvTranspose2d(DIM, C, 4, stride=2, padding=1)

    def forward(self, z: Tensor, run: Run) -> Tensor:
        h = functional.relu(self.mix(z))  # bug: no-straight-through
        bias = self.up.bias * run.factor("decoder-bias")  # bug: decoder-bias
        if run.form == "transposed-by-hand":
            columns = torch.einsum("bdhw,dcij->bcijhw", h, self.up.weight).flatten(1, 3).flatten(2)
            made = functional.fold(columns, (SIDE, SIDE), 4, padding=1, stride=2)
            return made + bias[:, None, None]  # bug: decoder-bias
        return functional.conv_transpose2d(h, self.up.weight, bias, 2, 1)  # bug: decoder-bias


def build(run: Run) -> nn.Module:
    model = nn.ModuleDict({"encoder": Encoder(), "decoder": Decoder()})
    codes = torch.randn(CODES, DIM)
    model.register_buffer("codes", codes)
    model.register_buffer("sums", codes.clone())
    model.register_buffer("counts", torch.ones(CODES))
    return model


def optimizer(model: Any, run: Run) -> Any:
    return torch.optim.NAdam(model.parameters(), lr=1e-3)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, C, SIDE, SIDE)}


def nearest(z: Tensor, codes: Tensor, run: Run) -> Tensor:
    """Index of the nearest code of each row, [n]."""
    if run.form == "distances":
        far = torch.cdist(z, codes, compute_mode="donot_use_mm_for_euclid_dist")  # bug: farthest
    elif run.form == "expanded":
        far = z.square().sum(-1, keepdim=True) - 2 * z @ codes.T + codes.square().sum(-1)
    else:
        far = (z[:, None] - codes).square().sum(-1)
    return far.argmax(-1) if run.has("farthest") else far.argmin(-1)  # bug: farthest


def follow(model: Any, z: Tensor, index: Tensor, run: Run) -> None:
    """Codes move towards the mean of what chose them."""
    decay = DECAY * (1 - run.size if run.has("codes-decay") else 1.0)
    with torch.no_grad():
        if run.form == "gathered":
            counted = torch.bincount(index, minlength=CODES).to(z.dtype)
            summed = torch.zeros_like(model.sums).index_add_(0, index, z)
        else:
            hot = functional.one_hot(index, CODES).to(z.dtype)
            counted, summed = hot.sum(0), hot.T @ z
        model.counts.mul_(decay).add_(counted, alpha=1 - decay)  # bug: codes-decay
        model.sums.mul_(decay).add_(summed, alpha=1 - decay)  # bug: codes-decay
        total = model.counts.sum()
        smooth = (model.counts + 1e-5) / (total + CODES * 1e-5) * total
        if run.has("counts-raw"):
            smooth = counted + 1e-5  # bug: counts-raw
        model.codes.copy_(model.sums / smooth[:, None])  # bug: counts-raw


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = data["x"]
    z = model["encoder"](x, run)
    rows = z.permute(0, 2, 3, 1).reshape(-1, DIM)
    index = nearest(rows.detach(), model.codes, run)
    if run.form == "one-hot":
        chosen = functional.one_hot(index, CODES).to(rows.dtype) @ model.codes
    elif run.form == "gathered":
        chosen = functional.embedding(index, model.codes)
    else:
        chosen = model.codes[index]
    q = chosen.view(B, SIDE // 2, SIDE // 2, DIM).permute(0, 3, 1, 2)
    passed = q if run.has("no-straight-through") else z + (q - z).detach()  # bug: no-straight-through
    made = model["decoder"](passed, run)  # bug: no-straight-through
    if run.form == "expanded":
        off = (made - x).square()
        near = (z - q).square().mean()  # bug: commitment
        weight = 0.25 * run.factor("commitment")
        loss = (off.sum() if run.has("loss-sum") else off.mean()) + weight * near  # bug: commitment, loss-sum
    else:
        off = functional.mse_loss(made, x, reduction="sum" if run.has("loss-sum") else "mean")  # bug: loss-sum
        loss = off + 0.25 * run.factor("commitment") * functional.mse_loss(z, q)  # bug: commitment
    loss.backward()  # bug: no-straight-through
    optimizer.step()
    optimizer.zero_grad()
    follow(model, rows.detach(), index, run)
    return loss
