"""A folder of derived results in the user's cache: checked, bounded, removable at any time.

An entry is a file of named sections of bytes behind a JSON object, `meta`. Digests over both are checked before
anything is read from them, so that a damaged file is no entry. Writers rename whole files into place, so processes need
no lock. Only this user may write to the folder and its files; nothing is read from any other. When the folder exceeds
its limit, the entries used longest ago go first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from matchers.files.atomic_write import atomic_binary

__all__ = ["CacheFolder", "Entry", "Sections", "entry_name", "source_digest"]

Sections: TypeAlias = Mapping[str, bytes | memoryview]

_MAGIC = b"numtui cache 1\n\n"
_SIZE = 8
_DIGEST = 32
_START = len(_MAGIC) + _SIZE + _DIGEST
_MAX_META = 16 << 20
_NAME = re.compile(r"[0-9a-f]{32}\.[a-z]+|\.[0-9a-f]{32}\.[a-z]+\.\d+\.\w+\.part")
"""Names of entries, and of those being written: other files in the folder are the user's, and stay."""
_ALIGNED = 64
"""Sections start at multiples of this, as arrays like it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of a file: a JSON object, and sections in the order of their writing."""

    meta: Mapping[str, Any]
    sections: Sections


class _Item(NamedTuple):
    """A file of the folder."""

    path: Path
    size: int
    used: int


def entry_name(key: str, kind: str) -> str:
    """The name of the entry that belongs to a key; `kind` is its suffix."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.{kind}"


@dataclass(slots=True)
class CacheFolder:
    """The entries of one folder. Trouble of any kind (no space, no permission, damage) only costs the entry.

    Attributes:
        path: the folder, made when something is stored.
        limit: the bytes that all entries together may take.
    """

    path: Path
    limit: int
    _later: list[Callable[[], None]] = field(default_factory=list)

    def get(self, name: str) -> Entry | None:
        """Return the entry of a name (`entry_name`) and mark it as used; None if there is none that can be trusted."""
        data = self._read(name, None)
        if data is None or (found := _unpacked(data)) is None:
            return None
        with suppress(OSError):
            os.utime(self.path / name)
        return found

    def meta(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON object of an entry; its sections are not even read."""
        start = self._read(name, _START)
        size = _meta_size(start) if start is not None else 0
        data = self._read(name, _START + size) if size else None
        return None if data is None else _header(data).get("meta")

    def put(self, name: str, entry: Entry) -> None:
        """Store an entry in place of the one of this name, if it fits; make room for it."""
        chunks = list(_packed(entry))
        size = sum(map(len, chunks))
        if size > self.limit:
            return
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it gives its mode to the last one only
            self.path.mkdir(mode=0o700, exist_ok=True)
            if not self.is_private():
                return
            with atomic_binary(self.path / name, mode=0o600, durable=False) as out:
                out.writelines(chunks)
        self._make_room()

    def later(self, work: Callable[[], None]) -> None:
        """Leave work (storing what was read) for `flush`, after what the user waits for."""
        self._later.append(work)

    def flush(self) -> None:
        """Do the work that was left for later."""
        while self._later:
            with suppress(OSError, MemoryError):
                self._later.pop(0)()

    def items(self) -> list[_Item]:
        """The entries and those being written, the one used last at the end."""
        found = []
        with suppress(OSError), os.scandir(self.path) as files:
            for file in files:
                with suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and _NAME.fullmatch(file.name):
                        found.append(_Item(self.path / file.name, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda item: item.used)

    def clear(self) -> int:
        """Delete all entries; return the number of bytes that were freed.

        Raises:
            OSError: one cannot be deleted.
        """
        freed = 0
        for item in self.items():
            with suppress(FileNotFoundError):  # another process was faster
                item.path.unlink()
                freed += item.size
        return freed

    def is_private(self) -> bool:
        """True if only this user can change what is in the folder."""
        try:
            return all(_private(os.stat(folder)) for folder in (self.path, self.path.parent))
        except OSError:
            return False

    def _make_room(self) -> None:
        items = self.items()
        total = sum(item.size for item in items)
        for item in items:
            if total <= self.limit:
                return
            with suppress(OSError):
                item.path.unlink()
            total -= item.size

    def _read(self, name: str, size: int | None) -> bytes | None:
        """Return the first bytes of a file, or all of them; None if it is missing, of somebody else, or no file."""
        if not self.is_private():
            return None
        try:
            handle = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode) or not _private(status) or status.st_size > self.limit:
                    return None
                return file.read() if size is None else file.read(size)
        except (OSError, MemoryError):
            return None


def _private(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _packed(entry: Entry) -> Iterator[bytes | memoryview]:
    """The bytes of a file: magic, size and digest of the header, header (JSON), sections."""
    body, places, at = [], [], 0
    for name, section in entry.sections.items():
        places.append([name, at, len(section)])
        padding = bytes(-len(section) % _ALIGNED)
        body += [section, padding]
        at += len(section) + len(padding)
    header = {"meta": entry.meta, "sections": places, "digest": _digest(body).hex()}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_START + len(text)) % _ALIGNED)
    yield _MAGIC + len(text).to_bytes(_SIZE, "little") + _digest([text]) + text
    yield from body


def _digest(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _meta_size(data: bytes) -> int:
    """Size of the header, 0 if there is none."""
    size = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + _SIZE], "little")
    return size if data.startswith(_MAGIC) and size <= _MAX_META else 0


def _header(data: bytes) -> Mapping[str, Any]:
    """The header of a file, empty if it is damaged."""
    text = data[_START : _START + _meta_size(data)]
    if _digest([text]) != data[_START - _DIGEST : _START]:
        return {}
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) and isinstance(header.get("meta"), dict) else {}


def _unpacked(data: bytes) -> Entry | None:
    header = _header(data)
    body = memoryview(data)[_START + _meta_size(data) :]
    if not header or _digest([body]).hex() != header.get("digest"):
        return None
    sections: dict[str, memoryview] = {}
    try:
        for name, start, size in header["sections"]:
            if not 0 <= start <= start + size <= len(body):
                return None
            sections[str(name)] = body[start : start + size]
    except (TypeError, ValueError, KeyError):
        return None
    return Entry(header["meta"], sections)


@cache
def source_digest(*places: Path) -> str:
    """A digest of all files in these packages (or single files), for keys of what their code made: other code, other
    key. Empty if they cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for place in places:
            for path in sorted(_files(place)):
                data = Path(path).read_bytes()
                digest.update(f"{os.path.relpath(path, place)} {len(data)}\n".encode())
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()


def _files(place: Path) -> Iterator[str]:
    if place.is_file():
        yield str(place)
        return
    for folder, folders, names in os.walk(place, onerror=_fail):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(folder, name) for name in names)


def _fail(error: OSError) -> None:
    raise error
