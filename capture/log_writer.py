"""Writer of logs of what was captured: the only code of `capture` that writes the lines of a record.

A log is written beside its target and renamed over it, so that a reader finds a whole log or none; that of a step which
was cut off is there from its first line on, as whatever ends the process may not wait. The same records give the same
bytes.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .atomic_file import atomic_file
from .compact import CompactLines
from .log_format import (
    COMPACT_FORMAT,
    FORMAT,
    PLAIN_OVERLOAD,
    UNKNOWN_DIGEST,
    escape,
    json_line,
    render_footer,
    render_header,
)

__all__ = [
    "Mutation",
    "Portion",
    "Record",
    "TensorSummary",
    "format_digest",
    "record_text",
    "summary_fields",
    "write_log",
]

_PIECE = 1000
"""Records encoded and written together: about a megabyte."""
_64_BITS = (1 << 64) - 1


@dataclass(slots=True, kw_only=True)
class TensorSummary:
    """Recorded statistics of one tensor.

    Attributes:
        shape: its local shape.
        dtype: without `torch.`, as in `float32`.
        l1, l2, min, max, mean: over its finite values; None when it has none, or was not read.
        numel, nan, inf, zero: number of elements, and of those that are NaN, infinite, zero.
        digest: 64 bits of its raw bytes, None when it was not read.
        sketch: 16 little-endian float64 (see docs/sketch.md), None without one.
        user_hash: result of the user's own function.
        placement: mesh, placements, global shape and offsets of a DTensor's shard, ready for JSON.
    """

    shape: tuple[int, ...]
    dtype: str
    l1: float | None = None
    l2: float | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    numel: int = 0
    nan: int = 0
    inf: int = 0
    zero: int = 0
    digest: int | None = None
    sketch: bytes | None = None
    user_hash: float | int | str | None = None
    placement: Mapping[str, Any] | None = None

    def take(self, measured: Any) -> None:
        """Copy the fields of a `capture.statistics.Summary`."""
        self.numel, self.nan, self.inf, self.zero = measured.numel, measured.nan, measured.inf, measured.zero
        self.l1, self.l2, self.min, self.max, self.mean = (
            measured.l1,
            measured.l2,
            measured.min,
            measured.max,
            measured.mean,
        )
        self.digest, self.sketch, self.user_hash = measured.digest, measured.sketch, measured.user_hash


class Content(Protocol):
    """Statistics of an input that are written: see `TensorSummary`."""

    @property
    def l1(self) -> float | None: ...

    @property
    def l2(self) -> float | None: ...

    @property
    def mean(self) -> float | None: ...

    @property
    def digest(self) -> int | None: ...

    @property
    def sketch(self) -> bytes | None: ...


@dataclass(slots=True, kw_only=True)
class Mutation:
    """An input changed in place: its slot, its name if known, and its statistics afterwards."""

    slot: int
    name: str | None = None
    summary: TensorSummary


@dataclass(slots=True, kw_only=True)
class Portion:
    """A tensor that a collective takes or gives, as part of the vector that the group exchanges.

    Attributes:
        input: its input slot, None for an output.
        output: its number among the outputs, None for an input.
        vector: number of the vector where several are exchanged, else None.
        at: position of its first element, None if unknown.
        numel: number of its elements.
        content: its statistics, with the sketch at the vector's positions; None if it was not read.
        pieces: the statistics of its pieces, one for each member, where they are noted one by one.
    """

    input: int | None = None
    output: int | None = None
    vector: int | None = None
    at: int | None = None
    numel: int
    content: Content | None = None
    pieces: Sequence[Content | None] = ()


@dataclass(slots=True, kw_only=True)
class Record:
    """One operation of the log.

    Attributes:
        key: `module.path/op_N_name`.
        seq: position in dispatch order, from 0.
        outputs: a summary of each output tensor.
        inputs: the content of each input tensor before the operation ran.
        producers: for each input the key of its producer, empty where it has none.
        parameters: for each input the name of its parameter (or of the parameter it is gradient or state of), or empty.
        location: innermost frame of the user's code, `parent/file.py:line`.
        stack: frames of the user's code, innermost first, `file:line:function`.
        phase: `forward`, `backward` or `optimizer`.
        overload: its namespace and overload, `aten.dim`.
        arguments: what it was asked besides its tensors, ready for JSON.
        forms: dtypes, shapes and strides of its inputs, as they are written (`capture.arguments`).
        random: which random numbers it drew, ready for JSON; None if it drew none.
        reads: the numbers of its result that Python read, and where.
        mutated: the inputs that changed and are not outputs.
        group: the ranks of a collective's group and its number within that group, ready for JSON.
        exchanged: what a collective gave and received, ready for JSON.
        given, received: the tensors of a collective as parts of what its group exchanges; without a first output that
            is at position 0, where its own sketch is taken too.
        rows: what is known of the rows of its outputs, ready for JSON.
        recompute: run again by activation checkpointing.
        micro_batch: its number, from 0, where it is known.
    """

    key: str
    seq: int
    outputs: Sequence[TensorSummary] = ()
    inputs: Sequence[Content | None] = ()
    producers: Sequence[str] = ()
    parameters: Sequence[str] = ()
    location: str | None = None
    stack: Sequence[str] = ()
    phase: str = "forward"
    overload: str = PLAIN_OVERLOAD
    arguments: Mapping[str, Any] = field(default_factory=dict)
    forms: str = ""
    random: Mapping[str, Any] | None = None
    reads: Sequence[tuple[float, str]] = ()
    mutated: Sequence[Mutation] = ()
    group: Mapping[str, Any] | None = None
    exchanged: Mapping[str, Any] | None = None
    given: Sequence[Portion] = ()
    received: Sequence[Portion] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    recompute: bool = False
    micro_batch: int | None = None


def write_log(
    path: str | os.PathLike[str],
    records: Iterable[Record],
    *,
    count: int,
    excluded: Mapping[str, int],
    run: Mapping[str, Any],
    complete: bool,
    compact: bool = False,
) -> None:
    """Write a log, whole or not at all, or of an incomplete step as far as it gets; create its folder if missing.

    Args:
        path: the log; an old one is replaced.
        records: in dispatch order; written as they arrive, none is kept.
        count: number of records.
        excluded: number of operations left out, by name.
        run: the run info, ready for JSON; its `incomplete` says why a step was cut off.
        complete: the step reached its end; the log of an incomplete step has no footer.
        compact: write once what repeats (`capture.compact`).

    Raises:
        OSError: the folder cannot be written, or the disk is full. Nothing of a complete step is left behind.
    """
    digests, content = hashlib.sha256(), hashlib.sha256()
    text = _Escaped()
    folded = CompactLines(run.get("parameter_digests", ())) if compact else None
    written = 0
    header = render_header(count, excluded, run, version=COMPACT_FORMAT if compact else FORMAT).encode()
    with _no_collection(), atomic_file(path, header, at_once=not complete) as out:
        for piece in _pieces(records):
            lines: list[str] = []
            for record in piece:
                first = len(lines)
                digest = _add_lines(record, text, lines)
                if folded is not None:
                    lines[first:] = folded.fold(lines[first:])
                digests.update((digest if written == 0 else "\n" + digest).encode())
                written += 1
            lines.append("")
            data = "\n".join(lines).encode()
            content.update(data)
            out.write(data)
            if not complete:
                out.flush()
        if complete:
            out.write(render_footer(written, digests.hexdigest()[:16], content.hexdigest()[:16]).encode())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Search for no garbage: many short-lived texts would cause it, and it walks all objects of the training."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _pieces(records: Iterable[Record]) -> Iterator[list[Record]]:
    piece: list[Record] = []
    for record in records:
        piece.append(record)
        if len(piece) == _PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


class _Escaped(dict[str, str]):
    """Cache of escaped text: the same few thousand names and stacks recur."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[str, ...], str] = {}

    def stack(self, frames: Sequence[str]) -> str:
        """Return the value of a `Stack` line."""
        key = tuple(frames)
        if key not in self._stacks:
            self._stacks[key] = " < ".join([self[frame].replace(" < ", " \\x3c ") for frame in frames])
        return self._stacks[key]

    def __missing__(self, text: str) -> str:
        safe = self[text] = escape(text)
        return safe


def _add_lines(record: Record, text: _Escaped, lines: list[str]) -> str:
    """Append the lines of a record and an empty one; return the value of its `Digest` line."""
    outputs, inputs = record.outputs, record.inputs
    add = lines.append
    add(f"[{text[record.key]}]")
    digest = ""
    if outputs:
        first = outputs[0]
        add(f"  Shape: torch.Size({list(first.shape)}), Dtype: torch.{first.dtype}")
        if first.l2 is not None:
            add(f"  L2 norm: {first.l2!r}")
        if first.min is not None:
            add(f"  Min: {first.min!r}")
        if first.max is not None:
            add(f"  Max: {first.max!r}")
        if first.mean is not None:
            add(f"  Mean: {first.mean!r}")
        add(f"  Output hash: {_hashes(outputs)}")
    if inputs:
        add(f"  Input hashes: {_hashes(inputs)}")
    _add_call(record, text, add)
    add(f"  Seq: {record.seq}")
    if outputs and any(output.digest is not None for output in outputs):
        digest = ", ".join([format_digest(output.digest) for output in outputs])
        add(f"  Digest: {digest}")
    if any(tensor is not None and tensor.digest is not None for tensor in inputs):
        digests = [format_digest(None if tensor is None else tensor.digest) for tensor in inputs]
        add(f"  Input digests: {', '.join(digests)}")
    if outputs:
        first = outputs[0]
        add(f"  Counts: numel={first.numel} nan={first.nan} inf={first.inf} zero={first.zero}")
        if first.sketch is not None:
            add(f"  Sketch: {b64encode(first.sketch).decode()}")
    if record.mutated:
        add(f"  Mutated: {json_line([_mutation(mutation) for mutation in record.mutated])}")
    for k, output in enumerate(outputs[1:], 1):
        add(f"  Output {k}: {json_line(summary_fields(output))}")
    if outputs and outputs[0].placement is not None:
        add(f"  Placement: {json_line(outputs[0].placement)}")
    if record.group is not None:
        add(f"  Group: {json_line(record.group)}")
    if record.given or record.received:
        sides = (("in", record.given), ("out", record.received))
        add(f"  Exchanged: {json_line({name: [_portion(portion) for portion in side] for name, side in sides})}")
    if record.exchanged:
        add(f"  Exchanged: {json_line(record.exchanged)}")
    if record.rows:
        add(f"  Rows: {json_line(record.rows)}")
    if record.stack:
        add(f"  Stack: {text.stack(record.stack)}")
    if record.recompute:
        add("  Recompute: true")
    if record.micro_batch is not None:
        add(f"  Micro-batch: {record.micro_batch}")
    if any(record.parameters):
        add(f"  Parameter: {';'.join([text[name] for name in record.parameters])}")
    if outputs and any(output.user_hash is not None for output in outputs):
        add(f"  User hash: {', '.join([_user_hash(output.user_hash) for output in outputs])}")
    add("")
    return digest


def _add_call(record: Record, text: _Escaped, add: Callable[[str], None]) -> None:
    """Append what is known of the operation beside its tensors: who called it, and with what."""
    if record.producers:
        add(f"  Input producers: {';'.join([text[key] for key in record.producers])}")
    if record.location:
        add(f"  Location: {text[record.location]}")
    if record.phase != "forward":
        add(f"  Phase: {text[record.phase]}")
    if record.overload != PLAIN_OVERLOAD:
        add(f"  Overload: {text[record.overload]}")
    if record.arguments:
        add(f"  Arguments: {json_line(record.arguments)}")
    if record.forms:
        add(f"  Inputs: {record.forms}")
    if record.random is not None:
        add(f"  Random: {json_line(record.random)}")
    if record.reads:
        add(f"  Read: {json_line(record.reads)}")


def record_text(record: Record) -> str:
    """Return the lines of a record as a plain log has them."""
    lines: list[str] = []
    _add_lines(record, _Escaped(), lines)
    return "\n".join(lines)


def _hashes(tensors: Sequence[Content | None]) -> str:
    """Format L1 norms; `nan` stands for a tensor that was not read or has no finite value."""
    return ", ".join(["nan" if tensor is None or tensor.l1 is None else repr(tensor.l1) for tensor in tensors])


def format_digest(digest: int | None) -> str:
    """Format a digest as sixteen hexadecimal digits, `-` for None."""
    return UNKNOWN_DIGEST if digest is None else f"{digest & _64_BITS:016x}"


def _user_hash(value: float | str | None) -> str:
    return "" if value is None else escape(str(value)).replace(",", "\\x2c")


def summary_fields(summary: TensorSummary) -> dict[str, Any]:
    """Return a tensor's summary as a JSON object, without entries for unknown values."""
    fields: dict[str, Any] = {"shape": summary.shape, "dtype": summary.dtype}
    for name in ("l1", "l2", "min", "max", "mean"):
        value = getattr(summary, name)
        if value is not None:
            fields[name] = value
    fields["counts"] = (summary.numel, summary.nan, summary.inf, summary.zero)
    if summary.digest is not None:
        fields["digest"] = format_digest(summary.digest)
    if summary.sketch is not None:
        fields["sketch"] = b64encode(summary.sketch).decode()
    value = summary.user_hash
    if value is not None:
        # JSON has no NaN
        fields["hash"] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
    if summary.placement is not None:
        fields["placement"] = summary.placement
    return fields


def _mutation(mutation: Mutation) -> dict[str, Any]:
    named = {"input": mutation.slot} if mutation.name is None else {"input": mutation.slot, "name": mutation.name}
    return {**named, **summary_fields(mutation.summary)}


def _portion(portion: Portion) -> dict[str, Any]:
    """Return a part of an exchanged vector as a JSON object, without entries for unknown values."""
    fields: dict[str, Any] = {"input": portion.input, "output": portion.output, "tensor": portion.vector}
    fields |= {"at": portion.at, "numel": portion.numel}
    if (content := portion.content) is not None:
        fields["digest"] = None if content.digest is None else format_digest(content.digest)
        fields |= {"l1": content.l1, "l2": content.l2, "mean": content.mean}
        if portion.at is not None and content.sketch is not None:
            fields["sketch"] = b64encode(content.sketch).decode()
    pieces = [piece for piece in portion.pieces if piece is not None and piece.digest is not None]
    if pieces and len(pieces) == len(portion.pieces):
        length = portion.numel // len(pieces)
        means = [piece.mean for piece in pieces]
        fields["pieces"] = [
            [format_digest(piece.digest), None if mean is None else mean * length]
            for piece, mean in zip(pieces, means, strict=True)
        ]
    return {name: value for name, value in fields.items() if value is not None}
