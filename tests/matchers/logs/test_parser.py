"""Reading: everything a log says is read, and what is broken costs only itself."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capture.log_writer import Record, TensorSummary
from capture.log_writer import write_log as write_captured
from matchers.errors import LogError
from matchers.logs import source as log_source
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.logs.parser import read_log
from tests.builders import log_text, op, training_step, write_log
from tests.conftest import DATA, EXAMPLES
from tests.matchers.contents import contents
from tests.matchers.log_records import problems_of, records_of
from tests.matchers.log_texts import keys, texts
from tests.needs import examples, stride

pytestmark = pytest.mark.usefixtures("reader")

SEPARATOR = "=" * 80 + "\n"
HEADER = "Total captured activations: 1\n" + SEPARATOR + "\n"


def read(data: str | bytes, name: str = "made-up.log", **options: Any) -> OpLog:
    """The log with this content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return read_log(path, **options)


def message_for(data: str | bytes, name: str = "made-up.log") -> str:
    """The sentence that refuses this content."""
    with pytest.raises(LogError) as caught:
        read(data, name)
    return str(caught.value)


def one_record(*lines: str) -> OpLog:
    """A log of one record, `m/op_0_add`, with these lines; its first is line 5 of the file."""
    return read(HEADER + "[m/op_0_add]\n" + "".join(f"  {line}\n" for line in lines))


def same(x: OpLog, y: OpLog) -> None:
    """Two logs agree in every column, but for where they were read from."""
    assert contents(x) == contents(y)


# ---------------------------------------------------------------------- generated logs


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts(), st.sampled_from([1, 7, 64, 300]))
def test_where_the_file_is_cut_into_pieces_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, text: str, size: int
) -> None:
    monkeypatch.setattr(log_source, "_CHUNK", 1 << 22)
    whole = read(text)
    monkeypatch.setattr(log_source, "_CHUNK", size)
    same(whole, read(text))


@pytest.mark.parametrize("size", [*range(1, 130, 3), 1000, 4096, 100_000])
def test_pieces_of_a_training_step(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Producers of earlier pieces and names of all pieces are one log's; every boundary is met."""
    text = log_text(training_step(1), footer=True, run={"seed": 1})
    whole = read(text)
    monkeypatch.setattr(log_source, "_CHUNK", size)
    same(whole, read(text))


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")) + sorted(EXAMPLES.glob("*/*.log")), ids=lambda p: p.stem)
def test_real_logs(path: Path) -> None:
    """Plain and compressed; none of their lines is a problem."""
    log = read_log(path)
    assert log.problems == ()
    assert len(log) == log.header.declared
    assert log.complete is True
    assert log.partial is False


# ---------------------------------------------------------------------- fields, one by one


def test_the_fields_of_torchtitan() -> None:
    log = one_record(
        "Shape: torch.Size([2, 3]), Dtype: torch.bfloat16",
        "L1 norm: 1.500000e+00",
        "L2 norm: 2.500000e+00",
        "Min: -3.500000e+00",
        "Max: 4.500000e+00",
        "Mean: 5.500000e-01",
        "Output hash: 1.500000e+00, 2.000000e+01, nan",
        "Input hashes: 3.000000e+00, 4.000000e+00",
        "Input producers: ;gone/op_0_mm;",
        "Location: model.py:7",
        "Phase: backward",
    )
    assert log.keys[0] == "m/op_0_add"
    assert (log.module_name(0), log.op_name(0), int(log.counter[0])) == ("m", "add", 0)
    assert (log.shape_text(0), log.dtype_text(0)) == ("[2, 3]", "bfloat16")
    assert log.stats[:, 0].tolist() == [1.5, 2.5, -3.5, 4.5, 0.55]
    assert log.present[0] == 0b11111
    assert repr(log.outputs[0].tolist()) == "[1.5, 20.0, nan]"
    assert log.inputs[0].tolist() == [3.0, 4.0]
    assert log.producers[0].tolist() == [-1, -2, -1]
    assert log.location_text(0) == "model.py:7"
    assert log.phase[0] == Phase.BACKWARD
    assert log.line[0] == 4


def test_an_operation_that_returns_nothing() -> None:
    """Absent is not zero, and not `nan`."""
    log = one_record("Input hashes: 3.000000e+00")
    assert log.present[0] == 0
    assert np.isnan(log.stats[:, 0]).all()
    assert log.outputs[0].tolist() == []
    assert (log.shape_text(0), log.dtype_text(0), log.location_text(0)) == ("", "", "")


def test_a_statistic_that_is_printed_as_nan_is_present() -> None:
    log = one_record("L2 norm: nan", "Max: inf")
    assert log.present[0] == 2 | 8
    assert np.isnan(log.stats[1, 0])
    assert log.stats[3, 0] == np.inf


def test_the_fields_of_our_own_capture() -> None:
    log = one_record(
        "Digest: 00000000000000ff, ffffffffffffffff",
        "Input digests: 0000000000000001",
        "Recompute: true",
        "Micro-batch: 2",
        "Seq: 0",
        "Counts: numel=6 nan=1 inf=2 zero=3",
        "Stack: model.py:1:forward",
        'Output 1: {"shape": [2]}',
    )
    assert log.digests[0].tolist() == [0xFF, 2**64 - 1]
    assert log.input_digests[0].tolist() == [1]
    assert log.recompute[0]
    assert log.micro_batch[0] == 2
    assert log.counts[:, 0].tolist() == [6, 1, 2, 3]
    assert log.extra == {"Stack": {0: "model.py:1:forward"}, "Output 1": {0: '{"shape": [2]}'}}
    assert log.texts("Sketch") == {}
    assert log.texts("Stack").raw(0) == b"model.py:1:forward"
    assert log.problems == ()


def test_a_digest_that_was_not_taken_keeps_its_place() -> None:
    log = one_record("Digest: 00000000000000ff, -, 0000000000000001", "Input digests: rubbish, 0000000000000002")
    assert log.digests[0].tolist() == [0xFF, int(NO_DIGEST), 1]
    assert log.input_digests[0].tolist() == [int(NO_DIGEST), 2]
    assert problems_of(log) == [(6, "Input digests is not hexadecimal")]


def numbered(*numbers: int, **options: Any) -> str:
    """A log whose records have these numbers."""
    ops = [op(f"m/op_{i}_add", extra={"Seq": str(n), "Digest": f"{i:016x}"}) for i, n in enumerate(numbers)]
    return log_text(ops, run={}, **options)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 2), []),
        ((0, 1, 3), ["record 2 is missing"]),
        ((0, 12, 15), ["records 1–11 are missing", "records 13–14 are missing"]),
        ((2, 3), ["records 0–1 are missing"]),
        ((0, 1, 1), ["record 1 follows record 1"]),
    ],
)
def test_a_record_that_was_lost_is_missed(numbers: tuple[int, ...], expected: list[str]) -> None:
    log = read(numbered(*numbers))
    assert [problem.message for problem in log.problems] == expected


def test_the_footer_vouches_for_the_records() -> None:
    digest = hashlib.sha256("\n".join(f"{i:016x}" for i in range(3)).encode()).hexdigest()[:16]
    text = numbered(0, 1, 2) + f"End of capture: 3 records, digest {digest}\n"
    assert read(text).problems == ()
    assert read(text).complete is True
    changed = read(text.replace("Digest: 0000000000000001", "Digest: 0000000000000007"))
    assert [problem.message for problem in changed.problems] == [
        "the digest in the footer does not match the records: the log was changed"
    ]
    assert changed.problems[0].line == text.count("\n")


def test_the_digest_at_the_end_is_that_of_the_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Records without a digest take part; where the file is cut into pieces does not matter."""
    records = [
        Record(key=f"m/op_{i}_add", seq=i, outputs=[TensorSummary(shape=(2,), dtype="float32", digest=i)] * (i % 3))
        for i in range(20)
    ]
    path = tmp_path / "a.log"
    write_captured(path, records, count=20, excluded={"view": 3}, run={"seed": 1}, complete=True)
    for size in (1, 100, 1000, 1 << 22):
        monkeypatch.setattr(log_source, "_CHUNK", size)
        log = read_log(path)
        assert log.problems == ()
        assert log.complete is True
        assert log.header.excluded == ("view",)


def test_a_step_that_died_left_an_incomplete_log() -> None:
    text = numbered(0, 1, footer=True).replace("Run: {}", 'Run: {"incomplete": "RuntimeError: out of memory"}')
    log = read(text)
    assert log.complete is False
    assert log.header.incomplete == "RuntimeError: out of memory"
    assert read(numbered(0)).header.incomplete == ""


def test_the_header_of_our_own_capture() -> None:
    log = read(log_text([op("m/op_0_add")], run={"seed": 42}, footer=True, excluded=["t", "view"]))
    assert log.header.declared == 1
    assert log.header.excluded == ("t", "view")
    assert log.header.format == "numtui 2"
    assert log.header.run == {"seed": 42}
    assert len(log.header.lines) == 4
    assert log.complete is True


def test_an_empty_name_between_two_values_keeps_their_places() -> None:
    """Positions are what inputs of the two sides are compared by."""
    log = one_record("Input hashes: 1.000000e+00, , 3.000000e+00")
    assert repr(log.inputs[0].tolist()) == "[1.0, nan, 3.0]"
    assert problems_of(log) == [(5, "Input hashes is not a number")]


@pytest.mark.parametrize(
    "line",
    [
        *("Shapes: 3", "Phases: 3", "Locations: 3", "Params: weight", "Counter: 5", "Placements: x", "Input dims: 2"),
        *("Output half: 1.0", "Stacked: x", "Groups: 1", "Mutations: 0", "Recomputed: true", "Micro-steps: 5"),
        *("Digests of gradients: 00ff", "L2 normalised: 2.000000e+00", "L2 norms: 1.0, 2.0", "Sketches: x"),
    ],
)
def test_a_field_that_only_begins_like_one_we_know_is_another_field(line: str) -> None:
    """A later version may add it; it is neither read nor complained about."""
    log = one_record(line)
    assert records_of(log) == records_of(one_record())
    assert log.problems == ()


@pytest.mark.parametrize("text", ["-1", "0x10", "1_0", "+f", "٣", "1" * 17])
def test_a_digest_is_sixteen_digits_at_most(text: str) -> None:
    log = one_record(f"Digest: {text}")
    assert problems_of(log) == [(5, "Digest is not hexadecimal")]


# ---------------------------------------------------------------------- producers and repeated keys


def test_a_producer_is_the_last_record_of_its_name_before() -> None:
    ops = [
        op("m/op_0_add"),
        op("m/op_1_mul", producers=["m/op_0_add", "later/op_0_mm", "nowhere/op_0_mm", "m/op_1_mul"]),
        op("m/op_0_add"),
        op("m/op_0_add", producers=["m/op_0_add", "m/op_1_mul"]),
        op("later/op_0_mm", producers=["m/op_0_add"]),
    ]
    log = read(log_text(ops))
    assert [log.producers[row].tolist() for row in range(5)] == [[], [0, -2, -2, -2], [], [2, 1], [3]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(-1, 4), max_size=3)), max_size=12), st.integers(1, 99)
)
def test_producers_of_repeated_keys(rows: list[tuple[int, list[int]]], size: int) -> None:
    """Whatever repeats, and wherever the pieces end."""
    ops = [op(f"m/op_{key}_add", producers=[f"m/op_{p}_add" if p >= 0 else "" for p in made]) for key, made in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_source, "_CHUNK", size)
        read(log_text(ops))


# ---------------------------------------------------------------------- broken spots


def test_each_broken_spot_is_reported_where_it_is_and_costs_only_itself() -> None:
    good = [op(f"m/op_{i}_add", inputs=[1.0, 2.0], producers=["", ""], extra={"Micro-batch": "1"}) for i in range(9)]
    lines = log_text(good).split("\n")
    starts = [at for at, line in enumerate(lines) if line.startswith("[")]
    breaks = {
        0: ("  L2 norm: 2.000000e+00", "  L2 norm: rubbish", "L2 norm is not a number"),
        1: ("  Output hash: 3.000000e+00", "  Output hash: 3.0, x", "Output hash is not a number"),
        2: ("  Input hashes: 1.000000e+00, 2.000000e+00", "  Input hashes: ?, 2.0", "Input hashes is not a number"),
        3: ("  Micro-batch: 1", "  Micro-batch: one", "Micro-batch is not a number"),
        4: ("[m/op_4_add]", "[m/op_4_add", "the record's key has no closing ']'"),
        5: ("  Location: model.py:1", "what is this", "not a field of a record"),
        7: (
            "  Shape: torch.Size([4, 8]), Dtype: torch.float32",
            "  Shape: (4, 8)",
            "Shape is not of the form 'torch.Size([2, 3]), Dtype: torch.float32'",
        ),
    }
    expected = []
    for record, (line, broken, message) in breaks.items():
        at = lines.index(line, starts[record])
        lines[at] = broken
        expected.append((at + 1, message))
    log, whole = read("\n".join(lines)), read(log_text(good))
    assert [(p.line, p.message) for p in log.problems] == expected
    assert log.keys[:] == whole.keys[:]
    for record in (6, 8):
        assert records_of(log)[record] == records_of(whole)[record]
    assert repr(log.outputs[1].tolist()) == "[3.0, nan]"
    assert repr(log.inputs[2].tolist()) == "[nan, 2.0]"


def test_a_thousand_problems_are_kept_and_all_are_counted() -> None:
    log = read(HEADER + "[m/op_0_add]\n" + "rubbish\n" * 1500)
    assert len(log.problems) == 1000
    assert log.problem_count == 1500


def test_a_broken_header_is_reported_by_line() -> None:
    log = read("Total captured activations: many\nRun: {not json\n" + SEPARATOR + "[m/op_0_add]\n")
    assert problems_of(log) == [
        (1, "the number of captured activations is not a number"),
        (2, "the run info is not a JSON object"),
    ]
    assert len(log) == 1


def test_a_carriage_return_within_a_header_line_is_no_line_end() -> None:
    """Lines are counted as editors and `sed -n` count them."""
    log = read("Total captured activations: 1\nExcluded ops dispatched: a\rb\n" + SEPARATOR + "[m/op_0_add]\nrubbish\n")
    assert log.line[0] == 4
    assert problems_of(log) == [(5, "not a field of a record")]


# ---------------------------------------------------------------------- ends and beginnings


def test_windows_line_ends() -> None:
    text = log_text(training_step(1), footer=True)
    same(read(text), read(text.replace("\n", "\r\n")))


def test_no_newline_at_the_end() -> None:
    text = log_text(training_step(1)).rstrip("\n")
    with_one, without = read(text + "\n"), read(text)
    same(replace(with_one, problems=()), replace(without, problems=()))
    last = text.count("\n") + 1
    assert problems_of(with_one) == [(last, "the log ends within its last record, without the blank line after it")]
    assert problems_of(without) == [(last, "the log ends within its last record, without a line end")]


def test_a_byte_order_mark() -> None:
    text = log_text(training_step(1))
    same(read(text), read("\ufeff" + text))


def test_a_log_of_no_operations() -> None:
    for data in ("Total captured activations: 0\n" + SEPARATOR, "Total captured activations: 0\n", SEPARATOR):
        log = read(data)
        assert len(log) == 0
        assert log.problems == ()
        assert log.keys[:] == []
        assert log.stats.shape == (5, 0)
        assert len(log.outputs) == len(log.producers) == 0
    assert read("Total captured activations: 0\n" + SEPARATOR).complete is True


def test_records_without_a_header() -> None:
    text = log_text([op("m/op_0_add"), op("m/op_1_mul")])
    log = read(text[text.index("[") :])
    assert log.keys[:] == ["m/op_0_add", "m/op_1_mul"]
    assert log.line[0] == 1
    assert log.header.declared is None
    assert log.complete is None


@pytest.mark.parametrize("data", [b"", b"\n", b"hello\n", bytes(range(256)) * 20, b"{}", b" [m/op_0_add]\n"])
def test_what_is_no_log_is_refused_in_one_sentence(data: bytes) -> None:
    message = message_for(data)
    assert "made-up.log:1: is" in message
    assert "expected a line 'Total captured activations: N'" in message
    assert "\n" not in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.log", "No such file"), (tmp_path, "is a directory")):
        with pytest.raises(LogError, match=words):
            read_log(path)


@pytest.mark.parametrize(("declared", "complete"), [(0, True), (1, True), (2, True), (3, False)])
def test_a_header_that_promises_more_than_there_is_means_a_log_cut_off(declared: int, complete: bool) -> None:
    log = read(log_text([op("m/op_0_add"), op("m/op_1_add")], declared=declared))
    assert log.complete is complete


def test_our_own_capture_ends_with_a_footer() -> None:
    ops = [op("m/op_0_add"), op("m/op_1_add")]
    assert read(log_text(ops, run={}, footer=True)).complete is True
    assert read(log_text(ops, run={})).complete is False
    assert read(log_text(ops, run={}) + "End of capture: 3 records\n").complete is False


# ---------------------------------------------------------------------- cut off


def small_text() -> str:
    ops = [
        op("tok/op_0_embedding", 3.0, inputs=[1.25, 2.5], producers=["", ""]),
        op("layers.0/op_0_mm", -2.5, inputs=[9.75], producers=["tok/op_0_embedding"], phase="backward"),
        op("tok/op_0_embedding", 4.5, outputs=[1.25, 7.5], extra={"Digest": "00ff, 0aff", "Seq": "0"}),
    ]
    return log_text(ops, declared=3)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_cut_off_at_any_byte_all_that_came_before_is_intact(ending: str) -> None:
    """Refused in a sentence as long as there is no record, and no more than a few bytes of a header.

    A number that was cut off is not taken for one: `Output hash: 1.35` of 1.357316e+02 would read as a divergence.
    """
    data = small_text().replace("\n", ending).encode()
    whole = records_of(read(data))
    starts = [at + 1 for at in range(len(data)) if data[at : at + 2] == b"\n["]
    ends = [*starts[1:], len(data)]
    keys = [data.index(b"]", start) for start in starts]
    refused = 0
    for length in range(0, len(data) + 1, stride(7)):
        try:
            log = read(data[:length])
        except LogError:
            refused = length
            continue
        complete = sum(end <= length for end in ends)
        records = records_of(log)
        assert records[:complete] == whole[:complete], length
        assert len(records) == sum(key < length for key in keys), "a key that was cut off names no operation"
        if len(records) < len(whole):
            assert log.complete is not True, length
        if records:
            last, full = records[-1], whole[len(records) - 1]
            assert last.statistics.items() <= full.statistics.items(), length
            for values, right in ((last.outputs, full.outputs), (last.inputs, full.inputs)):
                for value, expected in zip(values, right, strict=False):
                    assert value in (expected, "nan"), length
    assert refused < len("Total captured activations:")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("head", [True, False])
def test_a_log_cut_off_within_its_last_record_never_reads_as_complete(ending: str, head: bool) -> None:
    """Also between two fields, or after the last one: the blank line that the other records have is missing."""
    text = log_text([op("m/op_0_add"), op("m/op_1_mul", inputs=[1.5], producers=["m/op_0_add"])])
    text = (text if head else text[text.index("[") :]).replace("\n", ending)
    assert read(text).complete is (True if head else None)
    assert read(text).problems == ()
    for length in range(text.rindex("[") + 1, len(text)):
        log = read(text[:length])
        assert log.complete is False, length
        assert log.problem_count, length


def test_a_log_without_blank_lines_between_its_records_needs_none_at_its_end() -> None:
    text = log_text([op("m/op_0_add"), op("m/op_1_mul"), op("m/op_2_mul")])
    head, records = text[: text.index("[")], text[text.index("[") :]
    assert read(head + records.replace("\n\n", "\n")).problems == ()
    assert read(head + records[: records.index("\n\n") + 1]).problems == (), "one record shows no habit"


def test_the_footer_of_our_own_capture_is_the_end_whatever_follows() -> None:
    text = log_text([op("m/op_0_add"), op("m/op_1_add")], run={}, footer=True)
    assert read(text).problems == ()
    assert problems_of(read(text[:-1])) == [(text.count("\n"), "the log ends without a line end")]


# ---------------------------------------------------------------------- compressed, piped, in part


def test_compressed(tmp_path: Path) -> None:
    ops = training_step(1)
    plain, packed = write_log(tmp_path / "a.log", ops), write_log(tmp_path / "a.log.gz", ops)
    same(read_log(plain), read_log(packed))
    unnamed = tmp_path / "b.log"
    unnamed.write_bytes(packed.read_bytes())
    same(read_log(plain), read_log(unnamed))


def test_half_a_compressed_file() -> None:
    """What came out of it is read, and the log is known to be cut off."""
    text = log_text(training_step(4))
    whole = records_of(read(text))
    packed = gzip.compress(text.encode(), mtime=0)
    log = read(packed[: len(packed) // 2], "half.log.gz")
    assert 10 < len(log) < len(whole)
    assert records_of(log)[: len(log) - 1] == whole[: len(log) - 1]
    assert log.complete is False
    assert any("ends early" in problem.message for problem in log.problems)


def test_a_compressed_file_cut_off_at_any_byte() -> None:
    text = small_text()
    whole = records_of(read(text))
    packed = gzip.compress(text.encode(), mtime=0)
    for length in range(len(packed)):
        try:
            log = read(packed[:length], "cut.log.gz")
        except LogError:
            continue
        assert log.complete is False
        assert records_of(log)[: max(len(log) - 1, 0)] == whole[: max(len(log) - 1, 0)]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:], id="checksum"),
        pytest.param(lambda packed: packed + b"rubbish", id="something behind it"),
    ],
)
def test_a_compressed_file_that_is_damaged_at_its_end_is_read(damage: Any) -> None:
    """All of the log came out of it."""
    text = small_text()
    log = read(damage(gzip.compress(text.encode(), mtime=0)), "damaged.log.gz")
    assert records_of(log) == records_of(read(text))
    assert log.problem_count == 1


def test_a_file_that_is_called_compressed_and_is_not() -> None:
    assert "damaged.log.gz: cannot be read" in message_for(small_text(), "damaged.log.gz")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = log_text(training_step(1))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    log = read_log("-")
    same(read(text), log)
    assert log.path == "standard input"


def test_a_pipe() -> None:
    """Blocks of a pipe end anywhere, also in the middle of a line."""
    program = "import matchers.logs.source as s; s._CHUNK = 1000\n"
    program += "from matchers.logs.parser import read_log; print(len(read_log('-')), end='')"
    text = log_text(training_step(3))
    result = subprocess.run([sys.executable, "-c", program], input=text.encode(), capture_output=True, check=True)
    assert int(result.stdout) == len(training_step(3))


def test_the_head_alone() -> None:
    text = log_text(training_step(3), run={}, footer=True)
    whole = records_of(read(text))
    for head in (1, 50, 200, 1000, 5000, 10 * len(text)):
        try:
            log = read(text, head=head)
        except LogError:
            assert head == 1
            continue
        assert log.partial
        assert log.complete is None
        # the last record may be cut; without one there is only the header
        assert records_of(log)[: len(log) - 1] == whole[: max(len(log) - 1, 0)]
        assert len(log) > min(head // 1000, 10) or head <= 200


def test_progress_ends_with_all_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "_CHUNK", 2000)
    path = write_log(tmp_path / "a.log", training_step(3))
    told: list[tuple[str, float]] = []
    read_log(path, progress=lambda what, fraction: told.append((what, fraction)))
    fractions = [fraction for _, fraction in told]
    assert {what for what, _ in told} == {"reading"}
    assert len(told) > os.path.getsize(path) // 4000
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_a_cancelled_reading_stops() -> None:
    def cancel(what: str, fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(small_text(), progress=cancel)


@example("m/op_0_add")
@given(keys)
def test_a_key_is_kept_as_it_stands(key: str) -> None:
    log = read(HEADER + f"[{key}]\n")
    assert log.keys[0] == key
    assert list(log.keys) == [key]
    assert log.keys.raw(0) == key.encode()


def test_text_that_is_no_utf_8_is_shown_byte_by_byte() -> None:
    log = read(HEADER.encode() + b"[m\xff/op_0_add]\n  Location: \xc3(\n")
    assert log.keys[0] == "m\\xff/op_0_add"
    assert log.module_name(0) == "m\\xff"
    assert log.location_text(0) == "\\xc3("


def test_a_line_of_a_megabyte() -> None:
    log = read(HEADER + f"[m/op_0_add]\n  Location: {'x' * 1_000_000}\n[m/op_1_add]\n")
    assert len(log.location_text(0)) == 1_000_000
    assert len(log) == 2
