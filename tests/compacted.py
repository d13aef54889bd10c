"""Compact forms of plain logs, and whether both are read alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from capture.compact import CompactLines
from capture.log_format import COMPACT_FORMAT, FOOTER, FORMAT
from matchers.logs.op_log import OpLog
from tests.matchers.log_records import Record, records_of

__all__ = ["compacted", "records_without_lines"]


def compacted(text: str) -> str:
    """The log that `--compact` would have written in place of this one, without digests in its footer."""
    header, _, rest = text.partition("\n\n")
    body, _, footer = rest.partition(FOOTER)
    run: dict[str, Any] = next((json.loads(line[5:]) for line in header.split("\n") if line.startswith("Run: ")), {})
    lines = CompactLines(run.get("parameter_digests", ()))
    records = ["\n".join(lines.fold([*record.split("\n"), ""])) for record in body.split("\n\n") if record.strip()]
    count = footer.partition(",")[0].strip()
    end = f"{FOOTER} {count}\n" if footer else ""
    return "\n".join((header.replace(f"Format: {FORMAT}\n", f"Format: {COMPACT_FORMAT}\n"), "", *records, end))


def records_without_lines(log: OpLog) -> list[Record]:
    """All that the columns hold, record by record, but the places in the file."""
    return [replace(record, line=0) for record in records_of(log)]
