"""Files that torch's flight recorder has dumped, one for each rank: JSON, or a pickle of which nothing is executed."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.files import first_bytes, natural
from matchers.logs.imported.pickled import Unpickler

__all__ = ["Dump", "Recorded", "dump_files", "read_dump"]

_NAME: Final = re.compile(r"[\w.-]*(?:rank|trace)[\w.-]*?(\d{1,9})(?:\.(?:json|pickle|pkl))?", re.ASCII)
"""Names that torch and others give to dumps: a prefix of the user's, and the rank."""
_PICKLE: Final = b"\x80"
_SIGNS: Final = (b"profiling_name", b"pg_config")
"""Keys by which a dump is known, of which one stands near its beginning."""
_START: Final = 64 << 10
_LARGEST: Final = 64 << 20
"""Bytes of a dump; 2,000 entries, torch's default, take one or two million."""
_MOST_STEPS: Final = 1 << 25
_KNOWN_VERSIONS: Final = ("1", "2")
_FOLDERS: Final = 64
"""Folders in that of the run in which dumps are looked for."""
_PEERS: Final = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)", re.ASCII)
_TIMES: Final = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_LIBRARY: Final = re.compile(r"(?:site-packages|dist-packages|lib/python[\d.]+)[/\\]|[/\\]torch[/\\]|^<")


class Recorded(NamedTuple):
    """One call of a collective, or of one end of a message.

    Attributes:
        number: of the record in the dump.
        group, described: name of the group, and what its maker calls it.
        seq: of the collective in its group, from 1; of a message among the messages.
        does: `all_reduce`, without the backend.
        peer: of a message the place of the other end in the group, from 0; -1: it is a collective.
        numel: elements of the inputs and of the outputs; -1: unknown.
        dtypes: of the inputs and outputs.
        done: it has ended.
        created, seen: when it was called, and the last time that it has; in ns, 0 unknown.
        timeout: in seconds; 0: unknown.
        location: innermost `file:line` outside of libraries; empty if the dump has no stacks, as in JSON.
    """

    number: int
    group: str
    described: str
    seq: int
    does: str
    peer: int
    numel: tuple[int, int]
    dtypes: tuple[tuple[str, ...], tuple[str, ...]]
    done: bool
    created: int
    seen: int
    timeout: float
    location: str


class Dump(NamedTuple):
    """The dump of one rank.

    Attributes:
        calls: in their order.
        whole: nothing was overwritten before the first of them.
        members: by name of a group its ranks, ascending; a group whose ranks are not told is left out.
        called: by name of a group the number of its last collective that was called, at least.
        damaged: entries that cannot be read.
    """

    rank: int
    path: str
    calls: Sequence[Recorded]
    whole: bool
    members: Mapping[str, tuple[int, ...]]
    called: Mapping[str, int]
    damaged: int


def dump_files(folder: Path) -> dict[int, list[Path]]:
    """Find the dumps in a folder and in the folders in it, by rank; of one rank there may be several."""
    found: dict[int, list[Path]] = {}
    for path in _candidates(folder):
        if (name := _NAME.fullmatch(path.name)) and _is_dump(path):
            found.setdefault(int(name[1]), []).append(path)
    return dict(sorted(found.items()))


def _candidates(folder: Path) -> Iterator[Path]:
    inside = _entries(folder)
    folders = [entry.path for entry in inside if entry.is_dir()]
    for place in (inside, *map(_entries, folders[:_FOLDERS])):
        yield from (Path(entry.path) for entry in place if entry.is_file())


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: natural(entry.name))
    except OSError:
        return []


def _is_dump(path: Path) -> bool:
    start = first_bytes(path, _START)
    return start.lstrip()[:1] in (b"{", _PICKLE) and any(sign in start for sign in _SIGNS)


def read_dump(path: Path, rank: int) -> Dump:
    """Read the dump of a rank.

    Raises:
        LogError: it cannot be read, is too large, or has another version.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise LogError(f"{path}: larger than {_LARGEST >> 20} MiB: this is no dump of the flight recorder")
        content = path.read_bytes()
        told = Unpickler(content, _MOST_STEPS).object() if content[:1] == _PICKLE else json.loads(content)
        version = str(told["version"])
        if version.partition(".")[0] not in _KNOWN_VERSIONS:
            raise LogError(f"{path}: version {version:.40} of the flight recorder is unknown: expected 2.x")
        return _dump(told, str(path), rank)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise LogError(f"{path}{where}: a damaged dump of the flight recorder") from None


def _dump(told: Mapping[str, Any], path: str, rank: int) -> Dump:
    calls: list[Recorded] = []
    ids: dict[str, str] = {}
    damaged = 0
    for entry in told.get("entries") or ():
        try:
            calls.append(_recorded(entry))
            ids[str(entry.get("pg_id", ""))] = calls[-1].group
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
            damaged += 1
    called: dict[str, int] = {}
    for number, status in (told.get("pg_status") or {}).items():
        if (group := ids.get(str(number))) is not None:
            called[group] = int(status["last_enqueued_collective"])
    groups = (told.get("pg_config") or {}).items()
    members = {str(name): ranks for name, group in groups if (ranks := _ranks(group.get("ranks")))}
    return Dump(rank, path, calls, not calls or calls[0].number == 0, members, called, damaged)


def _ranks(told: object) -> tuple[int, ...]:
    """Ranks of a list, or of its text, which is how torch writes it."""
    numbers = re.findall(r"\d{1,9}", told) if isinstance(told, str) else told if isinstance(told, list) else ()
    return tuple(sorted({int(number) for number in numbers}))


def _recorded(entry: Mapping[str, Any]) -> Recorded:
    name, described = (str(part) for part in entry["process_group"])
    backend, _, does = str(entry["profiling_name"]).rpartition(":")
    message = _PEERS.fullmatch(does)
    times = [int(entry.get(name) or 0) for name in _TIMES]
    return Recorded(
        number=int(entry["record_id"]),
        group=name,
        described=name if described in ("", "undefined") else described,
        seq=int(entry["p2p_seq_id" if message else "collective_seq_id"]),
        does=message[1] if message else does,
        peer=int(message[4]) if message else -1,
        numel=(_numel(entry.get("input_sizes")), _numel(entry.get("output_sizes"))),
        dtypes=(_names(entry.get("input_dtypes")), _names(entry.get("output_dtypes"))),
        # gloo's calls keep their first state, and are retired when they have ended; NCCL's, too, when they time out
        done=entry.get("state") == "completed" or (backend == "gloo" and entry.get("retired") is True),
        created=times[0],
        seen=max(times),
        timeout=float(entry.get("timeout_ms") or 0) / 1000,
        location=_location(entry.get("frames") or ()),
    )


def _numel(sizes: Any) -> int:
    return sum(math.prod(map(int, of)) for of in sizes) if sizes else -1


def _names(dtypes: Any) -> tuple[str, ...]:
    return tuple(sorted({str(dtype) for dtype in dtypes or ()}))


def _location(frames: Iterable[Any]) -> str:
    for frame in frames:
        file = str(frame["filename"])
        if not _LIBRARY.search(file):
            return f"{file}:{int(frame['line'])}"
    return ""
