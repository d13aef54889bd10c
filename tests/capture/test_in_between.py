"""Between recorded operations: views that make autograd nodes, copies that a process group makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.capture.conftest import Record


class Use(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sin(x)


class Split(nn.Module):
    """Splits in its own forward; the next operation that is recorded is in another module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.use = Use()

    def forward(self, x: Any) -> Any:
        a, b = self.inner(x).split(4, dim=-1)
        return self.use(a) * b


def test_the_backward_pass_of_a_view_belongs_to_where_the_view_was_taken(record: Record) -> None:
    model, x = Split(), torch.ones(2, 8)
    log = record(model, lambda: model(x).sum().backward())
    (joined,) = log.of("cat")
    assert (joined.module, joined.phase) == ("Split", "backward")
    (sine,) = log.of("cos")
    assert sine.module == "use"


def test_nodes_that_a_pass_has_put_in_again_are_recomputed(record: Record) -> None:
    """The name is all that torch's passes leave at what they copy into the backward part of a graph."""
    graph = make_fx(lambda x: torch.sin(x) * torch.sin(x))(torch.ones(4))
    first, second = (node for node in graph.graph.nodes if node.target is torch.ops.aten.sin.default)
    second.name = first.name + "_recomputed"
    second.meta["autograd_backward"] = True
    graph.recompile()
    log = record(nn.Identity(), lambda: graph(torch.ones(4)))
    assert [(row.phase, row.fields.get("Recompute")) for row in log.of("sin")] == [
        ("forward", None),
        ("backward", "true"),
    ]


@pytest.fixture
def group() -> Iterator[None]:
    """A gloo process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_result_that_is_copied_into_place_by_the_wait_is_read_after_it(
    record: Record, group: None, asynchronous: bool
) -> None:
    def step() -> None:
        result = torch.full((4,), float("inf"))
        work = dist.reduce_scatter_tensor(result, torch.ones(4), async_op=asynchronous)
        if asynchronous:
            work.wait()
        result + 1

    log = record(nn.Identity(), step)
    (row,) = log.of("_reduce_scatter_base_")
    assert float(row.fields["Output hash"]) == 4.0
    assert log.of("copy_")[0].digests == row.digests == log.of("add")[0].input_digests[:1]
