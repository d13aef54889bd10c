"""Kept operations are sent as an archive, listed with their sizes, and deleted."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from capture.keeping.bundle import read_bundle
from numtui.cli.main import main
from tests.captured import Step
from tests.kept import write_kept

X = np.arange(1, 9, dtype=np.float32)
KEYS = ("m/op_0_add", "m/op_1_mul")


def kept(folder: Path, factor: float = 2) -> Path:
    scaled = (X + 1) * np.float32(factor)
    steps = [Step(key=KEYS[0], reads=[X], gives=[X + 1]), Step(key=KEYS[1], reads=[X + 1], gives=[scaled])]
    return write_kept(folder / "rank_0_activations.log", steps, KEYS, rank=0, step=1)


def test_an_archive_says_first_what_is_in_it_and_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [kept(tmp_path / "a"), kept(tmp_path / "b", 3)]
    path = tmp_path / "case.zip"
    assert main(["replay", *map(str, folders), "--op", KEYS[1], "--export", str(path)]) == 0
    told = capsys.readouterr().err
    assert "2 calls of 1 operation: m/op_1_mul" in told
    assert "4 tensors with all their numbers, 448 bytes" in told
    assert told.index("2 calls") < told.index("written")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    for side in "ab":
        (call,) = read_bundle(tmp_path / "out" / side / "rank_0_kept").calls
        assert call["key"] == KEYS[1]


def test_texts_among_the_arguments_are_digests_unless_the_record_has_them(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    manifest = folder / "manifest.json"
    told = json.loads(manifest.read_text())
    call = told["calls"][0]
    call["args"] += ["tanh", ["my_secret_model"]]
    call["record"] += '\n  Arguments: {"approximate": "tanh"}'
    manifest.write_text(json.dumps(told))
    assert main(["replay", str(folder), "--op", KEYS[0], "--export", str(tmp_path / "x.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        text = archive.read("a/rank_0_kept/manifest.json").decode()
    assert '"tanh"' in text
    assert "my_secret_model" not in text
    assert "<private:" in text


def test_an_archive_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path)
    assert main(["replay", str(folder), "--export", str(tmp_path / "none" / "x.zip")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_bundles_are_listed_newest_first_and_the_oldest_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [kept(tmp_path / name) for name in ("old", "new")]
    for age, folder in enumerate(folders):
        for file in folder.iterdir():
            os.utime(file, (1000 + age, 1000 + age))
    assert main(["kept", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == [str(folders[1]), str(folders[0])]
    assert "2 bundles below" in lines[2]
    size = sum(file.stat().st_size for file in folders[1].iterdir())
    assert main(["kept", str(tmp_path), "--most", str(size)]) == 0
    assert "1 bundle deleted" in capsys.readouterr().out
    assert [folder.exists() for folder in folders] == [False, True]
    assert (folders[0].parent / "rank_0_activations.log").exists()


def test_only_what_a_capture_wrote_is_deleted(tmp_path: Path) -> None:
    folder = kept(tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    outside = kept(tmp_path / "outside")
    (tmp_path / "run" / "link_kept").symlink_to(outside)
    assert main(["kept", str(tmp_path / "run"), "clear"]) == 0
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]
    assert read_bundle(outside).calls


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kept", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
