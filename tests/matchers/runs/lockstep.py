"""Ranks that compute in lockstep with numpy, and the records that our own capture writes of what they do.

Digest and sketch stand in for those of the capture: any hash of the bytes, and any fixed signs of the positions, will
do for a reader.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.builders import Op

__all__ = ["Array", "Change", "Groups", "Lockstep", "Spread", "Tensor", "digest", "named"]

Array = NDArray[Any]
Change = Callable[[Array], Array]
Groups = Sequence[tuple[int, ...]]

_SIGNS = np.random.default_rng(7).choice([-1.0, 1.0], (16, 1 << 13))
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
}
_IN_PLACE = {
    "all_reduce": "allreduce_",
    "all_gather": "_allgather_base_",
    "reduce_scatter": "_reduce_scatter_base_",
}


_TOLD = ("digest", "l1", "l2", "mean", "sketch")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of one rank; `maker` is the key of the operation that made it, `name` that of a parameter or gradient.

    Without a value it is memory that was not written to.
    """

    value: Array | None
    maker: str = ""
    name: str = ""

    @property
    def array(self) -> Array:
        assert self.value is not None
        return self.value


Spread = Mapping[int, Tensor]
"""A tensor on each of some ranks."""
_UNREAD = Tensor(None)


def named(tensors: Spread, name: str) -> Spread:
    """The same tensors under the name of a parameter or gradient."""
    return {rank: replace(tensor, name=name) for rank, tensor in tensors.items()}


def digest(values: Array) -> str:
    """Sixteen hexadecimal digits that tell arrays apart by their bits."""
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


class Lockstep:
    """The records of some ranks that run the same operations at the same time.

    Attributes:
        logs: rank → its records.
        results: (rank, key) of each result of a collective or message.
        phase: of the operations that follow.
        recompute: they are run again by activation checkpointing.
    """

    def __init__(self, size: int, *, functional: bool, dtype: str, faults: Mapping[tuple[int, str], Change]) -> None:
        """`faults` change what operations give, by rank and key; collectives take one record, or two if functional."""
        self.logs: dict[int, list[Op]] = {rank: [] for rank in range(size)}
        self.results: list[tuple[int, str]] = []
        self.phase = "forward"
        self.recompute = False
        self._functional, self._dtype, self._faults = functional, np.dtype(dtype), faults
        self._keys: Counter[tuple[int, str]] = Counter()
        self._calls: Counter[tuple[object, ...]] = Counter()

    def op(self, path: str, compute: Callable[..., Any], *reads: Spread) -> Spread:
        """Compute a new tensor on the ranks that have the first operand."""
        made = {}
        for rank in reads[0]:
            key = self._key(rank, path)
            given = [read[rank] for read in reads]
            value = self._made(rank, key, compute(*map(_wide, given)))
            self._record(rank, key, given, [value])
            made[rank] = Tensor(value, key)
        return made

    def draw(self, path: str, like: Spread, seeds: Mapping[int, Sequence[int]]) -> Spread:
        """Fill new memory with random zeros and ones."""
        made = {}
        for rank, tensor in like.items():
            key = self._key(rank, path)
            drawn = np.random.default_rng(seeds[rank]).random(tensor.array.shape) < 0.7
            value = self._made(rank, key, drawn)
            self._record(rank, key, [_UNREAD], [value])
            made[rank] = Tensor(value, key)
        return made

    def write(self, path: str, compute: Callable[..., Any], target: Spread, *reads: Spread) -> Spread:
        """Change a tensor in place with an operation that returns it."""
        made = {}
        for rank, tensor in target.items():
            key = self._key(rank, path)
            given = [tensor, *(read[rank] for read in reads)]
            value = self._made(rank, key, compute(*map(_wide, given)))
            self._record(rank, key, given, [value])
            made[rank] = Tensor(value, key, tensor.name)
        return made

    def write_lists(
        self, path: str, compute: Callable[..., Any], targets: Sequence[Spread], *others: Sequence[Spread]
    ) -> list[Spread]:
        """Change a list of tensors in place with one operation, which returns nothing.

        Args:
            others: further lists: of as many tensors, or of one for all.
        """
        made: list[dict[int, Tensor]] = [{} for _ in targets]
        for rank in sorted({rank for target in targets for rank in target}):
            key = self._key(rank, path)
            here = [k for k, target in enumerate(targets) if rank in target]
            lists = [[of[k % len(of)][rank] for k in here] for of in (targets, *others)]
            given = [tensor for of, whole in zip(lists, (targets, *others), strict=True) for tensor in of[: len(whole)]]
            mutated = []
            for slot, (k, *values) in enumerate(zip(here, *lists, strict=True)):
                value = self._made(rank, key, compute(*map(_wide, values)))
                mutated.append({"input": slot, **_summary(value), "shape": list(value.shape)})
                made[k][rank] = Tensor(value, key, values[0].name)
            self._record(rank, key, given, [], Mutated=json.dumps(mutated))
        return list(made)

    def exchange(self, kind: str, module: str, tensors: Spread, groups: Groups, by: str = "") -> Spread:
        """Call a collective along the first dimension, in groups of two and more ranks.

        Args:
            kind: `all_reduce`, `all_gather` or `reduce_scatter`.
            by: `sum` or `avg` of a reduction.
        """
        out = dict(tensors)
        for group in groups:
            if len(group) < 2 or not set(group) <= set(tensors):
                continue
            results = _results(kind, [_wide(tensors[rank]) for rank in group], by)
            for index, rank in enumerate(group):
                out[rank] = self._call(kind, module, group, index, tensors[rank], results[index], by)
        return out

    def send(self, module: str, tensors: Spread, to: Mapping[int, int]) -> Spread:
        """Send each tensor to another rank; returns what is received."""
        received = {}
        for rank, tensor in tensors.items():
            peer = to[rank]
            key = self._key(rank, f"{module}/send")
            part = {"input": 0, **_part(tensor.array, 0)}
            group = self._group((rank, peer), rank, "send", peer=peer)
            self._record(rank, key, [tensor], [], Group=group, Exchanged=json.dumps({"in": [part], "out": []}))
            key = self._key(peer, f"{module}/recv_")
            value = self._made(peer, key, tensor.array)
            part = {"input": 0, **_part(value, 0)}
            self._record(
                peer,
                key,
                [_UNREAD],
                [],
                Mutated=json.dumps([{"input": 0, **_summary(value), "shape": list(value.shape)}]),
                Group=self._group((rank, peer), peer, "recv_", peer=rank),
                Exchanged=json.dumps({"in": [], "out": [part]}),
            )
            self.results.append((peer, key))
            received[peer] = Tensor(value, key)
        return received

    def _call(
        self, kind: str, module: str, group: tuple[int, ...], index: int, tensor: Tensor, result: Array, by: str
    ) -> Tensor:
        """One member's part in a collective."""
        rank = group[index]
        key = self._key(rank, f"{module}/{(_FUNCTIONAL if self._functional else _IN_PLACE)[kind]}")
        value = self._made(rank, key, result)
        reads = [tensor] if self._functional or kind == "all_reduce" else [_UNREAD, tensor]
        given = _part(tensor.array, index * tensor.array.size if kind == "all_gather" else 0)
        got = _part(value, index * value.size if kind == "reduce_scatter" else 0)
        if kind == "reduce_scatter":
            given["pieces"] = _pieces(tensor.array, len(group))
        elif kind == "all_gather":
            got["pieces"] = _pieces(value, len(group))
        exchanged = {
            "in": [{"input": len(reads) - 1, **given}],
            "out": [{"output": 0, **got}] if got["at"] or "pieces" in got else [],
        }
        told = {"op": by} if by else {}
        self._record(rank, key, reads, [value], Group=self._group(group, rank, **told), Exchanged=json.dumps(exchanged))
        self.results.append((rank, key))
        made = Tensor(value, key, tensor.name)
        if self._functional:
            key = self._key(rank, f"{module}/wait_tensor")
            self._record(rank, key, [made], [value])
            made = replace(made, maker=key)
        return made

    def _group(self, group: Sequence[int], rank: int, *counted: str, **told: object) -> str:
        """The field of a call; messages are `counted` by direction."""
        members, call = sorted(group), (rank, tuple(group), *counted)
        self._calls[call] += 1
        name = "-".join(map(str, members))
        return json.dumps({"ranks": members, "nth": self._calls[call] - 1, "name": name, **told})

    def _key(self, rank: int, path: str) -> str:
        module, _, name = path.rpartition("/")
        self._keys[rank, module] += 1
        return f"{module}/op_{self._keys[rank, module] - 1}_{name}"

    def _made(self, rank: int, key: str, value: Any) -> Array:
        """A result in the dtype of the run. Computed wider: its bits then depend on the operands alone."""
        result = np.ascontiguousarray(value, self._dtype).reshape(np.shape(value))
        fault = self._faults.get((rank, key))
        return result if fault is None else fault(result)

    def _record(self, rank: int, key: str, reads: Sequence[Tensor], gives: Sequence[Array], **fields: str) -> None:
        extra = dict(fields)
        given = [None if tensor.value is None else _summary(tensor.value) for tensor in reads]
        if reads:
            extra["Input digests"] = ", ".join("-" if one is None else one["digest"] for one in given)
        if self.phase in ("gradients", "optimizer") and any(tensor.name for tensor in reads):
            extra["Parameter"] = ";".join(tensor.name for tensor in reads)
        if self.recompute:
            extra["Recompute"] = "true"
        statistics: dict[str, Any] = {"shape": None}
        if gives:
            (value,) = gives
            made = _summary(value)
            numel, nan, inf, zero = made["counts"]
            extra |= {
                "Digest": made["digest"],
                "Sketch": made["sketch"],
                "Counts": f"numel={numel} nan={nan} inf={inf} zero={zero}",
            }
            statistics = {name: made[name] for name in ("l2", "min", "max", "mean")}
            statistics |= {"shape": value.shape, "dtype": str(value.dtype)}
        self.logs[rank].append(
            Op(
                key=key,
                outputs=[_summary(value)["l1"] for value in gives],
                inputs=["nan" if one is None else one["l1"] for one in given],
                producers=[tensor.maker for tensor in reads],
                location=f"{key.rpartition('/')[0]}.py:1",
                phase=None if self.phase == "forward" else self.phase,
                extra=extra,
                **statistics,
            )
        )


def _wide(tensor: Tensor) -> Array:
    return tensor.array.astype(np.float64)


def _results(kind: str, given: Sequence[Array], by: str) -> Sequence[Array]:
    if kind == "all_gather":
        return [np.concatenate(given)] * len(given)
    total = np.sum(given, axis=0) / (len(given) if by == "avg" else 1)
    return [total] * len(given) if kind == "all_reduce" else np.split(total, len(given))


def _part(values: Array, at: int) -> dict[str, Any]:
    told = _summary(values, at)
    return {"at": at, "numel": values.size, **{name: told[name] for name in _TOLD if told[name] == told[name]}}


def _pieces(values: Array, members: int) -> list[list[Any]]:
    pieces = [np.ascontiguousarray(piece) for piece in np.split(values.ravel(), members)]
    return [[digest(piece), float(piece.astype(np.float64).sum())] for piece in pieces]


def _summary(values: Array, at: int = 0) -> Mapping[str, Any]:
    return _statistics(values.tobytes(), values.dtype.name, at)


@lru_cache(1 << 14)  # ranks and runs have most tensors in common
def _statistics(raw: bytes, dtype: str, at: int) -> Mapping[str, Any]:
    """Statistics over the finite values, and the sketch at positions from `at` on."""
    values = np.frombuffer(raw, dtype)
    wide = values.astype(np.float64)
    finite = np.isfinite(wide)
    flat, known = np.where(finite, wide, 0.0), wide[finite] if finite.any() else np.full(1, np.nan)
    return {
        "l1": float(np.abs(known).sum()),
        "l2": float(np.sqrt((known**2).sum())),
        "min": float(known.min()),
        "max": float(known.max()),
        "mean": float(known.mean()),
        "counts": [wide.size, int(np.isnan(wide).sum()), int(np.isinf(wide).sum()), int((wide == 0).sum())],
        "digest": digest(values),
        "sketch": b64encode((_SIGNS[:, at : at + flat.size] @ flat).astype("<f8").tobytes()).decode(),
    }
