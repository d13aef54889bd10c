"""Tables of records, pairs and verdicts for DuckDB, in a database or in Parquet files (docs/sql.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.logs.op_log import COUNTS, MARKS, STATISTICS, OpLog, Phase
from matchers.pairing.pairing import Method
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

__all__ = ["TABLES", "Side", "write_tables"]

TABLES: Final = ("records", "pairs", "verdicts")
"""Their names; without a second run there are records alone."""
_COLUMN_OF: Final = dict(zip(STATISTICS, ("l1", "l2", "min", "max", "mean"), strict=True))

_AS: Final = {"i": "nullif({0}, -1) AS {0}", "O": "{0}::VARCHAR AS {0}"}
"""Expressions of columns, by the kind of their dtype: -1 is an unknown number, and no text may be known at all."""

Column = NDArray[Any]


class Side(NamedTuple):
    """A log of side `a` or `b`, and its rank."""

    side: str
    rank: int
    log: OpLog


class _Numbers(NamedTuple):
    """A column of floats in which NaN is a value; NULL where `known` is False."""

    values: Column
    known: Column


def write_tables(sides: Sequence[Side], comparison: Comparison | None, to: str, target: Path) -> dict[str, int]:
    """Write the tables; return their numbers of rows.

    Args:
        sides: every log.
        to: `duckdb`, a database, or `parquet`, a folder of files.
        target: of which nothing is there yet.

    Raises:
        InputError: DuckDB is not installed, or the target cannot be written.
    """
    try:
        import duckdb
    except ImportError:
        raise InputError("--to needs DuckDB: pip install 'numtui[sql]'") from None
    unfinished = target.with_name(f".{target.name}.unfinished")
    if to == "parquet":
        target.mkdir(parents=True, exist_ok=True)
    try:
        with duckdb.connect(":memory:" if to == "parquet" else os.fspath(unfinished)) as database:
            many = {name: 0 for name in TABLES if comparison is not None or name == "records"}
            for name, columns in _parts(sides, comparison):
                _insert(database, name, columns, new=not many[name])
                many[name] += len(columns[next(iter(columns))])
            for name in many if to == "parquet" else ():
                file = target / f"{name}.parquet"
                database.execute(f"COPY {name} TO {_quoted(file)} (FORMAT parquet)")
        if to == "duckdb":
            os.replace(unfinished, target)
    except (duckdb.Error, OSError) as error:
        with suppress(OSError):
            unfinished.unlink()
        raise InputError(f"{target}: cannot be written: {str(error).splitlines()[0]}") from None
    return many


def _quoted(path: Path) -> str:
    return "'" + os.fspath(path).replace("'", "''") + "'"


def _parts(
    sides: Sequence[Side], comparison: Comparison | None
) -> Iterable[tuple[str, Mapping[str, Column | _Numbers]]]:
    for side in sides:
        yield "records", _records(side)
    if comparison is not None:
        yield "pairs", _pairs(comparison)
        yield "verdicts", _verdicts(comparison)


def _insert(database: Any, name: str, columns: Mapping[str, Any], *, new: bool) -> None:
    """Insert rows; DuckDB takes a NaN of numpy for NULL."""
    given: dict[str, Column] = {}
    told = []
    for column, values in columns.items():
        if isinstance(values, _Numbers):
            given[column], given[f"{column}_known"] = values
            told.append(f"CASE WHEN {column}_known THEN coalesce({column}, 'NaN'::DOUBLE) END AS {column}")
        else:
            given[column] = values
            told.append(_AS.get(values.dtype.kind, "{0}").format(column))
    database.register("given", given)
    query = f"SELECT {', '.join(told)} FROM given"  # noqa: S608 - names of columns, from here
    database.execute(f"CREATE TABLE {name} AS {query}" if new else f"INSERT INTO {name} {query}")
    database.unregister("given")


def _texts(table: Iterable[str], codes: Column) -> Column:
    """Texts by their numbers; None for -1."""
    return np.array([*table, None], object)[codes]


def _records(one: Side) -> dict[str, Column | _Numbers]:
    log, many = one.log, len(one.log)
    l1, digests = log.outputs.first(), log.digests.first(missing=int(MARKS[0]))
    known = ~np.isin(digests, MARKS) & (log.digests.count > 0)
    hexadecimal = [
        f"{digest:016x}" if here else None for digest, here in zip(digests.tolist(), known.tolist(), strict=True)
    ]
    stats = dict(zip(STATISTICS, log.stats, strict=True))
    told = {name: log.present >> k & 1 > 0 for k, name in enumerate(STATISTICS)}
    first = STATISTICS[0]
    stats[first], told[first] = np.where(log.outputs.count > 0, l1, stats[first]), told[first] | (log.outputs.count > 0)
    return {
        "side": np.full(many, one.side, object),
        "rank": np.full(many, one.rank, np.int32),
        "record": np.arange(many, dtype=np.int32),
        "key": np.array(log.keys[:], object),
        "module": _texts(log.modules, log.module),
        "op": _texts(log.ops, log.op),
        "phase": _texts([phase.label for phase in Phase], log.phase),
        "shape": _texts(log.shapes, log.shape),
        "dtype": _texts(log.dtypes, log.dtype),
        "location": _texts(log.locations, log.location),
        "line": log.line,
        "micro_batch": log.micro_batch,
        "recompute": log.recompute,
        **{_COLUMN_OF[name]: _Numbers(stats[name], told[name]) for name in STATISTICS},
        **dict(zip(COUNTS, log.counts, strict=True)),
        "digest": np.array(hexadecimal, object),
    }


def _pairs(c: Comparison) -> dict[str, Column | _Numbers]:
    """Each pair of records; of a group all of a with all of b."""
    rows = np.flatnonzero(c.pair >= 0)
    found = [
        (row, a, b) for row in rows.tolist() for members in (c.members(row),) for a in members[0] for b in members[1]
    ]
    row, a, b = np.array(found, np.int32).reshape(-1, 3).T
    pair = c.pair[row]
    return {
        "row": row,
        "a": a,
        "b": b,
        "method": _texts([method.label for method in Method], c.pairing.method[pair]),
        "confidence": c.pairing.confidence[pair].astype(np.float64),
    }


def _verdicts(c: Comparison) -> dict[str, Column | _Numbers]:
    return {
        "row": np.arange(len(c), dtype=np.int32),
        "a": c.row_a.astype(np.int32),
        "b": c.row_b.astype(np.int32),
        "status": _texts([status.label for status in Status], c.status),
        "red": c.red,
        "first_cause": c.cause,
        "role": np.array([*(role.label if role else None for role in Role)], object)[c.role],
        "reason": _texts([reason.label for reason in Reason], c.reason),
        "error": _Numbers(c.error, ~np.isnan(c.error)),
        "error_is_bound": c.bound,
        "tolerance": _Numbers(c.tolerance, ~np.isnan(c.tolerance)),
    }
