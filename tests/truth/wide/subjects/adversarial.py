"""Two players with an optimizer each: a critic with a penalty on its gradient, a spectral norm, a generator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "together", "by-hand", "norm-of-rows", "products")
BUGS = (
    Bug(name="penalty-share", phase="", sizes=(1e-3, 0.5)),
    Bug(name="one-sided", phase=""),
    Bug(name="mixing", phase=""),
    Bug(name="not-detached", phase=""),
    Bug(name="sigma", sizes=(1e-3, 0.1)),
    Bug(name="hinge", phase="", sizes=(0.5,)),
    Bug(name="generator-rate", phase="optimizer", parameters="generator.*", sizes=(0.01,)),
    Bug(name="leak", sizes=(0.5,)),
)
B, NOISE, SEEN, DIM = 8, 5, 6, 12


def build(run: Run) -> nn.Module:
    model = nn.ModuleDict(
        {
            "generator": nn.Sequential(nn.Linear(NOISE, DIM), nn.Tanh(), nn.Linear(DIM, SEEN)),
            "critic": nn.ModuleList([nn.Linear(SEEN, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 1)]),
        }
    )
    model.register_buffer("direction", functional.normalize(torch.randn(DIM), dim=0))
    return model


class Pair:
    """Two optimizers as one: the critic steps first."""

    def __init__(self, model: Any, run: Run) -> None:
        rate = 0.05 * run.factor("generator-rate")
        self.critic = torch.optim.SGD(model["critic"].parameters(), lr=0.05)
        self.generator = torch.optim.SGD(model["generator"].parameters(), lr=rate)
        self._hooks: list[Any] = []

    def register_step_pre_hook(self, hook: Any) -> Any:
        return self.generator.register_step_pre_hook(hook)


def optimizer(model: Any, run: Run) -> Any:
    return Pair(model, run)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, SEEN), "z": torch.randn(B, NOISE), "mix": torch.rand(B, 1)}


def score(model: Any, x: Tensor, run: Run) -> Tensor:
    first, second, last = model["critic"]
    leak = 0.2 * run.factor("leak")
    x = functional.leaky_relu(first(x), leak)  # bug: leak
    u = model.direction
    with torch.no_grad():
        v = functional.normalize(second.weight.t() @ u, dim=0)
    sigma = u @ second.weight @ v if run.form != "by-hand" else (u[:, None] * second.weight * v).sum()
    weight = second.weight / (sigma * run.factor("sigma"))  # bug: sigma
    x = functional.leaky_relu(functional.linear(x, weight, second.bias), leak)  # bug: leak, sigma
    return last(x)[:, 0]


def penalty(model: Any, real: Tensor, fake: Tensor, mix: Tensor, run: Run) -> Tensor:
    if run.has("mixing"):
        mix = mix.mean().expand_as(mix)  # bug: mixing
    at = real + mix * (fake - real) if run.form == "products" else mix * fake + (1 - mix) * real  # bug: mixing
    at = at.detach().requires_grad_()
    (slope,) = torch.autograd.grad(score(model, at, run).sum(), at, create_graph=True)
    if run.form == "norm-of-rows":
        length = torch.linalg.vector_norm(slope, dim=1)
    elif run.form == "by-hand":
        length = (slope * slope).sum(1).sqrt()
    else:
        length = slope.norm(2, dim=1)
    over = functional.relu(length - 1) if run.has("one-sided") else length - 1  # bug: one-sided
    return (over * over).mean() if run.form == "products" else over.pow(2).mean()  # bug: one-sided


def critic_loss(model: Any, real: Tensor, fake: Tensor, data: dict[str, Tensor], run: Run) -> Tensor:
    edge = 1.0 * run.factor("hinge")
    if run.form == "together":
        of_real, of_fake = score(model, torch.cat([real, fake]), run).chunk(2)
    else:
        of_real, of_fake = score(model, real, run), score(model, fake, run)
    low, high = functional.relu(edge - of_real), functional.relu(edge + of_fake)  # bug: hinge
    share = 10.0 * run.factor("penalty-share")
    return low.mean() + high.mean() + share * penalty(model, real, fake, data["mix"], run)  # bug: penalty-share


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    fake = model["generator"](data["z"])
    given = fake if run.has("not-detached") else fake.detach()
    loss = critic_loss(model, data["x"], given, data, run)
    loss.backward(retain_graph=run.has("not-detached"))  # bug: not-detached
    optimizer.critic.step()
    optimizer.critic.zero_grad()
    if not run.has("not-detached"):  # the gradient that the critic's loss left is part of the bug
        optimizer.generator.zero_grad()
    fooled = model["generator"](data["z"])
    cost = -score(model, fooled, run).mean()
    cost.backward()  # bug: not-detached
    optimizer.generator.step()
    optimizer.generator.zero_grad()
    optimizer.critic.zero_grad()
    return loss + cost
