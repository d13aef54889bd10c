"""Determinism traces of Megatron-LM: tensors and scalars at boundaries of the program, a line each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from matchers.errors import LogError
from matchers.logs.imported.columns import UNREAD, Columns, Row, new_row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_lines import line_of, read_lines
from matchers.logs.imported.json_shapes import Content, Shapes, as_text, is_number, picker, shape_of
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A\s*\{[^\n]*"event"\s*:\s*"(?:event|tensor)"[^\n]*"schema_version"\s*:')
_KNOWN_VERSION = 1
_PHASES: Final = {phase.label: phase for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}
_SUMMARY: Final = {"l2_norm": "L2 norm", "minimum": "Min", "maximum": "Max", "mean": "Mean"}
_NOT_FINITE: Final = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


_At = tuple[int, str, str, Phase, int]
"""Line, module, the name of its row, phase and micro-batch of a record."""


def _row(
    line: int,
    module: str,
    op: str,
    shape: str,
    dtype: str,
    phase: Phase,
    stats: Mapping[str, float],
    digests: tuple[int, ...],
    batch: int,
    texts: Mapping[str, str],
) -> Row:
    told_of = line, module, op, shape, dtype, (), UNREAD, (-1,), "", phase, stats, (), digests, (), False, batch, texts
    return new_row(Row, told_of)


class _Reader:
    """The rows of one trace, in the order of execution."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._last: float = -1
        self.modes: set[str] = set()

    def plan(self, record: Any) -> Callable[[Content, int], None]:
        """Return what adds the rows of a record of this shape."""
        wanted = (record[key] for key in ("schema_version", "sequence", "name"))
        pick = picker(*wanted, *map(record.get, ("iteration", "microbatch", "phase")))

        @cache
        def adding() -> Callable[[Content, _At], None]:
            return self._tensor(record["tensor"]) if record["event"] == "tensor" else self._event(record["fields"])

        def enter(content: Content, line: int) -> None:
            version, sequence, name, iteration, batch, phase = pick(content)
            if version != _KNOWN_VERSION:
                raise LogError(
                    f"{self._columns.path}:{line}: schema_version {as_text(version)} of Megatron's determinism trace is"
                    f" unknown: expected {_KNOWN_VERSION}"
                )
            if sequence <= self._last:
                before = as_text(self._last)
                self._columns.problem(line, f"sequence {as_text(sequence)} after {before}: it is not increasing")
            self._last = sequence
            name, at = as_text(name), ""
            if iteration is not None:
                at = f"iteration_{int(iteration)}."
                if not self._columns.wanted(int(iteration)):
                    return
            elif self._columns.step is not None:
                return
            batch = -1 if batch is None else int(batch)
            adding()(content, (line, f"{at}{name}", name, _PHASES.get(phase, Phase.OTHER), batch))

        return enter

    def _event(self, fields: Mapping[str, Any]) -> Callable[[Content, _At], None]:
        """Return what adds the rows of an event's scalars."""
        found: dict[str, Any] = {}
        for key, value in fields.items():
            told = value if isinstance(value, dict) else fields if key == "value" else {"value": value}
            number = _NOT_FINITE.get(str(told.get("nonfinite")), told.get("value"))
            if is_number(number) or isinstance(number, (float, bool)):
                found[key] = number
        pick = picker(*found.values())

        def add(content: Content, at: _At) -> None:
            line, place, name, phase, batch = at
            for key, number in zip(found, map(float, pick(content)), strict=True):
                module = place if key == "value" else f"{place}.{key}"
                stats = {"L2 norm": abs(number), **dict.fromkeys(("Min", "Max", "Mean"), number)}
                self._columns.add(_row(line, module, "value", "[]", "", phase, stats, (), batch, {NATIVE_KEY: name}))

        return add

    def _tensor(self, told: Mapping[str, Any]) -> Callable[[Content, _At], None]:
        """Return what adds the row of a tensor."""
        mode = str(told["mode"])
        self.modes.add(mode)
        digest = told["sha256"] if mode in ("full", "sampled") else ""
        summary = {} if digest else told.get("summary") or {}
        found = {own: summary[key] for key, own in _SUMMARY.items() if summary.get(key) is not None}
        finite = summary.get("all_finite", True) if summary else True
        pick = picker(told["dtype"], digest, finite, *found.values(), *told["shape"])
        names, sizes = tuple(found), 3 + len(found)

        def add(content: Content, at: _At) -> None:
            line, module, name, phase, batch = at
            values = pick(content)
            dtype, digest, finite = values[:3]
            digests: tuple[int, ...] = ()
            stats: dict[str, float] = {}
            texts = {NATIVE_KEY: name}
            if mode == "full":
                digests = (int(digest[:16], 16),)
            elif mode == "sampled":
                texts["User hash"] = str(int(digest, 16))
            elif finite:
                stats = dict(zip(names, map(float, values[3:sizes]), strict=True))
            else:
                stats = dict.fromkeys(_SUMMARY.values(), math.nan)
            shape, dtype = shape_of(values[sizes:]), dtype.removeprefix("torch.")
            self._columns.add(_row(line, module, "boundary", shape, dtype, phase, stats, digests, batch, texts))

        return add


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    reader = _Reader(columns)
    yield from read_lines(source, columns, Shapes(reader.plan))
    if len(reader.modes) == 1:
        columns.form = f"{FORMAT.name} ({reader.modes.pop()})"


FORMAT = Format("Megatron determinism trace", _PATTERN, _read, line_of, steps=True)
