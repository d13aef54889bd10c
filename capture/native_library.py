"""Compile a C source of these packages for this machine, once per user, and load it.

Standard library only: the capture and the reader of logs both use it. The library goes to a private directory of the
user's cache; its name includes everything it depends on, so that a new source, compiler or machine makes a new one, and
a digest of its own bytes: the loader maps whatever it is given, and a file cut short ends the process with SIGBUS when
the missing page is touched. One that does not match its name is never loaded, but made anew. Of processes that start
together one compiles and the others wait for it; where a folder cannot be locked, each compiles. The final rename is
atomic, and no file is ever written to under its name.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

__all__ = ["COMPILERS", "BuildError", "attempt", "digest", "has_compiler", "installed", "is_intact", "load",
    "typed"]  # fmt: skip

COMPILERS = ("cc", "gcc", "clang")
# The compiler must not change a result: no contraction to fused operations, no reassociation. The second form is for
# compilers without -march=native.
FLAGS = (
    ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-pthread"),
    ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-pthread"),
)
_TIMEOUT = 60.0


class BuildError(Exception):
    """Raised when there is no compiled library, with the reason."""


def installed(source: Path) -> Path | None:
    """Return the library of a C source in an installed wheel, named after its bytes; None without."""
    return next(source.parent.glob(f"{source.stem}-*.so"), None)


@cache
def attempt(source: Path, ready: Path | None = None) -> tuple[ctypes.CDLL | None, str]:
    """Return the library of a C source, or None and the reason. A process tries once.

    Args:
        ready: taken if it is intact and of this machine, else one is compiled.
    """
    if ready is not None and is_intact(ready):
        with suppress(OSError):
            return ctypes.CDLL(str(ready)), ""
    try:
        return load(source), ""
    except BuildError as error:
        return None, str(error)


def typed(
    source: Path, ready: Path | None, functions: Mapping[str, tuple[type | None, Sequence[type]]]
) -> ctypes.CDLL | None:
    """Return the library of `attempt`, with the types of the results and arguments of its functions; None without."""
    found, _ = attempt(source, ready)
    for name, (result, arguments) in functions.items() if found is not None else ():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def load(source: Path) -> ctypes.CDLL:
    """Return the library of a C source, from the cache or the compiler.

    Raises:
        BuildError: There is no compiler, it fails, or its output cannot be stored or loaded.
    """
    compiler = _compiler()
    try:
        name = _name(source, compiler)
        try:
            return _opened(_stored(source, compiler, _cache(), name))
        except _UnusableCacheError:
            import tempfile  # with subprocess, 9 ms of a start that compiles nothing

            # a loaded library no longer needs its file
            with tempfile.TemporaryDirectory(prefix="numtui-") as directory:
                return _opened(_stored(source, compiler, Path(directory), name))
    except OSError as error:
        raise BuildError(f"the compiled {source.stem} cannot be used: {error}") from error


def has_compiler() -> bool:
    """True where a library can be made; nothing is compiled."""
    return any(map(shutil.which, COMPILERS))


def digest(library: Path) -> str:
    """Return the part of a library's name that its bytes decide: 16 hexadecimal digits."""
    return hashlib.sha256(library.read_bytes()).hexdigest()[:16]


def is_intact(library: Path) -> bool:
    """True if a library has the bytes that its name says: it can be loaded without harm."""
    try:
        return library.stem.endswith(f"-{digest(library)}")
    except OSError:
        return False


def _compiler() -> str:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise BuildError("no C compiler (cc, gcc or clang) was found")
    return compiler


class _UnusableCacheError(Exception):
    """Raised for a cache directory that is unsafe for code to execute, or cannot be written to."""


def _name(source: Path, compiler: str) -> str:
    """Name a library after its source, with a hash of the source, the flags, the compiler and the processor.

    The compiler is identified by its file, so that a warm cache starts no process.
    """
    real = Path(compiler).resolve()
    status = real.stat()
    parts = (source.read_text("utf-8"), FLAGS, str(real), status.st_size, status.st_mtime_ns, _processor())
    return f"{source.stem}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _processor() -> str:
    """Describe the processor, as far as -march=native depends on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    first = lines[: lines.index("")] if "" in lines else lines
    kept = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "CPU variant", "Features")
    return "\n".join([platform.machine(), *(line for line in first if line.partition("\t")[0].strip() in kept)])


def _cache() -> Path:
    """Return the directory of compiled libraries, writable by this user alone."""
    try:
        root = os.environ.get("XDG_CACHE_HOME", "")
        # the specification of XDG ignores relative paths
        directory = (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "numtui"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except (OSError, RuntimeError) as error:
        raise _UnusableCacheError from error
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _UnusableCacheError
    return directory


def _stored(source: Path, compiler: str, folder: Path, name: str) -> Path:
    """Return the intact library of this name; compile it where there is none, one process for all that start now."""
    if intact := _intact(folder, name):
        return intact
    with _alone_in(folder):
        return _intact(folder, name) or _made(source, compiler, folder, name)


def _intact(folder: Path, name: str) -> Path | None:
    return next(filter(is_intact, sorted(folder.glob(f"{name}-*.so"))), None)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for another process that compiles here, as long as a compiler may take; without locks, go on at once."""
    descriptor = -1
    try:
        end = time.monotonic() + _TIMEOUT
        with suppress(OSError):  # a folder that cannot be opened, or a file system without locks
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            while time.monotonic() < end and not _locked(descriptor):
                time.sleep(0.02)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _made(source: Path, compiler: str, folder: Path, name: str) -> Path:
    import tempfile

    stored = sorted(folder.glob(f"{name}-*.so"))
    try:
        handle, partial = tempfile.mkstemp(suffix=".partial", dir=folder)
    except OSError as error:
        raise _UnusableCacheError from error
    os.close(handle)
    try:
        _compile(source, compiler, Path(partial))
        with open(partial, "rb") as written:
            os.fsync(written.fileno())  # or a crash of the machine may leave the new name with half of its bytes
        library = folder / f"{name}-{digest(Path(partial))}.so"
        os.replace(partial, library)
    finally:
        Path(partial).unlink(missing_ok=True)
    # the one of the new name is that which another process may have just replaced
    for damaged in set(stored) - {library}:
        damaged.unlink(missing_ok=True)
    return library


def _opened(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        # a broken file would be found again by every run to come
        library.unlink(missing_ok=True)
        raise


def _compile(source: Path, compiler: str, library: Path) -> None:
    import subprocess

    problem = ""
    for flags in FLAGS:
        command = [compiler, *flags, "-o", str(library), str(source), "-lm"]
        try:
            run = subprocess.run(  # noqa: S603  the machine's own compiler, on a file of this package
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{compiler} took more than {_TIMEOUT:.0f} s") from None
        if run.returncode == 0:
            return
        problem = run.stderr.decode(errors="replace").strip().partition("\n")[0]
    raise BuildError(f"{compiler} failed: {problem}")
