"""Read a log of weights over steps (docs/weights.md).

It has a header, a line of `=`, and one line of JSON per tensor and step. An invalid line costs only itself.
"""

from __future__ import annotations

import binascii
import json
import os
import struct
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from capture import log_format
from matchers.errors import LogError
from matchers.logs.op_log import Problem
from matchers.logs.source import LogSource

__all__ = ["Key", "TensorState", "WeightLog", "read_weights", "sketch_of"]

_MAX_PROBLEMS = 1000
_MAX_HEADER = 100
_SKETCH_BYTES = 128


@dataclass(frozen=True, slots=True)
class TensorState:
    """One tensor after one step; None for values missing from its line.

    Attributes:
        line: line number.
        l2: norm of the finite values.
        counts: numel, NaN, infinite, zero.
        digest: of the raw bytes, as text.
        sketch: its 16 projections.
        placement: of a shard, as JSON text with sorted keys.
    """

    line: int
    shape: tuple[int, ...]
    dtype: str
    l1: float | None
    l2: float | None
    counts: tuple[int, ...] | None
    digest: str | None
    sketch: tuple[float, ...] | None
    placement: str | None


Key = tuple[int, str, str]
"""(step, parameter, part)."""


@dataclass(slots=True)
class WeightLog:
    """A log of weights.

    Attributes:
        path: for messages.
        run: the run info of its header.
        states: by (step, parameter, part), in log order.
        steps: in log order.
        parameters: in model order.
        problems: the first 1,000 invalid lines. problem_count: number of all.
        cut_off: the file ends in the middle of a line.
        promised: number of steps by the footer, None without one.
        complete: the footer exists and its number of steps is correct.
        losses: by step, what its backward passes began with, in their order.
        averaged: weights that change although no optimizer owns them: averaged copies, target networks.
    """

    path: str
    run: dict[str, Any] = field(default_factory=dict)
    states: dict[Key, TensorState] = field(default_factory=dict)
    losses: dict[int, tuple[float, ...]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    cut_off: bool = False
    promised: int | None = None
    complete: bool = False
    averaged: frozenset[str] = frozenset()


def read_weights(source: str | os.PathLike[str]) -> WeightLog:
    """Read a log of weights, plain or gzip.

    Invalid lines are skipped and reported; an incomplete last line of a killed run sets `cut_off`.

    Raises:
        LogError: the file is missing, unreadable, or not a log of weights.
    """
    path = os.fspath(source)
    log = WeightLog(path)
    try:
        with LogSource(path) as file:
            _read(log, file.lines())
            log.cut_off |= file.cut_off is not None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    log.steps = list(dict.fromkeys(step for step, _, _ in log.states))
    log.parameters = list(dict.fromkeys(name for _, name, _ in log.states))
    log.complete = log.promised == len(log.steps) and not log.cut_off
    log.averaged = _averaged(log)
    return log


def _averaged(log: WeightLog) -> frozenset[str]:
    # an optimizer's parameter has a gradient, or a state of the optimizer
    trained = {name for _, name, part in log.states if part not in ("weight", "buffer")}
    untrained = {name for _, name, part in log.states if part == "weight"} - trained
    digests = {
        name: {state.digest for step in log.steps if (state := log.states.get((step, name, "weight")))}
        for name in untrained
    }
    return frozenset(name for name, found in digests.items() if len(found) > 1)


def _read(log: WeightLog, lines: Iterator[bytes]) -> None:
    number = _read_header(log, lines)
    for raw in lines:
        number += 1
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        problem = _read_line(log, text, number) if text else None
        if problem is not None and not raw.endswith(b"\n"):
            log.cut_off = True
        elif problem is not None:
            _problem(log, number, problem)


def _read_line(log: WeightLog, text: str, number: int) -> str | None:
    """Read a line; return an error message, or None."""
    if not text.startswith("{"):
        log.promised = log_format.parse_weights_footer(text)
        return "not a line of a log of weights" if log.promised is None else None
    try:
        values = json.loads(text)
        if "losses" in values:
            return _losses(values, log)
        step, name, part, state = _state(values, number)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        return _reason(error)
    if (step, name, part) in log.states:
        return f"a second entry for this tensor in step {step}; the first counts"
    log.states[step, name, part] = state
    return None


def _losses(values: dict[str, Any], log: WeightLog) -> str | None:
    step, losses = values["step"], values["losses"]
    known = type(step) is int and isinstance(losses, list)
    # JSON has no NaN: it is text there
    if not known or not all(isinstance(of, int | float | str) and not isinstance(of, bool) for of in losses):
        return "losses are not numbers of a step"
    log.losses.setdefault(step, tuple(map(float, losses)))
    return None


def _read_header(log: WeightLog, lines: Iterator[bytes]) -> int:
    """Read up to the `=` line; return its number."""
    header: list[str] = []
    for raw in lines:
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("====") or len(header) == _MAX_HEADER:
            break
        header.append(text.removeprefix("\ufeff"))
        if len(header) == 1 and not header[0].startswith("Format: "):
            break
    parsed = log_format.parse_header(header)
    if parsed.format != log_format.WEIGHTS_FORMAT:
        found = f", not {parsed.format[:40]!r}" if parsed.format else ""
        raise LogError(
            f"{log.path}:1: is not a log of weights: expected a line 'Format: {log_format.WEIGHTS_FORMAT}'{found}"
        )
    log.run = parsed.run
    for at, message in parsed.problems:
        _problem(log, at + 1, message)
    return len(header) + 1


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError) or not isinstance(error, (ValueError, KeyError)):
        return "not a tensor in JSON"
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def _problem(log: WeightLog, line: int, message: str) -> None:
    log.problem_count += 1
    if len(log.problems) < _MAX_PROBLEMS:
        log.problems.append(Problem(line, message))


def _state(values: dict[str, Any], line: int) -> tuple[int, str, str, TensorState]:
    """(step, parameter, part, state) of a line.

    Raises:
        ValueError: an invalid value, with a message.
        KeyError: a field is missing.
    """
    step, name, part = values["step"], values["parameter"], values["part"]
    if type(step) is not int or not isinstance(name, str) or not isinstance(part, str):
        raise ValueError("step, parameter or part is of the wrong kind")
    shape, dtype = values["shape"], values.get("dtype")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise ValueError("shape is not a list of numbers")
    counts = values.get("counts")
    if counts is not None and (len(counts) != 4 or not all(type(count) is int for count in counts)):
        raise ValueError("counts are not four numbers")
    placement = values.get("placement")
    state = TensorState(
        line=line,
        shape=tuple(shape),
        dtype=str(dtype),
        l1=_number(values, "l1"),
        l2=_number(values, "l2"),
        counts=None if counts is None else tuple(counts),
        digest=None if values.get("digest") is None else str(values["digest"]),
        sketch=sketch_of(values.get("sketch")),
        placement=None if placement is None else json.dumps(placement, sort_keys=True),
    )
    return step, name, part, state


def _number(values: dict[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"{name} is not a number")
    return None if value is None else float(value)


def sketch_of(text: object) -> tuple[float, ...] | None:
    """Read a sketch in base64; None for None.

    Raises:
        ValueError: it is none.
    """
    if text is None:
        return None
    try:
        raw = b64decode(str(text), validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != _SKETCH_BYTES:
        raise ValueError("sketch is not base64 of 16 numbers")
    return struct.unpack("<16d", raw)
