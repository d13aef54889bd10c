"""Tensors that a run kept at the boundaries of its modules, put together from the parts of its ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture.keeping.bundle import Bundle
from capture.keeping.form import INPUT_GRADIENTS, INPUTS, OF_NO_MODULE, OUTPUT_GRADIENTS, OUTPUTS, read_content
from capture.keeping.layout import GradientScale, Group, NoWhole, Rows, batch_of, put_together, row_names
from numtui.report.elements import read_tensor

__all__ = ["Group", "KeptBoundaries", "Key", "Side", "Values"]

Key = tuple[str, int | None, int]
"""Module, micro-batch, and number of the call among those."""


@dataclass(frozen=True)
class Values:
    """Numbers of a tensor, and its dtype; `rounds`: one of floating point."""

    numbers: NDArray[np.float64]
    dtype: str
    rounds: bool


Side = dict[str, Values]


class KeptBoundaries:
    """Kept boundaries of a run, of all its ranks."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._calls: dict[Key, dict[int, tuple[Path, Mapping[str, Any]]]] = {}
        self.ranks = sorted({int(bundle.run.get("rank") or 0) for bundle in bundles})
        names: dict[tuple[int, int | None], list[str]] = {}
        for bundle in bundles:
            rank = int(bundle.run.get("rank") or 0)
            for call in bundle.boundaries:
                if call["recompute"]:
                    continue
                batch = call["micro_batch"]
                self._calls.setdefault((call["module"], batch, call["nth"]), {})[rank] = bundle.folder, call
                if (rank, batch) not in names and (told := batch_of(call)) is not None:
                    rows = told["shape"][0] if told["shape"] else 0
                    names[rank, batch] = row_names(read_content(bundle.folder, told["storage"]), rows)
        self.rows, self._scale = Rows(names), GradientScale()
        self._made = {
            told["storage"]
            for of_key in self._calls.values()
            for _, call in of_key.values()
            for side in (OUTPUTS, INPUT_GRADIENTS)
            for told in call.get(side, {}).values()
        }

    @property
    def keys(self) -> list[Key]:
        return list(self._calls)

    def read_alike(self, module: str, nth: int, name: str) -> set[tuple[str, int, str]]:
        """Return what modules are given that is this same tensor, with one gradient: by module, call and name."""
        return self._of_tensor.get(self._tensor_of.get((module, nth, name), ("", "")), set())

    def gradient(self, place: tuple[str, int, str]) -> str:
        """Return the digest of the gradient of an input; empty if none was kept."""
        return self._tensor_of.get(place, ("", ""))[1]

    @cached_property
    def _tensor_of(self) -> dict[tuple[str, int, str], tuple[str, str]]:
        """By module, call and name of an input: its content before any graft, and that of its gradient."""
        found: dict[tuple[str, int, str], tuple[str, str]] = {}
        for (module, _, nth), of in self._calls.items():
            call = of[min(of)][1]
            for name, gradient in call.get(INPUT_GRADIENTS, {}).items():
                if name in (given := call.get(INPUTS, {})):
                    found.setdefault((module, nth, name), (given[name]["storage"], gradient["storage"]))
        return found

    @cached_property
    def _of_tensor(self) -> dict[tuple[str, str], set[tuple[str, int, str]]]:
        found: dict[tuple[str, str], set[tuple[str, int, str]]] = {}
        for place, tensor in self._tensor_of.items():
            found.setdefault(tensor, set()).add(place)
        return found

    @property
    def outermost(self) -> list[Key]:
        found = ((key, next(iter(of.values()))[1]) for key, of in self._calls.items())
        return [key for key, call in found if call["within"] is None and key[0] not in OF_NO_MODULE]

    def has(self, key: Key) -> bool:
        """Return True if a module was called so often in any micro-batch."""
        return any(module == key[0] and nth == key[2] for module, _, nth in self._calls)

    def given_to(self, module: str) -> set[str]:
        """Return the names of all that any call of a module was given."""
        calls = (call for at, of in self._calls.items() if at[0] == module for _, call in of.values())
        return {name for call in calls for name in call.get(INPUTS, ())}

    def grafted(self, key: Key, side: str) -> set[str]:
        """Return the names of the tensors of a side that were overwritten by those of the other run."""
        return {name for call in self._in_any_batch(key) for name in call.get("grafted", {}).get(side, ())}

    def rewritten(self, key: Key) -> bool:
        """Return True if what a call was given was overwritten again by what another call was given."""
        return any(call.get("rewritten") for call in self._in_any_batch(key))

    def _in_any_batch(self, key: Key) -> Iterator[Mapping[str, Any]]:
        """Yield the calls of all ranks that differ in the micro-batch alone."""
        for at, of in self._calls.items():
            if at[::2] == key[::2]:
                yield from (call for _, call in of.values())

    def handed_in(self, module: str) -> Iterator[tuple[Key, str, set[str]]]:
        """Yield sides of calls that a module makes, with the names of the grafted tensors that it made itself."""
        handed_on = self._made | {
            told["storage"]
            for key, of_key in self._calls.items()
            for _, call in of_key.values()
            for side in (INPUTS, OUTPUT_GRADIENTS)
            for told in call.get(side, {}).values()
            if key[0] == module
        }
        for key, of_key in self._calls.items():
            for side in (INPUTS, OUTPUT_GRADIENTS):
                names = self.grafted(key, side)
                own = {
                    name
                    for _, call in of_key.values()
                    if call["within"] == module
                    for name, told in call.get(side, {}).items()
                    if name in names and told["storage"] not in handed_on
                }
                if own:
                    yield key, side, own

    def side(self, key: Key, side: str, ranks: Collection[int]) -> Side:
        """Return the tensors of one side of a call, as far as the parts of these ranks make wholes."""
        parts: dict[str, list[tuple[Mapping[str, Any], NDArray[np.float64]]]] = {}
        kinds: dict[str, tuple[str, bool]] = {}
        for rank, (folder, call) in self._calls.get(key, {}).items():
            for name, told in call.get(side, {}).items() if rank in ranks else ():
                tensor = read_tensor(folder, told)
                if tensor.values is not None and not np.iscomplexobj(tensor.values):
                    parts.setdefault(name, []).append((told, tensor.values.astype(np.float64)))
                    kinds[name] = tensor.dtype, tensor.is_float
        found = {}
        for name, of in parts.items():
            with suppress(NoWhole):
                found[name] = Values(put_together(of, _empty), *kinds[name])
        return found

    def gathered(
        self, names: Sequence[str], shape: tuple[int, ...], parts: Mapping[Group, NDArray[np.float64]]
    ) -> NDArray[np.float64] | None:
        """Return the named rows of the batch, from the parts of the groups that have them; None if one is missing."""

        def fetch(group: Group) -> NDArray[np.float64]:
            if group not in parts:
                raise NoWhole
            return parts[group]

        with suppress(NoWhole):
            return self.rows.gathered(names, shape, fetch, _empty)
        return None

    def factor(self, norm: float, other: float, rows: int, of_loss: int) -> float:
        """Return by how much gradients are larger here, of means over fewer rows than the other run's `rows`.

        `of_loss` as `GradientScale.of` has it.
        """
        most = max(map(len, self.rows.groups.values()), default=1)
        return self._scale.of(norm, other, rows / most, of_loss)[0]


def _empty(shape: tuple[int, ...], _like: object) -> NDArray[np.float64]:
    return np.empty(shape, np.float64)
