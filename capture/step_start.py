"""State at the start of a step: parameters, random generators, batch.

Two runs that differ here cannot agree later, and a comparison reports it first.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from .autocast import autocast_settings
from .generators import rng_digests
from .local_parts import LocalParts, dtype_name
from .log_writer import TensorSummary, format_digest
from .statistics import Statistics

if TYPE_CHECKING:
    from .row_sums import RowSums

__all__ = ["ModelState", "StepStart", "combined_digest"]

_MAX_PARAMETERS = 10_000
_MAX_BATCH_TENSORS = 64


class ModelState:
    """Digests and norms of named tensors, measured when the object is made; keeps no tensors.

    Args:
        tensors: (name, tensor), such as the parameters and buffers of all models.
        statistics: collects the values; None: without sketches.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], statistics: Statistics | None = None) -> None:
        self._sketch = statistics is not None
        self._statistics = Statistics(sketch=False) if statistics is None else statistics
        self._parts: dict[str, LocalParts] = {}
        self.learn(tensors)

    def learn(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Measure the tensors that are not known yet."""
        for name, tensor in tensors:
            if name not in self._parts:
                self._parts[name] = LocalParts(tensor, self._statistics, sketch=self._sketch)

    def digests(self, rank: int = 0) -> dict[str, str]:
        """Return name → digest; waits for the devices.

        Args:
            rank: one of several simulated ranks.
        """
        results = self._statistics.results()
        return {name: format_digest(parts.digest(rank, results)) for name, parts in self._parts.items()}

    def sketches(self, rank: int = 0) -> dict[str, list[Any]]:
        """Return name → sketch, size and resolution (`_sketch`), of a simulated rank as for `digests`."""
        results = self._statistics.results()
        known = ((name, parts.summary(rank, results)) for name, parts in list(self._parts.items())[:_MAX_PARAMETERS])
        return {name: found for name, of in known if (found := _sketch(of)) is not None}

    def placements(self, rank: int = 0) -> dict[str, dict[str, Any]]:
        """Return name → placement of the DTensors (docs/log-format.md), of a simulated rank as for `digests`."""
        known = list(self._parts.items())[:_MAX_PARAMETERS]
        return {name: found for name, parts in known if (found := parts.placement(rank)) is not None}

    def as_json(self, rank: int = 0) -> dict[str, Any]:
        """Return name → [digest, L2 norm, mean]; null for norm and mean of a tensor without finite elements.

        Of a part whose sketch was taken, that follows: with those of the other ranks it is that of the whole.
        """
        results = self._statistics.results()
        known = list(self._parts.items())[:_MAX_PARAMETERS]
        found = {name: parts.summary(rank, results) for name, parts in known}
        return {name: [format_digest(of.digest), *_numbers(of)] for name, of in found.items()}


class StepStart:
    """Digests of the state a step starts from, taken when the object is made; keeps no tensors.

    Draws no random numbers; on a GPU only `as_json` waits for the device.

    Args:
        parameters: (name, parameter) of all models.
        buffers: (name, buffer), likewise.
        batch: the arguments of the model, nested in any way.
        computed: whether a recorded operation made a tensor.
        sketch: take sketches, too, which tell how much two runs differ.
        rows: take the sums of the digests of rows, too, by which fused weights have partners.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, torch.Tensor]],
        buffers: Iterable[tuple[str, torch.Tensor]] = (),
        batch: Any = None,
        computed: Callable[[torch.Tensor], bool] = lambda _: False,
        *,
        sketch: bool = False,
        rows: bool = False,
    ) -> None:
        self._statistics = Statistics(sketch=sketch)
        self._rng = rng_digests()
        self._autocast = autocast_settings()
        parameters = list(parameters)
        self.parameters = ModelState(parameters, self._statistics)
        self.buffers = ModelState(buffers, self._statistics)
        self._rows: RowSums | None = None
        if rows:
            from .row_sums import RowSums

            self._rows = RowSums(parameters)
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        self._batch = [(LocalParts(tensor, self._statistics), _form(tensor, computed(tensor))) for tensor in tensors]
        self.saved: Any = None  # the weights themselves (`capture.keeping`), where somebody asks for them

    def as_json(self, rank: int = 0) -> dict[str, Any]:
        """Return the entries of the run info about the start of the step.

        Args:
            rank: one of several simulated ranks.
        """
        results = self._statistics.results()
        digests, buffers = self.parameters.digests(rank), self.buffers.digests(rank)
        batch = [(parts.summary(rank, results), form) for parts, form in self._batch]
        out: dict[str, Any] = {"rng_digest": combined_text(sorted(self._rng.items())), "rng_digests": self._rng}
        if self._autocast:
            out["autocast"] = self._autocast
        if digests:
            out["parameters_digest"] = combined_text(digests.items())
            out["parameter_digests"] = dict(list(digests.items())[:_MAX_PARAMETERS])
        if placements := self.parameters.placements(rank):
            out["parameter_placements"] = placements
        if buffers:
            out["buffer_digests"] = dict(list(buffers.items())[:_MAX_PARAMETERS])
        if sketches := self.parameters.sketches(rank) | self.buffers.sketches(rank):
            out["start_sketches"] = sketches
        if self._rows is not None and (rows := self._rows.as_json()):
            out["row_digests"] = dict(list(rows.items())[:_MAX_PARAMETERS])
        if batch:
            out["batch_digest"] = combined_digest(of.digest for of, _ in batch)
            out["batch"] = [
                form
                | {"digest": format_digest(of.digest), "l1": _number(of.l1)}
                | ({"sketch": found[0]} if (found := _sketch(of)) else {})
                for of, form in batch[:_MAX_BATCH_TENSORS]
            ]
        return out


def _numbers(of: TensorSummary) -> list[Any]:
    numbers: list[Any] = [_number(of.l2), _number(of.mean)]
    return numbers if of.sketch is None or of.placement is None else [*numbers, _text(of.sketch)]


def _text(sketch: bytes) -> str:
    return base64.b64encode(sketch).decode()


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _sketch(of: TensorSummary) -> list[Any] | None:
    """Return the sketch in base64, the number of elements, and the distance of the largest one to the next number."""
    if of.sketch is None or of.min is None or of.max is None:
        return None
    dtype = getattr(torch, of.dtype)
    resolution = torch.finfo(dtype).eps * max(abs(of.min), abs(of.max)) if dtype.is_floating_point else 0.0
    return [_text(of.sketch), of.numel, float(f"{resolution:.2e}")]


def _form(tensor: torch.Tensor, computed: bool) -> dict[str, Any]:
    form = {"shape": list(tensor.shape), "dtype": dtype_name(tensor)}
    return form | {"computed": True} if computed else form


def combined_digest(digests: Iterable[int | None]) -> str:
    """Combine digests, in order, into one of 16 hexadecimal digits."""
    return combined_text((format_digest(digest),) for digest in digests)


def combined_text(rows: Iterable[tuple[str, ...]]) -> str:
    """Combine rows of text into one digest of 16 hexadecimal digits."""
    return hashlib.sha256("".join("\t".join(row) + "\n" for row in rows).encode(errors="replace")).hexdigest()[:16]
