"""Compiled libraries that are cut or damaged in the cache: a process that loads one works all the same.

A program of its own: `python -m tests.fuzz.libraries COUNT SEED` prints the number of libraries. It forks the processes
that would end by SIGBUS, and compiles each library once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import sys
import tempfile
from pathlib import Path

from capture import native_library
from matchers.logs import reader_library
from matchers.logs.parser import read_log
from tests.fuzz.folders import fast_folder
from tests.hostile import small_log

__all__ = ["load_damaged"]

_KERNEL = Path(native_library.__file__).with_name("kernels") / "statistics.c"
_SOURCES = (_KERNEL, reader_library.SOURCE)


def _damaged(chance: random.Random, data: bytes) -> bytes:
    while (damaged := _changed(chance, data)) == data:  # zeros among zeros
        pass
    return damaged


def _changed(chance: random.Random, data: bytes) -> bytes:
    at, size = chance.randrange(len(data)), chance.choice((1, 8, 4096))
    kind = chance.randrange(8)
    if kind == 0:
        return data[:at] + chance.randbytes(size) + data[at + size :]
    if kind == 1:
        return data[:at] + bytes(size) + data[at + size :]
    if kind == 2:
        return data + chance.randbytes(size)
    if kind == 3:
        return data[: at // 4096 * 4096]
    return data[:at]


def _touch(library: ctypes.CDLL) -> None:
    """Read all pages of a loaded library."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[1].startswith("r") and Path(parts[5]).name == Path(library._name).name:
            start, end = (int(address, 16) for address in parts[0].split("-"))
            ctypes.string_at(start, end - start)


def _use(good: dict[Path, bytes], folder: Path, *, can_compile: bool) -> None:
    """What a process does with both libraries."""

    def compiled(source: Path, compiler: str, library: Path) -> None:
        if not can_compile:
            raise native_library.BuildError("no compiler")
        library.write_bytes(good[source])

    native_library._compile = compiled
    for source in _SOURCES:
        library, problem = native_library.attempt(source)
        if can_compile:
            assert library is not None, problem
            _touch(library)
            assert Path(library._name).read_bytes() == good[source]
        else:
            assert library is None
            assert problem == "no compiler"
    log = folder / "a.log"
    log.write_bytes(small_log())
    assert len(read_log(log)) == 3


def load_damaged(chance: random.Random, good: dict[Path, bytes], folder: Path) -> None:
    """Damage both libraries in a cache, and load them in a process of its own, twice."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache = folder / "numtui"
    cache.mkdir(mode=0o700, exist_ok=True)
    names = {source: native_library._name(source, native_library._compiler()) for source in _SOURCES}
    for left in cache.iterdir():
        left.unlink()
    for source, data in good.items():
        digest = chance.choice((hashlib.sha256(data).hexdigest()[:16], f"{chance.getrandbits(64):016x}"))
        (cache / f"{names[source]}-{digest}.so").write_bytes(_damaged(chance, data))
    can_compile = chance.random() < 0.8
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _use(good, folder, can_compile=can_compile)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the process ended with {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Damage so many pairs of libraries, one after the other."""
    count, chance = int(sys.argv[1]), random.Random(sys.argv[2])
    good = {source: Path(native_library.load(source)._name).read_bytes() for source in _SOURCES}
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        for number in range(count):
            load_damaged(chance, good, Path(folder))
            print(number + 1, flush=True)


if __name__ == "__main__":
    main()
