from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import placement_types as torch_placements

from capture.placement import Placement
from capture.sketch import Positions
from capture.statistics import Statistics
from tests.capture.conftest import Record

strided: Any = getattr(torch_placements, "_StridedShard")  # noqa: B009  has no public name


@dataclass(frozen=True)
class Mesh:
    """What a placement asks of a DeviceMesh, for meshes of any size without processes."""

    shape: tuple[int, ...]
    coordinate: tuple[int, ...] | None = None
    mesh_dim_names: tuple[str, ...] | None = None

    @property
    def mesh(self) -> torch.Tensor:
        return torch.arange(torch.Size(self.shape).numel()).view(self.shape)

    def get_coordinate(self) -> tuple[int, ...] | None:
        return self.coordinate


@dataclass
class Meta:
    shape: tuple[Any, ...]


@dataclass
class Spec:
    mesh: Mesh
    placements: tuple[Any, ...]
    tensor_meta: Meta | None = None
    shard_order: Any = field(default=None)


def sketch(tensor: torch.Tensor, positions: Positions | None = None) -> torch.Tensor:
    statistics = Statistics(digest=False)
    statistics.measure(tensor, positions)
    return torch.tensor(struct.unpack("<16d", statistics.results()[0].sketch or b""), dtype=torch.float64)


def local_part(
    x: torch.Tensor, placements: tuple[Any, ...], sizes: tuple[int, ...], at: tuple[int, ...]
) -> torch.Tensor:
    """As torch itself cuts it."""
    for placement, size, index in zip(placements, sizes, at, strict=True):
        if isinstance(placement, (Shard, strided)):
            x = placement._split_tensor(x, size, with_padding=False, contiguous=True)[0][index]
    return x


sizes = st.integers(1, 11)
cuts = st.one_of(
    st.builds(Shard, st.integers(0, 1)),
    st.builds(lambda dim, factor: strided(dim, split_factor=factor), st.integers(0, 1), st.integers(1, 4)),
    st.just(Replicate()),
)


@given(st.tuples(sizes, sizes, sizes), st.lists(st.tuples(st.integers(1, 4), cuts), min_size=1, max_size=3))
def test_every_rank_knows_where_its_elements_stand(shape: tuple[int, ...], dims: list[tuple[int, Any]]) -> None:
    """The global element numbers, cut by torch, are the positions; and the sketches of one copy add up."""
    mesh_shape, placements = tuple(size for size, _ in dims), tuple(cut for _, cut in dims)
    x = torch.arange(torch.Size(shape).numel()).view(shape)
    seen: list[int] = []
    total = torch.zeros(16, dtype=torch.float64)
    for rank, at in enumerate(product(*map(range, mesh_shape))):
        local = local_part(x, placements, mesh_shape, at)
        placed = Placement.of(Spec(Mesh(mesh_shape), placements, Meta(shape)), rank=rank)
        positions = placed.positions()
        assert positions is not None
        assert positions == Placement.of(Spec(Mesh(mesh_shape, at), placements, Meta(shape))).positions()
        if local.numel() == 0:
            assert len(positions) == 0
            continue
        assert positions.local_shape == local.shape
        held = [[i for run in runs for i in run] for runs in positions.axes]
        assert x[torch.tensor(held[0])][:, torch.tensor(held[1])][:, :, torch.tensor(held[2])].equal(local)
        firsts = [axis[0] for axis in held]
        assert placed.as_json()["offsets"] == firsts
        # of replicas, one
        if not any(index and isinstance(cut, Replicate) for index, cut in zip(at, placements, strict=True)):
            seen += local.reshape(-1).tolist()
            total += sketch(local, positions)
    assert sorted(seen) == list(range(x.numel()))
    assert (total - sketch(x)).abs().max() <= 1e-12 * float(x.double().norm())


def test_partial_sums_have_the_positions_of_the_whole() -> None:
    terms = torch.randn(2, 9, 5, dtype=torch.float64)
    spec = Spec(Mesh((2,), (1,), ("tp",)), (Partial(),), Meta((9, 5)))
    positions = Placement.of(spec).positions()
    assert positions is not None
    assert positions.whole
    total = sum(sketch(term, positions) for term in terms)
    torch.testing.assert_close(total, sketch(terms.sum(0)), rtol=1e-12, atol=1e-12)
    assert Placement.of(spec).as_json() == {
        "mesh": {"tp": 2},
        "placements": ["Partial(sum)"],
        "shape": [9, 5],
        "offsets": [0, 0],
    }


def test_the_log_says_how_it_is_placed() -> None:
    placements = (strided(0, split_factor=2), Shard(0), Replicate())
    found = Placement.of(Spec(Mesh((2, 2, 3), (1, 0, 2)), placements, Meta((8, 3)))).as_json()
    assert found == {
        "mesh": {"0": 2, "1": 2, "2": 3},
        "placements": ["StridedShard(0, 2)", "Shard(0)", "Replicate"],
        "shape": [8, 3],
        "offsets": [2, 0],
    }


def test_what_is_not_known_is_left_out() -> None:
    outside = Placement.of(Spec(Mesh((2,), None), (Shard(0),), Meta((4,))))
    assert outside.positions() is None
    assert outside.as_json() == {"mesh": {"0": 2}, "placements": ["Shard(0)"], "shape": [4]}
    assert Placement.of(Spec(Mesh((2,), (0,)), (Shard(0),), Meta((4,))), rank=7).positions() is None
    assert Placement.of(Spec(Mesh((2,), (0,)), (Shard(0),))).as_json() == {"mesh": {"0": 2}, "placements": ["Shard(0)"]}


def test_the_order_in_which_mesh_dimensions_cut() -> None:
    @dataclass
    class Entry:
        mesh_dims: tuple[int, ...]

    spec = Spec(Mesh((2, 2), (0, 1)), (Shard(0), Shard(0)), Meta((8,)), (Entry((1, 0)),))
    assert Placement.of(spec).as_json()["offsets"] == [4]
    assert Placement.of(Spec(spec.mesh, spec.placements, spec.tensor_meta)).as_json()["offsets"] == [2]


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("fake", rank=2, world_size=4)
    yield
    dist.destroy_process_group()


def test_a_real_dtensor(world: None) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    local = torch.randn(3, 4)
    x: Any = DTensor.from_local(local, mesh, (Shard(0), Shard(1)), run_check=False)
    spec = x._spec
    assert Placement.of(spec).as_json() == {
        "mesh": {"dp": 2, "tp": 2},
        "placements": ["Shard(0)", "Shard(1)"],
        "shape": [6, 8],
        "offsets": [3, 0],
    }
    assert Placement.of(spec, rank=1).as_json()["offsets"] == [0, 4]
    assert Placement.of(spec) is Placement.of(spec)


def test_a_result_whose_placement_torch_reports_to_nobody(world: None, record: Record) -> None:
    """As of a norm, which no operation on DTensors reads before the next one."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    parts = [DTensor.from_local(torch.randn(3, 4), mesh, (Shard(0),), run_check=False) for _ in range(2)]

    def step() -> None:
        for norm in [part.norm() for part in parts]:
            norm.full_tensor()

    norms = record(torch.nn.Identity(), step).of("linalg_vector_norm")
    assert [json.loads(row.fields["Placement"])["placements"] for row in norms] == [["_NormPartial(2)"]] * 2
