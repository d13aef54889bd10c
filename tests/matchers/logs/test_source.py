"""What no log is, is refused before it fills the memory."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from matchers.errors import LogError
from matchers.logs import records, source
from matchers.logs.parser import read_log
from matchers.logs.source import LogSource
from matchers.weights.log import read_weights
from tests.builders import log_text, op, training_step
from tests.compacted import compacted
from tests.conftest import DATA

HEAD = b"Total captured activations: 3\n" + b"=" * 80 + b"\n\n[m/op_0_mm]\n"
WEIGHTS = b"Format: numtui weights 1\n" + b"=" * 80 + b"\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits a thousandth of their own, so that the test needs a thousandth of the time."""
    for name in ("_CHUNK", "_MAX_RECORD", "_MAX_LINES", "_MAX_LINE", "_FEW", "_SUSPICIOUS"):
        monkeypatch.setattr(source, name, getattr(source, name) >> 10)
    monkeypatch.setattr(records, "_FREE", records._FREE >> 10)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (HEAD + b"x" * (1 << 18), "a record has more than"),
        (b"x" * (1 << 18), "a record has more than"),
        (HEAD + b"\n" * (1 << 15), "a record has more than"),
        (HEAD + b"\n[" + b"k" * (1 << 18), "a record has more than"),
        (WEIGHTS + b'{"step": ' + b"1" * (1 << 18), "a line is longer than"),
        (WEIGHTS + b"{}\n" + b"\n" * (1 << 20), ""),
    ],
)
def test_a_record_without_end(data: bytes, told: str, packed: bool, tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(1 << 16)  # so that it is no bomb
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(data) + gzip.compress(noise) if packed else data)
    if not told:
        if not packed:
            assert read_weights(path).steps == []
        return
    with pytest.raises(LogError, match=f"a.log: ({told}|expands to)"):
        read_weights(path) if data.startswith(WEIGHTS) else read_log(path)


@pytest.mark.parametrize("data", [b"\0" * (1 << 22), b"[m/op_0_mm]\n" * (1 << 18), b"\n" * (1 << 22)])
@pytest.mark.parametrize("head", [HEAD, WEIGHTS])
def test_a_file_that_expands_a_thousandfold(data: bytes, head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(head + data, 9))
    with pytest.raises(LogError, match=r"expands to \d+ times its size|a record has more|a line is longer|would take"):
        read_weights(path) if head is WEIGHTS else read_log(path)


NUMBERED = b"Format: numtui 2\nRun: {}\n" + HEAD
PATHOLOGICAL = {
    "empty records": HEAD + b"[]\n" * 1000,
    "records of one value": HEAD + b"[m/op_0_mm]\n  Mean: 1\n" * 1000,
    "modules": HEAD + b"".join(b"[%x/op_0_mm]\n" % k for k in range(1000)),
    "shapes": HEAD + b"".join(b"[]\n  Shape: torch.Size([%d]), Dtype: torch.b\n" % k for k in range(1000)),
    "hashes": HEAD + b"[a]\n  Output hash: " + b"1," * 10_000,
    "producers": HEAD + b"[a]\n  Input producers: " + b";" * 10_000,
    "digests": HEAD + b"[a]\n  Input digests: " + b"1," * 10_000,
    "outputs": NUMBERED + b"".join(b"  Output %d: {}\n" % k for k in range(1, 1000)),
    "references": NUMBERED.replace(b"numtui 2", b"numtui 2 compact")
    + b"  Seq: 0\n\n[b]\n  From: "
    + b"0;" * 10_000
    + b"\n",
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
@pytest.mark.usefixtures("reader")
def test_records_that_would_fill_the_memory(name: str, tmp_path: Path) -> None:
    """A few megabytes may hold millions of records without content, which a comparison needs a kilobyte for each."""
    path = tmp_path / "a.log"
    path.write_bytes(PATHOLOGICAL[name])
    with pytest.raises(
        LogError, match=r"a.log: its first [\d,]+ records with [\d,]+ values would take .* 25 times their size"
    ):
        read_log(path)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.name)
def test_real_logs_need_a_fraction_of_the_memory_that_they_may(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(records, "_FREE", 1 << 17)
    monkeypatch.setattr(records, "_MAX_MEMORY", 8)
    assert len(read_log(path))
    text = gzip.decompress(path.read_bytes()).decode()
    if "Format: numtui" in text[:200]:
        path = tmp_path / "compact.log.gz"
        path.write_bytes(gzip.compress(compacted(text).encode(), 9))
        assert len(read_log(path))


def test_logs_are_read_however_they_lie_in_the_pieces(tmp_path: Path) -> None:
    """Records as large as several pieces, of constant values, packed as well as gzip can."""
    ops = [
        *training_step(20),
        op("m/op_0_foreach", outputs=[0.0] * 3000),
        *(op(f"m/op_{n}_mm", 0.0) for n in range(1, 200)),
    ]
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(log_text(ops).encode(), 9))
    log = read_log(path)
    assert len(log) == len(ops)
    assert not log.problems


def test_the_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"", b"a", b"a\n", b"\n\n", *(end.join(b"%d" % k for k in range(3000)) for end in (b"\n", b"\na\n"))):
        for text in (data, gzip.compress(data)):
            path.write_bytes(text)
            with LogSource(str(path)) as file:
                assert list(file.lines()) == data.splitlines(keepends=True)
