"""`--weights-from`: whole weights of a file or of another run, put into whatever holds them here before the first step.

A parameter gets the part of the whole that its placement says: of a DTensor its shard, of FSDP1 its slice. Names are
those of the whole model; a prefix that all names of one side have (`model.`) is left out of account. What was written
is read back, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .flat_parameters import NamedSlice
from .keeping.kept_values import same_bits
from .keeping.layout import NoWhole, put_together
from .keeping.perform import Memory, Refused
from .keeping.stored_weights import InFile, Stored
from .kernels.guards import unnoticed
from .messages import describe, say
from .placement import Placement

__all__ = ["GivenWeights"]

_NAMED = 3
"""Names in a message."""
_LOOKED_AT = 16
"""Names by which a prefix is looked for."""


class GivenWeights:
    """Weights that a run is given.

    Args:
        source: the path, for messages.
        stored: what is there, by name.
    """

    def __init__(self, source: str, stored: Stored) -> None:
        self._source, self._stored = source, stored
        self._given: dict[str, str] = {}
        self._rounded: list[str] = []
        self._left: dict[str, str] = {}

    def give(self, parameters: Iterable[tuple[str, Any]], buffers: Iterable[tuple[str, Any]]) -> None:
        """Write into parameters, and into the buffers that the other run has, and say what was done.

        Args:
            parameters: (path, tensor) of what this rank holds, FSDP1 slices included.
        """
        held = dict(parameters)
        names = self._names_there([*held])
        for name, tensor in (*held.items(), *buffers):
            there = names(name)
            if there not in self._stored:
                if name in held:
                    self._left[name] = "no tensor of this name there"
                continue
            try:
                with unnoticed():
                    self._write(name, tensor, there)
                self._given[name] = there
            except (NoWhole, Refused, OSError) as reason:
                self._left[name] = describe(reason) if isinstance(reason, OSError) else str(reason)
        self._say()

    def as_json(self) -> dict[str, Any]:
        """Return what was done, for the run info: names given, rounded to another dtype, and left, with reasons."""
        return {"given": len(self._given), "rounded": self._rounded, "left": self._left, "unused": self._unused()}

    def _unused(self) -> list[str]:
        used = {*self._given.values()}
        return [name for name in self._stored if name not in used]

    def _names_there(self, names: list[str]) -> Callable[[str], str]:
        """Return a function from a name here to that of the same tensor there: the same, or under other prefixes."""
        stored = self._stored
        missing = [name for name in names if name not in stored][:_LOOKED_AT]
        more = {of[: -len(name)] for name in missing for of in stored if of.endswith("." + name)}
        fewer = {".".join(name.split(".")[:k]) + "." for name in missing for k in range(1, name.count(".") + 1)}

        def renamed(name: str, fewer: str, more: str) -> str:
            return more + name.removeprefix(fewer)

        ways = [("", ""), *(("", one) for one in sorted(more)), *((one, "") for one in sorted(fewer))]
        known = [sum(renamed(name, *way) in stored for name in names) for way in ways]
        best = ways[max(range(len(ways)), key=known.__getitem__)]
        return lambda name: renamed(name, *best)

    def _write(self, name: str, tensor: Any, there: str) -> None:
        local, spec = getattr(tensor, "_local_tensor", tensor), getattr(tensor, "_spec", None)
        if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout != torch.strided or local.is_meta:
            raise NoWhole("tensors of this kind cannot be written to")
        whole = self._whole(there)
        if isinstance(tensor, NamedSlice):
            whole = whole.reshape(-1)
        shape, part = tuple(tensor.shape if spec is None else local.shape), whole
        if spec is not None:
            placement = Placement.of(spec)
            if placement.axes is None or placement.shape is None or "Partial" in "".join(placement.placements):
                raise NoWhole("which part of it this rank holds is not known")
            if placement.shape != tuple(whole.shape):
                raise NoWhole(f"its shape is {list(placement.shape)} here, {list(whole.shape)} there")
            for dim, runs in enumerate(placement.axes):
                cut = [part.narrow(dim, run.start, len(run)) for run in runs] or [part.narrow(dim, 0, 0)]
                part = cut[0] if len(cut) == 1 else torch.cat(cut, dim)
        if tuple(part.shape) != shape:
            raise NoWhole(f"its shape is {list(shape)} here, {list(part.shape)} there")
        wanted = part.to(local.dtype)
        local.detach().copy_(wanted)
        if wanted.dtype != part.dtype and not torch.equal(wanted.to(part.dtype), part):
            self._rounded.append(name)
        if not same_bits(local, wanted):
            raise NoWhole("it does not hold what was written to it: elements share memory")

    def _whole(self, there: str) -> torch.Tensor:
        stored = self._stored[there]
        if isinstance(stored, InFile):
            return _read(stored)
        parts: list[tuple[Mapping[str, Any], torch.Tensor]] = [
            (told, Memory(folder).tensor({**told, "device": "cpu"})) for folder, told in stored.parts
        ]
        whole: torch.Tensor = put_together(parts, lambda shape, like: torch.empty(shape, dtype=like.dtype))
        return whole

    def _say(self) -> None:
        told = [
            f"gave {len(self._given):,} weights the values of {self._source} (--weights-from): this changes the run"
        ]
        if self._rounded:
            told.append(f"{len(self._rounded):,} were rounded to another dtype")
        if self._left:
            first = ", ".join(f"{name} ({why})" for name, why in [*self._left.items()][:_NAMED])
            told.append(f"{len(self._left):,} stay as they are: {first}")
        if unused := self._unused():
            told.append(
                f"{len(unused):,} of {len(self._stored):,} there have no place here: {', '.join(unused[:_NAMED])}"
            )
        say("; ".join(told))


def _read(stored: InFile) -> torch.Tensor:
    with open(stored.path, "rb") as file:
        file.seek(stored.start)
        data = bytearray(file.read(stored.stop - stored.start))
    if len(data) != stored.stop - stored.start:
        raise NoWhole("its file was cut off meanwhile")
    dtype = getattr(torch, stored.dtype)
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).reshape(stored.shape)
