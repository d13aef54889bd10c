"""Autocast as it was on where each operation was called; untrusted, as all of a log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from matchers.logs.op_log import OpLog, once_per_log

__all__ = ["autocast_at"]


class _Switched(NamedTuple):
    row: int
    to: str


def autocast_at(log: OpLog, row: int) -> str:
    """`bfloat16` (with several devices, `cuda bfloat16, cpu float16`), `off`; empty if the log does not say."""
    if not isinstance(log.header.run.get("autocast_changes"), list):
        return ""
    switches = _switches(log)
    at = bisect_right(switches, row, key=attrgetter("row")) - 1
    return switches[at].to if at >= 0 else "off"


@once_per_log
def _switches(log: OpLog) -> Sequence[_Switched]:
    found = []
    for entry in log.header.run["autocast_changes"]:
        key, on = entry if isinstance(entry, list) and len(entry) == 2 else ("", None)
        if isinstance(key, str) and isinstance(on, dict) and (row := log.keys.find(key.encode())) >= 0:
            found.append(_Switched(row, _text(on)))
    return sorted(found)


def _text(on: dict[object, object]) -> str:
    dtypes = [str(dtype) for dtype in on.values()]
    return "off" if not on else dtypes[0] if len(on) == 1 else ", ".join(f"{device} {on[device]}" for device in on)
