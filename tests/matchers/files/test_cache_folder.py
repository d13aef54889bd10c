"""A folder of derived results: what comes out is what went in, or nothing; nothing of others is trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.files import cache_folder
from matchers.files.cache_folder import CacheFolder, Entry, entry_name, source_digest
from tests.conftest import REPOSITORY

ENTRY = Entry({"records": 3, "lines": ["é", "[x]"]}, {"keys": b"a\nb\n", "none": b"", "values": bytes(range(100))})


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "numtui" / "logs", 1 << 20)


X, Y, A, B, C, D, E = (entry_name(key, "kind") for key in "xyabcde")


def content(entry: Entry | None) -> object:
    return None if entry is None else (dict(entry.meta), {name: bytes(part) for name, part in entry.sections.items()})


def test_gives_back_what_was_put(folder: CacheFolder) -> None:
    assert folder.get(X) is None
    folder.put(X, ENTRY)
    assert content(folder.get(X)) == content(ENTRY)
    assert folder.meta(X) == ENTRY.meta
    assert folder.get(Y) is None


def test_the_head_is_read_without_the_sections(folder: CacheFolder) -> None:
    folder.put(X, ENTRY)
    path = folder.path / X
    path.write_bytes(path.read_bytes()[:-1])
    assert folder.meta(X) == ENTRY.meta
    assert folder.get(X) is None


def test_no_flipped_bit_and_no_cut_comes_through(folder: CacheFolder) -> None:
    folder.put(X, ENTRY)
    path = folder.path / X
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at])
        assert folder.get(X) is None
        for bit in (1, 128):
            path.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
            assert folder.get(X) is None
            assert folder.meta(X) in (None, ENTRY.meta)
    path.write_bytes(good + b"\0")
    assert folder.get(X) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.binary(),
)
def test_any_header_with_the_right_digests_is_an_entry_or_nothing(header: object, body: bytes) -> None:
    """What a program with the user's rights could write."""
    import json

    for value in (header, {"meta": {}, "sections": header, "digest": cache_folder._digest([body]).hex()}):
        text = json.dumps(value).encode()
        size = len(text).to_bytes(8, "little")
        data = cache_folder._MAGIC + size + cache_folder._digest([text]) + text + body
        found = cache_folder._unpacked(data)
        assert found is None or all(bytes(part) in body for part in found.sections.values())


def test_only_the_user_may_write(folder: CacheFolder, tmp_path: Path) -> None:
    folder.put(X, ENTRY)
    assert (folder.path.stat().st_mode & 0o777, (folder.path / X).stat().st_mode & 0o777) == (0o700, 0o600)
    for path, mode in ((folder.path, 0o700), (folder.path.parent, 0o700), (folder.path / X, 0o600)):
        path.chmod(mode | 0o020)
        assert folder.get(X) is None
        path.chmod(mode)
        assert folder.get(X) is not None
    folder.path.chmod(0o777)
    folder.put(Y, ENTRY)
    assert not (folder.path / Y).exists()


def test_a_wide_umask_does_not_open_the_folder(folder: CacheFolder) -> None:
    before = os.umask(0)
    try:
        folder.put(X, ENTRY)
    finally:
        os.umask(before)
    assert folder.get(X) is not None


def test_nothing_of_another_user_is_read(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put(X, ENTRY)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(folder.path).st_uid + 1)
    assert folder.get(X) is None
    folder.put(Y, ENTRY)
    assert not (folder.path / Y).exists()


def test_links_pipes_and_folders_are_no_entries(folder: CacheFolder, tmp_path: Path) -> None:
    folder.put(X, ENTRY)
    (folder.path / A).symlink_to(folder.path / X)
    os.mkfifo(folder.path / B)
    (folder.path / C).mkdir()
    assert [folder.get(name) for name in (A, B, C)] == [None] * 3


def test_what_was_used_longest_ago_makes_room(folder: CacheFolder) -> None:
    folder.put(A, ENTRY)
    folder.limit = 4 * (folder.path / A).stat().st_size
    for at, name in enumerate((A, B, C, D)):
        folder.put(name, ENTRY)
        os.utime(folder.path / name, (at, at))
    assert folder.get(A) is not None  # used now
    folder.put(E, ENTRY)
    assert {item.path.name for item in folder.items()} == {A, C, D, E}
    folder.put(X, Entry({}, {"x": bytes(folder.limit)}))
    assert folder.get(X) is None
    assert len(folder.items()) == 4, "what cannot fit pushes nothing out"


def test_nothing_but_entries_is_ever_deleted(folder: CacheFolder) -> None:
    """A folder of the user may have the name of ours."""
    assert folder.clear() == 0
    folder.put(A, ENTRY)
    others = [folder.path.parent / "statistics-00.so", folder.path / "rank_0_activations.log", folder.path / "kind"]
    for other in others:
        other.write_bytes(bytes(folder.limit))
    half = folder.path / f".{B}.123.x7_y.part"
    half.touch()
    folder.put(B, ENTRY)
    assert folder.get(A) is not None
    assert folder.clear() > 0
    assert folder.items() == []
    assert not half.exists()
    assert all(other.exists() for other in others)


@pytest.mark.parametrize("place", ["/proc/none/logs", "/dev/null/logs"])
def test_a_folder_that_cannot_be_made_costs_nothing(place: str) -> None:
    folder = CacheFolder(Path(place), 1 << 20)
    folder.put(X, ENTRY)
    assert (folder.get(X), folder.meta(X), folder.items(), folder.clear()) == (None, None, [], 0)


def test_work_for_later_is_done_once(folder: CacheFolder) -> None:
    done = []
    folder.later(lambda: done.append(1))
    assert done == []
    folder.flush()
    folder.flush()
    assert done == [1]


_WRITER = """
import sys
from pathlib import Path
from matchers.files.cache_folder import CacheFolder, Entry, entry_name
folder = CacheFolder(Path(sys.argv[1]), 60_000)
mine = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for at in range(300):
    name = entry_name(str(at % 7), "kind")
    found = folder.get(name)
    if found is not None:
        assert bytes(found.sections["body"]) == found.meta["of"].encode() * 9_000, "torn"
    folder.put(name, Entry({"of": mine}, {"body": mine.encode() * 9_000}))
"""


def test_two_processes_at_once(folder: CacheFolder) -> None:
    """They write the same names and push out each other's entries; each reads whole ones only."""
    command = [sys.executable, "-c", _WRITER, str(folder.path)]
    pipe = subprocess.PIPE
    programs = [
        subprocess.Popen([*command, mine], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=REPOSITORY)
        for mine in "ab"
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    assert [program.communicate(timeout=60)[1] for program in programs] == ["", ""]
    assert sum(item.size for item in folder.items()) <= 60_000


def test_other_code_has_another_digest(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "a.py").write_text("1")
    before = source_digest(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").touch()
    source_digest.cache_clear()
    assert source_digest(package) == before
    (package / "inner" / "a.py").write_text("2")
    source_digest.cache_clear()
    assert source_digest(package) != before
    assert source_digest(tmp_path / "missing") == ""
