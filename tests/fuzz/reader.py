"""Damaged logs through the compiled reader under AddressSanitizer and UndefinedBehaviorSanitizer, beside the plain one.

    python -m tests.fuzz.reader [--count 100000] [--seed 1]

Builds the reader with both sanitizers and starts itself anew with their library loaded first. Each piece of a log lies
in memory of exactly its size, so that a read behind its end is found. The first error of a sanitizer, or the first log
that the two readers read differently, ends the campaign; such a log is left in a file.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from matchers.errors import LogError
from matchers.logs import compiled_reader, parser, source
from matchers.logs.compiled_reader import CompiledReader
from matchers.logs.plain_reader import PlainReader
from matchers.logs.reader_library import SOURCE
from tests.compacted import compacted
from tests.fuzz.folders import fast_folder
from tests.fuzz.logs import KINDS, Damage, Good, after_damages, text_of
from tests.matchers.contents import contents

_LIBRARY = "NUMTUI_SANITIZED_READER"
_FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fPIC", "-shared")
_JUNK = (
    *(b"", b" ", b";", b"-", b"0", b"@0", b"@1.0", b"@0.0", b"99999999999", b"[", b"]", b"[k]", b"nan", b"1e", b"_"),
    *(b"Like: ", b"Out: ", b"From: ", b"Named: ", b"Seq: 0", b"\n  Digest: ", b"\n[", b"\n\n", b"\r", b"\0", b"\xff"),
    *(b"  Output 1: {}\n", b"1e-400", b"9e999", b"0x1p3", b"12345678901234567890123", b"\xc3\x80", b"0" * 400),
)
_CHUNKS = (64, 1000, 1 << 20)


class _Guarded(CompiledReader):
    """Reads each piece from memory of exactly its size."""

    def add(self, piece: bytes, last: bool) -> bytes:
        memory = _libc.malloc(len(piece))
        ctypes.memmove(memory, piece, len(piece))
        failed = self._c.reader_add(self._reader, ctypes.cast(memory, ctypes.c_char_p), len(piece), last)
        _libc.free(memory)
        if failed:
            raise MemoryError
        return self._taken("digest text").tobytes()


_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
_libc.free.restype, _libc.free.argtypes = None, (ctypes.c_void_p,)


def damaged_log(chance: random.Random) -> bytes:
    """A log of any form to which several things happened."""
    form = chance.choice(("torchtitan", "numtui", "digests", "compact"))
    text = text_of(Good("digests" if form == "compact" else form, chance.randint(1, 16), chance.randint(0, 7)))
    data = compacted(text.decode()).encode() if form == "compact" else text
    kinds = tuple(KINDS)
    what = [Damage(chance.choice(kinds), chance.randrange(1 << 16), chance.randrange(1 << 16)) for _ in range(3)]
    data = after_damages(data, what[: chance.randrange(4)])
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(_JUNK) + data[at + chance.choice((0, 0, 1, 2, 8)) :]
    return data


def _read(reader: Any, path: Path, head: int | None) -> Any:
    parser.record_reader = reader
    try:
        return contents(parser.read_log(path, head=head))
    except LogError as error:
        return str(error)


def _campaign(count: int, seed: int) -> int:
    library = ctypes.CDLL(os.environ[_LIBRARY])
    compiled_reader.library = lambda: (library, "")  # type: ignore[attr-defined] # where it is used
    chance = random.Random(seed)
    path = Path(tempfile.mkdtemp(dir=fast_folder()), "fuzz.log")
    for k in range(count):
        data = damaged_log(chance)
        path.write_bytes(data)  # stays where a sanitizer ends the process
        source._CHUNK = chance.choice(_CHUNKS)
        head = chance.choice((None, None, None, 2000))
        if _read(_Guarded, path, head) != _read(PlainReader, path, head):
            print(f"log {k} of seed {seed} is read differently: {path}")
            return 1
        if (k + 1) % 10_000 == 0:
            print(f"{k + 1:,} logs", flush=True)
    shutil.rmtree(path.parent)
    print(f"{count:,} damaged logs of seed {seed}: both readers agree, the sanitizers are silent")
    return 0


def main() -> int:
    """Build the reader and start the campaign."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--count", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    if _LIBRARY in os.environ:
        return _campaign(args.count, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "reader.so")
        subprocess.run(["gcc", *_FLAGS, "-o", str(library), str(SOURCE), "-lm"], check=True)
        found = [
            subprocess.run(
                ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment = {
            **os.environ,
            _LIBRARY: str(library),
            "LD_PRELOAD": " ".join(found),
            "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16",  # leaks: of Python itself
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        return subprocess.run(
            [sys.executable, "-m", "tests.fuzz.reader", *sys.argv[1:]], env=environment, check=False
        ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
