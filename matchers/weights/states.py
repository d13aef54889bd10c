"""Weights at one moment: of a checkpoint, of a step of a log of weights, or of the header of a captured step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matchers.logs.head import read_head
from matchers.ops.start import known_digests, named
from matchers.weights.log import WeightLog, sketch_of
from matchers.weights.stored import Stored

__all__ = ["State", "Weight", "state_of_header", "state_of_log"]


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A parameter, buffer, or another named tensor; what is not known is None.

    Attributes:
        name: as its file has it.
        shape, dtype: of the whole tensor, as in `float32`.
        numel: number of its elements.
        stored: the tensor itself; None where only numbers of it are known.
        digest: of its bytes (docs/sketch.md), 16 hexadecimal digits; for a stored one not taken yet.
        sketch: 16 projections.
        l2: norm of its finite values. counts: numel, NaN, infinite, zero.
        part: the tensor is a shard, so that it has no partner among whole ones.
        optimizer: it belongs to the state of an optimizer.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    stored: Stored | None = None
    digest: str | None = None
    sketch: tuple[float, ...] | None = None
    l2: float | None = None
    counts: tuple[int, ...] | None = None
    size: int | None = None
    part: str | None = None
    optimizer: bool = False

    @property
    def numel(self) -> int | None:
        return self.size if self.shape is None else math.prod(self.shape)

    def fits(self, other: Weight) -> bool:
        """Return True if both have one shape, as far as is known."""
        if self.shape is not None and other.shape is not None:
            return self.shape == other.shape
        return self.numel == other.numel or None in (self.numel, other.numel)


@dataclass(slots=True)
class State:
    """The weights of one run or checkpoint at one moment.

    Attributes:
        path: for messages.
        form: what was read: `safetensors`, `torch.save`, `distributed`, `step 3 of a log of weights`, …
        weights: in the order of their names.
        problems: what could not be read, each with its place.
        names: of the weights.
        run: the run info of a header; empty for others.
    """

    path: str
    form: str
    weights: list[Weight] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    run: Mapping[str, Any] = field(default_factory=dict)

    def add(self, weight: Weight) -> None:
        self.weights.append(weight)
        self.names.add(weight.name)

    def problem(self, text: str) -> None:
        self.problems.append(text)


def state_of_log(log: WeightLog) -> State:
    """Return the weights and buffers of the last step of a log of weights."""
    step = max(log.steps, default=0)
    state = State(log.path, f"step {step:,} of a log of weights")
    for (at, name, part), of in log.states.items():
        if at == step and part in ("weight", "buffer"):
            state.add(
                Weight(
                    name,
                    of.shape,
                    of.dtype,
                    digest=of.digest,
                    sketch=of.sketch,
                    l2=of.l2,
                    counts=of.counts,
                    part=of.placement,
                )
            )
    return state


def state_of_header(path: str) -> State:
    """Return the weights and buffers that the header of a captured step has digests of.

    Raises:
        LogError, OSError: as `read_head`.
    """
    run = read_head(path).run
    state = State(path, f"header of step {run['step']}" if type(run.get("step")) is int else "header of a log")
    state.run = run
    sketches, parts = (named(run, name) for name in ("start_sketches", "parameter_placements"))
    for table in ("parameter_digests", "buffer_digests"):
        for name, digest in known_digests(run, table).items():
            if name not in state.names:
                placed = parts.get(name)
                state.add(
                    Weight(name, digest=digest, part=None if placed is None else str(placed), **_of(sketches.get(name)))
                )
    return state


def _of(entry: Any) -> Mapping[str, Any]:
    """Return the content of an entry of `start_sketches`: sketch, number of elements, resolution."""
    if not isinstance(entry, list) or len(entry) < 2 or type(entry[1]) is not int:
        return {}
    try:
        sketch = sketch_of(entry[0])
    except ValueError:
        return {}
    if sketch is None:
        return {}
    # the mean square of the projections estimates the square of the norm
    return {"sketch": sketch, "size": entry[1], "l2": math.hypot(*sketch) / math.sqrt(len(sketch))}
