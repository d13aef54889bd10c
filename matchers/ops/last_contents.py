"""The last known content of each named tensor in one log: parameters, buffers, optimizer states.

The log names the inputs of an optimizer's operations (gradients, too), and parameters and buffers where they are
written to. The last record that names a tensor tells its content at the end of the step: what it wrote, or read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.columns import decode
from matchers.logs.op_log import OpLog
from matchers.ops.json_values import hex_digest, number
from matchers.ops.laws import law_of, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.start import table
from matchers.ops.values import Result, first_output, unchanged, written

__all__ = ["GRADIENT", "LastContents", "Touch", "trained_by_one"]

GRADIENT = ".grad"
"""End of the name of a gradient. The step consumes gradients: what is left of them means nothing."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An input of a record that the log names."""

    row: int
    slot: int


@dataclass(frozen=True)
class LastContents:
    """The named tensors of one log. Names are canonical (`ops.module_path`), those of a state end in its key.

    `modules`: the log's table of modules after the user's renames.
    """

    log: OpLog
    modules: tuple[str, ...]
    _parsed: dict[int, dict[int, Result]] = field(default_factory=dict, repr=False, compare=False)
    _split: dict[bytes, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

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
        """The first record that names each tensor, and the input's slot."""
        return self.first_after(-1)

    def first_after(self, row: int) -> dict[str, Touch]:
        """The same, of the records after a row."""
        return self._touched(self.rows[self.rows > row].tolist())

    def base(self, name: str) -> str:
        """The parameter that a gradient or a state belongs to; the name itself for a parameter or buffer."""
        head = name.rpartition(".")[0]
        return head if head in self.first else name

    @cached_property
    def start(self) -> dict[str, int]:
        """The digests of parameters before the step, as far as the run info has them."""
        found = self.log.header.run.get("parameter_digests")
        if not isinstance(found, dict):
            return {}
        return {
            self._name(str(name)): int(value, 16)
            for name, value in found.items()
            if isinstance(value, str) and len(value) == 16 and all(c in "0123456789abcdef" for c in value)
        }

    @cached_property
    def ends(self) -> dict[str, Result]:
        """The content of parameters and buffers after the step, as far as the run info has it: digest, norm, mean, and
        of a whole that ranks hold parts of, a sketch.
        """
        found = self.log.header.run.get("end_state")
        if self.log.complete is False or not isinstance(found, dict):
            return {}
        ends: dict[str, Result] = {}
        for name, entry in found.items():
            digest, *numbers = entry[:4] if isinstance(entry, list) and len(entry) >= 3 else (None,)
            if (known := hex_digest(digest)) is not None:
                l2, mean = map(number, numbers[:2])
                sketch = numbers[2].encode() if len(numbers) > 2 and isinstance(numbers[2], str) else b""
                ends[self._name(str(name))] = Result(str(name), l2=l2, mean=mean, digest=known, sketch=sketch)
        return ends

    def members(self, name: str) -> tuple[str, ...]:
        """The parameters in a flat one, which no other run may have; of any other tensor, it alone."""
        return self._flat.get(name, (name,))

    @cached_property
    def _flat(self) -> dict[str, tuple[str, ...]]:
        found = table(self.log.header.run, "flat_parameters")
        of = ((str(name), held) for name, held in found.items() if isinstance(held, list) and held)
        return {self._name(name): tuple(self._name(str(one)) for one in held) for name, held in of}

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """The modules with other names, by the rules."""
        pairs = zip(self.log.modules, self.modules, strict=True)
        return {canonical(old): canonical(new) for old, new in pairs if old != new and canonical(old)}

    def _name(self, text: str) -> str:
        path = module = canonical(text)
        while module and self._renamed:
            if module in self._renamed:
                return f"{self._renamed[module]}{path[len(module) :]}"
            module = module.rpartition(".")[0]
        return path

    @cached_property
    def whole(self) -> bool:
        """True if a parameter that no record names was not written to: the log is whole, and no rank sends weights."""
        log = self.log
        # what reduces sends gradients and norms, and a wait belongs to its collective
        sent = log.updates & rows_where(log, lambda law: law.communicates and not (law.reduces or law.waits))
        return log.tells.whole and log.complete is not False and not log.header.incomplete and not bool(sent.any())

    def _touched(self, rows: list[int]) -> dict[str, Touch]:
        found: dict[str, Touch] = {}
        for row in rows:
            for slot, name in enumerate(self.names(row)):
                if name and name not in found:
                    found[name] = Touch(row, slot)
        return found

    def names(self, row: int) -> tuple[str, ...]:
        """The names of a record's inputs by slot, empty where unknown."""
        raw = self.log.texts("Parameter").raw(row)
        names = self._split.get(raw)
        if names is None:
            names = self._split[raw] = tuple(self._name(name) if name else "" for name in decode(raw).split(";"))
        return names

    def before(self, touch: Touch) -> Result:
        """The content of an input before its record ran."""
        return unchanged(self.log, touch.row, touch.slot)

    def after(self, touch: Touch) -> Result:
        """The content of an input after its record ran."""
        found = self.changes(touch.row)
        return found[touch.slot] if touch.slot in found else self.before(touch)

    def written(self, row: int) -> tuple[str, ...]:
        """The names of the tensors that a record wrote to."""
        names = self.names(row)
        return tuple(names[slot] for slot in self.changes(row) if slot < len(names) and names[slot])

    @cached_property
    def writers(self) -> dict[str, tuple[int, ...]]:
        """The records that wrote to each tensor."""
        found: dict[str, list[int]] = {}
        for row in self.rows.tolist():
            for name in self.written(row):
                found.setdefault(name, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    def writer(self, name: str) -> int:
        """The last record that wrote to a tensor; the last that names it if none is known to."""
        at = self.last[name].row
        for k in range(int(np.searchsorted(self.rows, at)), -1, -1):
            row = int(self.rows[k])
            if name in self.names(row) and name in self.written(row):
                return row
        return at

    def left(self, name: str) -> Result:
        """The content of a tensor at the end of the step, in full if its writer tells it and not a later reader."""
        found = self.after(self.last[name])
        if found.shape is not None:
            return found
        row = self.writer(name)
        written = self.after(Touch(row, self.names(row).index(name)))
        return written if written.digest == found.digest else found

    def changes(self, row: int) -> dict[int, Result]:
        """The inputs that a record wrote to, by slot. An in-place operation returns the first of its inputs."""
        found = self._parsed.get(row)
        if found is None:
            found = written(self.log, row)
            if law_of(self.log, row).in_place and len(self.log.digests[row]) == 1:
                found[0] = first_output(self.log, row)
            self._parsed[row] = found
        return found

    def leaves(self, rows: Bool) -> dict[int, tuple[str, ...]]:
        """The names that each of some records (bool[n]) wrote to, without records that wrote to none."""
        found = ((row, self.written(row)) for row in self.rows[rows[self.rows]].tolist())
        return {row: names for row, names in found if names}


def trained_by_one(mine: LastContents, other: LastContents) -> list[str]:
    """The parameters that have a gradient in one run alone, though both have them, as far as they tell.

    None where the two name no gradient in common.
    """
    ends = [{name.removesuffix(GRADIENT) for name in of.last if name.endswith(GRADIENT)} for of in (mine, other)]
    if ends[0].isdisjoint(ends[1]):
        return []
    names = mine.start or sorted(ends[0])  # the header of merged ranks tells no start
    return [name for name in names if name in ends[0] - ends[1] and (name in other.start or not other.start)]
