"""`--compact` in real runs: at most half the size, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from capture import trace
from capture.log_format import COMPACT_FORMAT
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from tests.capture.runs import Examples
from tests.compacted import compacted, records_without_lines
from tests.conftest import REPOSITORY
from tests.matchers.log_records import Record


def test_a_process_writes_half_as_much_and_the_same(examples: Examples) -> None:
    plain, compact = (
        next(examples.captured(options=options).folder.rglob("rank_0_activations.log")) for options in ("", "--compact")
    )
    log = read_log(compact)
    assert log.header.format == COMPACT_FORMAT
    assert (log.complete, log.problems) == (True, ())
    assert _records(log) == _records(read_log(plain))
    assert compact.stat().st_size <= plain.stat().st_size / 2


def _records(log: OpLog) -> list[Record]:
    """The records of a run, but the frames of the test that asked for it first."""
    return [
        replace(
            record,
            extra={**record.extra, "Stack": record.extra.get("Stack", "").partition(f" < {REPOSITORY}/tests")[0]},
        )
        for record in records_without_lines(log)
    ]


def test_in_ones_own_loop(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    model = torch.nn.Linear(2, 2)
    with trace(model, path=path, compact=True):
        model(torch.ones(1, 2)).sum().backward()
    assert read_log(path).header.format == COMPACT_FORMAT


@pytest.mark.parametrize("layout", ["ddp", "fsdp2", "tp", "fsdp2+tp", "fsdp2-ac", "megatron"])
@pytest.mark.runs("{layout}")
def test_the_logs_of_ranks_are_half_as_large_and_the_same(runs_bed: Path, tmp_path: Path, layout: str) -> None:
    for path in sorted((runs_bed / layout).rglob("rank_*.log")):
        text = path.read_text(encoding="utf-8")
        compact = tmp_path / path.name
        compact.write_text(compacted(text), encoding="utf-8")
        log = read_log(compact)
        assert (log.complete, log.problems) == (True, ())
        assert records_without_lines(log) == records_without_lines(read_log(path))
        assert compact.stat().st_size <= path.stat().st_size / 2
