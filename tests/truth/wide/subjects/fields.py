"""A physical field: a network of coordinates, second derivatives by autograd in several ways, weights of its losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vmap

from tests.truth.wide.subject import Bug, Run

FORMS = ("grad", "grad-columns", "jacobian", "forward-over", "hand-made")
PAIRS = (("grad", "grad-columns"), ("grad", "jacobian"), ("grad", "forward-over"), ("grad", "hand-made"))
BUGS = (
    Bug(name="viscosity", phase="", sizes=(0.05, 0.5)),
    Bug(name="sign", phase=""),
    Bug(name="boundary-weight", phase="", sizes=(1e-3, 0.5)),
    Bug(name="wave-number", phase="", sizes=(1e-3,)),
    Bug(name="mean-abs", phase=""),
    Bug(name="detached", phase=""),
    Bug(name="edge-shifted", phase=""),
)
N, EDGE, DIM, WAVES = 12, 5, 10, 4


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(2, WAVES))
        self.one, self.two, self.out = nn.Linear(2 * WAVES, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 1)
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        phase = x @ self.waves * self.factor  # bug: wave-number
        h = torch.cat([phase.sin(), phase.cos()], -1)  # bug: wave-number
        h = torch.tanh(self.one(h))
        return self.out(torch.sin(2.0 * self.two(h)))[..., 0]


def build(run: Run) -> nn.Module:
    model = Field()
    model.factor = run.factor("wave-number")
    return model


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.rand(N, 2), "edge": torch.rand(EDGE, 2), "at_edge": torch.randn(EDGE)}


def derivatives(model: Any, x: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor]:
    """u, its gradient [N, 2] and second derivatives [N, 2]."""
    if run.form in ("jacobian", "forward-over"):
        parameters = dict(model.named_parameters()) | dict(model.named_buffers())

        def u(point: Tensor) -> Tensor:
            return functional_call(model, parameters, (point,))

        if run.form == "jacobian":
            return vmap(u)(x), vmap(jacrev(u))(x), vmap(jacrev(jacrev(u)))(x).diagonal(dim1=-2, dim2=-1)
        first = jacrev(u)
        axes = torch.eye(2, dtype=x.dtype)
        second = [vmap(lambda point, e=e: (jvp(first, (point,), (e,))[1] * e).sum())(x) for e in axes]
        return vmap(u)(x), vmap(first)(x), torch.stack(second, -1)
    x = x.detach().requires_grad_()
    made = model(x)
    (slope,) = torch.autograd.grad(made.sum(), x, create_graph=True)
    if run.form == "hand-made":
        (both,) = torch.autograd.grad(
            slope, x, torch.eye(2, dtype=x.dtype)[:, None].expand(2, N, 2), True, True, is_grads_batched=True
        )
        return made, slope, both.diagonal(dim1=0, dim2=2)
    if run.form == "grad-columns":
        columns = [torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2)]
        return made, slope, torch.stack(columns, -1)
    second = torch.zeros_like(x)
    for i in range(2):
        axis = torch.zeros_like(x)
        axis[:, i] = 1
        second = second + torch.autograd.grad(slope, x, axis, create_graph=True)[0] * axis
    return made, slope, second


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    made, slope, second = derivatives(model, data["x"], run)
    turn = -1.0 if run.has("sign") else 1.0
    carried = made.detach() if run.has("detached") else made
    flow = slope[:, 1] + turn * carried * slope[:, 0]  # bug: sign, detached
    rest = flow - 0.05 * run.factor("viscosity") * second[:, 0]  # bug: viscosity, sign
    inside = rest.abs().mean() if run.has("mean-abs") else rest.square().mean()  # bug: mean-abs
    edge = data["edge"].roll(1, -1) if run.has("edge-shifted") else data["edge"]  # bug: edge-shifted
    outside = (model(edge) - data["at_edge"]).square().mean()  # bug: edge-shifted
    loss = inside + 10.0 * run.factor("boundary-weight") * outside  # bug: boundary-weight
    loss.backward()  # bug: detached
    optimizer.step()
    optimizer.zero_grad()
    return loss
