"""A record as it stands in its log."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from matchers.errors import LogError
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from tests.builders import op, training_step, write_log
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("end", ["", "\n", "\n\nEnd of capture: 3 records\n"])
def test_each_record_of_a_log_can_be_read_again(tmp_path: Path, end: str) -> None:
    path = write_log(tmp_path / "a.log", [op("m/op_0_mm", 1.0), op("m/op_1_mm", 2.0), op("m/op_1_mm", 3.0)])
    path.write_text(path.read_text(encoding="utf-8").rstrip() + end, encoding="utf-8")
    log = read_log(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    for record in range(len(log)):
        text = raw_record(log, record)
        at = int(log.line[record]) - 1
        assert text == tuple(lines[at : at + len(text)])
        assert text[0] == f"[{log.keys[record]}]"
        assert len(text) > 3
        assert not lines[at + len(text) :] or not lines[at + len(text)]


def test_a_compressed_log_and_one_of_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matchers.logs.source._CHUNK", 1000)
    plain = REPOSITORY / "examples" / "eager" / "rank_0_activations.log"
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    log, zipped = read_log(plain), read_log(packed)
    for record in range(0, len(log), 37):
        assert raw_record(log, record) == raw_record(zipped, record)
        assert raw_record(log, record)[0] == f"[{log.keys[record]}]"


def test_a_log_that_is_no_longer_there_or_another_one(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.log", training_step())
    log = read_log(path)
    write_log(path, training_step()[5:])
    for record in (0, len(log) - 1):
        with pytest.raises(LogError, match="has changed since it was read"):
            raw_record(log, record)
    path.unlink()
    with pytest.raises(LogError, match="cannot be read again: No such file"):
        raw_record(log, 0)
    with pytest.raises(LogError, match="standard input: cannot be read again"):
        raw_record(replace(log, path="standard input"), 0)
