"""One recorded operation while the step is still running: numbers of slots instead of statistics, nothing formatted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from capture.attribution import Place

__all__ = ["Event", "Input", "Leaf", "Slot"]

Slot = Any
"""Where the statistics of a tensor are: an int, None for what could not be measured, or, where several ranks are
simulated in one process, a dict rank → int."""


@dataclass(slots=True)
class Leaf:
    """A tensor that came out of an operation, or was changed by it.

    Attributes:
        shape: its own, a shard's where it is one.
        dtype: without `torch.`.
        slot: its statistics; None until they are known.
        spec: the DTensor spec whose local part it is, None for a plain tensor.
        input: which input it is, when it was changed in place.
    """

    shape: tuple[int, ...]
    dtype: str
    slot: Slot = None
    spec: Any = None
    input: int = -1


@dataclass(slots=True)
class Input:
    """A tensor that went into an operation.

    Attributes:
        slot: its statistics before the operation ran; None where its content means nothing (fresh memory).
        producer: the event that wrote it, None for a parameter, data, or what was not recorded.
        identity: (storage, offset) by which a parameter or an optimizer's state is recognised.
    """

    slot: Slot
    producer: Event | None
    identity: tuple[int, int] | None = None


@dataclass(slots=True)
class Event:
    """One dispatched operation.

    Attributes:
        kept: False for one that a filter leaves out; it still counts in the numbering of its module.
        outputs: what it returned.
        mutated: inputs that it may have changed and did not return.
        group: for a collective: (ranks of the process group, how many of that group came before).
        parameters: names of the inputs of an optimizer's operation, "" where unknown.
        key: its key in the log, known at the end of the step.
    """

    name: str
    place: Place
    kept: bool = True
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Leaf] = field(default_factory=list)
    mutated: list[Leaf] = field(default_factory=list)
    group: tuple[tuple[int, ...], int] | None = None
    parameters: list[str] | None = None
    key: str = ""
