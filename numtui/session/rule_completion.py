"""Completion in the rule editor: fields, their words, and names of the two logs.

Names are looked up module by module, so that a large log takes no longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from matchers.rules.grammar import PHASES, fields_of
from matchers.rules.model import SHARES, IgnoreRule, ModuleRule, OpRule, Rule

__all__ = ["complete"]

_FIELD: Final = re.compile(r"([A-Za-z]+):\s")
_VALUE: Final = re.compile(r"[^\s,\[{\"']*$")
_NAME: Final = re.compile(r"\s*([A-Za-z]*)")
_MAX_CANDIDATES: Final = 6
"""Candidates listed when `tab` is ambiguous."""


def complete(kind: type[Rule], before: str, c: Comparison) -> tuple[str, str]:
    """Return the completion of the text before the cursor, or else the candidates in words."""
    value, name = _VALUE.search(before), _NAME.fullmatch(_since_field(before))
    assert value is not None
    typed = value.group() if name is None else name.group(1)
    if name is not None:
        found = [f"{field}: " for field in fields_of(kind)[0]]
    else:
        fields = _FIELD.findall(before)
        found = list(_values(kind, fields[-1] if fields else "", typed, c))
    fitting = sorted({word for word in found if word.startswith(typed)})
    if not fitting:
        return "", "no completion"
    first, last = fitting[0], fitting[-1]
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    more = first[len(typed) : same]
    if more or len(fitting) == 1:
        return more, ""
    rest = f"  … {len(fitting):,} in all" if len(fitting) > _MAX_CANDIDATES else ""
    return "", "  ".join(fitting[:_MAX_CANDIDATES]) + rest


def _since_field(before: str) -> str:
    """Return the text since the last possible start of a field."""
    line = before.rpartition("\n")[2]
    if before.rfind("[") > before.rfind("]") or "{" not in line:
        return line
    return line[max(line.rfind("{"), line.rfind(",")) + 1 :]


def _values(kind: type[Rule], field: str, typed: str, c: Comparison) -> Iterator[str]:
    """Yield the words of a field that may begin with the typed text."""
    if field == "phase":
        yield from PHASES
    elif field == "side":
        yield from ("a", "b")
    elif field == "holds":
        yield from SHARES
    elif field == "enabled":
        yield from ("true", "false")
    for log in {"a": (c.a,), "b": (c.b,)}.get(field, (c.a, c.b) if field in ("op", "match") else ()):
        if kind is ModuleRule:
            yield from map(str, log.modules)
        elif kind is OpRule or (kind is IgnoreRule and field == "op"):
            yield from map(str, log.ops)
        else:
            yield from _keys(log, typed)


def _keys(log: OpLog, typed: str) -> Iterable[str]:
    """Yield module paths with a trailing slash; behind the slash, the operations of the module."""
    module, slash, _ = typed.partition("/")
    if not slash:
        return (f"{name}/" for name in log.modules)
    number = next((number for number, name in enumerate(log.modules) if name == module), -1)
    return (log.keys[row] for row in np.flatnonzero(log.module == number).tolist())
