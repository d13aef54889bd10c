"""Determinism traces of Megatron-LM: tensors and scalars at boundaries of the program, a line each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from matchers.errors import LogError
from matchers.logs.imported.columns import UNREAD, Columns, Row, rows, stats_of
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_lines import line_of, read_lines
from matchers.logs.imported.json_shapes import Contents, Plan, Shapes, as_text, is_number, picker, rows_of, shape_of
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A\s*\{[^\n]*"event"\s*:\s*"(?:event|tensor)"[^\n]*"schema_version"\s*:')
_KNOWN_VERSION = 1
_PHASES: Final = {phase.label: phase for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}
_SUMMARY: Final = {"l2_norm": "L2 norm", "minimum": "Min", "maximum": "Max", "mean": "Mean"}
_NOT_FINITE: Final = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


_Adding = Callable[[Contents, Mapping[str, Any]], Iterable[Iterable[Row]]]
"""Tells the rows of each record, from contents and from columns of all its rows by name."""


class _Reader:
    """The rows of one trace, in the order of execution."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._last: float = -1
        self.modes: set[str] = set()

    def plan(self, record: Any) -> Plan:
        """Return what tells sequence, iteration and rows of records of this shape."""
        head = picker(record["schema_version"], record["sequence"], record.get("iteration"))
        pick = picker(record["name"], *map(record.get, ("microbatch", "phase")))
        add = self._tensor(record["tensor"]) if record["event"] == "tensor" else self._event(record["fields"])

        def read(lines: Sequence[int], contents: Contents) -> Iterable[Any]:
            versions, sequences, iterations = head(contents)
            if other := [k for k, version in enumerate(versions) if version != _KNOWN_VERSION]:
                where = f"{self._columns.path}:{lines[other[0]]}: schema_version {as_text(versions[other[0]])}"
                raise LogError(f"{where} of Megatron's determinism trace is unknown: expected {_KNOWN_VERSION}")
            steps = [None if one is None else int(one) for one in iterations]
            told = map(float, sequences), steps
            if (wanted := self._columns.step) is None:
                return zip(*told, rows_of_records(lines, contents, steps), strict=True)
            asked = [k for k, step in enumerate(steps) if step == wanted]
            if not asked:
                return zip(*told, repeat(()), strict=False)
            some = [lines[k] for k in asked], contents.only(asked), [wanted] * len(asked)
            found = iter(rows_of_records(*some))
            return zip(*told, [next(found) if step == wanted else () for step in steps], strict=True)

        def rows_of_records(
            lines: Sequence[int], contents: Contents, steps: Sequence[int | None]
        ) -> Iterable[Iterable[Row]]:
            names, batches, phases = pick(contents)
            names = [*map(as_text, names)]
            places = [name if at is None else f"iteration_{at}.{name}" for name, at in zip(names, steps, strict=True)]
            common = {
                "line": lines,
                "module": places,
                "phase": [_PHASES.get(phase, Phase.OTHER) for phase in phases],
                "micro_batch": [-1 if batch is None else int(batch) for batch in batches],
                "inputs": repeat(UNREAD),
                "producers": repeat((-1,)),
                "native": names,
            }
            return add(contents, common)

        return read

    def enter(self, told: Iterable[tuple[int, tuple[float, int | None, Iterable[Row]]]]) -> None:
        """Add the rows of records, of which the step is wanted."""
        columns, last = self._columns, self._last
        wanted: list[Row] = []
        for line, (sequence, step, found) in told:
            if sequence <= last:
                before = as_text(last)
                columns.problem(line, f"sequence {as_text(sequence)} after {before}: it is not increasing")
            last = sequence
            if columns.step is None if step is None else columns.wanted(step):
                wanted += found
        self._last = last
        columns.extend(wanted)

    def _event(self, fields: Mapping[str, Any]) -> _Adding:
        """Return what tells the rows of an event's scalars."""
        found: dict[str, Any] = {}
        for key, value in fields.items():
            told = value if isinstance(value, dict) else fields if key == "value" else {"value": value}
            number = _NOT_FINITE.get(str(told.get("nonfinite")), told.get("value"))
            if is_number(number) or isinstance(number, (float, bool)):
                found[key] = number
        pick = picker(*found.values())

        def add(contents: Contents, common: Mapping[str, Any]) -> Iterable[Iterable[Row]]:
            added = []
            for key, numbers in zip(found, pick(contents), strict=True):
                own = {"module": [m if key == "value" else f"{m}.{key}" for m in common["module"]]}
                stats = [{"L2 norm": abs(n), **dict.fromkeys(("Min", "Max", "Mean"), n)} for n in map(float, numbers)]
                of_all = {"op": repeat("value"), "shape": repeat("[]"), "stats": stats}
                added.append(rows(**{**common, **own, **of_all}))
            return rows_of(added, len(contents))

        return add

    def _tensor(self, told: Mapping[str, Any]) -> _Adding:
        """Return what tells the row of a tensor."""
        mode = str(told["mode"])
        digest = told["sha256"] if mode in ("full", "sampled") else ""
        summary = {} if digest else told.get("summary") or {}
        found = {own: summary[key] for key, own in _SUMMARY.items() if summary.get(key) is not None}
        finite = summary.get("all_finite", True) if summary else True
        pick = picker(told["dtype"], digest, *found.values(), *told["shape"])

        def add(contents: Contents, common: Mapping[str, Any]) -> Iterable[Iterable[Row]]:
            self.modes.add(mode)
            dtypes, digests, *values = pick(contents)
            own: dict[str, Iterable[Any]] = {}
            if mode == "full":
                own["digests"] = [(int(digest[:16], 16),) for digest in digests]
            elif mode == "sampled":
                own["texts"] = [{"User hash": str(int(digest, 16))} for digest in digests]
            elif finite:
                numbers = [[*map(float, column)] for column in values[: len(found)]]
                own["stats"] = stats_of([*found], numbers) if found else repeat({})
            else:
                own["stats"] = repeat(dict.fromkeys(_SUMMARY.values(), math.nan))
            own["op"], own["shape"] = repeat("boundary"), map(shape_of, rows_of(values[len(found) :], len(contents)))
            own["dtype"] = [dtype.removeprefix("torch.") for dtype in dtypes]
            return zip(rows(**{**common, **own}), strict=True)

        return add


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    reader = _Reader(columns)
    for told in read_lines(source, columns, Shapes(reader.plan)):
        reader.enter(told)
        yield
    if len(reader.modes) == 1:
        columns.form = f"{FORMAT.name} ({reader.modes.pop()})"


FORMAT = Format("Megatron determinism trace", _PATTERN, _read, line_of, steps=True)
