"""Logs that would fill the memory: a report, or a sentence, within what docs/reliability.md promises.

A program of its own: `python -m tests.fuzz.memory COUNT SEED` prints the number of logs. It forks the processes whose
memory it measures.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from matchers.logs.records import _FREE, _MAX_MEMORY
from numtui.cli.main import main as numtui
from tests.fuzz.folders import fast_folder
from tests.hostile import small_log

__all__ = ["compare_pathological"]

_LARGEST = 24 << 20
_RECORDS = 400_000
_SECONDS = 40
"""Of the processor, for one comparison; a hundred thousand modules take minutes."""
_PROGRAM = 96 << 20
"""What a report takes for itself: the interpreter, its modules, text that waits for its end."""
_KEYS = ("", "%d", "m/op_0_mm", "m/op_%d_mm", "%d/op_0_mm", "a.%d.b/op_0_mm", "m/op_0_%d", "🙂%d/op_1_mm", "\u3164%d")
_FIELDS = (
    *("Mean: 1", "Mean: %d", "L2 norm: %d", "Output hash: %d", "Input hashes: %d, 1", "Digest: %d", "Phase: backward"),
    *("Input digests: 1, %d", "Input producers: m/op_0_mm", "Input producers: ;;;;", "Micro-batch: %d", "Seq: %d"),
    *("Shape: torch.Size([%d]), Dtype: torch.a", "Location: a.py:%d", "Stack: %d", "Parameter: %d", "Mutated: {}"),
    *('Mutated: {"0": %d}', "Group: {}", "Exchanged: {}", "Sketch: 0", "Counts: numel=1 nan=0 inf=0 zero=0"),
    *("Output 1: {}", "Output %d: {}", "Placement: %d", "Phase: optimizer", "Recompute: true", "User hash: %d", "x"),
    *("From: 0;0;0", "Like: 0 0", "Out: @0 0", "Call: 0", "Arguments: %d", "Inputs: ;", ""),
    "End of capture: %d records",
)
_LISTS = ("Output hash: ", "Input hashes: ", "Input producers: ", "Digest: ", "Input digests: ", "From: ", "Mutated: ")
_VALUES = ("1,", "0;", ";", ",", "[", "{", '{"0":', "a;", "[],", "nan,", "x", "🙂")
_HEADERS = ("", "Format: numtui 2\nRun: {}\n", "Format: numtui 2 compact\nRun: {}\n")


def _records(chance: random.Random) -> Iterator[str]:
    lines = [
        f"[{chance.choice(_KEYS)}]",
        *(f"  {field}" for field in chance.sample(_FIELDS, chance.choice((0, 0, 1, 2, 3)))),
    ]
    text = "\n".join(lines) + chance.choice(("\n", "\n\n"))
    count = int(_RECORDS ** chance.uniform(0.5, 1))
    yield from (text.replace("%d", str(k)) for k in range(count)) if "%d" in text else (text for _ in range(count))


def _line(chance: random.Random) -> Iterator[str]:
    yield f"[m/op_0_mm]\n  {chance.choice(_LISTS)}"
    yield chance.choice(_VALUES) * int((1 << 22) ** chance.uniform(0.5, 1))
    yield "\n\n"


def _fields(chance: random.Random) -> Iterator[str]:
    yield "[m/op_0_mm]\n"
    field = chance.choice(_FIELDS)
    yield from (f"  {field.replace('%d', str(k))}\n" for k in range(int(_RECORDS ** chance.uniform(0.5, 1))))
    yield "\n"


_BLOCKS: tuple[Callable[[random.Random], Iterator[str]], ...] = (_records, _records, _records, _line, _fields)


def _log(chance: random.Random) -> bytes:
    made = [f"{chance.choice(_HEADERS)}Total captured activations: 9\n{'=' * 80}\n\n"]
    for _ in range(chance.randint(1, 3)):
        made += chance.choice(_BLOCKS)(chance)
    return "".join(made).encode()[:_LARGEST]


def _bomb(chance: random.Random, data: bytes) -> bytes:
    """A gzip file of members that each are the same, after a header."""
    return gzip.compress(data[:1000]) + gzip.compress(data[1000:2000] or b"\n", 9) * chance.randint(1, 3000)


def _run(arguments: list[str]) -> int:
    """Exit code of a command, which must fail in no other way."""
    sys.stdout = io.TextIOWrapper(open(os.devnull, "wb"), encoding="utf-8")  # noqa: SIM115  the process ends
    sys.stderr = io.StringIO()
    code = numtui(arguments)
    told = sys.stderr.getvalue()
    assert "internal error" not in told, told[-2000:]
    return code


def compare_pathological(chance: random.Random, folder: Path) -> None:
    """Make a log or two, run a command on them in a process of its own, and look at its memory."""
    for left in folder.iterdir():
        left.unlink()
    first = _log(chance)
    second = chance.choice((first + b"[z]\n  Mean: 1\n", small_log(), _log(chance)))
    room = _PROGRAM
    paths = [folder / "rank_0_activations.log", folder / "b.log"]
    for path, data in zip(paths, (first, second), strict=True):
        packed = _bomb(chance, data) if chance.random() < 0.2 else data
        size = max(len(data), 100 * len(packed) if packed is not data else 0)
        path.write_bytes(packed)
        room += max(_FREE, _MAX_MEMORY * size)
    a, b = map(str, paths)
    arguments = chance.choice((["diff", a, b], ["diff", a, b, "--format", "json"], ["diff", a], ["check", str(folder)]))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        os.close(read)
        told = b"died"
        try:
            told = str(_run([*arguments, "--no-cache"])).encode()
        except BaseException:  # noqa: BLE001 whatever it is, it is told
            told = traceback.format_exc().encode()[-3000:]
        finally:
            os.write(write, told)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    _, status, usage = os.wait4(child, 0)
    peak = usage.ru_maxrss << 10
    logs = " and ".join(f"{data[-200:]!r} ({len(data):,} bytes)" for data in (first, second))
    what = f"{' '.join(arguments[::2])}, logs that end in {logs}"
    if status != signal.SIGKILL:  # by then it has taken all its time, and most of its memory
        assert (status, told in (b"0", b"1", b"2")) == (0, True), f"{what}: status {status}, {told.decode()}"
    assert peak < room, f"{what}: {peak >> 20:,} MiB, {room >> 20:,} are promised"


def main() -> None:
    """Compare so many logs, one after the other."""
    count, chance = int(sys.argv[1]), random.Random(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        for number in range(count):
            compare_pathological(random.Random(chance.getrandbits(64)), Path(folder))
            print(number + 1, flush=True)


if __name__ == "__main__":
    main()
