"""The form of a simulated training step, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.matchers.runs.lockstep import Change, Groups

__all__ = ["Faults", "Layout", "Plan"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Numbers of ranks that divide the batches (dp), the matrices (tp) and the layers (pp); tp is the innermost.

    Attributes:
        sharded: parameters and gradients are divided over dp, too, as DTensors.
        sequence: what lies between the matrices is divided over tp by samples.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    sharded: bool = False
    sequence: bool = False

    @property
    def mesh(self) -> dict[str, int]:
        return {"pp": self.pp, "dp": self.dp, "tp": self.tp}

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.tp

    def at(self, rank: int) -> dict[str, int]:
        """The coordinates of a rank."""
        return {
            "pp": rank // (self.dp * self.tp),
            "dp": rank // self.tp % self.dp,
            "tp": rank % self.tp,
        }

    def groups(self, dimension: str) -> Groups:
        """The groups along a dimension."""
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world):
            others = tuple(index for name, index in self.at(rank).items() if name != dimension)
            found.setdefault(others, []).append(rank)
        return [tuple(ranks) for ranks in found.values()]

    def group(self, dimension: str, rank: int) -> tuple[int, ...]:
        """The group of a rank along a dimension."""
        return next(group for group in self.groups(dimension) if rank in group)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The form of the step.

    Attributes:
        layers: of each stage.
        batch, width, hidden: sizes, in the smallest units that all ranks can divide.
        scale: each layer has a scale between the matrices, ones at first, of which each tp rank has its own part.
        bucket: gradients are reduced together.
        mean: gradients are averaged by the collective; otherwise summed and divided.
        functional: collectives are functional ones, awaited by an operation of its own.
        lists: the optimizer and the clipping work on lists of tensors.
        checkpoint: the forward pass of each layer is run again in the backward pass.
        dropout: of the layer's result, and between its matrices.
    """

    layout: Layout = field(default_factory=Layout)
    layers: int = 2
    batch: int = 8
    width: int = 12
    hidden: int = 8
    scale: bool = False
    bucket: bool = False
    mean: bool = True
    functional: bool = False
    lists: bool = True
    clip: bool = True
    checkpoint: bool = False
    dropout: bool = False
    dtype: str = "float32"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is wrong in the step.

    Attributes:
        results: (rank, key) → change of what an operation gives.
        weights, buffers: (rank, name) → change before the step.
        batches: rank → the dp coordinate whose batch it reads.
        draws: rank → seed of the masks of dropout on replicated values.
        reduced: parameter → dimensions over which its gradient is reduced instead.
        summed: parameters whose gradients are summed where others are averaged.
        left_out: rank → parameters that its optimizer does not have.
        frozen: parameters without gradient, by design.
    """

    results: Mapping[tuple[int, str], Change] = field(default_factory=dict)
    weights: Mapping[tuple[int, str], Change] = field(default_factory=dict)
    buffers: Mapping[tuple[int, str], Change] = field(default_factory=dict)
    batches: Mapping[int, int] = field(default_factory=dict)
    draws: Mapping[int, int] = field(default_factory=dict)
    reduced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    summed: Collection[str] = ()
    left_out: Mapping[int, Collection[str]] = field(default_factory=dict)
    frozen: Collection[str] = ()
