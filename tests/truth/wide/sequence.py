"""Common parts of `sequences`: how ranks share the positions of a sequence, what they read, and the bugs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.truth.wide import sharing
from tests.truth.wide.sharing import Data
from tests.truth.wide.subject import Bug, Run

__all__ = [
    "DIVIDED",
    "FORMS",
    "LAYOUTS",
    "LENGTH",
    "PAIRS",
    "RANKS",
    "RING",
    "common_bugs",
    "own",
    "passed_on",
    "positions_of",
    "train",
]

LENGTH = 16


@dataclass(frozen=True)
class Layout:
    """Division of a run.

    Attributes:
        kind: of attention to other ranks' positions: `""` (one process), `gather`, `ring`.
        zigzag: a rank has a part of the sequence and its mirror image, so that all have as much to do.
    """

    kind: str = ""
    ranks: int = 1
    zigzag: bool = False


LAYOUTS: Mapping[str, Layout] = {
    "whole": Layout(),
    "gather2": Layout("gather", 2),
    "gather2-zigzag": Layout("gather", 2, zigzag=True),
    "ring2": Layout("ring", 2),
    "ring2-zigzag": Layout("ring", 2, zigzag=True),
    "ring4": Layout("ring", 4),
}
FORMS = tuple(LAYOUTS)
PAIRS = [*(("whole", form) for form in FORMS[1:]), ("gather2", "ring2"), ("ring2", "ring2-zigzag"), ("ring2", "ring4")]
RANKS = {form: layout.ranks for form, layout in LAYOUTS.items()}
DIVIDED = FORMS[1:]
RING = tuple(form for form, layout in LAYOUTS.items() if layout.kind == "ring")


def common_bugs(odd: str) -> tuple[Bug, ...]:
    """The bugs of divided sequences; `odd`: pattern of the name of the parameter `blocks.1.attention.query.weight`."""
    attention = r"blocks\.1\.attention"
    return (
        Bug(name="offset", module=attention, ranks=(1,), forms=DIVIDED),
        Bug(name="mask", module=attention, ranks=(-1, 0), forms=DIVIDED),
        Bug(name="gradient", module=attention, phase="backward", ranks=(-1, 1), forms=DIVIDED),
        Bug(name="scale", module=attention, sizes=(1e-3, 0.1), ranks=(-1, 1)),
        Bug(name="late", module=r"blocks\.1", sizes=(1e-3,), ranks=(-1, 1)),
        Bug(name="targets", module="", phase="", ranks=(-1, 0), forms=DIVIDED),
        Bug(name="merge", module=attention, forms=RING),
        *sharing.common_bugs(DIVIDED, odd),
    )


def positions_of(run: Run, rank: int) -> Tensor:
    """The places of a rank's tokens in the sequence."""
    layout, every = LAYOUTS[run.form], torch.arange(LENGTH)
    if not layout.zigzag:
        return every.chunk(layout.ranks)[rank]
    pieces = every.chunk(2 * layout.ranks)
    return torch.cat((pieces[rank], pieces[2 * layout.ranks - 1 - rank]))


def own(data: Data, run: Run) -> Data:
    """The part of each sequence that this rank reads; tensors are of [batch, length, ...]."""
    if run.ranks == 1:
        return data
    at = positions_of(run, dist.get_rank())
    found = {name: x[:, at].contiguous() for name, x in data.items()}
    if run.has("targets"):
        found["y"] = torch.cat((found["y"][:, :-1], found["y"][:, :1]), 1)
    return found


def passed_on(*tensors: Tensor, by: int = 1) -> list[Tensor]:
    """What the rank before this one has of these tensors, which the next one gets."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sent, received = [x.contiguous() for x in tensors], [torch.empty_like(x.contiguous()) for x in tensors]
    calls = [dist.P2POp(dist.isend, x, (rank + by) % ranks) for x in sent]
    calls += [dist.P2POp(dist.irecv, x, (rank - by) % ranks) for x in received]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return received


def train(model: Any, data: Data, optimizer: Any, run: Run, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Train one step; `loss` is a mean over tokens."""
    summed = dict(model.named_parameters()) if run.ranks > 1 else {}
    return sharing.train(
        [data],
        run.ranks,
        optimizer,
        run,
        lambda part: loss(model(part["x"]), part["y"]),  # bug: targets
        summed,
        odd="blocks.1.attention.query.weight",
    )
