"""A file is there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from matchers.atomic_write import atomic_writer


def test_a_new_file_appears_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    with atomic_writer(path) as out:
        out.write("ε")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "ε"
    assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()
    assert os.listdir(tmp_path) == ["report.txt"]


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_writer(path) as out:
            out.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.txt"]


def test_mode_and_symbolic_link_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.txt"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    with atomic_writer(link) as out:
        out.write("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), atomic_writer(path) as out:
        out.write("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_device_is_written_to_directly() -> None:
    with atomic_writer("/dev/null") as out:
        out.write("gone")
    assert not Path("/dev/null").is_file()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
