"""A noise floor in a file beside the log of its reference, `rank_N_floor.jsonl`: an operation on each line.

Operations are named by their keys in the reference, so that the floor serves every layout of the other run: the pairing
finds the reference's record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from matchers.errors import InputError
from matchers.files.atomic_write import atomic_writer
from matchers.logs.head import read_ends
from matchers.logs.op_log import OpLog
from matchers.verdict.noise_floor import NoiseFloor

__all__ = ["FORMAT", "floor_beside", "read_floor", "write_floor"]

FORMAT = "numtui floor"
_VERSION = 1
_LOG = re.compile(r"_activations\.log(\.gz)?")
_MAX_SIZE = 1 << 30


def floor_beside(log: str) -> Path | None:
    """Return where the floor of a log lies, if there is one."""
    path = Path(log)
    place = path.with_name(_LOG.sub("", path.name) + "_floor.jsonl")
    return place if _LOG.search(path.name) and place.is_file() else None


def write_floor(log: OpLog, floors: Sequence[NoiseFloor]) -> Path:
    """Keep the largest noise of some perturbed runs beside the log that they were measured against; return the file.

    Raises:
        OSError: it cannot be written.
    """
    with np.errstate(invalid="ignore"):
        error = np.fmax.reduce([floor.error for floor in floors])
        norm = np.fmax.reduce([floor.norm for floor in floors])
    path = Path(log.path)
    path = path.with_name(_LOG.sub("", path.name) + "_floor.jsonl")
    head = {"format": FORMAT, "version": _VERSION, "perturbed_runs": len(floors), "log": _content(log.path)}
    with atomic_writer(path) as out:
        out.write(json.dumps(head) + "\n")
        for key, e, n in zip(log.keys, error.tolist(), norm.tolist(), strict=True):
            if math.isfinite(e):
                out.write(json.dumps({"key": key, "error": float(f"{e:.3e}"), "of_norm": float(f"{n:.3e}")}) + "\n")
    return path


def _content(log: str) -> str:
    """Return the digest that stands in the footer of a log; empty where it cannot be read from its end."""
    ends = read_ends(log)
    return "" if ends is None or ends.footer is None else ends.footer.content


def read_floor(log: OpLog, side: str, floors: Mapping[str, Path]) -> NoiseFloor:
    """Return the floor of a log, or of the merged logs of several ranks: of each key the largest.

    Args:
        floors: by the path of each log, its floor.

    Raises:
        InputError: a file cannot be read, or was made for another log.
    """
    told: dict[str, tuple[float, float]] = {}
    runs: set[int] = set()
    for path, floor in floors.items():
        head, rows = _read(floor)
        if (content := head.get("log")) and (now := _content(path)) and content != now:
            raise InputError(
                f"{floor}:1: it was measured against another log than {path}: make it again (numtui floor)"
            )
        runs.add(head["perturbed_runs"])
        for key, error, norm in rows:
            before = told.get(key, (0.0, 0.0))
            told[key] = max(before[0], error), max(before[1], norm)
    known = [told.get(key, (math.nan, math.nan)) for key in log.keys]
    error, norm = np.array(known, np.float64).reshape(-1, 2).T
    name = str(next(iter(floors.values())))
    return NoiseFloor(name, side, log.keys, error, norm, (), perturbed=True, complete=True, runs=min(runs))


def _read(path: Path) -> tuple[dict[str, Any], Iterable[tuple[str, float, float]]]:
    try:
        if path.stat().st_size > _MAX_SIZE:
            raise InputError(f"{path}: too large to be a floor")
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    head: Any = None
    with suppress(ValueError, RecursionError):
        head = json.loads(lines[0])
    many = head.get("perturbed_runs") if isinstance(head, dict) else None
    if (
        not isinstance(head, dict)
        or (head.get("format"), head.get("version")) != (FORMAT, _VERSION)
        or type(many) is not int
    ):
        raise InputError(f"{path}:1: is no floor of this version of numtui ({_VERSION})")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        row: Any = None
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
        values: list[Any] = [row.get(name) for name in ("key", "error", "of_norm")] if isinstance(row, dict) else [None]
        if type(values[0]) is not str or any(type(v) not in (int, float) or not v >= 0 for v in values[1:]):
            raise InputError(f"{path}:{number}: not an operation with its error and norm")
        rows.append((values[0], float(values[1]), float(values[2])))
    return head, rows
