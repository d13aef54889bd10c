"""Values of module boundaries that another run kept, as tensors: the part that a tensor of this run is of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from ..kernels.guards import unnoticed
from .bundle import Bundle
from .contents import bytes_of
from .perform import Memory, Refused

__all__ = ["KeptRun", "NotKept", "same_bits"]


class NotKept(Exception):
    """Raised for a tensor of which the other run kept nothing that could stand in its place: the reason."""


def same_bits(value: torch.Tensor, part: torch.Tensor) -> bool:
    """Return True if two tensors of one shape have the same bits."""
    if value.dtype != part.dtype:
        return False
    with unnoticed():
        x, y = (t.detach().contiguous().cpu().view(-1).view(torch.uint8) for t in (value, part))
        return torch.equal(x, y)


class KeptRun:
    """The boundaries that a run kept.

    Args:
        bundles: of its ranks and steps.
    """

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._bundles = bundles
        self._of_step: dict[int, dict[tuple[Any, ...], Mapping[str, Any]]] = {}
        self._rank = 0
        self._folders: dict[int, str] = {}

    def begin(self, rank: int, step: int) -> None:
        """Begin a step of a rank."""
        self._rank = rank
        steps = {bundle.run.get("step") for bundle in self._bundles}
        self._of_step, self._folders = {}, {}
        for bundle in self._bundles:
            if bundle.run.get("step") == step or (len(steps) == 1 and None in steps):
                number = int(bundle.run.get("rank") or 0)
                self._of_step[number] = {_key(entry): entry for entry in bundle.boundaries}
                self._folders[number] = str(bundle.folder)

    def random(self, call: Mapping[str, Any]) -> bytes | None:
        """Return the state of the random generator before a call; None if it was not kept, or by another rank."""
        entry = self._entry(self._rank, call)
        if entry is None or "random" not in entry:
            return None
        with suppress(Refused, OSError), unnoticed():
            return bytes_of(Memory(self._folders[self._rank]).bytes_of(entry["random"]["state"]))
        return None

    def value(
        self,
        call: Mapping[str, Any],
        kind: str,
        path: str,
        part: torch.Tensor,
        placement: Mapping[str, Any] | None,
    ) -> torch.Tensor:
        """Return the values of a tensor, in the shape of `part`.

        Raises:
            NotKept: there are none.
        """
        entry = self._entry(self._rank, call)
        if entry is None:
            raise NotKept("that run kept no such call")
        told = _named(entry, kind, path)
        if told is None:
            missed = entry.get("missed", {}).get(f"{kind} {path}")
            raise NotKept(missed or f"that run kept no {kind.replace('_', ' ')} {path}".strip())
        try:
            with unnoticed():
                value: torch.Tensor = Memory(self._folders[self._rank]).tensor({**told, "device": "cpu"}).to(part.device)
        except (Refused, OSError) as reason:
            raise NotKept(str(reason)) from None
        if value.shape != part.shape:
            raise NotKept(f"its shape is {list(part.shape)} here, {list(value.shape)} there")
        return value

    def _entry(self, rank: int, call: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the entry of a call; of a recomputed one, where that run did not recompute, of the call before."""
        entries = self._of_step.get(rank, {})
        return entries.get(_key(call)) or entries.get(_key({**call, "recompute": False}))


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["module"], entry["micro_batch"], entry["recompute"], entry["nth"]


def _named(entry: Mapping[str, Any], kind: str, path: str) -> Mapping[str, Any] | None:
    """Return a tensor of a side by its name; the only one also under another name."""
    found: Mapping[str, Mapping[str, Any]] = entry.get(kind, {})
    return found.get(path) or (next(iter(found.values())) if len(found) == 1 else None)
