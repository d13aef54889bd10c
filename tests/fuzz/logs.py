"""Logs to which something happened: what is read of them is reported on, and what changed in them is said.

The check is differential. A good log is compared with itself and with its damaged copy: wherever the damage changed
what is compared (a value, the number of records, whether the log is whole), the exit code, the coverage or the counts
of the report change with it.
"""

from __future__ import annotations

import io
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.errors import UserError
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from numtui.report.model import Report
from numtui.report.options import FORMATS, ReportOptions
from numtui.report.write import write
from tests.builders import Op, log_text, op
from tests.captured import Step, write_captured
from tests.fuzz.folders import fast_folder
from tests.hostile import NASTY, NUMBERS, RAW_CONTROL, WORKFLOW_COMMAND

__all__ = [
    "Damage",
    "Good",
    "after_damages",
    "check_damage",
    "check_honest",
    "damaged",
    "damages",
    "goods",
    "log_pairs",
]

_LARGEST_EXAMPLE = 30


class Good(NamedTuple):
    """A good log of so many operations, made from a seed: torchtitan's, ours, or ours with digests."""

    form: str
    operations: int
    seed: int


class Damage(NamedTuple):
    """One thing that happens to a log: its kind, where, and which of its variants; both wrap around."""

    kind: str
    at: int
    variant: int


goods = st.builds(
    Good, st.sampled_from(("torchtitan", "numtui", "digests")), st.integers(1, _LARGEST_EXAMPLE), st.integers(0, 7)
)

_MODULES = ("tok_embeddings", "layers.0.attention.wq", "layers.0.attention", "layers.0.mlp", "layers.1.mlp", "output")
_OPERATIONS = ("mm", "add", "_softmax", "silu", "mul", "sum", "native_layer_norm", "add_")


@lru_cache(maxsize=512)
def text_of(good: Good) -> bytes:
    """The bytes of a good log."""
    return _captured(good) if good.form == "digests" else _printed(good)


def _keys(chance: random.Random, operations: int) -> list[str]:
    counters: dict[str, int] = {}
    keys = []
    for _ in range(operations):
        module = chance.choice(_MODULES)
        counters[module] = counters.get(module, -1) + 1
        keys.append(f"{module}/op_{counters[module]}_{chance.choice(_OPERATIONS)}")
    return keys


def _printed(good: Good) -> bytes:
    chance = random.Random(good.seed)
    ops: list[Op] = []
    for at, key in enumerate(_keys(chance, good.operations)):
        value, weight = chance.uniform(1, 100), chance.uniform(1, 100)
        source = chance.randrange(at) if at else None
        inputs = [ops[source].outputs[0] if source is not None else weight / 2, weight]
        ops.append(
            op(
                key,
                value,
                shape=(16, chance.choice((8, 16, 32))),
                outputs=[value * 3, *([value / 2, value / 7] if "layer_norm" in key else [])],
                inputs=inputs,
                producers=["" if source is None else ops[source].key, ""],
                location=f"model.py:{at + 10}",
                phase="backward" if at > good.operations * 0.6 else None,
            )
        )
    ours = good.form == "numtui"
    return log_text(ops, run={"command": ["train.py"]} if ours else None, footer=ours, exact=ours).encode()


def _captured(good: Good) -> bytes:
    chance, values = random.Random(good.seed), np.random.default_rng(good.seed)
    steps: list[Step] = []
    for at, key in enumerate(_keys(chance, good.operations)):
        made = values.standard_normal((4, 3)).astype(np.float32)
        source = steps[chance.randrange(at)] if at else None
        weight = values.standard_normal((3, 3)).astype(np.float32)
        in_place = key.endswith("_") and source is not None
        steps.append(
            Step(
                key=key,
                gives=[] if in_place else [made],
                reads=[weight if source is None else (*source.gives, *source.changed.values())[0], weight],
                made=["" if source is None else source.key, ""],
                changed={0: made} if in_place else {},
                fields={
                    "location": f"model.py:{at + 10}",
                    "phase": "backward" if at > good.operations * 0.6 else "forward",
                },
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "good.log")
        write_captured(path, steps)
        return path.read_bytes()


# Damage


def _edited(change: Callable[[list[bytes], list[int], int, int], None]) -> Callable[[bytes, int, int], bytes]:
    """Damage to the lines; `change` gets them, the places of those that begin a record, and both numbers."""

    def damage(data: bytes, at: int, variant: int) -> bytes:
        lines = data.split(b"\n")
        starts = [n for n, line in enumerate(lines) if line[:1] == b"["]
        if starts:
            change(lines, starts, at, variant)
        return b"\n".join(lines)

    return damage


def _fields(lines: list[bytes]) -> list[int]:
    return [n for n, line in enumerate(lines) if line[:2] == b"  " and b": " in line]


def _a_field(lines: list[bytes], at: int) -> int:
    """The place of some field; of a record's key where there is none."""
    fields = _fields(lines) or [n for n, line in enumerate(lines) if line[:1] == b"["]
    return fields[at % len(fields)]


def _ends(lines: list[bytes], starts: list[int], record: int) -> tuple[int, int]:
    """First line of a record, and the line after its last field."""
    start = starts[record]
    end = start + 1
    while end < len(lines) and lines[end][:2] == b"  ":
        end += 1
    return start, end


def _cut(data: bytes, at: int, variant: int) -> bytes:
    return data[: at % (len(data) + 1)]


def _lost(data: bytes, at: int, variant: int) -> bytes:
    """A piece of the middle is gone."""
    start = at % (len(data) + 1)
    return data[:start] + data[start + 1 + variant % 400 :]


def _flip(data: bytes, at: int, variant: int) -> bytes:
    if not data:
        return data
    place = at % len(data)
    return data[:place] + bytes([data[place] ^ (1 << variant % 8)]) + data[place + 1 :]


def _inserted(data: bytes, at: int, variant: int) -> bytes:
    place = at % (len(data) + 1)
    return data[:place] + _STRINGS[variant % len(_STRINGS)] + data[place:]


_STRINGS = (*NASTY.values(), *(number.encode() for number in NUMBERS), b"\n", b"\n\n", b"[", b"]", b"  ", b": ", b",")


def _reorder(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    start, end = _ends(lines, starts, at % len(starts))
    inside = lines[start + 1 : end]
    random.Random(variant).shuffle(inside)
    lines[start + 1 : end] = inside


def _rename_field(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    place = _a_field(lines, at)
    name, colon, value = lines[place].partition(b": ")
    other = (
        name + b"s", name.upper(), name[:-1], b"  " + name, name.replace(b" ", b""), b"  Shape", b"  Output hash",
        b"  Digest", b"  Mean", name.replace(b"a", "\u0430".encode()),
    )  # fmt: skip
    lines[place] = other[variant % len(other)] + colon + value


def _drop_field(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    del lines[_a_field(lines, at)]


def _repeat_field(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    place = _a_field(lines, at)
    lines.insert(place + variant % 2, lines[_a_field(lines, variant)])


def _number(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    """One number of a record is another one."""
    places = [n for n in _fields(lines) if lines[n].startswith(_NUMERIC)] or starts
    place = places[at % len(places)]
    name, colon, value = lines[place].partition(b": ")
    numbers = value.split(b", ")
    which = variant % len(numbers)
    try:
        old = float(numbers[which])
    except ValueError:
        old = 1.0
    new = (
        *NUMBERS, repr(old * (1 + 1e-12)), repr(old * 1.001), repr(-old), repr(old * 2), "0.0", "1e308", "-1e308",
        "5e-324", "1" + "0" * 308, f"{old:.3e}",
    )  # fmt: skip
    numbers[which] = new[variant // 7 % len(new)].encode()
    lines[place] = name + colon + b", ".join(numbers)


_NUMERIC = tuple(f"  {name}".encode() for name in ("L1", "L2", "Min", "Max", "Mean", "Output hash", "Input hashes"))


def _digest(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    """One hexadecimal digit of a digest, or of a footer's, is another one."""
    places = [n for n, line in enumerate(lines) if line.startswith((b"  Digest", b"  Input digests", b"End of"))]
    if places:
        place = places[at % len(places)]
        digits = lines[place]
        which = len(digits) - 1 - variant % 16
        lines[place] = digits[:which] + (b"0" if digits[which : which + 1] != b"0" else b"1") + digits[which + 1 :]


def _value(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    """A field of any kind gets a value that means something, or nothing."""
    place = _a_field(lines, at)
    name, colon, _ = lines[place].partition(b": ")
    lines[place] = name + colon + _VALUES[variant % len(_VALUES)]


_VALUES = (
    b"", b"-", b"torch.Size([4, 3]), Dtype: torch.float32", b"torch.Size([99999999999999999999]), Dtype: torch.int64",
    b"torch.Size([-1, 0]), Dtype: torch.float8_e4m3fn", b"backward", b"optimizer", b"sideways", b"true", b"1" * 400,
    b"numel=12 nan=0 inf=0 zero=0", b"numel=12 nan=12 inf=0 zero=-1", b"numel=9" + b"9" * 60, b"{}", b"[]", b"[" * 5000,
    b'[{"input": 0, "l1": 1e999}]', b'{"shape": [1], "digest": "00"}', b'{"mesh": {"dp": 2}, "placements": ["S(0)"]}',
    b"ffffffffffffffff, ffffffffffffffff", b"1.0, 2.0, 3.0", b"; ; ;", b"../../../etc/passwd:3",
)  # fmt: skip


def _key(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    lines[starts[at % len(starts)]] = _KEYS[variant % len(_KEYS)]


_KEYS = (
    b"[]", b"[", b"[/]", b"[/op_0_mm]", b"[x/op__mm]", b"[<none>/op_0_add]", b"[op_0_mm]", b"[a.b.c/op_1_mm/op_2_add]",
    b"[layers.0.layers.0.x/op_0_mm]", b"[layers.00.x/op_00_mm]", b"[layers.{i}/op_{n}_mm]", b"[x/op_-1_mm]",
    b"[x/op_99999999999999999999_mm]", b"[tok_embeddings/op_0_mm]", b"[output/op_0_add_]", b"[x/op_0_all_reduce]",
    b"[x/op_0_wait_tensor]", b"[x/op_0_" + b"m" * 3000 + b"]", b"[" + b"m." * 3000 + b"x/op_0_mm]",
    *(b"[layers." + nasty + b"/op_0_mm]" for nasty in NASTY.values()),
)  # fmt: skip


def _rename_modules(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    """As another framework names them, also where they are named as producers."""
    old, new = (
        (b"layers.0", b"stages.0.layers.0"), (b"layers.", b"blocks."), (b"attention", b"self_attn"),
        (b"output", b"lm_head"), (b"op_0", b"op_1"), (b"mlp", b""),
    )[variant % 6]  # fmt: skip
    lines[:] = [line.replace(old, new) for line in lines]


def _drop_record(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    start, end = _ends(lines, starts, at % len(starts))
    del lines[start : end + 1]


def _repeat_record(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    start, end = _ends(lines, starts, at % len(starts))
    place = starts[variant % len(starts)]
    lines[place:place] = [*lines[start:end], b""]


def _move_record(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    start, end = _ends(lines, starts, at % len(starts))
    record = lines[start : end + 1]
    del lines[start : end + 1]
    left = [n for n, line in enumerate(lines) if line[:1] == b"["]
    place = left[variant % len(left)] if left else start
    lines[place:place] = record


def _swap_fields(lines: list[bytes], starts: list[int], at: int, variant: int) -> None:
    """Two records exchange a field."""
    one = _a_field(lines, at)
    name = lines[one].partition(b": ")[0]
    others = [n for n in _fields(lines) if lines[n].startswith(name)] or [one]
    other = others[variant % len(others)]
    lines[one], lines[other] = lines[other], lines[one]


def _line_ends(data: bytes, at: int, variant: int) -> bytes:
    return data.replace(b"\n", (b"\r\n", b"\n\n", b"\r", b"", b" \n", b"\t\n")[variant % 6])


KINDS: Mapping[str, Callable[[bytes, int, int], bytes]] = {
    "cut": _cut,
    "lost": _lost,
    "flip": _flip,
    "inserted": _inserted,
    "line ends": _line_ends,
    "reordered fields": _edited(_reorder),
    "renamed field": _edited(_rename_field),
    "dropped field": _edited(_drop_field),
    "repeated field": _edited(_repeat_field),
    "number": _edited(_number),
    "digest": _edited(_digest),
    "value": _edited(_value),
    "key": _edited(_key),
    "renamed modules": _edited(_rename_modules),
    "dropped record": _edited(_drop_record),
    "repeated record": _edited(_repeat_record),
    "moved record": _edited(_move_record),
    "swapped fields": _edited(_swap_fields),
}
"""Kinds of damage to a log, by name."""

_places = st.integers(0, 1 << 16)
damages = st.builds(Damage, st.sampled_from(tuple(KINDS)), _places, _places)
log_pairs = st.tuples(goods, st.lists(damages, min_size=1, max_size=3))
"""A good log, and what happens to its copy."""


def damaged(good: Good, what: Iterable[Damage]) -> bytes:
    """The bytes of a good log after all that happens to it."""
    return after_damages(text_of(good), what)


def after_damages(data: bytes, what: Iterable[Damage]) -> bytes:
    """Any text in lines after all that happens to it."""
    for damage in what:
        data = KINDS[damage.kind](data, damage.at, damage.variant)
    return data


# Honesty


class Outcome(NamedTuple):
    """Lesson of the exit code and the first lines of a report."""

    code: int
    coverage: str
    result: str
    counts: tuple[tuple[str, int], ...]


def outcome(a: OpLog, b: OpLog, forms: Iterable[str] = ("text", "json")) -> Outcome:
    """Compare, write the reports, and check their form."""
    comparison = compare(a, b)
    report = Report(comparison, ReportOptions(names=("a", "b")))
    for form in forms:
        out = io.StringIO()
        write(report, out, form)
        text = out.getvalue()
        found = RAW_CONTROL.search(text) or (WORKFLOW_COMMAND.search(text) if form == "text" else None)
        assert found is None, f"{found[0]!r} in {text[max(found.start() - 80, 0) : found.end() + 80]!r}"
        if form == "json":
            json.loads(text, parse_constant=_refuse)
    counts = tuple((status.label, n) for status, n in report.counts)
    return Outcome(int(bool(report.failures)), report.extent, report.result, counts)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def content(log: OpLog) -> Any:
    """Compared content of a log: the values of its records (digests where there are some), and that it is not cut."""
    return sorted((_record(log, row) for row in range(len(log))), key=str), log.complete is False


def _record(log: OpLog, row: int) -> dict[str, Any]:
    digests, raw = _plain(log.digests[row]), log.texts("Mutated").raw(row)
    return {
        # 03 is the number 3, and a comma too many says nothing
        "shape": ([word.lstrip("0") for word in re.findall(r"-?\w+", log.shape_text(row))], log.dtype_text(row)),
        "digests": digests,
        "changed": _contents(raw),
        **({} if digests or b'"digest"' in raw else _numbers(log, row)),
    }


def _numbers(log: OpLog, row: int) -> dict[str, Any]:
    columns = {"stats": log.stats[:, row], "outputs": log.outputs[row], "counts": log.counts[:, row]}
    return {name: _plain(values) for name, values in columns.items()}


def _contents(raw: bytes) -> Any:
    """Statement on each input that was changed in place: its digest, where there is one."""
    try:
        found = json.loads(raw or b"[]")
        return [(one.get("input"), one.get("digest", one)) for one in found]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return "unreadable"


def _plain(values: Any) -> list[str]:
    """As text, because nan is nan."""
    return list(map(str, np.asarray(values).tolist()))


@lru_cache(maxsize=512)
def _of_good(data: bytes) -> tuple[OpLog, Any, Outcome]:
    log = _read(data)
    return log, content(log), outcome(log, log)


def _read(data: bytes) -> OpLog:
    with tempfile.NamedTemporaryFile(suffix=".log", dir=fast_folder()) as file:
        file.write(data)
        file.flush()
        return read_log(file.name)


def check_honest(good: bytes, bad: bytes) -> tuple[Outcome, Outcome] | None:
    """Fail where a damaged log ends the program, or another content is compared and nothing is said of it.

    Returns the outcomes with the damaged log as b and as a; None where it is refused.
    """
    log, known, usual = _of_good(good)
    try:
        other = _read(bad)
        found = outcome(log, other)
        back = outcome(other, log, tuple(FORMATS)[len(bad) % len(FORMATS) :][:1])
    except UserError:
        return None
    if content(other) != known:
        assert found != usual, f"not said: {usual}"
        assert back != usual, f"not said where the damaged log is a: {usual}"
    return found, back


def check_damage(good: Good, what: Iterable[Damage]) -> None:
    """`check_honest` on a good log and what is left of it; another order of the fields changes nothing at all."""
    what, data = list(what), text_of(good)
    found = check_honest(data, damaged(good, what))
    if all(damage.kind == "reordered fields" for damage in what):
        assert found == (_of_good(data)[2],) * 2
