"""Reading a second time gives what reading the first time gave; a log that changed is read anew."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from matchers.comparison import compare
from matchers.errors import LogError
from matchers.files.cache_folder import CacheFolder
from matchers.logs import cache, file_identity
from matchers.logs.cache import read_cached, summary
from matchers.logs.file_identity import FileIdentity
from matchers.logs.op_log import OpLog
from matchers.logs.packed_columns import packed, unpacked
from matchers.logs.parser import read_log
from tests.builders import training_step, write_log
from tests.conftest import DATA, EXAMPLES
from tests.fuzz.logs import goods, text_of
from tests.matchers.contents import contents
from tests.matchers.log_texts import texts
from tests.matchers.logs.imported import samples as debug_mode
from tests.matchers.logs.imported.dumps import ACTIVATIONS, msprobe, safetensors

OURS = DATA / "order_f32_a.log.gz"


@pytest.fixture(autouse=True)
def _small_logs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_identity, "WORTHWHILE", 0)


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "numtui" / "logs", 1 << 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_log(tmp_path / "a.log", training_step(1))


def twice(path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> OpLog:
    """The log as it comes out of the cache."""
    read_cached(str(path), folder)
    folder.flush()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "read_log", None)
        return read_cached(str(path), folder)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")) + sorted(EXAMPLES.glob("*/*.log")), ids=lambda p: p.stem)
def test_real_logs(path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of torchtitan and of our own capture, plain and compressed."""
    found = twice(path, folder, monkeypatch)
    assert contents(found) == contents(read_log(path))
    assert len(found.content) == 64


@pytest.mark.parametrize("form", [debug_mode.text, debug_mode.saved, debug_mode.hashes])
def test_logs_of_other_tools(
    form: Callable[[], str], path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(form())
    found = twice(path, folder, monkeypatch)
    assert contents(found) == contents(read_log(path))
    assert found.header == read_log(path).header
    assert len(found.content) == 64


@given(texts() | goods.map(lambda good: text_of(good).decode()))
def test_made_up_logs(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.log"
        path.write_bytes(text.encode())
        try:
            log = read_log(path)
        except LogError:
            return
        entry = packed(log)
        assert entry is not None
        found = unpacked(entry, str(path))
        assert contents(found) == contents(log)


def test_a_log_that_was_cut_off(path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(path.read_bytes()[:-40])
    log = twice(path, folder, monkeypatch)
    assert log.complete is False
    assert contents(log) == contents(read_log(path))


def test_the_verdicts_are_those_of_a_fresh_comparison(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = DATA / "bug_base.log.gz", DATA / "bug_neg_attn_l2.log.gz"
    a, b = (twice(path, folder, monkeypatch) for path in paths)
    fresh, found = compare(read_log(paths[0]), read_log(paths[1])), compare(a, b)
    for name in ("row_a", "row_b", "pair", "status", "error", "role", "cause"):
        np.testing.assert_array_equal(getattr(found, name), getattr(fresh, name))
    assert found.coverage.sentence == fresh.coverage.sentence


def test_another_path_to_the_file_is_the_same_log(path: Path, folder: CacheFolder, tmp_path: Path) -> None:
    read_cached(str(path), folder)
    folder.flush()
    moved = tmp_path / "run" / "b.log"
    moved.parent.mkdir()
    link = tmp_path / "link.log"
    link.symlink_to(path)
    assert read_cached(str(link), folder).path == str(link)
    assert folder._later == []


@pytest.mark.parametrize("size", ["same", "other"])
def test_a_changed_byte_is_seen_whatever_the_times_say(
    path: Path, folder: CacheFolder, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where all that is known of a file without reading it is the same: a coarse clock, a middle that changed."""
    read_cached(str(path), folder)
    folder.flush()
    known = FileIdentity.of(str(path))
    assert known is not None
    text = path.read_text()
    at = text.index("L2 norm: ", len(text) // 2) + len("L2 norm: ")
    path.write_text(text[:at] + ("9" if size == "same" else "99") + text[at + 1 :])
    os.utime(path, ns=(known.status[1], known.status[1]))
    changed = FileIdentity.of(str(path))
    assert changed != known, "the time of the status change cannot be set back"
    monkeypatch.setattr(FileIdentity, "of", lambda _path: known)
    found = read_cached(str(path), folder)
    assert contents(found) == contents(read_log(path))
    assert found.content == FileIdentity.content(known)


def test_a_log_that_grows_while_it_is_read_is_not_kept(path: Path, folder: CacheFolder) -> None:
    def grow(_what: str, _fraction: float) -> None:
        with path.open("a") as file:
            file.write("\n")

    read_cached(str(path), folder, progress=grow)
    folder.flush()
    assert folder.items() == []


def test_other_code_reads_anew(path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read_cached(str(path), folder)
    folder.flush()
    monkeypatch.setattr(cache, "source_digest", lambda *_: "other")
    read_cached(str(path), folder)
    assert len(folder._later) == 1
    monkeypatch.setattr(cache, "source_digest", lambda *_: "")
    assert len(read_cached(str(path), folder)) > 0, "an installation whose source cannot be read"


def test_small_logs_pipes_and_no_cache(path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert contents(read_cached(str(path), None)) == contents(read_log(path))
    monkeypatch.setattr(file_identity, "WORTHWHILE", path.stat().st_size + 1)
    read_cached(str(path), folder)
    packed_path = path.with_suffix(".log.gz")
    packed_path.write_bytes(gzip.compress(path.read_bytes()))
    read_cached(str(packed_path), folder)
    assert len(folder._later) == 1, "the compressed one has another size, and is worth it sooner"
    os.mkfifo(path.with_suffix(".pipe"))
    assert FileIdentity.of(str(path.with_suffix(".pipe"))) is None
    with pytest.raises(LogError, match="No such file"):
        read_cached(str(path) + "x", folder)


def test_a_damaged_compressed_log_is_not_kept(path: Path, folder: CacheFolder) -> None:
    """What lies behind the damage was never read, so nothing is known of it."""
    data = bytearray(gzip.compress(path.read_bytes() * 40))
    data[len(data) // 2] ^= 0xFF
    damaged = path.with_suffix(".log.gz")
    damaged.write_bytes(bytes(data) + bytes(1 << 20))
    assert read_cached(str(damaged), folder).complete is False
    folder.flush()
    assert folder.items() == []


def test_the_summary_is_read_without_columns(folder: CacheFolder, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(text_of_ours())
    assert summary(str(path), folder) is None
    log = read_cached(str(path), folder)
    folder.flush()
    (item,) = folder.items()
    with item.path.open("r+b") as file:
        file.truncate(item.size // 2)  # the columns; the head of the file is whole
    found = summary(str(path), folder)
    assert found is not None
    assert (found.records, found.complete, found.stated_digest) == (len(log), log.complete, log.stated_digest)
    assert found.stated_digest
    path.write_bytes(text_of_ours() + b"\n")
    assert summary(str(path), folder) is None
    assert summary(str(tmp_path / "missing"), folder) is None


def text_of_ours() -> bytes:
    from tests.fuzz.logs import Good

    return text_of(Good("digests", 12, 3))


def test_the_structure_is_that_of_the_program_not_of_its_numbers(tmp_path: Path, folder: CacheFolder) -> None:
    def structure(name: str, seed: int, layers: int = 1) -> str:
        path = write_log(tmp_path / name, training_step(layers, seed))
        read_cached(str(path), folder)
        folder.flush()
        found = summary(str(path), folder)
        assert found is not None
        return found.structure

    assert structure("a.log", 0) == structure("b.log", 1)
    assert structure("a.log", 0) != structure("c.log", 0, layers=2)


def test_a_log_of_several_files_is_read_anew_when_one_of_them_changes(
    tmp_path: Path, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, tensor in ACTIVATIONS.items():
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors({name: tensor}))
    found = twice(tmp_path, folder, monkeypatch)
    assert contents(found) == contents(read_log(tmp_path))
    assert len(found.content) == 64
    (tmp_path / "layers.2.mlp.safetensors").write_bytes(safetensors({"layers.2.mlp": ACTIVATIONS["layers.2.mlp"] * 2}))
    again = read_cached(str(tmp_path), folder)
    assert again.outputs[5][0] == 2 * found.outputs[5][0]
    assert again.content != found.content
    path = msprobe(tmp_path / "rank0")
    before = twice(path, folder, monkeypatch)
    (path.parent / "stack.json").write_text("{}")
    assert (before.location_text(0), read_cached(str(path), folder).location_text(0)) == ("/t.py:3", "")
