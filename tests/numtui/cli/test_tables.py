"""`numtui convert --to`: tables of records, pairs and verdicts, and the queries of docs/sql.md."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numtui.cli.main import main
from tests.builders import op, write_log
from tests.conftest import REPOSITORY

duckdb = pytest.importorskip("duckdb")

A, B = (str(REPOSITORY / "examples" / name) for name in ("base", "neg_attn"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("sql") / "runs.duckdb"
    assert main(["convert", A, B, "--to", "duckdb", "-o", str(path)]) == 0
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


def test_the_tables_say_what_the_report_says(database: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", A, B, "--format", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = database.execute("SELECT status, a, b, first_cause FROM verdicts ORDER BY row").fetchall()
    assert told == [(row["status"], row["a"], row["b"], row["origin"]) for row in rows]
    paired = database.execute("SELECT a, b, method FROM pairs ORDER BY row").fetchall()
    assert paired == [(row["a"], row["b"], row["method"]) for row in rows if None not in (row["a"], row["b"])]
    keys = database.execute("SELECT key FROM records WHERE side = 'b' ORDER BY record").fetchall()
    assert {row["b_key"] for row in rows if row["b_key"]} == {key for (key,) in keys}


def test_the_queries_of_the_docs_run(database: Any) -> None:
    queries = re.findall(r"```sql\n(.*?)```", (REPOSITORY / "docs" / "sql.md").read_text("utf-8"), re.DOTALL)
    causes, modules, layers = (database.execute(query).fetchall() for query in queries)
    assert [(key, location != "") for _, key, location, *_ in causes] == [
        ("layers.2.attention.inner_attention/op_1_neg", True)
    ]
    assert all(red > 0 for _, _, red, _ in modules)
    assert len(layers) == 10


def test_parquet_files_have_the_same_and_nothing_is_overwritten(
    database: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", A, B, "--to", "parquet", "-o", str(tmp_path / "it's")]
    assert main(command) == 0
    assert capsys.readouterr().err.startswith("numtui: ")
    for name in ("records", "pairs", "verdicts"):
        of_file = duckdb.read_parquet(str(tmp_path / "it's" / f"{name}.parquet")).fetchall()
        assert repr(of_file) == repr(database.execute(f"SELECT * FROM {name}").fetchall())
    assert main(command) == 2
    assert "exists: choose another place" in capsys.readouterr().err


def test_nan_is_a_value_and_what_is_unknown_is_null(tmp_path: Path) -> None:
    path = write_log(tmp_path / "rank_3_activations.log", [op("m/op_0_mm", math.nan), op("m/op_1_mm", 2.0)])
    assert main(["convert", str(path), "--to", "duckdb", "-o", str(tmp_path / "t")]) == 0
    with duckdb.connect(str(tmp_path / "t")) as connection:
        assert connection.execute("SELECT rank, isnan(l1), nan, digest FROM records").fetchall() == [
            (3, True, None, None),
            (3, False, None, None),
        ]
        assert connection.execute("SHOW TABLES").fetchall() == [("records",)]


def test_two_runs_without_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", A, B, "-o", str(tmp_path / "x")]) == 2
    assert "add --to parquet or --to duckdb" in capsys.readouterr().err
    assert main(["convert", A, B, "--to", "duckdb", "-o", str(tmp_path / "no" / "where")]) == 2
    assert "cannot be written" in capsys.readouterr().err
