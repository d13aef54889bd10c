"""AdamW of the library in its three forms, by hand and over one flat buffer; averaged weights beside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from tests.truth.wide.subject import Bug, Run

FORMS = ("foreach", "for-loop", "fused", "by-hand", "flat")
BUGS = (
    Bug(name="eps", phase="optimizer", parameters=r"model\..*(weight|bias)|flat.*", ops=".*", sizes=(1e3,)),
    Bug(name="decay", phase="optimizer", parameters=r"model\..*weight|flat.*", ops=".*", sizes=(0.05, 1.0)),
    Bug(name="rate", phase="optimizer", parameters=r"model\..*|flat.*", ops=".*", sizes=(1e-3, 0.5)),
    Bug(name="second-beta", phase="optimizer", parameters=r".*(exp_avg_sq|\.v|weight|bias).*", ops=".*", sizes=(0.01,)),
    Bug(name="clip", phase="", sizes=(1e-2, 1.0)),
    Bug(name="average", phase="", sizes=(1e-3, 0.3)),
    Bug(name="coupled-decay", phase="optimizer", parameters=r".*", ops=".*", forms=("foreach", "for-loop", "fused")),
)
DIM = 12


class ByHand(Optimizer):
    """AdamW as its paper has it, a parameter at a time, or all in one buffer."""

    def __init__(self, parameters: Any, flat: bool, **settings: Any) -> None:
        super().__init__(parameters, settings)
        self.flat = flat

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = group["params"]
            if self.flat:
                whole = torch.cat([p.flatten() for p in parameters])
                slope = torch.cat([p.grad.flatten() for p in parameters])
                self.update(whole, slope, self.state[parameters[0]], group)
                sizes = [p.numel() for p in parameters]
                for p, part in zip(parameters, whole.split(sizes), strict=True):
                    p.copy_(part.view_as(p))
            else:
                for p in parameters:
                    self.update(p, p.grad, self.state[p], group)

    @staticmethod
    def update(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        rate, (b1, b2), eps, decay = group["lr"], group["betas"], group["eps"], group["weight_decay"]
        if not state:
            state |= {"m": torch.zeros_like(p), "v": torch.zeros_like(p), "t": 0}
        state["t"] += 1
        p.mul_(1 - rate * decay)
        state["m"].mul_(b1).add_(g, alpha=1 - b1)
        state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
        m, v = state["m"] / (1 - b1 ** state["t"]), state["v"] / (1 - b2 ** state["t"])
        p.sub_(rate * m / (v.sqrt() + eps))


def build(run: Run) -> nn.Module:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(DIM, 20), nn.Tanh(), nn.Linear(20, 5))

    model, average = net(), net()
    average.load_state_dict(model.state_dict())
    return nn.ModuleDict({"model": model, "average": average.requires_grad_(False)})


def optimizer(model: Any, run: Run) -> Any:
    parameters, f = list(model["model"].parameters()), run.factor
    usual: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-7, "weight_decay": 0.1}
    if run.form in ("by-hand", "flat"):
        made: Any = ByHand(parameters, run.form == "flat", **usual)
    else:
        made = torch.optim.AdamW(parameters, foreach=run.form == "foreach", fused=run.form == "fused", **usual)
    for n, p in enumerate(parameters):
        p.grad = torch.full_like(p, 0.01 * (n + 1))
    made.step()
    made.zero_grad()
    made.param_groups[0].update(
        lr=1e-2 * f("rate"), betas=(0.9, 0.99 / f("second-beta")), eps=1e-7 * f("eps"), weight_decay=0.1 * f("decay")
    )
    if run.has("coupled-decay"):
        made.param_groups[0]["decoupled_weight_decay"] = False
    return made


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(16, DIM), "y": torch.randint(5, (16,))}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    loss = functional.cross_entropy(model["model"](data["x"]), data["y"])
    loss.backward()
    # bug: clip
    nn.utils.clip_grad_norm_(model["model"].parameters(), 0.2 * run.factor("clip"), foreach=run.form != "for-loop")
    optimizer.step()
    optimizer.zero_grad()
    weight = 0.1 * run.factor("average")
    with torch.no_grad():
        means, values = list(model["average"].parameters()), list(model["model"].parameters())
        if run.form == "foreach":
            torch._foreach_lerp_(means, values, weight)  # bug: average
        else:
            for mean, value in zip(means, values, strict=True):
                if run.form == "by-hand":
                    mean.mul_(1 - weight).add_(value, alpha=weight)  # bug: average
                else:
                    mean.lerp_(value, weight)  # bug: average
    return loss
