"""The compiled reader gives what the plain one gives, for every input."""

from __future__ import annotations

import gzip
import math
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture import log_format
from matchers.errors import LogError
from matchers.logs import parser, source
from matchers.logs.compiled_reader import CompiledReader
from matchers.logs.plain_reader import PlainReader, number
from matchers.logs.reader_library import SOURCE
from matchers.logs.records import Contents, Start
from tests.compacted import compacted
from tests.conftest import DATA, EXAMPLES
from tests.fuzz.logs import Damage, Good, after_damages, damages, goods, text_of
from tests.matchers.contents import contents
from tests.matchers.log_texts import texts
from tests.needs import examples

JUNK = (
    *(b"", b" ", b";", b"-", b"0", b"@0", b"@1.0", b"@0.0", b"99999999999", b"[", b"]", b"[k]", b"nan", b"1e", b"_"),
    *(b"Like: ", b"Out: ", b"From: ", b"Named: ", b"Call: 0", b"\n  Digest: ", b"\n[", b"\n\n", b"\r", b"\0", b"\xff"),
    *(b"  Output 1: {}\n", b"1e-400", b"9e999", b"0x1p3", b"12345678901234567890123", b"\xc3\x80", b"0" * 400),
)


def read_by(reader: Any, data: bytes, **options: Any) -> tuple[dict[str, Any] | str, list[Contents]]:
    """What a reader makes of a log, or the sentence that refuses it; what it had read after each piece."""
    read: list[Contents] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "record_reader", reader)
        patch.setattr(parser, "refuse_excess", lambda _path, contents, _size: read.append(contents))
        path = Path(folder, "a.log")
        path.write_bytes(data)
        try:
            return contents(parser.read_log(path, **options)), read
        except LogError as error:
            return str(error).replace(folder, ""), read


def assert_alike(data: bytes, **options: Any) -> None:
    """Both readers make the same of a log."""
    assert read_by(CompiledReader, data, **options) == read_by(PlainReader, data, **options)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")) + sorted(EXAMPLES.glob("*/*.log")), ids=lambda p: p.stem)
def test_real_logs(path: Path) -> None:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    assert_alike(data)
    assert_alike(data[: len(data) // 2])


@settings(max_examples=examples(100))
@given(texts())
def test_made_up_logs(text: str) -> None:
    assert_alike(text.encode())


def form_of(good: Good, compact: bool) -> bytes:
    text = text_of(good)
    return compacted(text.decode()).encode() if compact and good.form == "digests" else text


@settings(max_examples=examples(300))
@given(
    st.builds(form_of, goods, st.booleans()),
    st.lists(damages, max_size=3),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(JUNK), st.integers(0, 8)), max_size=4),
    st.sampled_from([None, 2000]),
    st.sampled_from([64, 1000, 1 << 20]),
)
def test_damaged_logs(
    data: bytes, what: list[Damage], edits: list[tuple[float, bytes, int]], head: int | None, chunk: int
) -> None:
    data = after_damages(data, what)
    for place, junk, length in edits:
        at = int(place * len(data))
        data = data[:at] + junk + data[at + length :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_CHUNK", chunk)
        assert_alike(data, head=head)


def numbers_of(tokens: list[bytes]) -> list[float]:
    """What the compiled reader reads as values of one field."""
    reader = CompiledReader(Start(0, ours=False, compact=False))
    reader.add(b"[m/op_0_mm]\n  Output hash: " + b",".join([b"0", *tokens]) + b"\n", True)
    return reader.finish().lists["outputs"].value[1:].tolist()


def same_number(x: float | None, y: float) -> bool:
    return math.isnan(y) if x is None else struct.pack("d", x) == struct.pack("d", y)


floats = st.floats() | st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0])
tokens = st.one_of(
    st.builds("{:.{}e}".format, floats, st.integers(0, 20)),
    floats.map(repr),
    st.builds("{}{}e{}".format, st.sampled_from(["", "-", "+", "0"]), st.integers(0, 10**21), st.integers(-30, 30)),
    st.text("0123456789+-.eE_nafiINty x\t\v", max_size=12),
).map(lambda text: b"x" + text.encode() if text.startswith(" ") else text.encode())


@settings(max_examples=examples(300))
@given(st.lists(tokens, min_size=1, max_size=20))
def test_numbers_are_rounded_as_python_does(some: list[bytes]) -> None:
    for token, found in zip(some, numbers_of(some), strict=True):
        assert same_number(number(token), found), token


def test_ties_and_limits_of_the_fast_paths() -> None:
    hard = [
        *(b"9007199254740993", b"9007199254740993e1", b"18446744073709551615", b"9999999999999999999e27", b"1e-27"),
        *(b"9007199254740993e-22", b"4503599627370497.5", b"2.2250738585072011e-308", b"4.9e-324", b"0.1e1"),
        *(b"1.7976931348623159e308", b"123456789012345678901234567890", b"-0.0", b"-nan", b"+inf", b"Infinity"),
        *(b"1" * 400, b"1" * 401),
    ]
    for token, found in zip(hard, numbers_of(hard), strict=True):
        assert same_number(number(token), found), token


def test_the_fields_are_those_of_the_grammar() -> None:
    """A field that one of them does not know is passed over in silence, as one of a later version."""
    text = SOURCE.read_text(encoding="utf-8")
    listed = text.partition("NAMES[FIELDS] = {")[2].partition("}")[0]
    assert {name.strip().strip('"') for name in listed.split(",")} == set(log_format.FIELDS)


def test_texts_that_share_a_hash_are_told_apart() -> None:
    """More names than slots of a table, several times over, and an empty one."""
    keys = [f"m{k % 5000}/op_{k}_x{k % 7}" for k in range(30_000)] + [""]
    data = "".join(f"[{key}]\n  Input producers: {keys[k // 2]}\n" for k, key in enumerate(keys)).encode()
    reader = CompiledReader(Start(0, ours=False, compact=False))
    reader.add(data, True)
    records = reader.finish()
    assert list(records.keys) == keys
    assert np.array_equal(records.lists["producers"].value[1:-1], np.arange(1, len(keys) - 1) // 2)
    assert [records.tables["modules"][i].decode() for i in records.columns["module"][:-1]] == [
        key.partition("/")[0] for key in keys[:-1]
    ]
