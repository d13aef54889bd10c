"""A compact log is read as the plain log of the same records, and its references are trusted no more than any text."""

from __future__ import annotations

import gzip
import random
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.log_format import COMPACT_FORMAT, pack_json, unpack_json
from capture.log_writer import Mutation, Portion, Record, TensorSummary, write_log
from matchers.errors import LogError
from matchers.logs import source
from matchers.logs.op_log import OpLog
from matchers.logs.packed_columns import packed, unpacked
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from tests.compacted import records_without_lines
from tests.conftest import REPOSITORY
from tests.needs import examples

pytestmark = pytest.mark.usefixtures("reader")

NAMES = ("wq.weight", "layers.0.wq.weight", "a b", " c ", "3", "w;x", "é")
RUN = {"parameter_digests": dict.fromkeys(NAMES, "00"), "step": 1}
KEYS = ("m/op_0_mm", "0/op_1_add", "m/op_0_mm", "12", "a b/op_0_x", "-", "[k]", "@1", "é/op_2_é")
LIST = st.integers(0, 3)


def _tensor(kind: int, value: float) -> TensorSummary:
    """A few tensors, so that many are the same."""
    numbers: dict[str, Any] = {"l1": value, "l2": value, "min": -value, "max": value, "mean": value / 3}
    if kind == 0:
        return TensorSummary(shape=(2, 3), dtype="float32", **numbers, numel=6, digest=7, sketch=bytes(range(128)))
    if kind == 1:
        return TensorSummary(shape=(), dtype="bfloat16", **numbers, numel=1, zero=1, digest=2**64 - 1)
    if kind == 2:
        placement = {"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": [4], "offsets": [2]}
        return TensorSummary(shape=(4,), dtype="float32", numel=4, nan=4, digest=9, placement=placement, user_hash="h")
    return TensorSummary(shape=(4,), dtype="int64", **(numbers if kind == 3 else {}), user_hash=value)


TENSORS = st.builds(_tensor, st.integers(0, 4), st.sampled_from([0.1, -0.0, 3.0, 1e300, 5e-324, float("inf")]))
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.sampled_from(KEYS),
        seq=st.just(0),
        outputs=st.lists(TENSORS, max_size=3),
        inputs=st.lists(st.none() | TENSORS, max_size=3),
        producers=st.lists(st.sampled_from(("", *KEYS, "unknown/op_0_x")), max_size=3),
        parameters=st.lists(st.sampled_from(("", *NAMES, "wq.weight.grad", "wq.weight.a.b", "other")), max_size=3),
        location=st.sampled_from([None, "a.py:1", "b.py:2: x"]),
        stack=st.sampled_from([(), ("/x/a.py:1:f",), ("/x/b.py:2:g", "/x/a.py:1:f")]),
        phase=st.sampled_from(["forward", "backward", "optimizer"]),
        mutated=st.lists(
            st.builds(Mutation, slot=LIST, name=st.sampled_from([None, *NAMES]), summary=TENSORS), max_size=2
        ),
        group=st.sampled_from([None, {"ranks": [0, 1], "nth": 3, "name": "é"}]),
        received=st.lists(st.builds(Portion, output=LIST, at=LIST, numel=LIST, content=TENSORS), max_size=1),
        overload=st.sampled_from(["aten.default", "aten.dim", "mine.é"]),
        arguments=st.sampled_from([{}, {"dim": [-1], "keepdim": True}, {"max": float("inf"), "name": "é"}]),
        forms=st.sampled_from(["", ";bfloat16[2,3]:1,2;"]),
        random=st.sampled_from([None, {"seed": 1, "offset": 0}]),
        reads=st.sampled_from([(), [(22, "é.py:16"), (False, "a.py:1")]]),
        recompute=st.booleans(),
        micro_batch=st.sampled_from([None, 0, 1]),
    ),
    max_size=12,
)


def _write(path: Path, records: Sequence[Record], *, compact: bool) -> Path:
    for seq, record in enumerate(records):
        record.seq = seq
    write_log(path, records, count=len(records), excluded={}, run=RUN, complete=True, compact=compact)
    return path


def _both(folder: str | Path, records: Sequence[Record]) -> tuple[Path, Path]:
    """A plain log and a compact one."""
    return tuple(_write(Path(folder, f"{compact}.log"), records, compact=compact) for compact in (False, True))  # type: ignore[return-value] # two


def _assert_alike(plain: OpLog, compact: OpLog) -> None:
    assert records_without_lines(compact) == records_without_lines(plain)
    assert (compact.problems, compact.problem_count, compact.complete) == ((), 0, True)
    assert plain.problems == ()
    for record in range(len(plain)):
        assert raw_record(compact, record) == raw_record(plain, record)


@settings(max_examples=examples(150), deadline=None)
@given(RECORDS, st.sampled_from([None, 100, 700]))
def test_the_columns_and_texts_are_those_of_the_plain_log(records: list[Record], chunk: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, compact = _both(folder, records)
        with mock.patch.object(source, "_CHUNK", chunk or source._CHUNK):
            log = read_log(compact)
            _assert_alike(read_log(plain), log)
        lines = compact.read_bytes().split(b"\n")
        assert [lines[line - 1] for line in log.line.tolist()] == [
            b"[" + log.keys.raw(k) + b"]" for k in range(len(log))
        ]


@settings(max_examples=examples(40), deadline=None)
@given(RECORDS, st.randoms(use_true_random=False))
def test_also_compressed_with_other_line_ends_and_from_the_cache(records: list[Record], rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, compact = _both(folder, records)
        packed_path = Path(folder, "a.log.gz")
        packed_path.write_bytes(gzip.compress(compact.read_bytes()))
        _assert_alike(read_log(plain), read_log(packed_path))
        entry = packed(read_log(compact))
        assert entry is not None
        again = unpacked(entry, str(compact))
        assert records_without_lines(again) == records_without_lines(read_log(plain))
        header, end, text = compact.read_bytes().partition(b"=\n\n")
        lines = text.split(b"\n")
        compact.write_bytes(header + end + b"".join(line + rng.choice([b"\n", b"\r\n"]) for line in lines[:-1]))
        _assert_alike(read_log(plain), read_log(compact))


def _step() -> list[Record]:
    """Records with everything that repeats in training."""
    whole, part = _tensor(0, 0.5), _tensor(1, 0.25)
    shared: dict[str, Any] = {"location": "a.py:1", "stack": ["/x/a.py:1:f"], "micro_batch": 0}
    records = []
    for layer in range(4):
        made = f"l{layer - 1}/op_0_mm" if layer else ""
        mutated = [Mutation(slot=0, name="wq.weight", summary=part)] if layer == 2 else []
        records += [
            Record(key=f"l{layer}/op_0_mm", seq=0, outputs=[whole], inputs=[whole, part], producers=[made, ""],
                   parameters=["", "wq.weight"], **shared),
            Record(key=f"l{layer}/op_1_add_", seq=0, outputs=[part], inputs=[whole, None], mutated=mutated,
                   producers=[f"l{layer}/op_0_mm", ""], **shared),
        ]  # fmt: skip
    return records


def test_what_repeats_is_written_once(tmp_path: Path) -> None:
    """The text of a compact log; docs/log-format.md explains it."""
    _, path = _both(tmp_path, _step())
    assert path.read_text(encoding="utf-8").partition("=\n\n")[2].split("\n\n")[4] == (
        "[l2/op_0_mm]\n  Like: 0 0\n  Out: @0 0000000000000007\n  From: 2;- @0.1\n  Named: ;0\n  Seq: 4"
    )


def test_a_log_that_is_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    _, path = _both(tmp_path, _step())
    text, whole = path.read_bytes(), records_without_lines(read_log(path))
    start = text.index(b"\n[") + 1
    for end in {*range(start, len(text), 3), *(k + 1 for k in range(start, len(text)) if text[k] == 0x0A)}:
        path.write_bytes(text[:end])
        log = read_log(path)
        assert records_without_lines(log)[:-1] == whole[: len(log)][:-1]
        assert (log.complete is True) == (end == len(text))
        # what the cut leaves of a line is no bad reference
        assert not [p for p in log.problems if p.message.startswith(("refers", "Like", "Out", "From", "Named", "Call"))]


HEADER = f'Format: {COMPACT_FORMAT}\nRun: {{"parameter_digests": {{"w": "00"}}}}\n{"=" * 80}\n\n'
FIRST = """\
[m/op_0_mm]
  Shape: torch.Size([2]), Dtype: torch.float32
  Counts: numel=2 nan=0 inf=0 zero=0
  Location: a.py:1
  Stack: /x/a.py:1:f
  Out: 1.0 2.0 3.0 4.0 5.0 0000000000000001
  From: - 6.0 0000000000000002
  Seq: 0

"""
SECOND = "[m/op_1_mm]\n  Like: 0 0\n  Out: @0 0000000000000001\n  From: 0;- @0.0\n  Call: 0\n  Seq: 1\n\n"
HUGE = "9" * 15

LIKE_FORM = "Like is not of the form '12 64', '12 -' or '- 64'"
OUT_FORM = "Out is not of the form '@12 DIGEST', nor six or seven values"
FROM_FORM = "From names an input in an unknown form"
NOT_ITSELF = "refers to values that the other record does not have itself"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((f"  Like: {value}", LIKE_FORM) for value in ("", "0", "0 0 0", "0  0", "x 0", "-1 0", "0,0", f"{HUGE}9 0")),
        *((f"  Like: {value}", "refers to record 2, which is not before it") for value in ("2 -", "- 2")),
        ("  Like: 7 -", "refers to record 7, which is not before it"),
        (f"  Like: - {HUGE}", f"refers to record {HUGE}, which is not before it"),
        ("  Like: 1 -", NOT_ITSELF),
        *((f"  Out: {value}", OUT_FORM) for value in ("", "@0", "@0 1 2", "@ 00", "@x 00", "0 00", "1 2 3 4 5")),
        ("  Out: @-1 00", OUT_FORM),
        ("  Out: 1 2 3 4 5 00 S x", OUT_FORM),
        ("  Out: 1 2 3 x 5 00", "Mean is not a number"),
        ("  Out: 1 2 3 4 5 xyz", "Digest is not hexadecimal"),
        ("  Out: @0 xyz", "Digest is not hexadecimal"),
        ("  Call: 2", "refers to record 2, which is not before it"),
        ("  Call: 1", NOT_ITSELF),
        ("  Call: x", "Call is not the number of a record"),
        ("  Out: @2 00", "refers to record 2, which is not before it"),
        (f"  Out: @{HUGE} 00", f"refers to record {HUGE}, which is not before it"),
        ("  Out: @1 0000000000000001", NOT_ITSELF),
        *(
            (f"  From: {value}", FROM_FORM)
            for value in ("x", "-", "[k]", "@0", "0 1", "0 1 2 3", "- x 00", "- 1 x", "0 @", "0 @0.", "0 @0.x", ";0")
        ),
        ("  From: [k 1 00", FROM_FORM),
        (f"  From: - @{HUGE}0", FROM_FORM),
        ("  From: 2 1.0 00", "refers to record 2, which is not before it"),
        (f"  From: - @{HUGE}.{'9' * 9}", f"refers to record {HUGE}, which is not before it"),
        ("  From: - @0.1", NOT_ITSELF),
        ("  From: - @1.0", NOT_ITSELF),
        *(
            (f"  Named: {value}", "Named has a number that is no parameter of the run info")
            for value in ("1", "x", "0;1", "-0", ".grad", f"{HUGE}", "0" * 12, "0" + ".x" * 9 + ";1")
        ),
    ],
)  # fmt: skip
def test_a_bad_reference_is_a_problem_of_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(
        f"{HEADER}{FIRST}{SECOND}[m/op_2_mm]\n{line}\n  Seq: 2\n\nEnd of capture: 3 records\n", encoding="utf-8"
    )
    log = read_log(path)
    found = {(problem.line, problem.message) for problem in log.problems}
    record = int(log.line[2])
    assert found in ({(record, message)}, {(record + 1, message)})
    assert log.complete is True
    path.write_text(f"{HEADER}{FIRST}{SECOND}[m/op_2_mm]\n  Seq: 2\n\n", encoding="utf-8")
    assert records_without_lines(log)[:2] == records_without_lines(read_log(path))[:2]
    raw_record(log, 2)


def test_the_first_of_two_records_of_a_number_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    other = FIRST.replace("[2]", "[9]").replace("5.0", "55.0")
    path.write_text(f"{HEADER}{FIRST}{other}{SECOND}", encoding="utf-8")
    log = read_log(path)
    assert (log.shape_text(2), log.outputs[2].tolist(), log.inputs[2].tolist()) == ("[2]", [5.0], [5.0, 6.0])
    assert [problem.message for problem in log.problems][:1] == ["record 0 follows record 0"]


def test_a_reference_to_a_record_without_a_number_leads_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"{HEADER}{FIRST.replace('  Seq: 0', '')}{SECOND}", encoding="utf-8")
    log = read_log(path)
    assert log.producers[1].tolist() == [-2, -1]
    assert np.isnan(log.inputs[1]).all()
    assert {problem.message for problem in log.problems} >= {"refers to record 0, which is not before it"}


def test_in_a_plain_log_the_fields_mean_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"{HEADER}{FIRST}{SECOND}".replace(" compact", ""), encoding="utf-8")
    log = read_log(path)
    assert (log.shape_text(1), log.outputs.count.tolist(), log.problem_count) == ("", [0, 0], 0)


def test_names_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    text = HEADER.replace('"w"', f'"{"w" * 100_000}"') + FIRST.replace("  Seq", f"  Named: {'0;' * 100_000}\n  Seq")
    path.write_text(text, encoding="utf-8")
    log = read_log(path)
    assert "Parameter" not in log.extra
    assert log.problem_count == 1


JUNK = (
    *(b"", b" ", b";", b"-", b"0", b"1", b"@0", b"@1.0", b"@0.0", b"99999999999", b"[", b"[k]", b"nan", b"1.5"),
    *(b"Like: ", b"Out: ", b"From: ", b"Named: ", b"Call: ", b"Seq: 0", b"0000000000000001"),
    *(b"\xc3\x80", b"\xc3", b"\xff", b"\n", b"\r"),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 8), st.sampled_from(JUNK)), min_size=1))
def test_whatever_happens_to_a_compact_log_it_is_read(edits: list[tuple[float, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, path = _both(folder, _step())
        text = path.read_bytes()
        for place, length, junk in edits:
            at = int(place * len(text))
            text = text[:at] + junk + text[at + length :]
        path.write_bytes(text)
        try:
            log = read_log(path)
        except LogError:
            return
        for record in range(len(log)):
            with suppress(LogError):  # a key without its bracket
                raw_record(log, record)
        records_without_lines(log)
        entry = packed(log)
        if entry is not None:
            records_without_lines(unpacked(entry, str(path)))


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_packed_json_is_exact(text: str) -> None:
    for sample in (text, f'[{{"input": 1, "shape": [2], "dtype": "float32", "l1": 3, "name": "{text}"}}]'):
        assert unpack_json(pack_json(sample).encode()).decode() == sample


def test_the_documented_texts_are_those_that_are_packed() -> None:
    text = (REPOSITORY / "docs" / "log-format.md").read_text(encoding="utf-8")
    listed = re.findall(r"^([\u00c0-\u00ff]) \|(.*)\|$", text, re.MULTILINE)
    assert [short for short, _ in listed] == [chr(0xC0 + k) for k in range(len(listed))]
    for short, long in listed:
        assert unpack_json(short.encode()).decode() == long
        assert pack_json(long) == short
    assert unpack_json(chr(0xC0 + len(listed)).encode()) == chr(0xC0 + len(listed)).encode()


@given(st.binary())
def test_any_bytes_can_be_unpacked(raw: bytes) -> None:
    assert unpack_json(raw).count(b"\n") == raw.count(b"\n")
