"""Annotations of the package itself, on simulated ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import spmd_types as spmd
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from capture.placement import Placement
from capture.typed import typed_spec


@pytest.fixture
def groups() -> Iterator[tuple[dist.ProcessGroup, dist.ProcessGroup]]:
    """The groups of rank 5 of 2 × 4 ranks."""
    dist.init_process_group(backend="fake", rank=5, world_size=8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    yield mesh.get_group("dp"), mesh.get_group("tp")
    dist.destroy_process_group()


def test_placements_are_those_of_the_annotations(groups: tuple[dist.ProcessGroup, dist.ProcessGroup]) -> None:
    dp, tp = groups
    mesh = {"dp": 2, "tp": 4}
    for types, spec, placements, shape, offsets in (
        ({dp: spmd.R, tp: spmd.S(0)}, None, ["Replicate", "Shard(0)"], [16, 6], [4, 0]),
        ({dp: spmd.R, tp: spmd.S(1)}, None, ["Replicate", "Shard(1)"], [4, 24], [0, 6]),
        ({}, spmd.PartitionSpec((dp, tp), None), ["Shard(0)", "Shard(0)"], [32, 6], [20, 0]),
        ({dp: spmd.P, tp: spmd.I}, None, ["Partial(sum)", "Replicate"], [4, 6], [0, 0]),
    ):
        parameter = torch.nn.Parameter(torch.ones(4, 6))
        spmd.assert_type(parameter, types, spec)
        expected = {"mesh": mesh, "placements": placements, "shape": shape, "offsets": offsets}
        assert Placement.of(typed_spec(parameter)).as_json() == expected
    varying = torch.ones(4)
    spmd.assert_type(varying, {dp: spmd.V, tp: spmd.R})
    assert Placement.of(typed_spec(varying)).as_json() == {"mesh": mesh, "placements": ["V", "Replicate"]}
