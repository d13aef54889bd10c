"""Kept operations of a comparison: which rows have them, and whole tensors from the parts of the ranks."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capture.keeping.bundle import safetensors_head
from matchers.comparison import compare
from matchers.logs.columns import Texts
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.logs.raw_record import MEMBERS
from matchers.single_run import single_run
from numtui.report.collectives import from_parts
from numtui.report.elements import read_tensor, read_whole, tensors_by_name
from numtui.report.html import write
from numtui.report.kept import KeptOperations
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from tests.captured import Step
from tests.kept import write_kept

X = np.arange(24, dtype=np.float32).reshape(4, 6)
KEY = "m/op_0_add"


def one_log(folder: Path, values: Any, rank: int = 0, **edit: Any) -> Path:
    """A log whose one operation is kept, and its result's entry in the manifest edited."""
    path = folder / f"rank_{rank}_activations.log"
    kept = write_kept(path, [Step(key=KEY, reads=[values], gives=[values * 2])], [KEY], rank=rank, step=1)
    manifest = kept / "manifest.json"
    told = json.loads(manifest.read_text())
    (call,) = told["calls"]
    call["returned"][0]["tensor"] |= edit.pop("tensor", {})
    call |= edit
    manifest.write_text(json.dumps(told))
    return path


def merged(*paths: Path) -> OpLog:
    """The logs of ranks as one, whose only record stands for those of all."""
    log = read_log(str(paths[0]))
    members = " ".join(f"{rank}:{read_log(str(path)).line[0]}" for rank, path in enumerate(paths))
    extra = {**log.extra, MEMBERS: Texts.of({0: members.encode()})}
    return replace(log, members={rank: str(path) for rank, path in enumerate(paths)}, extra=extra)


def placed(kind: str, *offsets: int, shape: tuple[int, ...] = (4, 6)) -> dict[str, Any]:
    return {"placement": {"mesh": {"tp": 2}, "placements": [kind], "shape": list(shape), "offsets": list(offsets)}}


def whole(*paths: Path) -> Any:
    kept = KeptOperations(c := single_run(merged(*paths)))
    assert kept.trouble == ""
    (parts,) = tensors_by_name(kept.sides(c, 0))["result 0"].values()
    assert len(parts) == len(paths)
    found = read_whole(parts)
    return None if found is None else found.values


def test_shards_of_ranks_make_the_global_tensor(tmp_path: Path) -> None:
    upper = one_log(tmp_path, X[:1], 0, tensor=placed("Shard(0)", 0, 0))
    lower = one_log(tmp_path, X[1:], 1, tensor=placed("Shard(0)", 1, 0))
    np.testing.assert_array_equal(whole(upper, lower), 2 * X)


def test_copies_are_one_tensor_if_they_are_equal(tmp_path: Path) -> None:
    copies = [one_log(tmp_path, X, rank, tensor=placed("Replicate()", 0, 0)) for rank in range(2)]
    np.testing.assert_array_equal(whole(*copies), 2 * X)
    other = one_log(tmp_path, X + 1, 1, tensor=placed("Replicate()", 0, 0))
    assert whole(copies[0], other) is None


@pytest.mark.parametrize(
    "lower",
    [
        placed("Partial(sum)", 1, 0),
        placed("Shard(0)", 2, 0),
        placed("Shard(0)", 1, 0, shape=(5, 6)),
        placed("Shard(0)", -1, 0),
        placed("Shard(0)", 0),
        {"placement": {"placements": 7}},
        {},
    ],
)
def test_terms_gaps_and_nonsense_make_no_whole(tmp_path: Path, lower: dict[str, Any]) -> None:
    paths = (
        one_log(tmp_path, X[:1], 0, tensor=placed("Shard(0)", 0, 0)),
        one_log(tmp_path, X[1:], 1, tensor=lower),
    )
    assert whole(*paths) is None


def test_a_row_of_merged_ranks_is_kept_if_all_of_them_have_kept_it(tmp_path: Path) -> None:
    paths = [one_log(tmp_path, X, rank) for rank in range(2)]
    (tmp_path / "rank_1_kept" / "manifest.json").unlink()
    kept = KeptOperations(c := single_run(merged(*paths)))
    assert kept.sides(c, 0) == {}
    assert "no manifest.json" in kept.trouble


def test_a_bundle_of_another_run_is_of_no_row(tmp_path: Path) -> None:
    path = one_log(tmp_path, X)
    changed = one_log(tmp_path / "other", X + 1)
    for file in (tmp_path / "other" / "rank_0_kept").iterdir():
        file.replace(tmp_path / "rank_0_kept" / file.name)
    c = compare(read_log(str(path)), read_log(str(changed)))
    assert KeptOperations(c).sign(c, 0) == " "


def test_a_conjugated_tensor_has_its_numbers(tmp_path: Path) -> None:
    values = np.array([1 + 2j, 3 - 4j], np.complex64)
    (tmp_path / "c.safetensors").write_bytes(safetensors_head({"bytes": values.tobytes()}) + values.tobytes())
    told = {"storage": "c", "dtype": "complex64", "shape": [2], "strides": [1], "offset": 0}
    for mark, expected in (("conj", [[1, -2], [3, 4]]), ("neg", [[-1, -2], [-3, 4]])):
        found = read_tensor(tmp_path, told | {mark: True}).values
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_a_collective_takes_the_parts_of_the_bundles_beside_it(tmp_path: Path) -> None:
    group = {"ranks": [0, 1], "nth": 3, "name": "w", "op": "sum"}
    paths = []
    for rank in range(2):
        given, result = X + rank, X + (X + 1)
        path = tmp_path / f"rank_{rank}_activations.log"
        folder = write_kept(path, [Step(key=KEY, reads=[given], gives=[result])], [KEY], rank=rank, step=1)
        told = json.loads((folder / "manifest.json").read_text())
        told["calls"][0]["group"] = group
        (folder / "manifest.json").write_text(json.dumps(told))
        paths.append(path)
    kept = KeptOperations(c := single_run(read_log(str(paths[1]))))
    (one,) = kept.sides(c, 0)["a"]
    assert from_parts(one)["as captured"]["together"] == "sum of the ranks in rank order, in float32"
    (tmp_path / "rank_0_kept" / "manifest.json").unlink()
    assert "needs the part of rank_0_kept, which is not there" in from_parts(one)["as captured"]["refused"]


def test_the_page_has_a_picture_of_where_kept_tensors_differ(tmp_path: Path) -> None:
    """Two elements of a result, and nothing of the equal input."""
    other = X * 2
    other[2, 1:3] += 1
    logs = []
    for name, result in (("a", X * 2), ("b", other)):
        path = tmp_path / name / "rank_0_activations.log"
        write_kept(path, [Step(key=KEY, reads=[X], gives=[result])], [KEY], rank=0, step=1)
        logs.append(read_log(str(path)))
    out = io.StringIO()
    write(Report(compare(logs[0], logs[1]), ReportOptions()), out)
    page = out.getvalue()
    section = page[page.index("<h2>Kept operations</h2>") :]
    assert section.count("<svg") == 1
    assert 'viewBox="0 0 6 4"' in section
    assert re.findall(r'<rect class="heat\d" x="(\d)" y="(\d)" width="(\d)"', section) == [("1", "2", "2")]
    assert "result 0, [4, 6] float32: 2 of 24 elements differ" in section
    assert "input 0" not in section
