"""Generated pairs of logs, as two runs of one program would write them, with the true pairing.

    python -m benchmarks.drifting_logs FOLDER [--size 9000] [--seed 0] [--drift usual]

writes `a.log`, `b.log` (in torchtitan's format) and `truth.npz` (see `Truth`). The kinds of drift are those of
`DRIFTS`; the same seed gives the same logs.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.made_step import OUTSIDE, Operation, numel, operations_for

__all__ = ["DRIFTS", "KINDS", "Drift", "Truth", "write_pair"]

KINDS = ("plain", "collective", "recomputed", "moved", "swapped")
"""Kinds of drift of an operation of a in b."""

_NONE = "<none>"
_COLLECTIVES = {"_allgather_base_": "all_gather_into_tensor_out", "_reduce_scatter_base_": "reduce_scatter_tensor"}
_FLAT = ("operation", "module", "values")
_INSERTED = ("mul", "add", "clone", "neg", "mm")
_BUFFER = (262_144,)
"""Shape of the buffer that an in-place collective fills."""
_VIEWS = 0.3
"""Share of the inputs whose producer is not named because of a view in between."""
_UNPLACED = 0.3
"""Share of the backward places without a location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Drift of run b from run a. Shares are of the places in the program, or of rows where noted.

    Attributes:
        moved: backward operations that are logged under `<none>` or the module above.
        swapped: products of the backward pass that come after the other one of the same place.
        deleted, inserted: shares of rows.
        collectives: in-place collectives are lowered to an operation and its wait, in another module.
        recomputed: a logs recomputed operations without the layer in front.
        shuffled: the backward pass of b is shuffled in windows of this many rows.
        noise: relative standard deviation of b's numbers, per row; infinite for numbers unrelated to those of a.
        bug: relative size of an error in the middle, which everything downstream inherits; 0 for none.
        repeated: the error is made in every micro-batch, of which none reads another.
        similar: the same place has nearly the same numbers in all layers.
        flat: the common property of all records: "operation" (module, operation, shape), "module" (`<none>`), "values".
    """

    moved: float = 0.1
    swapped: float = 0.3
    deleted: float = 0.004
    inserted: float = 0.003
    collectives: bool = True
    recomputed: bool = True
    shuffled: int = 0
    noise: float = 0.0
    bug: float = 1e-2
    repeated: bool = False
    similar: bool = False
    flat: frozenset[str] = frozenset()


_USUAL = Drift()
DRIFTS = {
    "usual": _USUAL,
    "mild": Drift(moved=0.01, swapped=0.02, deleted=0.0005, inserted=0.0005),
    "similar": replace(_USUAL, similar=True),
    "shuffled": replace(_USUAL, shuffled=24),
    "every micro-batch": replace(_USUAL, repeated=True),
    "noise 1e-3": replace(_USUAL, noise=1e-3),
    "noise 0.1": replace(_USUAL, noise=0.1),
    "other values": replace(_USUAL, noise=float("inf")),
    "similar, noise 0.1": replace(_USUAL, similar=True, noise=0.1),
    "moved much": replace(_USUAL, moved=0.5),
    "rows lost": replace(_USUAL, deleted=0.05, inserted=0.05),
    "similar, shuffled, noise 0.1": replace(_USUAL, similar=True, shuffled=24, noise=0.1),
    "similar, rows lost, noise 0.1": replace(_USUAL, similar=True, deleted=0.05, inserted=0.05, noise=0.1),
    "other values, rows lost": replace(_USUAL, deleted=0.05, inserted=0.05, noise=float("inf")),
}


@dataclass(frozen=True, slots=True)
class Truth:
    """The true pairing.

    `partner[j]` is the record of a that record j of b is, -1 for an inserted one; `starts[j]` the same for the first
    step of a lowered collective, whose result is in the second. `kind[i]` is an index into `KINDS`.
    """

    partner: NDArray[np.int64]
    starts: NDArray[np.int64]
    kind: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class _Row:
    """A record of b under its names there: the operation of a that it is, or (`own` False) is next to."""

    origin: int
    module: str
    name: str
    own: bool = True
    starts: bool = False


@dataclass(frozen=True, slots=True)
class _Numbers:
    """float64 per operation: the norms and extremes of its result."""

    l1: NDArray[np.float64]
    l2: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]


def write_pair(folder: Path, size: int, *, seed: int = 0, drift: Drift = _USUAL) -> Truth:
    """Write `a.log` and `b.log`, of about `size` records each, to a folder that exists."""
    operations = operations_for(size)
    chance = random.Random(seed)
    rng = np.random.default_rng(seed)
    kind = np.zeros(len(operations), np.int8)
    rows_a = [_Row(i, _name_in_a(operation, drift), operation.name) for i, operation in enumerate(operations)]
    rows_b = list(_rows_of_b(operations, drift, chance, kind))
    if drift.shuffled:
        rows_b = _shuffled(rows_b, operations, drift.shuffled, chance)
    numbers = _numbers(operations, drift, rng)
    _Writer(operations, numbers, drift, f"a {seed}").write(folder / "a.log", rows_a)
    _Writer(operations, _drifted(numbers, operations, drift, rng), drift, f"b {seed}").write(folder / "b.log", rows_b)
    return Truth(
        partner=np.array([row.origin if row.own and not row.starts else -1 for row in rows_b]),
        starts=np.array([row.origin if row.starts else -1 for row in rows_b]),
        kind=kind,
    )


# ---------------------------------------------------------------------- records and their names


def _name_in_a(operation: Operation, drift: Drift) -> str:
    if operation.recomputed and drift.recomputed:
        return operation.module.split(".", 2)[-1]
    return operation.module


def _rows_of_b(
    operations: Sequence[Operation], drift: Drift, chance: random.Random, kind: NDArray[np.int8]
) -> Iterator[_Row]:
    """Return the records of b in order, and fill in the kind of each operation."""
    sites = sorted({operation.site for operation in operations if operation.backward and not operation.recomputed})
    moved = {site: chance.random() < 0.6 for site in chance.sample(sites, round(drift.moved * len(sites)))}
    swapped = set(chance.sample(sites, round(drift.swapped * len(sites))))
    waiting: _Row | None = None
    for i, operation in enumerate(operations):
        module = operation.module
        if operation.recomputed and drift.recomputed:
            kind[i] = KINDS.index("recomputed")
        if operation.name in _COLLECTIVES and drift.collectives:
            kind[i] = KINDS.index("collective")
            module = f"{module}.attention_norm"
            yield _Row(i, module, _COLLECTIVES[operation.name], starts=True)
            yield _Row(i, module, "wait_tensor")
            continue
        if operation.site in moved:
            kind[i] = KINDS.index("moved")
            module = _NONE if moved[operation.site] else module.rpartition(".")[0] or _NONE
        row = _Row(i, module, operation.name)
        if waiting is not None:
            yield row
            row, waiting = waiting, None
        elif operation.site in swapped and _twins(operations, i):
            kind[i : i + 2] = KINDS.index("swapped")
            waiting = row
            continue
        if chance.random() >= drift.deleted:
            yield row
        if chance.random() < drift.inserted:
            yield _Row(i, module, chance.choice(_INSERTED), own=False)


def _twins(operations: Sequence[Operation], i: int) -> bool:
    """Return True if the next operation is of the same kind and does not read this one."""
    one, two = operations[i], operations[min(i + 1, len(operations) - 1)]
    return one.name == two.name and one.module == two.module and i not in two.inputs and two is not one


def _shuffled(rows: list[_Row], operations: Sequence[Operation], window: int, chance: random.Random) -> list[_Row]:
    """Return the backward pass in another order that respects the data flow."""
    out: list[_Row] = []
    for start in range(0, len(rows), window):
        part = rows[start : start + window]
        if all(operations[row.origin].backward for row in part):
            places: list[float] = []
            made: dict[int, float] = {}
            for k, row in enumerate(part):
                needed = (row.origin, *operations[row.origin].inputs)
                earliest = max((made[i] for i in needed if i in made), default=0.0)
                places.append(max(k + chance.uniform(0, window / 2), earliest))
                made[row.origin] = places[-1]
            part = [part[k] for k in sorted(range(len(part)), key=places.__getitem__)]
        out += part
    return out


# ---------------------------------------------------------------------- numbers


def _numbers(operations: Sequence[Operation], drift: Drift, rng: np.random.Generator) -> _Numbers:
    """Make the numbers of run a."""
    n = len(operations)
    size = np.array([numel(operation) for operation in operations], float)
    scale = np.exp(rng.normal(-1, 1.2, n))
    width, low, high = rng.normal(0.25, 0.1, n), rng.uniform(3, 9, n), rng.uniform(3, 9, n)
    if drift.similar:
        _, site = np.unique([operation.site for operation in operations], return_inverse=True)
        scale, width, low, high = scale[site], width[site], low[site], high[site]
        scale = scale * np.exp(rng.normal(0, 0.02, n))
        low, high = low * np.exp(rng.normal(0, 0.05, n)), high * np.exp(rng.normal(0, 0.05, n))
    l1, l2 = size * scale, np.sqrt(size) * scale * np.exp(np.abs(width))
    low, high, mean = -scale * low, scale * high, scale * rng.normal(0, 0.02, n)
    for i, operation in enumerate(operations):
        k = operation.copy_of
        if k == OUTSIDE:
            continue
        l1[i], l2[i], low[i], high[i], mean[i] = l1[k], l2[k], low[k], high[k], mean[k]
        if operation.name == "neg":
            low[i], high[i], mean[i] = -high[k], -low[k], -mean[k]
    if "values" in drift.flat:
        for column in (l1, l2, low, high, mean):
            column[:] = 1.0
    return _Numbers(l1, l2, low, high, mean)


def _drifted(numbers: _Numbers, operations: Sequence[Operation], drift: Drift, rng: np.random.Generator) -> _Numbers:
    """Make the numbers of run b."""
    if "values" in drift.flat:
        return numbers
    if np.isinf(drift.noise):
        return _numbers(operations, replace(drift, similar=False), rng)
    n = len(operations)
    wrong = np.zeros(n, bool)
    if drift.bug:
        begins = next(i for i in range(n // 3, n) if operations[i].name == "mul")
        place = operations[begins].module, operations[begins].site
        wrong[begins] = True
        for i in range(0 if drift.repeated else begins + 1, n):
            wrong[i] = any(k != OUTSIDE and wrong[k] for k in operations[i].inputs)
            wrong[i] |= drift.repeated and (operations[i].module, operations[i].site) == place
    error = wrong * drift.bug * rng.normal(0, 1, n) + drift.noise * rng.normal(0, 1, n)
    for i, operation in enumerate(operations):
        if operation.copy_of != OUTSIDE:
            error[i] = error[operation.copy_of]

    def moved(column: NDArray[np.float64]) -> NDArray[np.float64]:
        return column * (1 + error * rng.uniform(0.6, 1.4, n))

    return _Numbers(
        numbers.l1 * (1 + error), moved(numbers.l2), moved(numbers.low), moved(numbers.high), moved(numbers.mean)
    )


# ---------------------------------------------------------------------- the log


class _Writer:
    """Writer of one log. `chance` decides which locations and producers behind a view are missing."""

    def __init__(self, operations: Sequence[Operation], numbers: _Numbers, drift: Drift, seed: str) -> None:
        self._operations = operations
        self._l1, self._l2 = numbers.l1.tolist(), numbers.l2.tolist()
        self._low, self._high, self._mean = numbers.low.tolist(), numbers.high.tolist(), numbers.mean.tolist()
        self._flat = drift.flat
        self._chance = random.Random(seed)
        self._weights = f" {seed}" if np.isinf(drift.noise) else ""
        self._counters: Counter[str] = Counter()
        self._keys: dict[int, str] = {}
        self._unsaid: dict[tuple[str, int], bool] = {}
        self._outside: dict[str, float] = {}

    def write(self, path: Path, rows: Sequence[_Row]) -> None:
        """Write the whole log."""
        with path.open("w", encoding="utf-8") as out:
            out.write(f"Total captured activations: {len(rows)}\nExcluded ops dispatched: _to_copy, detach, t, view\n")
            out.write("=" * 80 + "\n\n")
            out.writelines(map(self._record, rows))

    def _record(self, row: _Row) -> str:
        operation = self._operations[row.origin]
        key, shape = self._named(row, operation)
        lines = [f"[{key}]\n"]
        if shape is not None:
            lines.append(f"  Shape: torch.Size({list(shape)}), Dtype: torch.float32\n{self._result(row, operation)}")
        lines.append(f"  Input hashes: {', '.join(f'{value:.6e}' for value in self._read(row, operation))}\n")
        makers = [
            "" if k == OUTSIDE or self._is_unsaid(operation.site, place, _VIEWS) else self._keys.get(k, "")
            for place, k in enumerate(operation.inputs)
        ]
        if any(makers):
            lines.append(f"  Input producers: {';'.join(makers)}\n")
        if operation.location and not (operation.backward and self._is_unsaid(operation.site, -1, _UNPLACED)):
            lines.append(f"  Location: {operation.location}\n")
        if operation.backward:
            lines.append("  Phase: backward\n")
        if row.own:
            self._keys[row.origin] = key
        return "".join((*lines, "\n"))

    def _named(self, row: _Row, operation: Operation) -> tuple[str, tuple[int, ...] | None]:
        """Return the record's key and the shape of its result."""
        module, name = row.module, row.name
        shape = _BUFFER if operation.name in _COLLECTIVES else operation.shape
        if "operation" in self._flat:
            module, name, shape = "model", "mul", (256, 256)
        if "module" in self._flat:
            module = _NONE
        number = self._counters[module]
        self._counters[module] += 1
        return f"{module}/op_{number}_{name}", shape

    def _result(self, row: _Row, operation: Operation) -> str:
        i = row.origin
        factor = 1.0 if row.own else self._other(0.37)
        if row.name == operation.name in _COLLECTIVES or row.starts:
            factor = self._other(self._chance.uniform(1e10, 1e20))  # what was in the buffer before
        return (
            f"  L2 norm: {self._l2[i] * factor:.6e}\n  Min: {self._low[i] * factor:.6e}\n"
            f"  Max: {self._high[i] * factor:.6e}\n  Mean: {self._mean[i] * factor:.6e}\n"
            f"  Output hash: {self._l1[i] * factor:.6e}\n"
        )

    def _read(self, row: _Row, operation: Operation) -> list[float]:
        """Return the norms of the inputs."""
        values = [self._l1[k] if k != OUTSIDE else self._given(operation) for k in operation.inputs]
        if operation.name in _COLLECTIVES:
            # in place the result comes first
            values[0] = self._other(self._chance.uniform(1e10, 1e20))
            return values if row.name == operation.name else values[::-1]
        return values

    def _given(self, operation: Operation) -> float:
        """Return the norm of a parameter, the same on every read."""
        name = f"{operation.module} {operation.name}{self._weights}"
        if name not in self._outside:
            self._outside[name] = self._other(1e4 * (1 + random.Random(name).random()))
        return self._outside[name]

    def _other(self, value: float) -> float:
        """Return the value, or 1 where all values are equal."""
        return 1.0 if "values" in self._flat else value

    def _is_unsaid(self, site: str, place: int, share: float) -> bool:
        if (site, place) not in self._unsaid:
            self._unsaid[site, place] = self._chance.random() < share
        return self._unsaid[site, place]


def main() -> int:
    """Write one pair of logs and its truth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=9000, help="operations, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drift", choices=list(DRIFTS), default="usual")
    parser.add_argument("--flat", nargs="*", choices=_FLAT, default=[], help="what all records have in common")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    truth = write_pair(
        args.folder, args.size, seed=args.seed, drift=replace(DRIFTS[args.drift], flat=frozenset(args.flat))
    )
    np.savez(args.folder / "truth.npz", partner=truth.partner, starts=truth.starts, kind=truth.kind)
    print(f"{len(truth.kind):,} and {len(truth.partner):,} operations")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
