"""Files of torch.save are read without torch, and nothing in them is executed."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from matchers.errors import LogError
from matchers.logs.imported.torch_file import Unknown, read_torch
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.runs.run import find_run
from tests.conftest import DATA

SAVED = DATA / "torch_save.pt"
"""`{"value": {"h": float32[3, 4], "t": bfloat16[3, 4], transposed, "n": 2.5}, "meta": {…}}`, of torch 2.13."""


def saved(pickled: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", pickled)
    return out


def test_tensors_and_numbers_of_a_file_are_a_log(tmp_path: Path) -> None:
    log = read_log(SAVED)
    assert (log.header.format, log.problems) == ("torch.save", ())
    assert list(log.keys) == [
        *(f"value.{name}/op_0_tensor" for name in "htn"),
        "meta.rank/op_0_tensor",
    ]
    assert [log.dtype_text(row) for row in range(3)] == ["float32", "bfloat16", "float64"]
    assert log.outputs[2].tolist() == [2.5]
    assert raw_record(log, 0) == (f"value.h: in {SAVED}", "  name: x", "  rank: 0", "  dims: b s h",
        "  dtype: Unknown(name='torch.bfloat16')")  # fmt: skip


class Evil:
    """Would make a folder if it were executed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    found = read_torch(saved(pickle.dumps({"value": Evil(tmp_path / "made")}, protocol=2)), "a.pt")
    assert found == {"value": Unknown(f"{os.mkdir.__module__}.mkdir")}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"\x80\x02}q\x00", "at STOP|does not end|exhausted"),
        (b"\x80\x02\x82\x01.", "an instruction EXT1 that is not known here"),
        (b"\x80\x02X\xff\xff\xff\x7fabc", "expected 2147483647 bytes"),
        (b"\x80\x02h\x05.", "5"),
    ],
)
def test_a_damaged_file_is_refused(pickled: bytes, message: str) -> None:
    with pytest.raises(LogError, match=rf"a.pt:1: a damaged file of torch.save: .*({message})"):
        read_torch(saved(pickled), "a.pt")


def test_an_archive_that_says_it_is_encrypted_is_refused(tmp_path: Path) -> None:
    """Found by the campaign: one bit of a member's flags."""
    data = bytearray((DATA / "torch_save.pt").read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        data[at + 8] |= 1
        at = data.find(b"PK\x01\x02", at + 1)
    (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(LogError, match=r"a.pt:1: a damaged file of torch.save: .*encrypted"):
        read_torch(str(tmp_path / "a.pt"), "a.pt")


def dumped(folder: Path, step: int, rank: int, index: int, name: str, **tags: object) -> Path:
    more = "".join(f"___{key}={value}" for key, value in tags.items())
    path = folder / f"step={step}___rank={rank}___dump_index={index}___name={name}{more}.pt"
    path.write_bytes((DATA / "torch_tensor.pt").read_bytes())
    return path


def test_the_files_of_a_step_and_rank_of_the_dumper_are_one_log(tmp_path: Path) -> None:
    dumped(tmp_path, 0, 0, 10, "layer_end__h", recompute_status="recompute", layer_id=3)
    first = dumped(tmp_path, 0, 0, 2, "non_intrusive__model.layers.0.mlp.output", recompute_status="disabled")
    dumped(tmp_path, 0, 0, 1, "non_intrusive__model.layers.0.mlp.inputs.0")
    dumped(tmp_path, 0, 0, 11, "grad__h")
    dumped(tmp_path, 0, 1, 1, "h")
    dumped(tmp_path, 1, 0, 1, "h")
    (tmp_path / "step=0___rank=0___dump_index=12___name=broken.pt").write_bytes(b"PK")
    run = find_run(str(tmp_path), step=0)
    assert list(run.paths) == [0, 1]
    for path in (run.paths[0], first):
        log = read_log(path)
        assert log.header.format == "torch.save (SGLang dumper)"
        assert list(log.keys) == [
            "model.layers.0.mlp/op_0_forward",
            "layers.3.layer_end__h/op_0_tensor",
            "h/op_0_gradient",
        ]
        assert log.recompute.tolist() == [False, True, False]
        assert log.producers[0].tolist() == [-1]
    assert "broken.pt" in log.problems[0].message
    assert raw_record(log, 0)[0] == first.name
