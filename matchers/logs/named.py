"""The field `Named` of compact logs: numbers of parameters in place of their names (docs/log-format.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capture.log_format import escape
from matchers.logs.columns import Texts

__all__ = ["parameters"]

_MAX_EXPANSION = 200
"""Greatest ratio of names to the numbers that stand for them; a number has a digit at least."""


def parameters(named: Texts, written: Texts | None, run: Mapping[str, Any]) -> tuple[Texts | None, list[int]]:
    """Return the field `Parameter` of all rows, and the rows whose numbers stand for no names.

    Args:
        named: the field `Named`.
        written: the field `Parameter` of rows that have it in full; the names of `named` come before it.
        run: the run info, which lists the names.
    """
    digests = run.get("parameter_digests")
    known = [escape(name).encode() for name in digests] if isinstance(digests, dict) else []
    texts = [_names(text, known) for text in named.table]
    bad = np.array([text is None for text in texts], bool)[named.ids]
    of_row = dict(zip(named.rows[~bad].tolist(), named.ids[~bad].tolist(), strict=True))
    found = {row: texts[i] or b"" for row, i in of_row.items()}
    if written is not None:
        found = {row: written.raw(row) for row in written} | found
    return Texts.of(found) if found else None, named.rows[bad].tolist()


def _names(text: bytes, known: Sequence[bytes]) -> bytes | None:
    """The names that numbers and states (`12.exp_avg`) stand for; None if they stand for none."""
    out = []
    room = _MAX_EXPANSION * len(text)
    for entry in text.split(b";"):
        number, dot, state = entry.partition(b".")
        if entry and not (number.isdigit() and len(number) < 10 and int(number) < len(known)):
            return None
        out.append(entry and known[int(number)] + dot + state)
        room -= len(out[-1])
        if room < 0:
            return None
    return b";".join(out)
