"""Plain tensors that are annotated as spmd_types does it; `tests/integrations` has the package itself."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import Enum
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch

from capture.placement import Placement
from capture.typed import typed_spec
from tests.capture.conftest import Record
from tests.capture.test_placement import sketch


class Kind(Enum):
    """The types of an axis."""

    R, I, V, P = "RIVP"  # noqa: E741  the package's own names


@dataclass(frozen=True)
class Layout:
    """The ranks of an axis."""

    sizes_and_strides: tuple[tuple[int, int], ...]


@dataclass(frozen=True, repr=False)
class Axis:
    """An axis of a mesh, as the package describes it."""

    name: str
    layout: Layout

    def size(self) -> int:
        return torch.Size(size for size, _ in self.layout.sizes_and_strides).numel()

    def __repr__(self) -> str:
        return self.name


DP, TP = Axis("mesh_dp", Layout(((2, 2),))), Axis("mesh_tp", Layout(((2, 1),)))


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the capture asks of the package."""
    fake: Any = ModuleType("spmd_types")
    fake.get_local_type = lambda tensor: getattr(tensor, "_local_type", {})
    fake.get_partition_spec = lambda tensor: getattr(tensor, "_partition_spec", None)
    monkeypatch.setitem(sys.modules, "spmd_types", fake)


def annotated(tensor: torch.Tensor, types: dict[Axis, Kind], spec: tuple[Any, ...] | None = None) -> torch.Tensor:
    """The tensor with annotations, which are attributes."""
    noted: Any = tensor
    noted._local_type, noted._partition_spec = types, spec
    return tensor


def placement(tensor: torch.Tensor, rank: int) -> dict[str, Any]:
    return Placement.of(typed_spec(tensor), rank=rank).as_json()


@pytest.mark.parametrize(
    ("spec", "cut"),
    [
        ((TP, None), lambda x, dp, tp: x.chunk(2)[tp]),
        ((DP, TP), lambda x, dp, tp: x.chunk(2)[dp].chunk(2, 1)[tp]),
        (((DP, TP), None), lambda x, dp, tp: x.chunk(4)[2 * dp + tp]),
        ((None, (TP, DP)), lambda x, dp, tp: x.chunk(4, 1)[2 * tp + dp]),
    ],
)
def test_the_sketches_of_shards_add_up(spec: tuple[Any, ...], cut: Any) -> None:
    whole = torch.randn(8, 12, dtype=torch.float64)
    total, copies = torch.zeros(16, dtype=torch.float64), 1 if DP in torch.utils._pytree.tree_leaves(spec) else 2
    for dp, tp in product(range(2), range(2)):
        part = annotated(cut(whole, dp, tp).clone(), {DP: Kind.V if copies == 1 else Kind.R, TP: Kind.V}, spec)
        placed = Placement.of(typed_spec(part), rank=2 * dp + tp)
        assert placed.shape == (8, 12)
        assert placed.mesh == (("dp", 2), ("tp", 2))
        total += sketch(part, placed.positions())
    torch.testing.assert_close(total, copies * sketch(whole), rtol=1e-12, atol=1e-12)


def test_types_have_the_names_of_dtensor() -> None:
    x = annotated(torch.ones(4, 6), {TP: Kind.P, DP: Kind.I})
    assert placement(x, rank=3) == {
        "mesh": {"dp": 2, "tp": 2},
        "placements": ["Replicate", "Partial(sum)"],
        "shape": [4, 6],
        "offsets": [0, 0],
    }
    shard = annotated(torch.ones(4, 6), {TP: Kind.V, DP: Kind.R}, (None, TP))
    assert placement(shard, rank=3) == {
        "mesh": {"dp": 2, "tp": 2},
        "placements": ["Replicate", "Shard(1)"],
        "shape": [4, 12],
        "offsets": [0, 6],
    }


def test_of_what_only_varies_no_whole_is_known() -> None:
    x = annotated(torch.ones(4, 6), {TP: Kind.V})
    assert placement(x, rank=1) == {"mesh": {"tp": 2}, "placements": ["V"]}


def test_other_tensors_and_other_programs_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed_spec(torch.ones(2)) is None
    monkeypatch.delitem(sys.modules, "spmd_types")
    assert typed_spec(annotated(torch.ones(2), {TP: Kind.R})) is None


def test_parameters_are_logged_with_their_placement(record: Record) -> None:
    """At the start of the step, and as the optimizer leaves them."""
    model = torch.nn.Linear(6, 4)
    annotated(model.weight, {TP: Kind.V}, (TP, None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(3, 6)).sum().backward()
        optimizer.step()

    log = record(model, step)
    whole = {"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": [8, 6], "offsets": [0, 0]}
    assert log.run["parameter_placements"] == {"weight": whole}
    changed = {row.parameters[0]: row.fields for row in log if row.phase == "optimizer"}
    assert json.loads(changed["weight"]["Placement"]) == whole
    assert "Placement" not in changed["bias"]
