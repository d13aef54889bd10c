"""Logs as tests look at them: every record a mapping of its lines, read without the reader that is shipped."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LINE = re.compile(r"  ([A-Z][A-Za-z0-9 -]*): (.*)")


@dataclass
class Row:
    """One record: its key, and the text of each of its lines by name."""

    key: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.key.rpartition("/op_")[0]

    @property
    def op(self) -> str:
        return self.key.rpartition("/op_")[2].partition("_")[2]

    @property
    def phase(self) -> str:
        return self.fields.get("Phase", "forward")

    @property
    def shape(self) -> str:
        return self.fields.get("Shape", "").partition("]")[0].partition("[")[2]

    @property
    def digests(self) -> list[str]:
        return self.fields.get("Digest", "").split(", ")

    @property
    def input_digests(self) -> list[str]:
        return self.fields.get("Input digests", "").split(", ")

    @property
    def producers(self) -> list[str]:
        return self.fields["Input producers"].split(";") if "Input producers" in self.fields else []

    @property
    def parameters(self) -> list[str]:
        return self.fields["Parameter"].split(";") if "Parameter" in self.fields else []

    @property
    def mutated(self) -> list[dict[str, Any]]:
        return json.loads(self.fields.get("Mutated", "[]"))

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """Outputs from the second on."""
        return [json.loads(text) for name, text in self.fields.items() if re.fullmatch(r"Output \d+", name)]

    @property
    def counts(self) -> dict[str, int]:
        return {name: int(n) for name, _, n in (p.partition("=") for p in self.fields["Counts"].split())}

    @property
    def values(self) -> tuple[str, ...]:
        """All that tells one run's numbers from another's."""
        return tuple(self.fields.get(name, "") for name in ("Digest", "Input digests", "Mutated", "Sketch", "Output 1"))


@dataclass
class Log:
    """One log: the run info of its header, its records, and whether it has a footer."""

    excluded: list[str]
    run: dict[str, Any]
    rows: list[Row]
    complete: bool

    @classmethod
    def read(cls, path: Path) -> Log:
        lines = path.read_text().splitlines()
        cut = next(n for n, line in enumerate(lines) if line.startswith("===="))
        header = dict(line.split(": ", 1) for line in lines[:cut])
        rows: list[Row] = []
        complete = False
        for line in lines[cut + 1 :]:
            if line.startswith("["):
                rows.append(Row(line[1:-1]))
            elif match := _LINE.fullmatch(line):
                rows[-1].fields[match[1]] = match[2]
            elif line.startswith("End of capture:"):
                complete = True
            else:
                assert not line, line
        assert int(header["Total captured activations"]) == len(rows)
        assert [row.fields["Seq"] for row in rows] == [str(n) for n in range(len(rows))]
        excluded = header.get("Excluded ops dispatched", "")
        return cls(excluded.split(", ") if excluded else [], json.loads(header["Run"]), rows, complete)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: str) -> Row:
        return next(row for row in self.rows if row.key == key)

    @property
    def keys(self) -> list[str]:
        return [row.key for row in self.rows]

    @property
    def modules(self) -> Counter[str]:
        return Counter(row.module for row in self.rows)

    @property
    def ops(self) -> Counter[str]:
        return Counter(row.op for row in self.rows)

    def of(self, op: str, module: str | None = None) -> list[Row]:
        """The records of one operation, of one module where it is given."""
        return [row for row in self.rows if row.op == op and module in (None, row.module)]


def read_logs(folder: Path) -> dict[str, Log]:
    """Every log below a folder, by its path below `numerics`."""
    base = folder / "numerics"
    return {str(path.relative_to(base)): Log.read(path) for path in sorted(base.rglob("rank_*_activations.log"))}
