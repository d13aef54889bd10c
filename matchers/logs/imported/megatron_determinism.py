"""Determinism traces of Megatron-LM: tensors and scalars at boundaries of the program, a line each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from matchers.errors import LogError
from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_lines import line_of, read_lines
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A\s*\{[^\n]*"event"\s*:\s*"(?:event|tensor)"[^\n]*"schema_version"\s*:')
_KNOWN_VERSION = 1
_PHASES: Final = {phase.label: phase for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}
_SUMMARY: Final = {"l2_norm": "L2 norm", "minimum": "Min", "maximum": "Max", "mean": "Mean"}
_NOT_FINITE: Final = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


class _Reader:
    """The rows of one trace, in the order of execution."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._last = -1
        self.modes: set[str] = set()

    def enter(self, record: Any, line: int) -> None:
        """Add the rows of a record.

        Raises:
            LogError: it has another version.
        """
        if (version := record["schema_version"]) != _KNOWN_VERSION:
            raise LogError(
                f"{self._columns.path}:{line}: schema_version {version!r} of Megatron's determinism trace is unknown:"
                f" expected {_KNOWN_VERSION}"
            )
        if record["sequence"] <= self._last:
            self._columns.problem(line, f"sequence {record['sequence']} after {self._last}: it is not increasing")
        self._last = record["sequence"]
        iteration, batch, name = record.get("iteration"), record.get("microbatch"), str(record["name"])
        at = "" if iteration is None else f"iteration_{int(iteration)}."
        texts = {NATIVE_KEY: name}
        every: dict[str, Any] = {
            "inputs": UNREAD,
            "producers": (-1,),
            "phase": _PHASES.get(record.get("phase", ""), Phase.OTHER),
            "micro_batch": -1 if batch is None else int(batch),
            "texts": texts,
        }
        if record["event"] == "tensor":
            every |= self._tensor(record["tensor"], texts)
            self._columns.add(Row(line, f"{at}{name}", "boundary", **every))
            return
        for key, value in record["fields"].items():
            told = value if isinstance(value, dict) else record["fields"] if key == "value" else {"value": value}
            number = _NOT_FINITE.get(str(told.get("nonfinite")), told.get("value"))
            if isinstance(number, (int, float)):
                module = f"{at}{name}" if key == "value" else f"{at}{name}.{key}"
                stats = {"L2 norm": abs(float(number)), **dict.fromkeys(("Min", "Max", "Mean"), float(number))}
                self._columns.add(Row(line, module, "value", "[]", stats=stats, **every))

    def _tensor(self, told: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
        """The fields of a row that are about its tensor."""
        mode = str(told["mode"])
        self.modes.add(mode)
        fields: dict[str, Any] = {
            "shape": str([*map(int, told["shape"])]),
            "dtype": told["dtype"].removeprefix("torch."),
        }
        if mode == "full":
            return fields | {"digests": (int(told["sha256"][:16], 16),)}
        if mode == "sampled":
            return fields | {"texts": {**texts, "User hash": str(int(told["sha256"], 16))}}
        summary = told.get("summary") or {}
        stats = {own: float(value) for key, own in _SUMMARY.items() if (value := summary.get(key)) is not None}
        if summary and not summary.get("all_finite", True):
            stats = dict.fromkeys(_SUMMARY.values(), math.nan)
        return fields | {"stats": stats}


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    reader = _Reader(columns)
    yield from read_lines(source, columns, reader.enter)
    if len(reader.modes) == 1:
        columns.form = f"{FORMAT.name} ({reader.modes.pop()})"


FORMAT = Format("Megatron determinism trace", _PATTERN, _read, line_of)
