"""Keep chosen operations of a step whole, while it runs: a tracer that also copies their tensors.

Without `--save` nothing of this is imported. What is kept lives in memory, within the limit of `--save-limit`, until
the step's log is written, for only then an operation's key is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..calls import flat_tensors
from ..collectives import Collectives, Pending
from ..event import Event
from ..generators import drawn_from, generator_of, state_of
from ..guard import no_harm, pass_on
from ..log_writer import Record, format_digest, record_text
from ..messages import describe
from ..modules import ModuleNames
from ..op_kind import OpKind
from ..placement import Placement
from ..process_groups import has_result
from ..settings import Settings
from ..statistics import Unmeasurable, check_readable
from ..subclasses import local_part
from ..tracer import StepTracer
from .against import LACKING, Operation, Table
from .boundaries import Boundaries
from .bundle import write_bundle
from .contents import Content, Contents, TooMuch, shown_size
from .form import KNOWN, bundle_folder
from .grafting import Grafting
from .perform import read_flags

__all__ = ["Keeping", "KeepingTracer", "Kept", "noting", "random_state"]

_NOTHING: Mapping[int, bytes] = MappingProxyType({})
_VALUES = (bool, int, str, type(None))
_NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format", torch.device: "device"}


@dataclass(slots=True)
class Kept:
    """A call as it is kept.

    Attributes:
        call: its entry in the manifest, ready for JSON.
        contents: what its tensors hold, which keeps these alive.
        why: why it cannot be kept; empty if it can.
    """

    call: dict[str, Any]
    contents: list[Content] = field(default_factory=list)
    why: str = ""


class KeepingTracer(StepTracer):
    """A tracer that keeps the operations that may be wanted: their tensors before they run, and what they leave."""

    def __init__(self, *args: Any, keeping: Keeping) -> None:
        super().__init__(*args)
        self._keeping = keeping
        self._collectives = _Collectives(self)

    def _before(self, kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        call = super()._before(kind, args, kwargs)
        event = None if call is None else call.event
        if event is not None and not kind.is_wait and self._keeping.wanted.may_want(event.place.module, event.name):
            event.saved = Kept({})
            with noting(event.saved):
                self._copy(event.saved, call, args, kwargs, random_state(call, args, kwargs) if kind.random else None)
        return call

    def _copy(
        self,
        kept: Kept,
        call: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        random: tuple[str, bytes, bool] | None,
        before: Mapping[int, bytes] = _NOTHING,
    ) -> None:
        """Copy what an operation was called with.

        Args:
            random: its `random_state`.
            before: bytes of storages that it has written to since, by storage.
        """
        tree = _Tree(self, kept, before)
        kept.call |= {"args": [tree.of(value) for value in args]}
        kept.call |= {"kwargs": {name: tree.of(value) for name, value in kwargs.items()}}
        kept.call |= {"aliased": tree.aliased and bool(call.written), "flags": read_flags()}
        if random is not None:
            device, state, given = random
            kept.call["random"] = tree.state(device, state) | {"given": given}

    def _after(self, func: Any, kind: OpKind, call: Any, result: Any) -> None:
        super()._after(func, kind, call, result)
        kept = None if call.event is None else call.event.saved
        if kept is not None and not kept.why:
            with noting(kept):
                self._copy_results(kept, func, call, result)

    def _copy_results(self, kept: Kept, func: Any, call: Any, result: Any) -> None:
        schema = getattr(func, "_schema", None)
        if schema is None:
            raise Unmeasurable("it is no single operator")
        kept.call["operator"] = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        kept.call["schema"] = str(schema)
        if call.event.call is not None:  # its results are there only once they are waited for
            kept.call["written"] = [leaf.input for leaf in call.event.mutated]
            kept.call |= {"returned": [None] * len(call.event.outputs), "left": [None] * len(call.event.mutated)}
            return
        tree = _Tree(self, kept)
        kept.call["returned"] = [tree.of(tensor) for tensor in flat_tensors(result)]
        kept.call["written"] = [leaf.input for leaf in call.event.mutated]
        kept.call["left"] = [tree.of(call.tensors[position]) for position in kept.call["written"]]


class _Collectives(Collectives):
    """Collectives in flight, of which those that are kept get their results when these have arrived."""

    def __init__(self, tracer: KeepingTracer) -> None:
        super().__init__(tracer.measuring)
        self._tracer = tracer

    def arrived(self, pending: Pending) -> None:
        super().arrived(pending)
        kept = pending.event.saved
        if isinstance(kept, Kept) and not kept.why and has_result(pending.work) is not False:
            with noting(kept):
                told = _Tree(self._tracer, kept).of(pending.tensor)
                for name, leaves in (("returned", pending.event.outputs), ("left", pending.event.mutated)):
                    for k, leaf in enumerate(leaves):
                        if leaf is pending.leaf:
                            kept.call[name][k] = told


def random_state(call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, bytes, bool]:
    """Return device and state of the generator that a call draws from, and whether it was given to it.

    Raises:
        Unmeasurable: it is unknown.
    """
    device, given = drawn_from(call.tensors, (*args, *kwargs.values()))
    generator = given or generator_of(device)
    if generator is None:
        raise Unmeasurable(f"the random state of {device} is unknown")
    return str(generator.device), state_of(generator), given is not None


class noting:  # noqa: N801  reads as a statement
    """Note on a call why it cannot be kept; the recording goes on."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        pass_on(error)
        self._kept.why = str(error) if isinstance(error, (TooMuch, Unmeasurable)) else describe(error)
        self._kept.contents = []
        return True


class _Tree:
    """Arguments as a tagged tree, ready for JSON; the storages of their tensors are copied as they are now."""

    def __init__(self, tracer: KeepingTracer, kept: Kept, before: Mapping[int, bytes] = _NOTHING) -> None:
        self._tracer, self._kept, self._before = tracer, kept, before
        self._memories: dict[int, tuple[int, Content]] = {}
        self.aliased = False

    def of(self, value: Any) -> Any:
        if type(value) in _VALUES:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if type(value) is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, torch.Generator):
            return {"generator": self.state(str(value.device), state_of(value))}
        tag, text = _NAMED.get(type(value), ""), str(value).removeprefix("torch.")
        return {tag: text} if tag == "device" or text in KNOWN.get(tag, ()) else {"opaque": type(value).__name__}

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        check_readable(tensor)
        if (dtype := str(tensor.dtype).removeprefix("torch.")) not in KNOWN["dtype"]:
            raise Unmeasurable(f"elements of {dtype} are not kept")
        memory = int(tensor.untyped_storage()._cdata)
        known = self._memories.get(memory)
        self.aliased |= known is not None
        state = self._tracer.measuring.state(tensor)
        if known is None:
            contents, before = self._tracer._keeping.contents, None if state is None else self._before.get(state.number)
            content = contents.of(tensor) if before is None else contents.of_bytes(before)
            known = self._memories[memory] = len(self._memories), content
            self._kept.contents.append(content)
        told: dict[str, Any] = {"memory": known[0], "storage": known[1].digest}
        told |= {"dtype": dtype, "shape": list(tensor.shape), "strides": list(tensor.stride())}
        told |= {"offset": tensor.storage_offset(), "device": str(tensor.device)}
        told |= {name: True for name, on in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if on}
        spec = None if state is None else self._tracer.measuring.spec(state, tensor)
        return told if spec is None else told | {"placement": Placement.of(spec).as_json()}

    def state(self, device: str, state: bytes) -> dict[str, Any]:
        """Keep the state of a generator."""
        content = self._tracer._keeping.contents.of_bytes(state)
        self._kept.contents.append(content)
        return {"device": device, "state": content.digest}


class Keeping:
    """Operations that a recorder keeps whole, and the bundle that it writes of them beside each log.

    Args:
        named_so_far: returns the operations of a tracer's step with their keys.
        where: returns rank and step.
    """

    def __init__(
        self,
        settings: Settings,
        named_so_far: Callable[[StepTracer], list[Event]],
        where: Callable[[], tuple[int, int]],
    ) -> None:
        self.wanted = settings.wanted
        self.contents = Contents(settings.save_limit)
        self.named_so_far, self._where = named_so_far, where
        self._against, self._tables = settings.against, settings.tables
        self._calls: list[tuple[Kept, Record]] = []
        self._rank = 0
        self.grafting = Grafting(settings.grafts, settings.like) if settings.grafts else None
        self._boundaries: Boundaries | None = None
        self._first: tuple[str, str] | None = None
        self._reads_other = ""

    def tracer(self, *args: Any) -> StepTracer:
        """Return the tracer of a step, of the arguments of a `StepTracer`."""
        if self._against is None:
            return KeepingTracer(*args, keeping=self)
        from .differing import DifferingTracer  # seldom needed

        return DifferingTracer(*args, keeping=self)

    def boundaries(self, names: ModuleNames, micro_batch: Callable[[int | None], int | None]) -> Boundaries | None:
        """Return what keeps and overwrites the boundaries of modules; None if nobody asks for that."""
        if self.wanted.boundaries or self.grafting is not None:
            wanted = self.wanted.keeps_boundary
            self._boundaries = Boundaries(names, wanted, self.grafting, self.contents, micro_batch)
        return self._boundaries

    def table(self, rank: int | None = None) -> Table | None:
        """Return the table of the other run for the step that is recorded, of a simulated rank or this process's."""
        own, step = self._where()
        return self._tables.get((own if rank is None else rank, step))

    def weights(self, tracer: Any, tensors: Iterable[tuple[str, torch.Tensor]]) -> Kept | None:
        """Keep parameters and buffers as they are now, of a DTensor the shard; None unless they are asked for."""
        if not self.wanted.weights or tracer is None:
            return None
        kept = Kept({"weights": []})
        tree = _Tree(tracer, kept)
        with noting(kept):
            for name, tensor in tensors:
                part, spec = local_part(tensor), getattr(tensor, "_spec", None)
                told = tree.of(part)
                if spec is not None:
                    told["tensor"]["placement"] = Placement.of(spec).as_json()
                kept.call["weights"].append({"name": name, **told})
        return kept

    def noting(self, events: Sequence[Event], records: Iterable[Record], rank: int) -> Iterator[Record]:
        """Pass the records of named events on, and note those that are kept."""
        self._calls, self._rank, self._first, self._reads_other = [], rank, None, ""
        table = self.table(rank)
        for event, record in zip(events, records, strict=True):
            if event.saved is not None and ("differs" in event.saved.call or self.wanted.wants(event.key, rank)):
                self._calls.append((event.saved, record))
            if table is not None and self._first is None:
                run = _operation(record)
                if why := table.difference(event.key, run):
                    self._first = event.key, why
                elif not self._reads_other and table.reads_other(event.key, run):
                    self._reads_other = event.key
            yield record

    def write(self, log: Path, run: Mapping[str, Any], weights: Kept | None = None) -> str:
        """Write the bundle of the log that was just written; return what is said of it, beginning with a comma."""
        noted, self._calls = self._calls, []
        calls: list[dict[str, Any]] = []
        missed: list[dict[str, Any]] = []
        contents: dict[str, bytes] = {}
        planned = {record.key: self._planned(record) for _, record in noted}
        every = [each for of_key in planned.values() for each in of_key]
        repeated = {_keys(each) for each in every if each["inputs"] != "neither"}
        for kept, record in noted:
            told = {"key": record.key, "seq": record.seq}
            differs = kept.call.get("differs")
            # the key that an operation has in the other run alone may be that of any operation here
            meant = [each for each in planned[record.key] if each["inputs"] != "neither" or _keys(each) not in repeated]
            if record.group is not None:
                told["group"] = record.group
            unseen = not kept.why and None in (*kept.call["returned"], *kept.call["left"])
            if kept.why or unseen:
                missed.append(told | {"why": kept.why or "its result was not waited for within the step"})
            elif meant or differs or self.wanted.of_modules(record.key):
                for tree, output in zip(kept.call["returned"], record.outputs, strict=True):
                    if output.placement is not None:  # DTensor tells it only after the operation
                        tree["tensor"]["placement"] = output.placement
                if differs:
                    lacks = differs == LACKING
                    other = None if lacks else self.table(self._rank)
                    meant.append({"why": differs, "key_a": None if lacks else record.key, "key_b": record.key})
                    if other is not None and (there := other.by_key.get(record.key)) is not None:
                        meant[-1] |= {"outputs_a": list(map(format_digest, there.results[: len(record.outputs)]))}
                calls.append(told | kept.call | _digests(kept, record) | {"planned": meant})
                contents |= {content.digest: content.data for content in kept.contents}
        head: dict[str, Any] = {"log": log.name, "run": dict(run), "missed": missed}
        if weights is not None and weights.why:
            missed.append({"key": "weights", "why": weights.why})
        elif weights is not None:
            head |= weights.call
            contents |= {content.digest: content.data for content in weights.contents}
        folder, said = bundle_folder(log), "" if self.grafting is None else self.grafting.said()
        if self.wanted.boundaries and self._boundaries is not None:
            head["boundaries"], held = self._boundaries.entries()
            contents |= held
        if self._against is not None:
            said += self._of_other_run({call["key"] for call in calls})
        if not (self.wanted.any or calls):
            return said
        with no_harm(f"the bundle {folder} was not written"):
            write_bundle(folder, head, calls, contents)
            size = shown_size(sum(map(len, contents.values())))
            said += f", kept {len(calls)} operations whole ({size})"
            said += f" and {len(head['weights'])} weights" if "weights" in head else ""
            said += f" and the boundaries of {len(head['boundaries'])} calls" if "boundaries" in head else ""
            said += f" in {folder.name}"
            if missed:
                said += f", {len(missed)} not (the first: {missed[0]['key']}: {missed[0]['why']})"
            if absent := self.wanted.absent(frozenset(planned), self._rank):
                said += f"; {absent} of the plan are not in this run"
            if others := {_keys(each) for each in every} - repeated:
                said += f"; {len(others)} have other inputs than in the plan: this run is neither of its runs"
        return said

    def _of_other_run(self, kept: set[str]) -> str:
        """Return what is said of the comparison with the run of `--against`."""
        if self.table(self._rank) is None:
            return f", and {self._against} has nothing of this step of rank {self._rank}"
        if self._first is None and not self._reads_other:
            return f", no operation differs from {self._against}"
        if self._first is None:
            other = "weights, data, or what another rank gave"
            return f", {self._reads_other} is the first that reads what {self._against} does not have: {other}"
        key, why = self._first
        return f", {key} differs first from {self._against} ({why}{'' if key in kept else ', not kept'})"

    def _planned(self, record: Record) -> list[dict[str, Any]]:
        """Return the records of plans that mean a record, with which of the plan's runs its digests repeat."""
        inputs = [format_digest(None if each is None else each.digest) for each in record.inputs]
        outputs = [format_digest(each.digest) for each in record.outputs]
        return [
            {
                **plan,
                "inputs": _repeats(plan, "inputs", record.key, inputs),
                "outputs": _repeats(plan, "outputs", record.key, outputs),
            }
            for plan in self.wanted.records(record.key, self._rank)
        ]


def _operation(record: Record) -> Operation:
    inputs = [None if each is None else each.digest for each in record.inputs]
    changed = sorted(record.mutated, key=lambda each: each.slot)
    results = [each.digest for each in record.outputs] + [each.summary.digest for each in changed]
    return Operation.of(inputs, results)


def _keys(plan: Mapping[str, Any]) -> tuple[Any, Any]:
    return plan.get("key_a"), plan.get("key_b")


def _repeats(plan: Mapping[str, Any], what: str, key: str, digests: list[str]) -> str:
    """Return which of a plan's runs has these digests: `a`, `b`, `both` or `neither`; `unknown` without any."""
    if not any(f"{what}_{side}" in plan for side in "ab"):
        return "unknown"
    same = [side for side in "ab" if plan.get(f"key_{side}") == key and plan.get(f"{what}_{side}") == digests]
    return "both" if len(same) == 2 else same[0] if same else "neither"


def _digests(kept: Kept, record: Record) -> dict[str, Any]:
    """Return what the log says of a call: its record, and the digests of its results."""
    changed = {each.slot: each.summary.digest for each in record.mutated}
    before = [None if each is None else each.digest for each in record.inputs]
    left = [changed.get(position, before[position]) for position in kept.call["written"]]
    returned = [format_digest(each.digest) for each in record.outputs]
    return {"digests": {"returned": returned, "left": list(map(format_digest, left))}, "record": record_text(record)}
