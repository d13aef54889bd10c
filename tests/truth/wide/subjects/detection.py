"""Boxes in images: anchors matched by overlap, chosen by masks, a focal loss, a smooth distance, two scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "weighted", "each-image", "nearest-by-index", "indices")
BUGS = (
    Bug(name="threshold", phase="", sizes=(0.3,)),
    Bug(name="focus", phase="", sizes=(1e-3, 0.5)),
    Bug(name="balance", phase=""),
    Bug(name="beta", phase="", sizes=(0.5,)),
    Bug(name="per-image-mean", phase="", forms=("each-image",)),
    Bug(name="upsampled"),
    Bug(name="wide-first", phase=""),
    Bug(name="group-norm", sizes=(1e4,)),
    Bug(name="lateral", sizes=(1e-3, 0.5)),
)
B, SIZE, DIM, CLASSES, BOXES = 2, 8, 8, 3, 3


def build(run: Run) -> nn.Module:
    return nn.ModuleDict(
        {
            "stem": nn.Conv2d(3, DIM, 3, stride=2, padding=1),
            "down": nn.Conv2d(DIM, DIM, 3, stride=2, padding=1),
            "norm": nn.GroupNorm(2, DIM),
            "side": nn.Conv2d(DIM, DIM, 1),
            "classes": nn.Conv2d(DIM, CLASSES, 3, padding=1),
            "boxes": nn.Conv2d(DIM, 4, 3, padding=1),
        }
    )


def batch(run: Run) -> dict[str, Tensor]:
    corner, extent = torch.rand(B, BOXES, 2) * 4, 1.5 + 3 * torch.rand(B, BOXES, 2)
    return {
        "x": torch.randn(B, 3, SIZE, SIZE),
        "boxes": torch.cat([corner, corner + extent], -1),
        "labels": torch.randint(CLASSES, (B, BOXES)),
    }


def anchors(dtype: torch.dtype) -> Tensor:
    """Boxes (24 × corners): of a fine grid, 4 × 4 of width 3, and the same moved."""
    places = (torch.arange(4, dtype=dtype) + 0.5) * 2
    y, x = torch.meshgrid(places, places, indexing="ij")
    middle = torch.stack([x, y], -1).flatten(0, 1)
    return torch.cat([middle - 1.5, middle + 1.5], -1)


def overlap(one: Tensor, other: Tensor) -> Tensor:
    low = torch.maximum(one[:, None, :2], other[None, :, :2])
    high = torch.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    size_one, size_other = (one[:, 2:] - one[:, :2]).prod(-1), (other[:, 2:] - other[:, :2]).prod(-1)
    return shared / (size_one[:, None] + size_other[None] - shared)


def features(model: Any, x: Tensor, run: Run) -> Tensor:
    fine = functional.relu(model["stem"](x))
    norm = model["norm"]
    eps = 1e-5 * run.factor("group-norm")
    coarse = functional.group_norm(model["down"](fine), 2, norm.weight, norm.bias, eps)  # bug: group-norm
    coarse = functional.relu(coarse)
    if run.has("upsampled"):
        up = functional.interpolate(coarse, scale_factor=2, mode="bilinear")  # bug: upsampled
    elif run.form == "nearest-by-index":
        index = torch.arange(4) // 2
        up = coarse[:, :, index][:, :, :, index]  # bug: upsampled
    else:
        up = functional.interpolate(coarse, scale_factor=2, mode="nearest")  # bug: upsampled
    return up + model["side"](fine) * run.factor("lateral")  # bug: lateral


def focal(logits: Tensor, target: Tensor, run: Run) -> Tensor:
    power = 2.0 * run.factor("focus")
    p = logits.sigmoid()
    right = p * target + (1 - p) * (1 - target)
    share = 0.25 * target + 0.75 * (1 - target)
    if run.has("balance"):
        share = 1 - share  # bug: balance
    cost = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (share * (1 - right) ** power * cost).sum()  # bug: focus, balance


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    made = features(model, data["x"], run)
    logits = model["classes"](made).flatten(2).transpose(1, 2)
    moves = model["boxes"](made).flatten(2).transpose(1, 2)
    grid = anchors(made.dtype)
    limit, beta = 0.12 * run.factor("threshold"), 0.5 * run.factor("beta")
    costs, far, counts = [], [], []
    targets, aims, chosen = [], [], []
    for image in range(B):
        shared, which = overlap(grid, data["boxes"][image]).max(1)
        hit = shared > limit  # bug: threshold
        box = data["boxes"][image][which]
        if run.has("wide-first"):
            box = box[:, [1, 0, 3, 2]]  # bug: wide-first
        middle, extent = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
        aim = torch.cat([middle - (grid[:, :2] + 1.5), (extent.abs() / 3).log()], -1)  # bug: wide-first
        label = functional.one_hot(data["labels"][image][which], CLASSES).to(made.dtype) * hit[:, None]
        targets.append(label)
        aims.append(aim)
        chosen.append(hit)
    target, aim, hit = torch.stack(targets), torch.stack(aims), torch.stack(chosen)
    if run.form == "each-image" or run.has("per-image-mean"):
        for i in range(B):
            costs.append(focal(logits[i], target[i], run))
            far.append(
                functional.smooth_l1_loss(moves[i][hit[i]], aim[i][hit[i]], reduction="sum", beta=beta)
            )  # bug: beta
            counts.append(hit[i].sum())
        if run.has("per-image-mean"):
            loss = sum((c + d) / n for c, d, n in zip(costs, far, counts, strict=True)) / B  # bug: per-image-mean
        else:
            loss = (sum(costs) + sum(far)) / sum(counts)  # bug: per-image-mean
    else:
        cost = focal(logits, target, run)
        if run.form == "weighted":
            every = functional.smooth_l1_loss(moves, aim, reduction="none", beta=beta)  # bug: beta
            distance = (every * hit[..., None]).sum()  # bug: threshold
        elif run.form == "indices":
            i, j = hit.nonzero(as_tuple=True)
            distance = functional.smooth_l1_loss(moves[i, j], aim[i, j], reduction="sum", beta=beta)  # bug: beta
        else:
            distance = functional.smooth_l1_loss(moves[hit], aim[hit], reduction="sum", beta=beta)  # bug: beta
        loss = (cost + distance) / hit.sum()  # bug: per-image-mean
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
