"""A hundred logs that no tool wrote, or that something happened to on the way."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

from tests.builders import log_text, op, training_step

__all__ = ["NASTY", "NUMBERS", "RAW_CONTROL", "WORKFLOW_COMMAND", "hostile_logs", "small_log"]

RAW_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u206a-\u206f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""What must never be in the output: C0 but the newline, DEL, C1, what turns the reading direction around, and what
cannot be seen."""

WORKFLOW_COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
"""What a CI service takes for a command in the output of a job."""

NASTY = {
    "colour": b"\x1b[31m",
    "clear screen": b"\x1b[2J\x1b[H",
    "title": b"\x1b]0;owned\x07",
    "clipboard": b"\x1b]52;c;cm0gLXJm\x07",
    "hyperlink": b"\x1b]8;;http://x\x1b\\",
    "device control": b"\x1bP+q544e\x1b\\",
    "alternate screen": b"\x1b[?1049h",
    "C1 CSI": "\x9b31m".encode(),
    "raw C1 byte": b"\x9b31m",
    "NUL": b"\x00",
    "backspaces": b"\x08\x08\x08",
    "bell": b"\x07" * 9,
    "carriage return": b"\rowned",
    "vertical tab": b"\x0b\x0c",
    "tab": b"\t\t",
    "DEL": b"\x7f",
    "bidi override": "\u202edesrever\u202c".encode(),
    "bidi isolate": "\u2066x\u2069".encode(),
    "line separator": "\u2028\u2029\x85".encode(),
    "zero width": "\u200b\u200d\ufeff".encode(),
    "combining": ("e" + "\u0301" * 300).encode(),
    "wide": "層一二三🙂👩‍👩‍👧".encode(),
    "tags": "\U000e0041\U000e0042".encode(),
    "invisible": "\u034f\u115f\u1160\u17b4\u180b\u180f\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef".encode(),
    "workflow commands": b" ::error::owned ##[error]owned ##vso[task.complete]owned" * 8,
    "surrogate": b"\xed\xa0\x80\xed\xb0\x80",
    "invalid UTF-8": b"\xff\xfe\xc3(",
    "overlong": b"\xc0\x80\xe0\x80\xaf",
    "markup": b"[bold red]x[/bold red][/]",
    "markup action": b"[@click=app.quit]x[/]",
    "quotes": b'"\\u0000\\"\\\\',
    "percent": b"%s%n%d{}{0}",
}

NUMBERS = (
    *(
        "nan",
        "-nan",
        "inf",
        "-inf",
        "1e999",
        "-1e999",
        "1e-999",
        "0",
        "-0",
        "",
        " ",
        "0x10",
        "1_000",
        "1,5",
        "١",
        "--1",
        "1e",
        "None",
    ),
    "9" * 400,
)


def small_log() -> bytes:
    """Three operations with every field that torchtitan writes."""
    ops = [
        op("tok/op_0_embedding", 3.0, inputs=[1.0, 2.0], producers=["", ""]),
        op("layers.0/op_0_mm", 2.0, inputs=[9.0], producers=["tok/op_0_embedding"], phase="backward"),
        op("<none>/op_0_add_", shape=None, inputs=[1.0]),
    ]
    return log_text(ops).encode()


def hostile_logs() -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    plain = log_text(training_step(1)).encode()
    for name, nasty in NASTY.items():
        yield f"{name} in keys", plain.replace(b"layers.0", b"layers." + nasty)
        yield f"{name} everywhere", re.sub(rb"(?m)$", lambda _, n=nasty: n, plain)  # type: ignore[misc]
    for number in NUMBERS:
        yield f"every number is {number[:12]!r}", re.sub(rb"-?\d\.\d{6}e[+-]\d\d", number.encode(), plain)
    yield from _lengths(plain)
    yield from _files(plain)
    yield from _structure(plain)


def _lengths(plain: bytes) -> Iterator[tuple[str, bytes]]:
    megabyte = b"x" * 1_000_000
    yield "a key of 1 MB", plain.replace(b"tok_embeddings", megabyte)
    yield "a key of 1 MB of escapes", plain.replace(b"tok_embeddings", b"\x1b" * 1_000_000)
    yield "a location of 1 MB", plain.replace(b"Location: ", b"Location: " + megabyte, 1)
    yield "an unknown line of 1 MB", plain + b"  " + megabyte + b"\n"
    yield "a header line of 1 MB", megabyte + b"\n" + plain
    yield "10,000 values in one line", plain.replace(b"Output hash: ", b"Output hash: " + b"1.0, " * 10_000, 1)
    yield "100,000 producers", plain.replace(b"Input producers: ", b"Input producers: " + b";" * 100_000, 1)
    yield "100,000 empty lines", plain.replace(b"\n\n", b"\n" * 100_000, 1)
    yield "50,000 module levels", plain.replace(b"layers.0", b".".join([b"m"] * 50_000))


def _files(plain: bytes) -> Iterator[tuple[str, bytes]]:
    yield "an empty file", b""
    yield "only a newline", b"\n"
    yield "the header only", plain.partition(b"=" * 80)[0]
    yield "header and line", plain.partition(b"=" * 80)[0] + b"=" * 80 + b"\n"
    yield "no header", plain.partition(b"=" * 80)[2]
    yield "all zero bytes", bytes(4096)
    yield "all byte values", bytes(range(256)) * 64
    yield "an ELF binary", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 16
    yield "a PNG", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
    yield "UTF-16", plain.decode().encode("utf-16")
    yield "a byte order mark", b"\xef\xbb\xbf" + plain
    yield "compressed", gzip.compress(plain, mtime=0)
    yield "compressed and cut off", gzip.compress(plain, mtime=0)[:-200]
    yield "compressed, cut in its header", gzip.compress(plain, mtime=0)[:7]
    yield (
        "compressed and damaged",
        gzip.compress(plain, mtime=0)[:100] + b"\0" * 50 + gzip.compress(plain, mtime=0)[150:],
    )
    yield "compressed twice", gzip.compress(gzip.compress(plain, mtime=0), mtime=0)
    yield "compressed, then rubbish", gzip.compress(plain, mtime=0) + b"rubbish"


def _structure(plain: bytes) -> Iterator[tuple[str, bytes]]:
    yield "CRLF", plain.replace(b"\n", b"\r\n")
    yield "CR only", plain.replace(b"\n", b"\r")
    yield "no final newline", plain.rstrip(b"\n")
    yield "no empty lines", plain.replace(b"\n\n", b"\n")
    yield "no indentation", plain.replace(b"\n  ", b"\n")
    yield "tabs for indentation", plain.replace(b"\n  ", b"\n\t")
    yield "every key the same", re.sub(rb"(?m)^\[.*\]$", b"[same/op_0_mm]", plain)
    yield "every key empty", re.sub(rb"(?m)^\[.*\]$", b"[]", plain)
    yield "keys without brackets", re.sub(rb"(?m)^\[(.*)\]$", rb"[\1", plain)
    yield "every record twice", plain + plain.partition(b"=" * 80)[2]
    yield "the log twice", plain + plain
    yield "fields twice", re.sub(rb"(?m)^(  .*)$", rb"\1\n\1", plain)
    yield "fields in reverse", b"\n".join(reversed(plain.splitlines()))
    yield "fields before the first record", plain.replace(b"=" * 80, b"=" * 80 + b"\n  Shape: torch.Size([2])", 1)
    yield "huge counters", plain.replace(b"op_0", b"op_99999999999999999999999")
    yield "negative counters", plain.replace(b"op_0", b"op_-1")
    yield "other digits in counters", plain.replace(b"op_0", "op_٣".encode())
    yield "huge shapes", plain.replace(b"[16, 8]", b"[99999999999999999999, 8]")
    yield "empty shapes", plain.replace(b"[16, 8]", b"[]")
    yield "negative shapes", plain.replace(b"[16, 8]", b"[-16, 8]")
    yield "shapes in words", plain.replace(b"[16, 8]", b"[s0, u1 + 2]")
    yield "unknown dtypes", plain.replace(b"torch.float32", b"torch.float3_e7m9fnuz")
    yield "producers of themselves", re.sub(rb"(?m)^\[(.*)\]$", rb"[\1]\n  Input producers: \1", plain)
    yield "producers that come later", plain.replace(b"Input producers: ", b"Input producers: output/op_0_mm;")
    yield "unknown phases", plain.replace(b"Phase: backward", b"Phase: sideways")
    yield "a wrong count", plain.replace(b"captured activations: ", b"captured activations: -")
    yield "a huge count", plain.replace(b"captured activations: ", b"captured activations: 99999999999999999999")
    yield "run info that is no JSON", b"Format: numtui 2\nRun: {not json\n" + plain
    yield "run info nested too deep", b"Format: numtui 2\nRun: " + b"[" * 100_000 + b"\n" + plain
    yield "a format of tomorrow", b"Format: numtui 99\n" + plain
    compact = b"Format: numtui 2 compact\n" + plain
    yield "compact in its header alone", compact
    yield (
        "references to nowhere",
        compact.replace(b"  Output hash", b"  Like: 99999999999 -1\n  Out: @7 x\n  Output hash"),
    )
    yield (
        "references to itself",
        compact.replace(
            b"  Output hash", b"  Seq: 0\n  Like: 0 0\n  Out: @0 00\n  From: 0;- @0.0;;[\n  Named: 0\n  Output hash"
        ),
    )
    yield "bad digests", plain.replace(b"  Output hash", b"  Digest: xyz, 123, ffffffffffffffffffffffff\n  Output hash")
    yield (
        "bad superset fields",
        plain.replace(
            b"  Output hash",
            b"  Seq: -1\n  Counts: numel=x\n  Sketch: !\n  Micro-batch: 1e9\n  Recompute: maybe\n  Output hash",
        ),
    )
    yield (
        "several outputs that are no JSON",
        plain.replace(b"  Output hash", b"  Output 1: {\n  Output x: 1\n  Output hash"),
    )
    yield "a footer in the middle", plain.replace(b"\n\n[", b"\n\nEnd of capture: 3 records\n\n[", 3)
    yield "a footer that counts wrong", plain + b"End of capture: 99999999999999999999 records\n"
