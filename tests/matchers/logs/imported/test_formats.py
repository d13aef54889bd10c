"""Formats are told by content alone, and no log of ours or of torchtitan is taken for another tool's."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.logs.imported.formats import recognised
from matchers.logs.parser import read_log
from tests.builders import log_text, training_step
from tests.matchers.logs.imported.samples import hashes, saved, text


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (hashes(), "dump_tensor_hashes"),
        (hashes().split("=\n\n")[1], "dump_tensor_hashes"),
        (saved(), "save_logs"),
        (text(), "debug_string"),
        ("step 0 loss 1.5\n" + text(), "debug_string"),
    ],
)
def test_a_log_of_debug_mode_is_not_taken_for_torchtitans(written: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(written)
    assert read_log(tmp_path / "a.log").header.format == f"torch DebugMode ({name})"


@pytest.mark.parametrize("run", [None, {"command": ["aten::mm(t: f32[2])  ->  t: f32[2]"]}])
def test_a_log_of_ours_or_torchtitans_is_no_other_format(run: dict[str, list[str]] | None) -> None:
    written = log_text(training_step(3), run=run)
    assert recognised(written.encode()) is None
    assert recognised(written.partition("\n\n")[2].encode()) is None
