"""Long convolutions: filters by complex exponentials, products in frequency, gates, a loss over windows' spectra."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("frequency", "toeplitz", "recurrent", "direct", "complex-frequency")
BUGS = (
    Bug(
        name="wraps", module=r"layers\.{}", layers=True, forms=("frequency", "toeplitz", "direct", "complex-frequency")
    ),
    Bug(name="step-size", module=r"layers\.{}", sizes=(1e-3, 0.3), layers=True),
    Bug(name="skip", module=r"layers\.{}", sizes=(1e-4, 0.5), layers=True),
    Bug(name="gate-open", module=r"layers\.{}", layers=True),
    Bug(name="imaginary", module=r"layers\.{}", layers=True),
    Bug(name="log-floor", phase="", sizes=(1e3,)),
    Bug(name="half-window", phase=""),
    Bug(name="norm-after", module=r"layers\.{}(\.norm)?", layers=True),
)
B, T, DIM, STATES = 2, 24, 6, 3


class Layer(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.log_step = nn.Parameter(torch.rand(DIM) - 2.0)
        self.log_real = nn.Parameter(torch.zeros(DIM, STATES))
        self.imaginary = nn.Parameter(math.pi * torch.arange(STATES).expand(DIM, STATES).clone())
        self.c_real = nn.Parameter(torch.randn(DIM, STATES))
        self.c_imaginary = nn.Parameter(torch.randn(DIM, STATES))
        self.skip = nn.Parameter(torch.randn(DIM))
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.out = nn.Linear(DIM, 2 * DIM)

    def poles(self, run: Run) -> tuple[Tensor, Tensor]:
        """Of the recurrence, and what each state adds, complex [DIM, STATES]."""
        delta = self.log_step.exp() * run.factor("step-size", self.index)  # bug: step-size
        a = torch.complex(-self.log_real.exp(), self.imaginary)
        lam = a * delta[:, None]  # bug: step-size
        c = torch.complex(self.c_real, self.c_imaginary)
        return lam, c * (lam.exp() - 1) / a

    def kernel(self, run: Run) -> Tensor:
        """[DIM, T]."""
        lam, c = self.poles(run)
        powers = torch.exp(lam[..., None] * torch.arange(T))
        made = torch.einsum("dn,dnt->dt", c, powers)
        return 2 * (made.imag if run.has("imaginary", self.index) else made.real)  # bug: imaginary

    def mixed(self, u: Tensor, run: Run) -> Tensor:
        """[B, DIM, T] convolved causally."""
        if run.form == "recurrent":
            lam, c = self.poles(run)
            state, made = torch.zeros(B, DIM, STATES, dtype=lam.dtype), []
            for t in range(T):
                state = state * lam.exp() + u[:, :, t, None]
                y = (c * state).sum(-1)
                made.append(2 * (y.imag if run.has("imaginary", self.index) else y.real))  # bug: imaginary
            return torch.stack(made, -1)
        k = self.kernel(run)
        size = T if run.has("wraps", self.index) else 2 * T
        if run.form == "toeplitz":
            lag = torch.arange(T)[:, None] - torch.arange(T)
            if run.has("wraps", self.index):
                return torch.einsum("dts,bds->bdt", k[:, lag % T], u)  # bug: wraps
            matrix = k[:, lag.clamp(min=0)] * (lag >= 0)
            return torch.einsum("dts,bds->bdt", matrix, u)
        if run.form == "direct":
            left = u[..., 1:] if run.has("wraps", self.index) else torch.zeros_like(u[..., 1:])
            return functional.conv1d(torch.cat([left, u], -1), k.flip(-1)[:, None], groups=DIM)  # bug: wraps
        if run.form == "complex-frequency":
            product = torch.fft.fft(u, n=size) * torch.fft.fft(k, n=size)  # bug: wraps
            return torch.fft.ifft(product).real[..., :T]
        return torch.fft.irfft(torch.fft.rfft(u, n=size) * torch.fft.rfft(k, n=size), n=size)[..., :T]  # bug: wraps

    def forward(self, x: Tensor, run: Run) -> Tensor:
        late = run.has("norm-after", self.index)
        u = (x if late else self.norm(x)).transpose(1, 2)  # bug: norm-after
        y = self.mixed(u, run) + u * (self.skip * run.factor("skip", self.index))[:, None]  # bug: skip, norm-after
        value, gate = self.out(functional.gelu(y.transpose(1, 2))).chunk(2, -1)  # bug: norm-after
        made = value if run.has("gate-open", self.index) else value * torch.sigmoid(gate)  # bug: gate-open
        return self.norm(x + made) if late else x + made  # bug: gate-open, norm-after


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(Layer(i) for i in range(2)), "head": nn.Linear(DIM, 1)})


def optimizer(model: Any, run: Run) -> Any:
    return torch.optim.Adamax(model.parameters(), lr=1e-3, weight_decay=1e-2)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, T, DIM), "y": torch.randn(B, T)}


def spectrum(x: Tensor, run: Run) -> Tensor:
    window = torch.ones(8) if run.has("half-window") else torch.hann_window(8)  # bug: half-window
    if run.form == "direct":
        cut = x.unfold(-1, 8, 4) * window.to(x.dtype)  # bug: half-window
        made = torch.fft.rfft(cut).transpose(-1, -2)  # bug: half-window
    else:
        made = torch.stft(x, 8, 4, window=window.to(x.dtype), center=False, return_complex=True)  # bug: half-window
    return (made.abs().square() + 1e-4 * (1 + run.size if run.has("log-floor") else 1)).log()  # bug: log-floor


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = data["x"]
    for layer in model["layers"]:
        x = layer(x, run)
    made = model["head"](x)[..., 0]
    loss = functional.l1_loss(spectrum(made, run), spectrum(data["y"], run)) + functional.mse_loss(made, data["y"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
