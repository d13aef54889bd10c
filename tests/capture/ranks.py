"""Two gloo ranks: runs of the training example, captured and not, and collectives, with one rank late or not.

`ranks.py FOLDER` writes what it found to FOLDER/rank_N.json and the logs beside it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

from capture import trace
from tests.capture.exchanges import KINDS, overtaking, own
from tests.capture.runs import EXAMPLE, SMALL, run_captured, run_plain
from tests.capture.stock import stock
from tests.two_ranks import CAPTURED, PLAIN, fork_two_ranks


class Late:
    """Collectives that rank 1 joins only when rank 0 is told to go on: what is read before is not the result."""

    def __init__(self, store: Any) -> None:
        self._store, self._times = store, 0

    def start(self, begin: Callable[[], Any]) -> Any:
        """What `begin` returns; rank 0 is through with it while the collective cannot be done."""
        started = self.begin(begin)
        self.release()
        return started

    def begin(self, begin: Callable[[], Any]) -> Any:
        """The same, without letting rank 1 go on."""
        self._times += 1
        if dist.get_rank() == 1:
            self._store.wait([f"go {self._times}"])
        return begin()

    def release(self) -> None:
        """Let rank 1 begin what rank 0 has begun."""
        self._store.set(f"go {self._times}", "")

    def functional(self) -> None:
        name = dist.group.WORLD.group_name
        y = self.start(lambda: torch.ops._c10d_functional.all_reduce(self.own(), "sum", name))
        torch.ops._c10d_functional.wait_tensor(y) + 1

    def wrapped(self) -> None:
        """The result waits for itself when it is used, or looked at by DebugMode: which would never end here."""
        y = self.start(lambda: functional.all_reduce(self.own(), "sum", dist.group.WORLD))
        y + 1

    def never_used(self) -> None:
        x = self.own()
        work = self.start(lambda: dist.all_reduce(x, async_op=True))
        work.wait()

    def in_place(self) -> None:
        x = self.own()
        work = self.start(lambda: dist.all_reduce(x, async_op=True))
        work.wait()
        x + 1

    def gathered(self) -> None:
        both = torch.empty(8)
        work = self.start(lambda: dist.all_gather_into_tensor(both, self.own(), async_op=True))
        first = both[:4]
        work.wait()
        first + 1

    @staticmethod
    def own() -> Any:
        """Four ones on rank 0, four twos on rank 1."""
        return torch.full((4,), 1.0 + dist.get_rank())


def main(ports: Sequence[int]) -> None:
    """See the module, as the rank that the environment names."""
    folder = Path(sys.argv[1])
    rank = int(os.environ["RANK"])
    found: dict[str, Any] = {}
    meetings = iter(ports)
    for variant in (*CAPTURED, *PLAIN):
        arguments = shlex.join(SMALL) + " " + variant
        os.environ["MASTER_PORT"] = str(next(meetings))
        found[variant] = [run_plain(EXAMPLE, arguments)]
        if variant in CAPTURED:
            os.environ["MASTER_PORT"] = str(next(meetings))
            found[variant].append(run_captured(EXAMPLE, folder / variant, arguments).printed)

    def recorded(kind: str, **settings: Any) -> Any:
        return trace(nn.Identity(), path=folder / kind / "numerics" / f"rank_{rank}_activations.log", **settings)

    os.environ["MASTER_PORT"] = str(next(meetings))
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    late = Late(dist.distributed_c10d._get_default_store())
    for kind in (late.functional, late.in_place, late.gathered, late.never_used, late.wrapped):
        if kind != late.wrapped:
            found[f"stock {kind.__name__}"] = [(r.op, r.hashes) for r in stock(kind)]
        with recorded(kind.__name__):
            kind()
    with recorded("unfinished"):
        begun = late.begin(lambda: dist.all_reduce(late.own(), async_op=True))
    late.release()
    begun.wait()

    for name, call in KINDS.items():
        with recorded(name):
            call()
    same_ranks, last = dist.new_group([0, 1]), dist.new_group([1])
    with recorded("overtaking"):
        overtaking(same_ranks)
    with recorded("reductions"):
        for op in (dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            dist.all_reduce(own(4), op=op)
        functional.all_reduce(own(4), "avg", dist.group.WORLD) + 1
        if rank == 1:
            dist.broadcast(own(4), src=1, group=last)
    with recorded("no sketch", sketch=False):
        dist.all_reduce(own(4))
    dist.destroy_process_group()
    (folder / f"rank_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    fork_two_ranks(main, 2 * len(CAPTURED) + len(PLAIN) + 1)
