"""Arguments of operations as a log tells them, and what differs between two records.

Columns compare the texts of whole fields; only records whose texts differ are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from matchers.arrays import Int64
from matchers.logs.columns import Strings
from matchers.logs.op_log import OpLog
from matchers.ops.json_values import parsed_object
from matchers.ops.laws import law_of
from matchers.ops.shapes import dimensions

__all__ = ["ROUNDING", "ArgumentDifference", "argument_differences", "argument_texts", "arguments_of", "forms_of",
    "odd_arguments", "overload_of", "place_of_output", "returns_all_asked", "shown", "tells_arguments",
    "tensors_read", "text_ids"]  # fmt: skip

ROUNDING = 2.0**-44
"""Relative difference of two numbers that Python computed in another order: a few hundred ε of its floats."""

_PLAIN_OVERLOAD = "aten.default"
_CALL = ("Overload", "Arguments", "Inputs")
_MAX_TEXT = 60
_MAX_DEPTH = 4
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ArgumentDifference:
    """An argument that two operations were given otherwise.

    Attributes:
        name: by the schema.
        a, b: its values, parsed; None where it was not given.
    """

    name: str
    a: Any
    b: Any

    @property
    def text(self) -> str:
        """`eps 1e-05 in a, 1e-06 in b`."""
        x, y = self.values
        return f"{self.name} {x} in a, {y} in b"

    @property
    def values(self) -> tuple[str, str]:
        """Both values as text, in as many digits as tell them apart."""
        x, y = shown(self.a), shown(self.b)
        return (x, y) if x != y else (shown(self.a, exact=True), shown(self.b, exact=True))


def tells_arguments(log: OpLog) -> bool:
    """True for a log that has the arguments of its operations."""
    return any(len(log.texts(name)) for name in _CALL)


def arguments_of(log: OpLog, row: int) -> Mapping[str, Any]:
    """The arguments of a record by name, without those that say nothing: `null` and empty lists."""
    found = _parsed(log.texts("Arguments").raw(row))
    return {name: value for name, value in found.items() if value is not None and value not in ([], {})}


def _parsed(raw: bytes) -> dict[str, Any]:
    """The arguments of a field, without what lies deeper in lists than any argument does."""
    return {name: _shallow(value, _MAX_DEPTH) for name, value in (parsed_object(raw) or {}).items()}


def _shallow(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return [_shallow(item, depth - 1) for item in value] if depth else "…"
    if isinstance(value, dict):
        return {str(name): _shallow(item, depth - 1) for name, item in value.items()} if depth else "…"
    return value


def argument_texts(log: OpLog) -> tuple[Strings, Int64]:
    """The distinct arguments of a log as `eps=1e-05, affine=True`, and int64[n], which of them a record has; -1 for
    none.
    """
    texts, ids = log.texts("Arguments"), np.full(len(log), -1, np.int64)
    ids[texts.rows] = texts.ids
    told = (_parsed(raw) for raw in texts.table)
    lines = [", ".join(f"{name}={shown(value)}" for name, value in given.items()) for given in told]
    return Strings([line.encode("utf-8", "backslashreplace") for line in lines]), ids


def overload_of(log: OpLog, row: int) -> str:
    """Namespace and overload of a record's operation, `aten.dim`; empty if the log does not tell."""
    return log.texts("Overload").get(row, _PLAIN_OVERLOAD) if tells_arguments(log) else ""


def place_of_output(log: OpLog, row: int, number: int) -> int:
    """The place of an operation's output among those that a record has; -1 if it was not asked for.

    The backward operations of convolutions and norms return only the gradients that `output_mask` asks for.
    """
    asked = _asked(log, row)
    if len(asked) <= number:
        return number
    return sum(asked[:number]) if asked[number] else -1


def returns_all_asked(log: OpLog, row: int) -> bool:
    """True if an operation was asked for some of its outputs, and a log has as many of it."""
    return 0 < sum(_asked(log, row)) == len(log.outputs[row])


def _asked(log: OpLog, row: int) -> list[bool]:
    asked = arguments_of(log, row).get("output_mask")
    return [bool(each) for each in asked] if isinstance(asked, list) else []


def forms_of(log: OpLog, row: int) -> str:
    """Dtypes, shapes and strides of a record's inputs as the log writes them, relative to the first output."""
    return log.texts("Inputs").get(row, "")


def tensors_read(log: OpLog, row: int) -> list[tuple[str, str]]:
    """Dtype and shape of each input of a record; an entry of the log leaves out what is as in the one before."""
    found, dtype, shape = [], log.dtype_text(row), log.written.shape_text(row)
    for entry in forms_of(log, row).split(";"):
        name, _, rest = entry.partition(":")[0].partition("[")
        dtype, shape = name or dtype, f"[{rest}" if rest else shape
        found.append((dtype, shape))
    return found


def text_ids(a: OpLog, b: OpLog, *fields: str) -> tuple[Int64, Int64]:
    """int64[n_a], int64[n_b]: numbers that are equal where two records have equal texts in these fields."""
    known: dict[tuple[bytes, ...], int] = {}
    return _text_ids(a, fields, known), _text_ids(b, fields, known)


def _text_ids(log: OpLog, fields: tuple[str, ...], known: dict[tuple[bytes, ...], int]) -> Int64:
    tables = [log.texts(name).table for name in fields]
    code = np.zeros(len(log), np.int64)
    for name, table in zip(fields, tables, strict=True):
        texts, column = log.texts(name), np.zeros(len(log), np.int64)
        column[texts.rows] = texts.ids.astype(np.int64) + 1
        code = code * (len(table) + 1) + column
    distinct, of = np.unique(code, return_inverse=True)
    ids = []
    for number in distinct.tolist():
        texts_of: list[bytes] = []
        for table in reversed(tables):
            number, at = divmod(number, len(table) + 1)
            texts_of.append(table[at - 1] if at else b"")
        ids.append(known.setdefault(tuple(texts_of), len(known)))
    return np.array(ids, np.int64)[of.reshape(-1)]


def argument_differences(a: OpLog, b: OpLog, i: int, j: int) -> tuple[ArgumentDifference, ...]:
    """The arguments that two records of one operation were given otherwise.

    A number is equal to the same one of another type, and to a list of it alone. Of two overloads those that both
    have by the same name are compared: what one lacks may be implied. Of numbers that enter a tensor, too: a log has
    those of small ones.
    """
    x, y = dict(arguments_of(a, i)), dict(arguments_of(b, j))
    for given, lacks, log, row in ((x, y, b, j), (y, x, a, i)):
        if "scale" in given and "scale" not in lacks and (scale := _scale(log, row)) is not None:
            lacks["scale"] = scale
    every = overload_of(a, i) == overload_of(b, j) and not law_of(a, i).enters
    names = dict.fromkeys([*x, *y]) if every else [name for name in x if name in y]
    return tuple(
        ArgumentDifference(name, x.get(name), y.get(name))
        for name in names
        if not _alike(name, x.get(name), y.get(name))
    )


def _scale(log: OpLog, row: int) -> float | None:
    """The scale of the scores of a record that was given none; None if unknown."""
    if (place := law_of(log, row).width) is None or place >= len(read := tensors_read(log, row)):
        return None
    shape = dimensions(read[place][1])
    return 1 / math.sqrt(shape[-1]) if shape and shape[-1] > 0 else None


def odd_arguments(log: OpLog, rows: Int64, start: Int64, lead: Int64) -> dict[int, bytes]:
    """The arguments that few of several records of one operation were given, by the record that stands for them.

    Where that one was given what most were, it does not show that another was not. Of as many, those that fewer
    operations of the log were given are odd. Whole numbers are sizes and places, which parts have of their own, as have
    parts of other shapes.

    Args:
        rows, start: the records, those of one operation together, and the first of each.
        lead: the one of each that stands for all.
    """
    texts, (ids, _) = log.texts("Arguments"), text_ids(log, log, "Arguments")
    if not len(start):
        return {}
    of = ids[rows]
    several = np.maximum.reduceat(of, start) != np.minimum.reduceat(of, start)
    everywhere = np.bincount(ids, minlength=int(ids.max()) + 1)
    found: dict[int, bytes] = {}
    for group in np.flatnonzero(several).tolist():
        members = rows[start[group] : start[group + 1] if group + 1 < len(start) else len(rows)]
        given, first, count = np.unique(ids[members], return_index=True, return_counts=True)
        odd, one = int(members[first[np.lexsort((everywhere[given], count))[0]]]), int(lead[group])
        if (log.shape[members] != log.shape[one]).any() or ids[odd] == ids[one]:
            continue
        told = argument_differences(log, log, one, odd)
        if told and all(type(value) in (float, bool) for each in told for value in (each.a, each.b)):
            found[one] = texts.raw(odd)
    return found


def _alike(name: str, x: Any, y: Any) -> bool:
    if name == "device":  # which of a machine's devices belongs to the rank
        x, y = (value.partition(":")[0] if isinstance(value, str) else value for value in (x, y))
    x, y = (value[0] if isinstance(value, list) and len(value) == 1 else value for value in (x, y))
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_alike(name, one, other) for one, other in zip(x, y, strict=True))
    return bool(x == y or (x != x and y != y))  # NaN


def shown(value: Any, *, exact: bool = False) -> str:
    """A value as a sentence has it; unless exact, a number that float32 has in as many digits as that needs: 1e-05."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        return f"{value.get('times')} × {shown(value.get('of'), exact=exact)}"
    if isinstance(value, list):
        text = f"[{', '.join(shown(each, exact=exact) for each in value)}]"
    elif isinstance(value, float) and not exact and abs(value) <= _MAX_FLOAT32 and np.float32(value) == value:
        text = min(repr(float(str(np.float32(value)))), repr(value), key=len)
    else:
        text = value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
