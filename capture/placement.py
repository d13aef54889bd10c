"""Position of a DTensor's local tensor in the global tensor, from its spec alone, without communication.

How torch shards: `Shard(d)` gives each rank along a mesh dimension a chunk of what the earlier mesh dimensions left,
cut as by `torch.chunk`, so the last chunks may be shorter or empty. `_StridedShard(d, split_factor=f)` cuts into f
chunks first and gives each rank its chunk of every one of them: FSDP over TP on one dimension. `Partial` and
`Replicate` cut nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from .guard import pass_on
from .kernels.guards import unnoticed
from .sketch import Positions, Runs

__all__ = ["Placement", "coordinate_of", "result_spec"]


@dataclass(frozen=True)
class Placement:
    """Placement of one rank's local tensor.

    Attributes:
        mesh: (name, size) of the mesh dimensions; "0", "1", … where they have no names.
        placements: One per mesh dimension: `Shard(0)`, `StridedShard(0, 2)`, `Replicate`, `Partial(sum)`.
        shape: Of the global tensor; None if the spec has none, or not in plain numbers.
        axes: The rank's global indices along each dimension; None if it is not in the mesh, or without a shape.
    """

    mesh: tuple[tuple[str, int], ...]
    placements: tuple[str, ...]
    shape: tuple[int, ...] | None
    axes: tuple[Runs, ...] | None

    @staticmethod
    def of(spec: Any, rank: int | None = None) -> Placement:
        """Make the placement of a `DTensorSpec`, or of annotations (`typed.TypedSpec`).

        Args:
            spec: Of a DTensor, or of a plain tensor that is annotated.
            rank: In the process group, if simulated by LocalTensorMode; None for this process.
        """
        if (of_rank := getattr(spec, "placement", None)) is not None:
            annotated: Placement = of_rank(rank)
            return annotated
        meta = spec.tensor_meta
        shape = None if meta is None else tuple(meta.shape)
        if shape is not None and not all(type(size) is int for size in shape):
            shape = None
        order = getattr(spec, "shard_order", None)
        return _placement(spec.mesh, tuple(spec.placements), shape, _mesh_order(spec.placements, order), rank)

    @cached_property
    def _positions(self) -> Positions | None:
        return None if self.shape is None or self.axes is None else Positions(self.shape, self.axes)

    def positions(self) -> Positions | None:
        """Return the positions for the sketch; None if the rank holds nothing or the placement is unknown."""
        return self._positions

    def as_json(self) -> dict[str, Any]:
        """Return the fields of a log's `Placement`; offsets are those of the rank's first element."""
        found: dict[str, Any] = {"mesh": dict(self.mesh), "placements": list(self.placements)}
        if self.shape is not None:
            found["shape"] = list(self.shape)
            if self.axes is not None:
                # past the end where the rank holds nothing
                firsts = [runs[0].start if runs else size for runs, size in zip(self.axes, self.shape, strict=True)]
                found["offsets"] = firsts
        return found


def _mesh_order(placements: Sequence[Any], order: Any) -> tuple[int, ...]:
    """Return the mesh dimensions in the order in which they shard.

    Strided shards, read from left to right, already encode their order.
    """
    dims = range(len(placements))
    if order is None or any("Strided" in type(placement).__name__ for placement in placements):
        return tuple(dims)
    cutting = list(chain.from_iterable(entry.mesh_dims for entry in order))
    return (*cutting, *(dim for dim in dims if dim not in cutting))


@lru_cache(maxsize=4096)
def _placement(
    mesh: Any, placements: tuple[Any, ...], shape: tuple[int, ...] | None, order: tuple[int, ...], rank: int | None
) -> Placement:
    sizes = tuple(mesh.shape)
    names = mesh.mesh_dim_names or tuple(map(str, range(len(sizes))))
    axes: tuple[Runs, ...] | None = None
    coordinate = coordinate_of(mesh, rank)
    if shape is not None and coordinate is not None:
        indices: list[Runs] = [(range(size),) if size else () for size in shape]
        for dim in order:
            placement = placements[dim]
            # Replicate and Partial have no dimension
            if (axis := getattr(placement, "dim", None)) is not None:
                factor = int(getattr(placement, "split_factor", 1))
                parts = _chunks(indices[axis], factor)
                indices[axis] = tuple(_joined(_chunks(part, sizes[dim])[coordinate[dim]] for part in parts))
        axes = tuple(indices)
    return Placement(tuple(zip(names, sizes, strict=True)), tuple(map(_name, placements)), shape, axes)


def _name(placement: Any) -> str:
    """Return a short name, the same in all versions of torch."""
    dim = getattr(placement, "dim", None)
    if dim is None:
        return repr(placement).removesuffix("()")
    factor = getattr(placement, "split_factor", None)
    return f"Shard({dim})" if factor is None else f"StridedShard({dim}, {factor})"


def coordinate_of(mesh: Any, rank: int | None) -> tuple[int, ...] | None:
    """Return a rank's coordinate in a DeviceMesh, None outside it; `rank` as of `Placement.of`."""
    if rank is None:
        own = mesh.get_coordinate()
        return None if own is None else tuple(own)
    grid = mesh.mesh
    if parts := getattr(grid, "_local_tensors", None):
        # a mesh made while ranks are simulated is a LocalTensor, the same on all ranks
        grid = parts[min(parts)]
    with unnoticed():
        ranks = grid.reshape(-1).tolist()
    if rank not in ranks:
        return _coordinate_in_root(mesh, rank)
    at = ranks.index(rank)
    found: list[int] = []
    for size in reversed(tuple(mesh.shape)):
        at, inside = divmod(at, size)
        found.insert(0, inside)
    return tuple(found)


def _coordinate_in_root(mesh: Any, rank: int) -> tuple[int, ...] | None:
    """Return the coordinate of a simulated rank whose own slice of a larger mesh the simulation does not make."""
    root = getattr(mesh, "_root_mesh", None)
    names, of_root = (getattr(one, "mesh_dim_names", None) or () for one in (mesh, root))
    if not names or not set(names) <= set(of_root):
        return None
    found = coordinate_of(root, rank)
    return None if found is None else tuple(found[of_root.index(name)] for name in names)


def _chunks(runs: Runs, count: int) -> list[Runs]:
    """Cut indices as `torch.chunk` does, with empty chunks at the end up to `count`."""
    length = sum(map(len, runs))
    size = -(-length // count)
    return [tuple(_section(runs, size * i, size * (i + 1))) for i in range(count)]


def _section(runs: Runs, start: int, stop: int) -> Iterator[range]:
    before = 0
    for run in runs:
        part = run[max(0, start - before) : max(0, stop - before)]
        if part:
            yield part
        before += len(run)


def _joined(parts: Iterator[Runs]) -> list[range]:
    runs: list[range] = []
    for run in chain.from_iterable(parts):
        if runs and runs[-1].stop == run.start:
            runs[-1] = range(runs[-1].start, run.stop)
        else:
            runs.append(run)
    return runs


def result_spec(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the spec of the results of an operation on DTensors, which torch has just run and remembers; else None.

    Of some operations, such as a norm, torch tells nobody.
    """
    try:
        from torch.distributed.tensor import DTensor

        dispatcher = DTensor._op_dispatcher
        call = dispatcher.unwrap_to_op_info(func, tuple(args), dict(kwargs))
        dispatcher.sharding_propagator.propagate(call)
        return call.output_sharding.output_spec
    except Exception as error:  # noqa: BLE001  another version of torch; the results have no placement then
        pass_on(error)
        return None
