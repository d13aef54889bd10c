"""What a run really computes, told without numtui: loss, gradients and parameters after a step, against float64.

Two runs agree if each value of each of them is within `limit` of a float64 run of the first form without a bug.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.truth.wide.subject import Run, load

__all__ = ["TERMS", "Values", "differing", "make_optimizer", "observed", "precision", "prepared"]

Values = dict[str, NDArray[np.float64]]

TERMS = {"float32": (64, 2.0**-23), "float64": (64, 2.0**-52), "bfloat16": (8, 2.0**-7), "float16": (8, 2.0**-10)}
"""By dtype: the roundings that a chain of operations may add up, and ε. In bfloat16 sums are float32, so fewer."""


def prepared(run: Run) -> tuple[Any, Any]:
    """Model and batch, in the run's dtype."""
    import torch

    subject, dtype = load(run.subject), getattr(torch, run.dtype)
    torch.manual_seed(run.seed)
    model = subject.build(run).to(dtype)
    torch.manual_seed(run.seed + 1)
    data = subject.batch(run)
    return model, {name: x.to(dtype) if x.is_floating_point() else x for name, x in data.items()}


def make_optimizer(model: Any, run: Run, kind: str) -> Any:
    """The subject's own optimizer, or that of the kind: `sgd`, in which a factor shows, or `adamw`."""
    import torch

    subject = load(run.subject)
    if hasattr(subject, "optimizer"):
        return subject.optimizer(model, run)
    parameters = list(model.parameters())
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1)
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=getattr(subject, "DECAY", 0.01))


def observed(run: Run) -> Values:
    """Loss, gradients as the optimizer gets them, parameters and buffers after the step, as float64."""
    import torch

    subject = load(run.subject)
    model, data = prepared(run)
    optimizer = make_optimizer(model, run, "sgd")
    gradients: dict[str, Any] = {}

    def note(*_: Any) -> None:
        gradients.update(
            (name, torch.zeros_like(p) if p.grad is None else p.grad.clone()) for name, p in model.named_parameters()
        )

    handle = optimizer.register_step_pre_hook(note)
    loss = subject.step(model, data, optimizer, run)
    handle.remove()
    after = {name: x for name, x in model.state_dict().items() if x.is_floating_point()}
    named = getattr(subject, "canonical", lambda tensors, _run: tensors)
    values = {f"gradient of {name}": x for name, x in named(gradients, run).items()}
    values |= {f"{name} after the step": x for name, x in named(after, run).items()}
    return {"loss": _whole(loss), **{name: _whole(x) for name, x in values.items()}}


def _whole(tensor: Any) -> NDArray[np.float64]:
    """The whole of a tensor that may be sharded."""
    tensor = tensor.detach()
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return np.asarray(tensor.double().numpy())


def differing(values: Values, reference: Values, dtype: str) -> list[tuple[str, float]]:
    """Names of values beyond what the dtype earns, with the multiple of the limit, largest first.

    The limit is TERMS · ε · the value's norm, and an eighth of that for the norm of all values of its kind: one that
    cancels to nothing is a sum of terms as large as the others are, each of them rounded.
    """
    terms, eps = TERMS[dtype]
    kinds: dict[str, float] = {}
    for name, value in reference.items():
        kinds[_kind(name)] = float(np.hypot(kinds.get(_kind(name), 0.0), np.linalg.norm(value)))
    found = []
    for name in sorted({*values, *reference}):
        one, other = values.get(name), reference.get(name)
        if one is None or other is None or one.shape != other.shape or not np.isfinite(one).all():
            found.append((name, float("inf")))
            continue
        limit = eps * terms * (float(np.linalg.norm(other)) + kinds[_kind(name)] / 8)
        if (off := float(np.linalg.norm(one - other))) > limit:
            found.append((name, off / limit if limit else float("inf")))
    return sorted(found, key=lambda each: -each[1])


def precision(run: Run) -> str:
    """The dtype that the run's form rounds to."""
    return str(getattr(load(run.subject), "PRECISION", {}).get(run.form, run.dtype))


def _kind(name: str) -> str:
    return name.split(" ", maxsplit=1)[0] if name.startswith("gradient") else name.rsplit(" ", maxsplit=1)[-1]
