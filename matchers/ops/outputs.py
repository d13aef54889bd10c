"""Further results of an operation: outputs after the first, and inputs that it changed in place.

The log holds them as one JSON object each, parsed on request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.json_values import hex_digest, integers, number, parsed, parsed_object
from matchers.ops.laws import law_of
from matchers.ops.placement import Part, part_of
from matchers.ops.shapes import dimensions

__all__ = ["Result", "first_output", "further_output", "mutated", "output", "records_changes", "results", "unchanged"]

_NO_DIGEST = int(NO_DIGEST)


@dataclass(frozen=True, slots=True)
class Result:
    """One tensor after an operation.

    Attributes:
        name: for display: the parameter's name, `output 1`, `input 0`.
        shape: None if unknown (as for an unchanged input).
        l1, l2, min, max: NaN if unknown or without finite values.
        numel, nan, inf: -1 if unknown.
        digest: None if unknown.
        sketch: base64, empty without one.
        part: the shard of a global tensor; None if unknown.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    l1: float = math.nan
    l2: float = math.nan
    min: float = math.nan
    max: float = math.nan
    numel: int = -1
    nan: int = -1
    inf: int = -1
    digest: int | None = None
    sketch: str = ""
    part: Part | None = None


def first_output(log: OpLog, row: int) -> Result:
    """The first output, named for an operation that works in place: by the first of its inputs."""
    digests = log.digests[row]
    shape = dimensions(log.shape_text(row)) if log.shape[row] >= 0 else None
    _, l2, low, high, _ = log.stats[:, row].tolist()
    placement = parsed_object(log.texts("Placement").get(row, ""))
    return Result(
        name=parameter_name(log, row, 0),
        shape=shape,
        dtype=log.dtype_text(row),
        l1=float(log.outputs[row][0]) if len(log.outputs[row]) else math.nan,
        l2=l2,
        min=low,
        max=high,
        numel=int(log.counts[0, row]),
        nan=int(log.counts[1, row]),
        inf=int(log.counts[2, row]),
        digest=int(digests[0]) if len(digests) and digests[0] != NO_DIGEST else None,
        sketch=log.texts("Sketch").get(row, ""),
        part=None if shape is None else part_of(placement, shape),
    )


def further_output(log: OpLog, row: int, k: int) -> Result | None:
    """The k-th output (from 1); None if the log has none, or an unreadable one."""
    return _result(parsed(log.texts(f"Output {k}").raw(row)), f"output {k}")


def output(log: OpLog, row: int, k: int) -> Result:
    """The k-th output (from 0); one of which nothing is known if the log has none, or an unreadable one."""
    return (further_output(log, row, k) if k else first_output(log, row)) or Result(f"output {k}")


def mutated(log: OpLog, row: int) -> dict[int, Result]:
    """The inputs that a record changed in place, by slot."""
    raw = log.texts("Mutated").raw(row)
    return dict(_mutated(raw, log.texts("Parameter").get(row, ""))) if raw else {}


@lru_cache(128)
def _mutated(raw: bytes, parameters: str) -> dict[int, Result]:
    """As `mutated`, from the text of the field and the names of the parameters; each is asked for several times."""
    entries = parsed(raw)
    out: dict[int, Result] = {}
    for entry in entries if isinstance(entries, list) else ():
        slot = entry.get("input") if isinstance(entry, dict) else None
        if type(slot) is int and slot >= 0:
            name = entry.get("name")
            found = _result(entry, name if isinstance(name, str) and name else _name_of(parameters.split(";"), slot))
            if found is not None:
                out[slot] = found
    return out


def records_changes(log: OpLog) -> bool:
    """True if the log says what operations changed in place.

    False if it says so of none, though they did, or has no numbers at all.
    """
    if log.texts("Mutated"):
        return True
    numbers = len(log.outputs.value) or len(log.inputs.value)
    return bool(numbers) and not _changed_unsaid(log)


def _changed_unsaid(log: OpLog) -> bool:
    """True if a named tensor is read with another content than the last record that names it left."""
    left: dict[str, int] = {}
    for row in sorted(log.texts("Parameter")):
        digests = log.input_digests[row].tolist()
        names = log.texts("Parameter").get(row, "").split(";")
        known = {name: digest for name, digest in zip(names, digests, strict=False) if name and digest != _NO_DIGEST}
        if any(left.get(name, digest) != digest for name, digest in known.items()):
            return True
        left |= known
        if law_of(log, row).in_place and len(log.digests[row]):  # it returns what it wrote
            left.pop(names[0], None)
    return False


def results(log: OpLog, row: int) -> list[Result]:
    """Everything that a record returned or changed in place, as far as the log describes it."""
    found: list[Result | None] = [first_output(log, row)] if log.outputs.count[row] else []
    found += [further_output(log, row, k) for k in range(1, int(log.outputs.count[row]))]
    return [result for result in (*found, *mutated(log, row).values()) if result is not None]


def parameter_name(log: OpLog, row: int, slot: int) -> str:
    """The parameter's name in an input slot; `input 3` if the log names none."""
    return _name_of(log.texts("Parameter").get(row, "").split(";"), slot)


def parameter_names(log: OpLog, row: int, count: int) -> list[str]:
    """The names in so many input slots, as of `parameter_name`."""
    names = log.texts("Parameter").get(row, "").split(";")
    return [_name_of(names, slot) for slot in range(count)]


def _name_of(names: list[str], slot: int) -> str:
    return (names[slot] if slot < len(names) else "") or f"input {slot}"


def unchanged(log: OpLog, row: int, slot: int) -> Result:
    """The known facts about an input that an operation left unchanged."""
    inputs, digests = log.inputs[row], log.input_digests[row]
    digest = int(digests[slot]) if slot < len(digests) else _NO_DIGEST
    return Result(
        name=parameter_name(log, row, slot),
        l1=float(inputs[slot]) if slot < len(inputs) else math.nan,
        digest=None if digest == _NO_DIGEST else digest,
    )


def _result(entry: Any, name: str) -> Result | None:
    if not isinstance(entry, Mapping):
        return None
    local = integers(entry.get("shape"))
    numel, nan, inf, _ = integers(entry.get("counts"), 4) or (-1,) * 4
    dtype, sketch, placement = entry.get("dtype"), entry.get("sketch"), entry.get("placement")
    return Result(
        name=name,
        shape=local,
        dtype=dtype if isinstance(dtype, str) else "",
        l1=number(entry.get("l1")),
        l2=number(entry.get("l2")),
        min=number(entry.get("min")),
        max=number(entry.get("max")),
        numel=numel,
        nan=nan,
        inf=inf,
        digest=hex_digest(entry.get("digest")),
        sketch=sketch if isinstance(sketch, str) and sketch.isascii() else "",
        part=None if local is None else part_of(placement if isinstance(placement, dict) else None, local),
    )
