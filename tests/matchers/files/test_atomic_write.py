"""A file is there whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from matchers.files.atomic_write import atomic_write, atomic_writer


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


def test_what_killed_saves_left_is_deleted_by_a_later_save(tmp_path: Path) -> None:
    target = tmp_path / "rules.yaml"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old, new = time.time() - 7200, time.time()
    gone = [f".rules.yaml.{dead.pid}.x.part", ".rules.yaml.abcdef.part", f".rules.yaml.{10**30}.x.part"]
    kept = [f".rules.yaml.{os.getpid()}.x.part", f".other.yaml.{dead.pid}.x.part", f"rules.yaml.{dead.pid}.x.part"]
    for name in (*gone, *kept):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (old, old))
    fresh = f".rules.yaml.{dead.pid}.y.part"  # its process may run on another machine
    (tmp_path / fresh).touch()
    os.utime(tmp_path / fresh, (new, new))
    atomic_write(target, b"version: 1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, fresh, "rules.yaml"])


def test_a_killed_save_leaves_one_file_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from matchers.files.atomic_write import atomic_binary\n"
        "with atomic_binary(sys.argv[1]) as file:\n    file.write(b'half')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "x")])
    killed.wait()
    [left] = tmp_path.iterdir()
    assert left.name.startswith(f".x.{killed.pid}.")
    os.utime(left, (0, 0))
    atomic_write(tmp_path / "x", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
