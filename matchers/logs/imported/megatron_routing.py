"""Routing traces of Megatron-LM's mixtures of experts: the chosen experts of each token, a line for each layer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_lines import line_of, read_lines
from matchers.logs.imported.json_shapes import Contents, Plan, Shapes, as_text, is_whole, picker, rows_of
from matchers.logs.imported.measured import Dumped, fields_of
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A\s*\{(?=[^\n]*"layer"\s*:)(?=[^\n]*"topk"\s*:)[^\n]*"top_indices"\s*:')
_BESIDE: Final = {"hs": ("hidden_states", "bfloat16"), "logit": ("logits", "bfloat16")}
"""By the beginning of their fields: the files of tensors beside the trace, and their dtype."""
_TOGETHER: Final = 64
"""Choices that are measured together."""


_Beside = list[tuple[str, str, list[int]]]
"""Name, dtype and place of tensors in files beside the trace: offset, bytes, rank and shape."""


class _Reader:
    """The rows of one trace."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._waiting: list[tuple[Row, NDArray[np.int64]]] = []
        """Choices of one shape that nothing was read for, to be measured together."""
        self._shape = 0, 0

    def plan(self, record: Any) -> Plan:
        """Return what tells the choice of a layer, and where the logits and hidden states lie that it was made of."""
        pick = picker(*(record[key] for key in ("stage", "block", "layer", "step")), record.get("mtp_idx"))
        told = record["top_indices"]
        shape = len(told), len(told[0]) if told else 0
        if {*map(len, told)} - {shape[1]}:
            raise ValueError("top_indices is no list of lists of one length")
        every = [*chain.from_iterable(told)]
        if not all(map(is_whole, every)):
            raise TypeError("top_indices has something that is no whole number")
        first, last = (every[0].at, every[-1].at + 1) if every else (0, 0)
        if [one.at for one in every] != [*range(first, last)]:
            raise OverflowError("top_indices has a number that is too large")
        beside: list[tuple[str, str, Callable[[Contents], list[Sequence[Any]]]]] = []
        for fields, (name, dtype) in _BESIDE.items() if not self._columns.head else ():
            at, size, sizes = (record.get(f"{fields}_{what}") for what in ("offset", "bytes", "shape"))
            if is_whole(at) and is_whole(size) and isinstance(sizes, list):
                beside.append((name, dtype, picker(at, size, record["rank"], *sizes)))

        def read(lines: Sequence[int], contents: Contents) -> Iterable[Any]:
            stages, blocks, *numbers, extras = pick(contents)
            layers, steps = ([*map(int, column)] for column in numbers)
            chosen = contents.numbers[:, first:last].astype("<i8")
            files = [(name, dtype, iter(rows_of(places(contents), len(lines)))) for name, dtype, places in beside]
            every = zip(lines, stages, blocks, layers, steps, extras, chosen, strict=True)
            for line, stage, block, layer, step, extra, indices in every:
                place = f"{as_text(block)}.layers.{layer}{'' if extra is None else f'.mtp.{int(extra)}'}"
                of_row = {"inputs": UNREAD, "producers": (-1,), "phase": Phase.FORWARD, "native": place}
                row = Row(line, f"step_{step}.{place}", as_text(stage), **of_row)  # type: ignore[arg-type] # by name
                own = [(name, dtype, [*map(int, next(places))]) for name, dtype, places in files]
                for name, _, at in own:
                    _refuse_other_size(name, at)
                yield step, row, shape, indices, own

        return read

    def enter(self, step: int, row: Row, shape: tuple[int, int], indices: NDArray[np.int64], beside: _Beside) -> None:
        """Add a choice, if its step is wanted, and what it was made of."""
        if not self._columns.wanted(step):
            return
        read = [(name, self._beside(name, dtype, place)) for name, dtype, place in beside]
        made: list[tuple[Dumped, int]] = []
        if any(tensor is not None for _, tensor in read) or shape != self._shape or len(self._waiting) == _TOGETHER:
            self.finish()
        for name, tensor in read:
            if tensor is not None:
                made.append((tensor, self._add(row._replace(op=name), tensor, made)))
        if made:
            self._add(row, Dumped("int64", shape, indices.tobytes()), made)
            return
        self._shape = shape
        self._waiting.append((row, indices))
        self._columns.waiting += 1

    def finish(self) -> None:
        """Add the choices that wait."""
        waiting, self._waiting, self._columns.waiting = self._waiting, [], 0
        if waiting:
            rows, chosen = zip(*waiting, strict=True)
            for row, tensor in zip(rows, Dumped.of_whole_numbers(np.stack(chosen), self._shape), strict=True):
                self._add(row, tensor, [])

    def _add(self, row: Row, tensor: Dumped, read: list[tuple[Dumped, int]]) -> int:
        """Add a row that reads others; return its number."""
        number = len(self._columns)
        fields = fields_of([tensor])
        if read:
            numbers = [one.measured for one, _ in read]
            fields["inputs"] = [math.nan if one.l1 is None else one.l1 for one in numbers]
            fields["input_digests"] = [one.digest for one in numbers]
            fields["producers"] = [maker for _, maker in read]
        self._columns.add(row._replace(**fields))
        return number

    def _beside(self, name: str, dtype: str, place: Sequence[int]) -> Dumped | None:
        """A tensor of a file beside the trace, by offset, bytes, rank and shape; None without one."""
        at, size, rank, *shape = place
        path = Path(self._columns.path).with_name(f"{name}_rank{rank}.bin")
        try:
            if at + size > path.stat().st_size:  # an offset may be any number
                return None
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(size)
        except OSError:
            return None
        self._columns.beside += len(data)
        return Dumped(dtype, tuple(shape), data) if len(data) == size else None


def _refuse_other_size(name: str, place: list[int]) -> None:
    at, size, _, *shape = place
    if min(at, size, *shape) < 0 or size != 2 * math.prod(shape):
        raise ValueError(f"the bytes of {name} are not the size of its shape")


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    reader = _Reader(columns)
    for told in read_lines(source, columns, Shapes(reader.plan)):
        for _, one in told:
            reader.enter(*one)
        yield
    reader.finish()


FORMAT = Format("Megatron routing trace", _PATTERN, _read, line_of, steps=True)
