"""How the names of a pair differ, in lines."""

from __future__ import annotations

import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from numtui.text.lines import Line, width_of
from numtui.views.drift import drift_entries, drift_title, key_lines
from tests.conftest import REPOSITORY

DATA = REPOSITORY / "tests" / "data"


@pytest.fixture(scope="module")
def c() -> Comparison:
    return compare(read_log(DATA / "fsdp2_sac.log.gz"), read_log(DATA / "fsdp2_traced.log.gz"))


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def row_of(c: Comparison, key: str) -> int:
    return int(c.at_a[next(i for i in range(len(c.a)) if c.a.keys[i] == key)])


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_long_key_keeps_its_end(c: Comparison, width: int) -> None:
    for row in range(0, len(c), 7):
        i, j = int(c.row_a[row]), int(c.row_b[row])
        for line in key_lines(c, i, j, width):
            assert width_of(plain(line)) <= width
            assert plain(line)[-8:] in (*(c.a.keys[i][-8:],) * (i >= 0), *(c.b.keys[j][-8:],) * (j >= 0))


def test_a_recomputed_copy_leads_to_its_original(c: Comparison) -> None:
    row = row_of(c, "attention_norm/op_0_pow")
    assert drift_title(c, row) == "how the names differ"
    entries = drift_entries(c, row, 120)
    there = [entry.row for entry in entries if entry.row >= 0]
    assert {c.a.keys[int(c.row_a[at])] for at in there} == {"layers.5.attention_norm/op_0_pow"}


def test_a_wait_leads_to_what_started_it(c: Comparison) -> None:
    row = row_of(c, "tok_embeddings/op_1__allgather_base_")
    text = "\n".join(plain(line) for entry in drift_entries(c, row, 120) for line in entry.lines)
    assert "b is the wait: it carries the value of what tok_embeddings/op_0_all_gather_into_tensor_out" in text


def test_rows_of_one_run_say_so(c: Comparison) -> None:
    lone = next(row for row in range(len(c)) if c.row_b[row] < 0)
    assert drift_title(c, lone) == "only a has this"
    assert c.a.keys[int(c.row_a[lone])] in plain(drift_entries(c, lone, 120)[0].lines[0])
