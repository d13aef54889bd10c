"""Reading of logs alone: MB per second of one processor, of both readers, beside what the machine can do at most.

    python -m benchmarks.reading [--size 91000] [--repeat 5] [--logs A.log …] [--without-plain]

Without `--logs`, two logs are generated: in torchtitan's format, and in that of numtui's capture, with exact numbers,
digests, sketches and JSON. `wc -l` and a loop of memchr over the same lines say what the bytes alone cost. Processor
time, user and system; the best repetition counts, because other load on the machine only adds time.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import random
import resource
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.drifting_logs import write_pair
from capture import native_library
from capture.log_format import render_footer, render_header
from matchers.logs import parser
from matchers.logs.compiled_reader import CompiledReader
from matchers.logs.plain_reader import PlainReader
from matchers.logs.reader_library import notice

_HEADER_END = "\n\n"


def main() -> int:
    """Print a line for each log and way of reading it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--size", type=int, default=91_000, help="operations, about")
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--logs", nargs="+", type=Path, default=[])
    options.add_argument("--without-plain", action="store_true")
    args = options.parse_args()
    if text := notice():
        raise SystemExit(text)
    with tempfile.TemporaryDirectory() as folder:
        for path in args.logs or _generated(Path(folder), args.size):
            _measure(path, args.repeat, plain=not args.without_plain)
    return 0


def _generated(folder: Path, size: int) -> Sequence[Path]:
    write_pair(folder, size)
    return folder / "a.log", _as_captured(folder / "a.log", folder / "captured.log")


def _as_captured(log: Path, path: Path) -> Path:
    """The records of a log with all that numtui's capture adds."""
    chance = random.Random(0)
    records = [record.split("\n") for record in log.read_text("utf-8").split(_HEADER_END)[1:] if record.startswith("[")]
    with path.open("w", encoding="utf-8") as file:
        file.write(render_header(len(records), {}, {"step": 1}))
        for seq, record in enumerate(records):
            fields = [_exact(line, chance) for line in record if line]
            inputs = next((line.count(",") + 1 for line in fields if line.startswith("  Input hashes")), 0)
            digests = [f"{chance.getrandbits(64):016x}" for _ in range(inputs + 1)]
            file.write("\n".join([*fields, *_added(seq, digests, chance)]) + _HEADER_END)
        file.write(render_footer(len(records), "0" * 16, "0" * 16))
    return path


def _exact(line: str, chance: random.Random) -> str:
    """A line with numbers of all their digits in place of seven."""
    name, colon, value = line.partition(": ")
    if not name.strip().startswith(("L2", "Min", "Max", "Mean", "Output hash", "Input hashes")):
        return line
    return name + colon + ", ".join(repr(float(number) * chance.uniform(0.9, 1.1)) for number in value.split(", "))


def _added(seq: int, digests: Sequence[str], chance: random.Random) -> list[str]:
    sketch = base64.b64encode(chance.randbytes(128)).decode()
    changed = [{"input": 0, "shape": [512], "dtype": "float32", "l1": chance.random(), "digest": digests[0]}]
    return [
        f"  Seq: {seq}",
        f"  Digest: {digests[0]}",
        *([f"  Input digests: {', '.join(digests[1:])}"] if len(digests) > 1 else []),
        f"  Counts: numel={512 * (seq % 7 + 1)} nan=0 inf=0 zero={seq % 3}",
        f"  Sketch: {sketch}",
        *([f"  Mutated: {json.dumps(changed)}"] if seq % 10 == 0 else []),
        f"  Stack: model.py:{seq % 200}:forward < blocks.py:{seq % 31}:forward < train.py:9:<module>",
    ]


def _measure(path: Path, repeat: int, *, plain: bool) -> None:
    data = path.read_bytes()
    line_ends = native_library.load(Path(__file__).with_name("line_ends.c")).line_ends
    line_ends.restype, line_ends.argtypes = ctypes.c_int64, (ctypes.c_char_p, ctypes.c_int64)
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "wc -l": (lambda: subprocess.run(["wc", "-l", path], check=True, capture_output=True), repeat),
        "loop of memchr": (lambda: line_ends(data, len(data)), repeat),
        "compiled reader": (lambda: _read(path, CompiledReader), repeat),
    }
    if plain:
        ways["plain reader"] = lambda: _read(path, PlainReader), 1
    print(f"{path.name}: {len(data) / 1e6:.0f} MB, {line_ends(data, len(data)):,} lines")
    for name, (way, times) in ways.items():
        seconds = min(_processor_time(way) for _ in range(times))
        print(f"  {name:<16} {seconds:8.3f} s {len(data) / 1e6 / max(seconds, 1e-6):8.0f} MB/s")


def _read(path: Path, reader: Callable[..., object]) -> None:
    parser.record_reader = reader  # type: ignore[assignment] # either of them
    parser.read_log(path)


def _processor_time(way: Callable[[], object]) -> float:
    """Seconds of this process and of those that it waits for."""
    before = _spent()
    way()
    return _spent() - before


def _spent() -> float:
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in every)


if __name__ == "__main__":
    raise SystemExit(main())
