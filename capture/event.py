"""A recorded operation while the step runs: slot numbers instead of statistics, nothing formatted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .arguments import Arguments, Form
from .attribution import Place
from .exchange import Part
from .process_groups import GroupCall
from .row_values import MeasuredRows

__all__ = ["Event", "Input", "Leaf", "Slot"]

Slot = Any
"""Index of a tensor's statistics: an int, None if unmeasurable, or a dict rank → int where one process simulates
several ranks."""


@dataclass(slots=True)
class Leaf:
    """A tensor that an operation returned or changed in place.

    Attributes:
        shape: local shape (of the shard, for a sharded tensor).
        dtype: without `torch.`.
        slot: its statistics; None until they are known.
        spec: the DTensor spec whose local tensor it is, None for a plain tensor.
        input: the input's index, if changed in place.
        part: of the vector that a collective exchanges; None for other operations.
        part_slot: its statistics with the sketch at the part's positions.
        pieces: statistics of the part's pieces.
        rows: statistics of its rows, where they are asked for.
    """

    shape: tuple[int, ...]
    dtype: str
    slot: Slot = None
    spec: Any = None
    input: int = -1
    part: Part | None = None
    part_slot: Slot = None
    pieces: tuple[Slot, ...] = ()
    rows: MeasuredRows | None = None


@dataclass(slots=True)
class Input:
    """An input tensor of an operation.

    Attributes:
        slot: its statistics before the operation ran; None for fresh memory, whose content means nothing.
        producer: the event that wrote it; None for a parameter, data, or an unrecorded operation.
        identity: (storage, offset), which identifies parameters, buffers and optimizer state; noted around and in the
            optimizer's step, and elsewhere of the inputs that are written to.
        written: written to, and not fresh memory.
        part: of the vector that a collective exchanges, at whose positions the sketch was taken; None for other
            operations.
        pieces: statistics of the part's pieces.
        form: its dtype, shape and strides; None of a tensor without them.
    """

    slot: Slot
    producer: Event | None
    form: Form | None = None
    identity: tuple[int, int] | None = None
    written: bool = False
    part: Part | None = None
    pieces: tuple[Slot, ...] = ()


@dataclass(slots=True)
class Event:
    """One dispatched operation.

    Attributes:
        overload: its namespace and overload, `aten.dim`.
        arguments: what it was asked besides its tensors (`capture.arguments`).
        random: which random numbers it was about to draw, ready for JSON; None if it draws none.
        kept: False if a filter leaves it out; it still counts in the numbering of its module.
        outputs: the tensors it returned.
        mutated: inputs that it may have changed and did not return.
        call: for a collective: its process group and number, root and reduction.
        parameters: names of the inputs of an optimizer's operation, and of parameters and buffers that are written to;
            "" where unknown.
        reads: the numbers of its result that Python read, and where.
        autocast: device type → dtype, of devices with autocast on where it was called.
        key: its key in the log, known at the end of the step.
        saved: the call with its tensors (`capture.keeping`), None where nobody asks for it.
    """

    name: str
    place: Place
    overload: str = ""
    arguments: Arguments = ()
    random: dict[str, Any] | None = None
    kept: bool = True
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Leaf] = field(default_factory=list)
    mutated: list[Leaf] = field(default_factory=list)
    call: GroupCall | None = None
    parameters: list[str] | None = None
    reads: list[tuple[float, Place]] = field(default_factory=list)
    autocast: dict[str, str] = field(default_factory=dict)
    key: str = ""
    saved: Any = None
