"""Convert the events of a step to the records of its log: keys, call sites, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from .arguments import arguments_json, forms_text
from .attribution import BACKWARD, PREPARE, Place
from .event import Event, Leaf, Slot
from .exchange import Part
from .frames import Frame, StackTable
from .log_writer import Mutation, Portion, Record, TensorSummary
from .placement import Placement
from .row_values import rows_json
from .statistics import Summary

__all__ = ["kept_events", "module_of", "name_events", "records"]

_MAX_FRAMES = 12


def call_site(frames: Sequence[Frame], caller: str) -> str:
    """Name an operation outside any module: by the user's function, or the `torch.nn.utils` function it called."""
    if caller:
        return caller
    if not frames:
        return "<none>"
    frame = frames[0]
    stem = PurePath(frame.file).stem
    if frame.function == "<module>":
        return stem
    if frame.function.startswith("<"):  # a lambda or a comprehension: add the file's name
        return f"{stem}.{frame.function.strip('<>')}"
    return frame.function


def module_of(place: Place, stacks: StackTable) -> str:
    """Return the module of a key."""
    if place.module is not None:
        return place.module
    if place.in_optimizer:
        return "optimizer"
    stack = stacks[place.stack]
    return call_site(_frames(place, stacks), stack.caller)


def name_events(events: Sequence[Event], stacks: StackTable, wanted: Any) -> None:
    """Give every event its key and apply the module filter.

    A module's counter counts all operations dispatched there, recorded or not, so that no filter changes a key. What
    prepares a forward pass is counted last: how much of it there is changes no other key.
    """
    counters: dict[str, int] = {}
    for event in sorted(events, key=lambda event: event.place.phase == PREPARE):
        place = event.place
        if place.module is None and place.phase == BACKWARD and not place.derived and place.frames is None:
            place.module = _giver(event)
        module = module_of(event.place, stacks)
        number = counters.get(module, 0)
        counters[module] = number + 1
        event.key = f"{module}/op_{number}_{event.name}"
        # operations of an optimizer or outside modules have their names only now
        event.kept = event.kept and wanted(module, event.name)


def _giver(event: Event) -> str | None:
    """Return the module whose gradients an operation works on, None if there are several.

    Operations after the backward pass, such as the last reductions of sharded gradients, have no autograd node.
    """
    givers = {given.producer.place.module for given in event.inputs if given.producer is not None}
    return givers.pop() if len(givers) == 1 else None


def kept_events(events: Sequence[Event]) -> list[Event]:
    """Return the events that the log contains."""
    return [event for event in events if event.kept]


def records(
    events: Sequence[Event],
    stacks: StackTable,
    summaries: Mapping[int, Summary],
    micro_batches: Mapping[int | None, int | None],
    rank: int | None = None,
) -> Iterator[Record]:
    """Yield the records of named events, in order.

    Args:
        micro_batches: `Attribution.micro_batches`.
        rank: one of several simulated ranks, None for the only rank.
    """
    texts: dict[int, tuple[str, ...]] = {}
    for seq, event in enumerate(events):
        place = event.place
        frames = _frames(place, stacks)
        stack = texts.get(id(frames))  # of tuples that the events keep
        if stack is None:
            stack = texts[id(frames)] = tuple([str(frame) for frame in frames[:_MAX_FRAMES]])
        before = [_summary(given.slot, summaries, rank) for given in event.inputs]
        mutated = []
        for leaf in event.mutated:
            after = _leaf_summary(leaf, summaries, rank)
            given = before[leaf.input]
            if given is None or after.digest is None or given.digest != after.digest:
                name = event.parameters[leaf.input] if event.parameters else None
                mutated.append(Mutation(slot=leaf.input, name=name or None, summary=after))
        rows = {k: leaf.rows for k, leaf in enumerate(event.outputs) if leaf.rows is not None}
        yield Record(
            key=event.key,
            seq=seq,
            outputs=[_leaf_summary(leaf, summaries, rank) for leaf in event.outputs],
            inputs=before,
            producers=[given.producer.key if given.producer and given.producer.kept else "" for given in event.inputs],
            parameters=event.parameters or (),
            location=frames[0].location if frames else None,
            stack=stack,
            phase=place.phase,
            overload=event.overload,
            arguments=arguments_json(event.arguments),
            forms=forms_text([given.form for given in event.inputs], *_first_form(event)),
            random=event.random,
            reads=[(value, found[0].location) for value, at in event.reads if (found := _frames(at, stacks))],
            mutated=mutated,
            group=None if event.call is None else event.call.as_json(rank),
            given=_given(event, before, summaries, rank),
            received=_received(event, summaries, rank),
            rows=rows_json(rows, summaries) if rows else (),
            recompute=place.recompute,
            micro_batch=micro_batches[place.forward_pass],
        )


def _frames(place: Place, stacks: StackTable) -> tuple[Frame, ...]:
    return place.frames or stacks[place.stack].frames


def _first_form(event: Event) -> tuple[str, tuple[int, ...] | None]:
    return (event.outputs[0].dtype, event.outputs[0].shape) if event.outputs else ("", None)


def _given(
    event: Event, before: Sequence[Summary | None], summaries: Mapping[int, Summary], rank: int | None
) -> list[Portion]:
    """Return the parts that a rank gave to a collective."""
    return [
        _portion(given.part, rank, content, given.pieces, summaries, slot=k)
        for k, (given, content) in enumerate(zip(event.inputs, before, strict=True))
        if given.part is not None and given.part.counts(rank)
    ]


def _received(event: Event, summaries: Mapping[int, Summary], rank: int | None) -> list[Portion]:
    """Return the parts that a rank received, besides a first output that says it all."""
    leaves = [*enumerate(event.outputs), *((None, leaf) for leaf in event.mutated)]
    return [
        _portion(
            leaf.part,
            rank,
            _summary(leaf.part_slot, summaries, rank),
            leaf.pieces,
            summaries,
            slot=leaf.input,
            output=k,
        )
        for k, leaf in leaves
        if leaf.part is not None
        and leaf.part.counts(rank)
        and not (k == 0 and leaf.part.runs == 1 and leaf.part.first(rank) == 0 and not leaf.pieces)
    ]


def _portion(
    part: Part,
    rank: int | None,
    content: Summary | None,
    pieces: Sequence[Slot],
    summaries: Mapping[int, Summary],
    *,
    slot: int,
    output: int | None = None,
) -> Portion:
    return Portion(
        input=slot if output is None else None,
        output=output,
        vector=part.vector,
        at=part.first(rank),
        numel=part.numel,
        content=content,
        pieces=[_summary(piece, summaries, rank) for piece in pieces],
    )


def _summary(slot: Slot, summaries: Mapping[int, Summary], rank: int | None) -> Summary | None:
    if isinstance(slot, dict):
        slot = slot.get(rank)
    return None if slot is None else summaries.get(slot)  # none of a device that could not be read


def _leaf_summary(leaf: Leaf, summaries: Mapping[int, Summary], rank: int | None) -> TensorSummary:
    placement = None if leaf.spec is None else Placement.of(leaf.spec, rank=rank).as_json()
    into = TensorSummary(shape=leaf.shape, dtype=leaf.dtype, placement=placement)
    if (found := _summary(leaf.slot, summaries, rank)) is not None:
        into.take(found)
    return into
