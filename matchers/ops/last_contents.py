"""The last known content of each named tensor in one log: parameters, buffers, optimizer states.

The log names the inputs of an optimizer's operations, and parameters and buffers where they are written to. The last
record that names a tensor tells its content at the end of the step: what it wrote, or what it read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.collectives import collective
from matchers.ops.module_path import canonical
from matchers.ops.outputs import Result, first_output, mutated, unchanged

__all__ = ["LastContents", "Touch"]

_GRADIENT = ".grad"
"""Gradients are consumed by the step; their content at its end means nothing."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An input of a record that the log names."""

    row: int
    slot: int


@dataclass(frozen=True)
class LastContents:
    """The named tensors of one log. Names are canonical (`ops.module_path`), those of a state end in its key."""

    log: OpLog
    _parsed: dict[int, dict[int, Result]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def rows(self) -> Int64:
        """int64[k], ascending: the records that name an input."""
        return np.sort(np.fromiter(self.log.texts("Parameter"), np.int64))

    @cached_property
    def last(self) -> dict[str, Touch]:
        """The last record that names each tensor, and the input's slot."""
        return self._touched(self.rows[::-1].tolist())

    @cached_property
    def first(self) -> dict[str, Touch]:
        """The first record that names each tensor, gradients included, and the input's slot."""
        return self._touched(self.rows.tolist(), gradients=True)

    @cached_property
    def start(self) -> dict[str, int]:
        """The digests of parameters before the step, as far as the run info has them."""
        found = self.log.header.run.get("parameter_digests")
        if not isinstance(found, dict):
            return {}
        return {
            canonical(str(name)): int(value, 16)
            for name, value in found.items()
            if isinstance(value, str) and len(value) == 16 and all(c in "0123456789abcdef" for c in value)
        }

    @cached_property
    def whole(self) -> bool:
        """True if a parameter that no record names was not written to: the log is whole, and no rank sends weights."""
        log = self.log
        sent = collective(log) & (log.phase == Phase.OPTIMIZER)
        return log.ours and log.complete is not False and not log.header.incomplete and not bool(sent.any())

    def _touched(self, rows: list[int], *, gradients: bool = False) -> dict[str, Touch]:
        texts = self.log.texts("Parameter")
        split: dict[bytes, list[tuple[int, str]]] = {}
        found: dict[str, Touch] = {}
        for row in rows:
            raw = texts.raw(row)
            names = split.get(raw)
            if names is None:
                names = split[raw] = [
                    (slot, canonical(name)) for slot, name in enumerate(texts[row].split(";")) if name
                ]
            for slot, name in names:
                if name not in found and (gradients or not name.endswith(_GRADIENT)):
                    found[name] = Touch(row, slot)
        return found

    def before(self, touch: Touch) -> Result:
        """The content of an input before its record ran."""
        return unchanged(self.log, touch.row, touch.slot)

    def after(self, touch: Touch) -> Result:
        """The content of an input after its record ran."""
        found = self._written(touch.row)
        return found[touch.slot] if touch.slot in found else self.before(touch)

    def written(self, row: int) -> tuple[str, ...]:
        """The names of the tensors that a record wrote to."""
        names = self.log.texts("Parameter").get(row, "").split(";")
        return tuple(canonical(names[slot]) for slot in self._written(row) if slot < len(names) and names[slot])

    def _written(self, row: int) -> dict[int, Result]:
        """The inputs that a record wrote to, by slot. An in-place operation returns the first of its inputs."""
        found = self._parsed.get(row)
        if found is None:
            found = mutated(self.log, row)
            if self.log.op_name(row).endswith("_") and len(self.log.digests[row]) == 1:
                found[0] = first_output(self.log, row)
            self._parsed[row] = found
        return found

    def leaves(self, rows: Bool) -> dict[int, tuple[str, ...]]:
        """The names that each of some records (bool[n]) wrote to, without records that wrote to none."""
        found = ((row, self.written(row)) for row in self.rows[rows[self.rows]].tolist())
        return {row: names for row, names in found if names}
