"""Common parts of `experts`: which rank holds which experts, how tokens come to them, and the bugs of it.

A subject's mixture has the experts `experts.NUMBER`, or their parameters stacked, with the names of one expert and `_`
in place of dots: `stack.up_weight` is `experts.0.up.weight`, `experts.1.up.weight`, ….
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.truth.wide import sharing
from tests.truth.wide.sharing import Data
from tests.truth.wide.subject import Bug, Run

__all__ = [
    "EXPERTS",
    "FORMS",
    "LAYOUTS",
    "PAIRS",
    "RANKS",
    "Copied",
    "Experts",
    "Summed",
    "canonical",
    "common_bugs",
    "local",
    "own",
    "started",
    "train",
]

EXPERTS = 4


@dataclass(frozen=True)
class Layout:
    """Division of a run.

    Attributes:
        parts: of the batch, which a rank reads one after the other, or ranks each one of.
        stacked: parameters of all experts are in one tensor.
        kind: `""` (one process), `tokens` (they travel to the ranks of their experts), `sum` (each rank reads all
            samples, and the results of all experts are added up).
        renumbered: a rank counts its experts from zero.
    """

    parts: int = 1
    stacked: bool = False
    kind: str = ""
    renumbered: bool = False

    @property
    def ranks(self) -> int:
        return 2 if self.kind else 1


LAYOUTS: Mapping[str, Layout] = {
    "whole": Layout(),
    "micro2": Layout(2),
    "stacked": Layout(stacked=True),
    "stacked2": Layout(2, stacked=True),
    "ep2": Layout(2, kind="tokens"),
    "ep2-renumbered": Layout(2, kind="tokens", renumbered=True),
    "ep2-stacked": Layout(2, kind="tokens", stacked=True),
    "ep2-sum": Layout(kind="sum"),
}
FORMS = tuple(LAYOUTS)
PAIRS = [
    *(("whole", form) for form in FORMS[1:]),
    *(("micro2", form) for form in FORMS[3:-1]),
    ("stacked", "ep2-stacked"), ("stacked2", "ep2-stacked"), ("stacked", "ep2-sum"),
    ("ep2", "ep2-renumbered"), ("ep2", "ep2-stacked"),
]  # fmt: skip
RANKS = {form: layout.ranks for form, layout in LAYOUTS.items()}
TOKENS = tuple(form for form, layout in LAYOUTS.items() if layout.kind == "tokens")
DIVIDED = tuple(form for form, layout in LAYOUTS.items() if layout.kind)


def common_bugs() -> tuple[Bug, ...]:
    """The bugs of experts on ranks, and of routing."""
    mixture, expert = r"blocks\.1\.mixture(\..*)?", r"blocks\.\d\.mixture\..*"
    router = r"blocks\.1\.mixture\.router\.weight"
    return (
        Bug(name="order", module=mixture, forms=TOKENS, ranks=(-1, 1)),
        Bug(name="switched", module=mixture, forms=TOKENS, ranks=(-1, 1)),
        Bug(name="precision", module=mixture),
        Bug(name="weights", module=mixture, ranks=(-1, 1)),
        Bug(name="expert", module=mixture, sizes=(1e-3, 0.1)),
        Bug(name="late", module=r"blocks\.1", sizes=(1e-3,), ranks=(-1, 1)),
        Bug(name="balance", phase="", module="", sizes=(1.0,)),
        Bug(name="start", phase="", parameters=router, sizes=(0.01, 1.0), forms=DIVIDED, ranks=(1,)),
        Bug(name="doubled", phase="", parameters=expert, forms=TOKENS),
        Bug(name="samples", phase="", module="", forms=TOKENS, ranks=(1,)),
        *sharing.common_bugs(TOKENS, router),
    )


class Copied(torch.autograd.Function):
    """A tensor that each rank uses for its experts alone: their gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        whole = gradients[0].clone()
        dist.all_reduce(whole)
        return whole


class Summed(torch.autograd.Function):
    """The sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        whole = x.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Stack(nn.Module):
    """Experts whose parameters are stacked."""

    def __init__(self, experts: list[nn.Module]) -> None:
        super().__init__()
        of_each = [dict(expert.named_parameters()) for expert in experts]
        for name in of_each[0]:
            stacked = torch.stack([of[name].detach() for of in of_each])
            self.register_parameter(name.replace(".", "_"), nn.Parameter(stacked))


class Experts(nn.Module):
    """The experts of this rank, stacked or one by one, and the router of a layer."""

    def __init__(self, run: Run, layer: int, experts: list[nn.Module], router: nn.Module) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        layout, mine = LAYOUTS[run.form], local(run)
        here = [experts[k] for k in mine]
        if layout.stacked:
            self.stack = Stack(here)
        else:
            numbers = range(len(mine)) if layout.renumbered else mine
            self.experts = nn.ModuleDict({str(n): each for n, each in zip(numbers, here, strict=True)})
        self.router = router

    def scores(self, x: Tensor) -> Tensor:
        """Scores that the router gives each expert for each token."""
        if self.run.has("precision", self.layer):
            return (x.bfloat16() @ self.router.weight.bfloat16().T).to(x.dtype)  # bug: precision
        return self.router(x)  # bug: precision, start


def local(run: Run) -> range:
    """The numbers of this rank's experts."""
    if not LAYOUTS[run.form].kind:
        return range(EXPERTS)
    rank, each = dist.get_rank(), EXPERTS // LAYOUTS[run.form].ranks
    return range(rank * each, rank * each + each)


def started(model: Any, run: Run) -> Any:
    """The model, whose router a bug may have begun otherwise on one rank."""
    if run.has("start"):
        with torch.no_grad():
            model.blocks[1].mixture.router.weight.mul_(run.factor("start"))  # bug: start
    return model


def own(data: Data, run: Run) -> Data:
    """The samples that this rank reads."""
    if LAYOUTS[run.form].kind != "tokens":
        return data
    which = (dist.get_rank() + run.has("samples")) % 2
    return {name: x.chunk(2)[which].clone() for name, x in data.items()}


def train(model: Any, data: Data, optimizer: Any, run: Run, loss: Callable[[Any, Data, Run], Tensor]) -> Tensor:
    """Train one step; `loss` is a mean over samples."""
    layout = LAYOUTS[run.form]
    summed = {}
    if layout.kind == "tokens":
        summed = {name: p for name, p in model.named_parameters() if ".experts." not in name and ".stack." not in name}
    own_parts = layout.parts if not layout.kind else 1
    parts = [dict(zip(data, of, strict=True)) for of in zip(*(x.chunk(own_parts) for x in data.values()), strict=True)]

    def of_part(part: Data) -> Tensor:
        return loss(model, part, run)

    if run.has("doubled"):
        for parameter in (p for name, p in model.named_parameters() if name not in summed):
            parameter.register_hook(lambda gradient: gradient * 2)  # bug: doubled
    return sharing.train(parts, layout.parts, optimizer, run, of_part, summed, odd="blocks.1.mixture.router.weight")


def canonical(tensors: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Tensors by the names that they have in one process, those of all ranks' experts."""
    layout, found = LAYOUTS[run.form], dict[str, Any]()
    first = local(run)[0]
    for name, tensor in tensors.items():
        head, stacked, tail = name.partition(".stack.")
        if stacked:
            found |= {f"{head}.experts.{first + k}.{tail.replace('_', '.')}": each for k, each in enumerate(tensor)}
            continue
        head, one, tail = name.partition(".experts.")
        if one and layout.renumbered:
            number, _, tail = tail.partition(".")
            name = f"{head}.experts.{first + int(number)}.{tail}"
        found[name] = tensor
    if not layout.kind:
        return found
    of_ranks: list[Any] = [None] * layout.ranks
    dist.all_gather_object(of_ranks, found)
    return {name: tensor for of in of_ranks for name, tensor in of.items()}
