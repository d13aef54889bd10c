"""A training step on eight samples in several micro-batches, as records: a linear layer and a mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.captured import Step

__all__ = ["SAMPLES", "WEIGHT", "step"]

RNG = np.random.default_rng(11)
SAMPLES, WEIGHT, BIAS = (RNG.normal(size=size).astype(np.float32) for size in ((8, 6), (6, 5), (5,)))


def _mean_gradient(scale: float) -> np.ndarray[Any, Any]:
    """float64[5], the mean over all samples of the gradient of the scores."""
    scaled = (SAMPLES.astype(np.float64) @ WEIGHT + BIAS) * scale
    return np.asarray((2 * scaled / scaled.size).mean(0))


def step(
    micro_batches: int,
    *,
    scale: float = 1.0,
    divided: bool = True,
    numbered: bool = True,
    zero_bias: bool = False,
    flip: bool = False,
    total: bool = False,
    weight: float = 1.0,
    uneven: bool = False,
    ranks: int = 0,
) -> list[Step]:
    """The records of one step.

    Args:
        scale: of the scores, the bug to plant.
        divided: each loss is divided by the number of micro-batches.
        numbered: the records have the number of their micro-batch.
        zero_bias: the gradient of the bias is zero but for rounding.
        flip: the scores change their order, the bug to plant.
        total: the losses are added up.
        weight: of each loss, the bug to plant.
        uneven: the weight of each micro-batch is another one, computed from its samples.
        ranks: by so many the losses are multiplied, and divided what they add up to; 0 for a step that reports no loss.
    """
    weight *= max(ranks, 1)
    steps: list[Step] = []
    parts = np.split(SAMPLES, micro_batches)
    sums: dict[str, np.ndarray[Any, Any]] = {"loss": np.zeros((), np.float32)}
    made: dict[str, str] = {}
    for k, x in enumerate(parts):
        fields: Mapping[str, Any] = {"micro_batch": k} if numbered else {}
        back = {**fields, "phase": "backward"}
        scores = (x @ WEIGHT + BIAS).astype(np.float32)
        flipped = scores[:, ::-1].copy() if flip else scores
        scaled = flipped * np.float32(scale)
        loss = np.float32((scaled**2).mean())
        share = np.float32((1 / micro_batches if divided else 1) * weight * (1 + 0.1 * k * uneven))
        # each gradient is of the loss of this part
        gradient = (2 * scaled / scaled.size * share).astype(np.float32)
        if zero_bias:
            gradient = (gradient - _mean_gradient(scale)).astype(np.float32)
        names = [f"lin/op_{k}_addmm", f"score/op_{k}_mul", f"loss/op_{3 * k}_mean", f"loss/op_{3 * k + 1}_div"]
        before = f"score/op_{k}_flip" if flip else names[0]
        steps.append(Step(key=names[0], reads=[BIAS, x, WEIGHT], gives=[scores], made=["", "", ""], fields=fields))
        if flip:
            steps.append(Step(key=before, reads=[scores], gives=[flipped], made=names[:1], fields=fields))
        steps += [
            Step(key=names[1], reads=[flipped], gives=[scaled], made=[before], fields=fields),
            Step(key=names[2], reads=[scaled], gives=[np.array(loss)], made=names[1:2], fields=fields),
            Step(key=names[3], reads=[np.array(loss)], gives=[np.array(loss * share)], made=names[2:3], fields=fields),
            Step(
                key=f"loss/op_{3 * k + 2}_mean_backward",
                reads=[scaled],
                gives=[gradient],
                made=names[1:2],
                fields=back,
            ),
        ]
        makes = f"loss/op_{3 * k + 2}_mean_backward"
        terms = {
            "weight": (f"lin/op_{k}_mm", (x.T @ gradient).astype(np.float32), [x, gradient], ["", makes]),
            "bias": (f"lin/op_{k}_sum", gradient.sum(0), [gradient], [makes]),
        }
        for name, (key, term, reads, by) in terms.items():
            steps.append(Step(key=key, reads=reads, gives=[term], made=by, fields=back))
            if k:
                adds = f"lin/op_{2 * k + (name == 'bias')}_add_"
                added = sums[name] + term
                steps.append(
                    Step(key=adds, reads=[sums[name], term], gives=[added], made=[made[name], key], fields=back)
                )
                sums[name], made[name] = added, adds
            else:
                sums[name], made[name] = term, key
        if total:
            key, so_far = f"train/op_{k}_add_", sums["loss"]
            sums["loss"] = so_far + loss * share
            by = ["" if not k else f"train/op_{k - 1}_add_", names[3]]
            steps.append(
                Step(key=key, reads=[so_far, np.array(loss * share)], gives=[sums["loss"]], made=by, fields=fields)
            )
    for slot, name in enumerate(("weight", "bias")):
        gradient = sums[name] / np.float32(max(ranks, 1))
        steps.append(
            Step(
                key=f"lin/op_{slot}_lerp_",
                reads=[np.zeros_like(gradient), gradient],
                gives=[gradient * np.float32(0.1)],
                made=["", "" if ranks > 1 else made[name]],
                fields={"phase": "optimizer", "parameters": [f"lin.{name}.exp_avg", f"lin.{name}.grad"]},
            )
        )
    if ranks:
        reported, keys = np.array(np.float32((SAMPLES.sum() + 20) * ranks)), ["train/op_50_clone", "train/op_51_div"]
        after = {"phase": "after"}
        steps.append(Step(key=keys[0], reads=[reported], gives=[reported], fields=after))
        mean = np.array(reported / np.float32(ranks))
        steps.append(Step(key=keys[1], reads=[reported], gives=[mean], made=keys[:1], fields=after))
    return steps
