"""Grammar of an operation log: field names, header and footer.

The only definition of the format (described in docs/log-format.md). Uses the standard library alone, so that a reader
needs no torch and a writer no numpy.

A log is a header, a line of `=`, and records. A record starts at a line whose first character is `[`; its fields are
lines of two spaces, a name, `: ` and a value. Logs of torchtitan's `numerics_debugging` have the fields of
`TORCHTITAN`; numtui's capture adds those of `SUPERSET`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "COMPACT",
    "COMPACT_FORMAT",
    "COUNT",
    "FIELDS",
    "FOOTER",
    "FORMAT",
    "PLAIN_OVERLOAD",
    "PRIVATE",
    "SEPARATOR",
    "SUPERSET",
    "TORCHTITAN",
    "UNKNOWN_DIGEST",
    "WEIGHTS_FORMAT",
    "Footer",
    "ParsedHeader",
    "coverage_sentence",
    "escape",
    "field_prefix",
    "json_line",
    "looks_like_header",
    "pack_json",
    "parse_footer",
    "parse_header",
    "parse_shape",
    "parse_weights_footer",
    "private",
    "render_footer",
    "render_header",
    "render_weights_footer",
    "render_weights_header",
    "unpack_json",
]

TORCHTITAN = (
    "Shape",
    "L1 norm",
    "L2 norm",
    "Min",
    "Max",
    "Mean",
    "Output hash",
    "Input hashes",
    "Input producers",
    "Location",
    "Phase",
)
SUPERSET = (
    "Seq",
    "Digest",
    "Input digests",
    "Mutated",
    "Sketch",
    "Counts",
    "Placement",
    "Group",
    "Exchanged",
    "Overload",
    "Arguments",
    "Inputs",
    "Input statistics",
    "Random",
    "Read",
    "Stack",
    "Recompute",
    "Micro-batch",
    "Parameter",
    "User hash",
    "Rows",
)
COMPACT = ("Like", "Out", "From", "Named", "Call")
"""Fields of compact logs alone, which stand for several of the others (docs/log-format.md)."""
FIELDS = TORCHTITAN + SUPERSET + COMPACT
"""All fields of a record besides `Output k`, the k-th further output."""

SEPARATOR = "=" * 80
FOOTER = "End of capture:"
FORMAT = "numtui 2"
COMPACT_FORMAT = f"{FORMAT} compact"
"""Format of a log that writes once what repeats."""
WEIGHTS_FORMAT = "numtui weights 1"
"""Format of a log of weights over steps (docs/weights.md); its header has only the run info besides."""
UNKNOWN_DIGEST = "-"
"""Placeholder in a list of digests for a tensor whose bits were not read, such as a meta tensor."""

PLAIN_OVERLOAD = "aten.default"
"""Value of an `Overload` that is not written."""

PRIVATE = re.compile(r"<private:[0-9a-f]{6}>\Z")
"""Digest in the run info in place of (the end of) a text that may be private, see `private`."""

COUNT = "Total captured activations:"
"""Beginning of every log, torchtitan's included; no file of another tool begins so."""
_EXCLUDED = "Excluded ops dispatched:"
_FORMAT = "Format:"
_COVERAGE = "Coverage:"
_RUN = "Run:"
_WEIGHTS_FOOTER = re.compile(r"End of weights: (\d+) steps")
_SHAPE = re.compile(r"torch\.Size\((\[[\d, ]*\])\), Dtype: (?:torch\.)?([\w.]+)", re.ASCII)
_FOOTER = re.compile(r"End of capture: (\d+) records?(?:, digest ([0-9a-f]{16})(?:, content ([0-9a-f]{16}))?)?")

_MARKERS = ("Location", "Phase", "Output hash", "Input hashes", "Input producers")
"""Names that torchtitan's reader finds anywhere in a line, followed by a colon."""
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f;\u2028\u2029\ud800-\udfff]|\A | \Z|(?:" + "|".join(f"(?<={name})" for name in _MARKERS) + "):"
)
_MARKER_IN_JSON = re.compile(f"({'|'.join(_MARKERS)}):")


def escape(text: str) -> str:
    r"""Escape outside text (names of modules, files, functions) for a record.

    Control characters, all kinds of line breaks, `;` (it separates keys), spaces at the ends and bytes that are not
    UTF-8 become `\xNN` or `\uNNNN`, and so does the colon of text that a reader could take for another field. All
    else, backslashes included, stays unchanged.
    """
    # almost all names are plain, which this finds out sooner than a pattern
    plain = text.isascii() and text.isprintable() and ":" not in text and ";" not in text and text.strip(" ") == text
    return text if plain else _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte of a file name, as Python's surrogateescape carries it
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@functools.lru_cache(maxsize=1024)
def private(text: str) -> str:
    """Return what stands for a text that may be private: enough to tell two runs apart.

    24 bits of a slow hash: two texts look the same once in 16 million, and many texts have the same digest, so that a
    list of likely passwords is slow to try and leaves several. Whether it is one given text can be tested.
    """
    key = hashlib.pbkdf2_hmac("sha256", text.encode("utf-8", "backslashreplace"), b"numtui", 1000, dklen=3)
    return f"<private:{key.hex()}>"


def json_line(value: object) -> str:
    """Return one line of ASCII JSON in which no reader finds another field; unknown objects become their text."""
    # a marker can only be inside a string, where a colon may be written as \u003a
    return _MARKER_IN_JSON.sub(r"\1\\u003a", _JSON.encode(value))


_JSON = json.JSONEncoder(default=str)


def pack_json(text: str) -> str:
    """Return ASCII JSON with each text of `_PACKED` as one character."""
    for long, short in _PACKED.items():
        text = text.replace(long, short)
    return text


def unpack_json(raw: bytes) -> bytes:
    """Undo `pack_json`, on UTF-8."""
    first, *rest = raw.split(_LEAD)
    return first + b"".join([_UNPACKED.get(part[:1], _LEAD + part[:1]) + part[1:] for part in rest]) if rest else raw


_PACKED = {
    long: chr(0xC0 + number)
    for number, long in enumerate(
        (
            '"}, {"input": ',
            '[{"input": ',
            '{"in": ',
            '], "out": [{"output": ',
            ', "name": "',
            '", "shape": [',
            '{"shape": [',
            ', "shape": [',
            '], "dtype": "float32", "l1": ',
            '], "dtype": "bfloat16", "l1": ',
            '], "dtype": "float32"',
            '], "dtype": "',
            ', "l1": ',
            ', "l2": ',
            ', "min": ',
            ', "max": ',
            ', "mean": ',
            ', 0, 0, 0], "digest": "',
            ', "counts": [',
            '", "sketch": "',
            ', "digest": "',
            ', "at": 0, "numel": ',
            ', "at": ',
            ', "numel": ',
            ', "pieces": [["',
            '], ["',
            ', "placement": {"mesh": {',
            '}, "placements": ["',
            '], "offsets": [',
            '{"ranks": [',
            '], "nth": ',
        )
    )
}
"""Texts of the JSON of compact logs, and the character of each (U+00C0 and on): JSON as we write it is ASCII. They are
replaced in this order; a later version may only add to the end.
"""
_LEAD = b"\xc3"
"""First byte of all of these characters in UTF-8."""
_UNPACKED = {short.encode().removeprefix(_LEAD): long.encode() for long, short in _PACKED.items()}


def render_header(count: int, excluded: Mapping[str, int], run: Mapping[str, Any], *, version: str = FORMAT) -> str:
    """Return the lines of a header, with the `=` line and the empty line after it.

    Args:
        count: number of records that follow.
        excluded: number of operations left out, by name.
        run: the run info; `excluded` is added to it.
        version: `FORMAT` or `COMPACT_FORMAT`.
    """
    lines = [f"{COUNT} {count}"]
    if excluded:
        lines.append(f"{_EXCLUDED} {', '.join(map(escape, sorted(excluded)))}")
    lines.append(f"{_FORMAT} {version}")
    if coverage := run.get("coverage"):
        lines.append(f"{_COVERAGE} {escape(coverage_sentence(run.get('step'), coverage))}")
    lines += [
        f"{_RUN} {json_line({**run, 'excluded': dict(sorted(excluded.items()))})}",
        SEPARATOR,
    ]
    return "\n".join(lines) + "\n\n"


def coverage_sentence(step: Any, coverage: Mapping[str, Any]) -> str:
    """Return what a log covers in words: `step 1, 2 of 3 optimizers stepped, models G and D, 8 parameters updated`.

    Entries that are missing or of another form are left out.
    """
    unit = "call" if "forward" in coverage else "step"
    told = [f"{unit} {step}"] if isinstance(step, int) else []
    for name, what, done in (("optimizers", "optimizer", "stepped"), ("parameters", "parameter", "updated")):
        pair = coverage.get(name)
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(n, int) for n in pair):
            n, of = pair
            if not of:  # they were updated by hand, or could not be read
                continue
            many = f"{n:,} {what}{'s' * (n != 1)}" if n == of else f"{n:,} of {of:,} {what}s"
            told.append(f"{many} {done}")
    models = coverage.get("models")
    if isinstance(models, (list, tuple)) and models:
        told.insert(1, f"model{'s' * (len(models) > 1)} {', '.join(map(str, models[:_MAX_MODELS]))}")
    return ", ".join(told)


_MAX_MODELS = 8


def render_footer(count: int, digest: str, content: str) -> str:
    """Return the footer: the number of records, one digest of all their digests, and one of their text."""
    return f"{FOOTER} {count} records, digest {digest}, content {content}\n"


def render_weights_header(run: Mapping[str, Any]) -> str:
    """Return the header of a log of weights, with the `=` line."""
    return f"{_FORMAT} {WEIGHTS_FORMAT}\n{_RUN} {json_line(dict(run))}\n{SEPARATOR}\n"


def render_weights_footer(steps: int) -> str:
    """Return the footer of a log of weights; without one, the run was killed or still runs."""
    return f"End of weights: {steps} steps\n"


def parse_weights_footer(line: str) -> int | None:
    """Return the number of steps in the footer of a log of weights, None for any other line."""
    match = _WEIGHTS_FOOTER.match(line)
    return int(match[1]) if match and len(match[1]) < 16 else None


def field_prefix(name: str) -> bytes:
    """Return the first bytes of a field's line, `b"  L2 norm: "`."""
    return f"  {name}: ".encode()


@dataclass(frozen=True)
class ParsedHeader:
    """Parsed header of a log; see `matchers.logs.op_log.Header`. `problems` are (line offset, message)."""

    declared: int | None = None
    excluded: tuple[str, ...] = ()
    format: str | None = None
    run: dict[str, Any] = field(default_factory=dict)
    problems: tuple[tuple[int, str], ...] = ()


def looks_like_header(line: str) -> bool:
    """Return True for a line that only the header of a log has."""
    return line.startswith((COUNT, _EXCLUDED, _FORMAT + " numtui", _RUN + " {"))


def parse_header(lines: Iterable[str]) -> ParsedHeader:
    """Parse the header's lines (without the `=` line): ignore unknown lines, report broken ones."""
    declared: int | None = None
    excluded: tuple[str, ...] = ()
    version: str | None = None
    run: dict[str, Any] = {}
    problems: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        if line.startswith(COUNT):
            text = line[len(COUNT) :].strip()
            # int() would take "1_0" and "٣"; a count of more digits than that is no count
            if text.isascii() and text.isdigit() and len(text) < 16:
                declared = int(text)
            else:
                problems.append((at, "the number of captured activations is not a number"))
        elif line.startswith(_EXCLUDED):
            names = (name.strip() for name in line[len(_EXCLUDED) :].split(","))
            excluded = tuple(name for name in names if name)
        elif line.startswith(_FORMAT):
            version = line[len(_FORMAT) :].strip()
        elif line.startswith(_RUN):
            try:
                info = json.loads(line[len(_RUN) :])
            except (ValueError, RecursionError):
                info = None
            if isinstance(info, dict):
                run = info
            else:
                problems.append((at, "the run info is not a JSON object"))
    return ParsedHeader(declared, excluded, version, run, tuple(problems))


class Footer(NamedTuple):
    """The last line of a whole log.

    Attributes:
        records: their number.
        digest: one of all digests of results; empty in a log without.
        content: one of the text of all records; empty in older logs.
    """

    records: int
    digest: str
    content: str


def parse_footer(line: str) -> Footer | None:
    """Return what the footer says, None for any other line."""
    match = _FOOTER.match(line)
    return Footer(int(match[1]), match[2] or "", match[3] or "") if match and len(match[1]) < 16 else None


def parse_shape(value: str) -> tuple[str, str] | None:
    """Split the value of a `Shape` line into (`[256, 256]`, `float32`); None when it is broken."""
    match = _SHAPE.fullmatch(value)
    return (match[1], match[2]) if match else None
