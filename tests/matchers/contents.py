"""All that a log holds as plain values, which `==` compares bit by bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.op_log import OpLog

__all__ = ["contents"]


def contents(log: OpLog, *, but: Sequence[str] = ("path", "content")) -> dict[str, Any]:
    """Every column, text and problem of a log, without the fields of these names."""
    return {field.name: _plain(getattr(log, field.name)) for field in fields(log) if field.name not in but}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Ragged):
        return _plain(value.start), _plain(value.value)
    if isinstance(value, KeyColumn):
        return value.blob, _plain(value.start)
    if isinstance(value, Strings):
        return list(value.raw)
    if isinstance(value, Texts):
        return {row: value.raw(row) for row in value}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value
