"""Routing traces of Megatron-LM's mixtures of experts: the chosen experts of each token, a line for each layer."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_lines import line_of, read_lines
from matchers.logs.imported.measured import Dumped, fields_of
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A\s*\{(?=[^\n]*"layer"\s*:)(?=[^\n]*"topk"\s*:)[^\n]*"top_indices"\s*:')
_BESIDE: Final = {"hs": ("hidden_states", "bfloat16"), "logit": ("logits", "bfloat16")}
"""By the beginning of their fields: the files of tensors beside the trace, and their dtype."""


class _Reader:
    """The rows of one trace."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def enter(self, record: Any, line: int) -> None:
        """Add the choice of a layer, and the logits and the hidden states that it was made of, if they are there."""
        stage, block = str(record["stage"]), str(record["block"])
        place = f"{block}.layers.{int(record['layer'])}"
        if (extra := record.get("mtp_idx")) is not None:
            place = f"{place}.mtp.{int(extra)}"
        row = Row(line, f"step_{int(record['step'])}.{place}", stage, phase=Phase.FORWARD, texts={NATIVE_KEY: place})
        told = record["top_indices"]
        shape = len(told), len(told[0]) if told else 0
        if {*map(len, told)} - {shape[1]}:
            raise ValueError("top_indices is no list of lists of one length")
        chosen = np.array(array("q", chain.from_iterable(told)), "<i8")
        made: list[tuple[Dumped, int]] = []
        for fields, (name, dtype) in _BESIDE.items():
            if (tensor := self._beside(record, fields, name, dtype)) is not None:
                made.append((tensor, self._add(row._replace(op=name), tensor, made)))
        self._add(row, Dumped("int64", shape, chosen.tobytes()), made)

    def _add(self, row: Row, tensor: Dumped, read: list[tuple[Dumped, int]]) -> int:
        """Add a row that reads others; return its number."""
        number = len(self._columns)
        row = row._replace(inputs=UNREAD, producers=(-1,))
        if read:
            numbers = [one.measured for one, _ in read]
            row = row._replace(
                inputs=[math.nan if one.l1 is None else one.l1 for one in numbers],
                input_digests=[one.digest for one in numbers],
                producers=[maker for _, maker in read],
            )
        fields = fields_of([tensor])
        self._columns.add(row._replace(**{**fields, "texts": {**row.texts, **fields["texts"]}}))
        return number

    def _beside(self, record: Mapping[str, Any], fields: str, name: str, dtype: str) -> Dumped | None:
        """A tensor of a file beside the trace; None without one."""
        at, size, shape = (record.get(f"{fields}_{what}") for what in ("offset", "bytes", "shape"))
        if not (type(at) is type(size) is int and isinstance(shape, list)) or self._columns.head:
            return None
        if min(at, size, *shape) < 0 or size != 2 * math.prod(shape):
            raise ValueError(f"{fields}_bytes is not the size of {fields}_shape")
        path = Path(self._columns.path).with_name(f"{name}_rank{int(record['rank'])}.bin")
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(size)
        except OSError:
            return None
        self._columns.beside += len(data)
        return Dumped(dtype, tuple(shape), data) if len(data) == size else None


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    yield from read_lines(source, columns, _Reader(columns).enter)


FORMAT = Format("Megatron routing trace", _PATTERN, _read, line_of)
