"""Tracer that keeps the first operations whose results differ from those of another run (`--against`), as they run.

What an operation is about to write to is copied before; all else of it is still there when its results are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..event import Event, Slot
from ..messages import say
from ..op_kind import OpKind
from ..statistics import Unmeasurable
from .against import Operation
from .contents import bytes_of
from .keeper import KeepingTracer, Kept, noting, random_state

__all__ = ["DifferingTracer"]

_MOST = 8
"""Operations that are kept: of independent causes, since what reads a difference is none."""


@dataclass(slots=True)
class _Ran:
    """An operation whose results are compared once they are measured.

    Attributes:
        before: bytes of the storages that it writes to, by storage, from before it ran.
        random: device and state of its generator, and whether that was given; None if it draws no random numbers.
    """

    call: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    before: dict[int, bytes] = field(default_factory=dict)
    random: tuple[str, bytes, bool] | None = None
    func: Any = None
    result: Any = None


class DifferingTracer(KeepingTracer):
    """A tracer that compares each operation with a table of another run."""

    _late: Event | None = None
    """The operation whose placement, and with it its results, the next call brings."""
    _found = 0
    _refused = False

    def _before(self, kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        call = super()._before(kind, args, kwargs)
        event = None if call is None else call.event
        if event is None or event.saved is not None or kind.collective or kind.is_wait or not self._compares():
            return call
        ran = _Ran(call, args, kwargs)
        with suppress(Unmeasurable):
            if kind.random:
                ran.random = random_state(call, args, kwargs)
            for position in call.written:
                tensor = call.tensors[position]
                state = self.measuring.state(tensor)
                if state is not None and state.number not in ran.before and tensor.is_cpu:
                    ran.before[state.number] = bytes_of(tensor)
            event.saved = ran
        return call

    def _compares(self) -> bool:
        return self._found < _MOST and not self._refused

    def _after(self, func: Any, kind: OpKind, call: Any, result: Any) -> None:
        event = call.event
        ran = None if event is None else event.saved
        if not isinstance(ran, _Ran):
            super()._after(func, kind, call, result)
            return
        event.saved = None
        super()._after(func, kind, call, result)
        ran.func, ran.result = func, result
        if self._deferred is not None and self._deferred[0] is event:
            event.saved, self._late = ran, event
        elif event.outputs or event.mutated:
            self._compare(event, ran)

    def _flush(self, spec: Any) -> None:
        super()._flush(spec)
        event, self._late = self._late, None
        if event is not None:
            ran, event.saved = event.saved, None
            self._compare(event, ran)

    def _compare(self, event: Event, ran: _Ran) -> None:
        """Keep an operation that differs first."""
        try:
            run = self._digests(event)
        except Unmeasurable:
            self._refused = True
            say("--against is for runs on a CPU: elsewhere each result would have to be waited for; instead keep what"
                " numtui plan A B names, with --save")  # fmt: skip
            return
        table = self._keeping.table()
        if run is None or table is None or not table.may_differ(event.name, run):
            return
        named = any(each is event for each in self._keeping.named_so_far(self))
        if why := table.difference(event.key, run) if named else "":
            self._found += 1
            self._keep(event, ran, why)

    def _keep(self, event: Event, ran: _Ran, why: str) -> None:
        event.saved = kept = Kept({"differs": why})
        with noting(kept):
            self._copy(kept, ran.call, ran.args, ran.kwargs, ran.random, ran.before)
            self._copy_results(kept, ran.func, ran.call, ran.result)
        if self.settings.stop:
            self.failure, self.ends_process = f"stopped at {event.key}: {why}", True
            raise SystemExit(f"numtui capture: {self.failure} (--stop)")

    def _digests(self, event: Event) -> Operation | None:
        """Return the digests of an operation that ran; None of several simulated ranks."""
        inputs = [self._digest(given.slot) for given in event.inputs]
        results = [self._digest(leaf.slot) for leaf in event.outputs]
        for leaf in sorted(event.mutated, key=lambda leaf: leaf.input):
            left, before = self._digest(leaf.slot), inputs[leaf.input]
            if before is None or left != before:
                results.append(left)
        return None if _SEVERAL in (*inputs, *results) else Operation.of(inputs, results)

    def _digest(self, slot: Slot) -> int | None:
        if isinstance(slot, dict):
            return _SEVERAL
        return None if slot is None else self.measuring.statistics.digest(slot)


_SEVERAL = -1
"""Stands for the digests of a tensor of several simulated ranks."""
