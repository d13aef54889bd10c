"""The result of `numtui replay` beside a log, about one row: shown with the row's verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from capture.keeping.form import RESULT, bundle_folder
from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.logs.op_log import OpLog
from numtui.paths import small_text

__all__ = ["replay_result"]

_MOST_LINES: Final = 6


def replay_result(c: Comparison, row: int) -> Iterator[str]:
    """Yield what the replay of a row's operation has shown, if it was of the operations that these logs record."""
    if c.single or any(log.members for log in (c.a, c.b)):
        return
    records = {"a": (c.a, int(c.row_a[row])), "b": (c.b, int(c.row_b[row]))}
    for case in _cases(c.a):
        sides = case.get("sides")
        if not isinstance(sides, dict) or not sides.keys() <= records.keys():
            continue
        if sides and all(_is_of(side, *records[of]) for of, side in sides.items()):
            told = [case.get("verdict"), *(case.get("elements") or ())][:_MOST_LINES]
            yield from (text for text in told if isinstance(text, str))
            return


def _is_of(side: Any, log: OpLog, record: int) -> bool:
    """Return True if a replayed side is a record: by its key, and by the digests of what it returned."""
    if not isinstance(side, dict) or record < 0 or side.get("key") != log.keys[record]:
        return False
    recorded = side.get("recorded")
    digests = [f"{digest:016x}" for digest in log.digests[record].tolist()]
    return isinstance(recorded, list) and all(x in (y, "-") for x, y in zip(recorded, digests, strict=False))


def _cases(log: OpLog) -> list[dict[str, Any]]:
    """Return the cases of the result beside a log; none where there is none that can be read."""
    try:
        told = json.loads(small_text(bundle_folder(Path(log.path)) / RESULT, "result"))
    except (OSError, ValueError, RecursionError, InputError):
        return []
    cases = told.get("cases") if isinstance(told, dict) else None
    return [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []
