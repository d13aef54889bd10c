"""Formats are told by content alone, and no log of ours or of torchtitan is taken for another tool's."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.errors import LogError
from matchers.logs.imported.formats import recognised
from matchers.logs.parser import read_log
from tests.builders import log_text, training_step

HASHES = f"""Total captured tensor hash ops: 1
{"=" * 80}

[M.a/op_1_aten::addmm]
  Call type: torch op
  Call index: 3
  Call depth: 3
  Input hashes: [0][0]=1.3289967775344849, [0][1]=9.476843148469925
  Output hashes: <root>=12.988341182470322

"""
TEXT = """    [nn.Mod] M
      aten::mul.Tensor(t: bf16[3, 4], nan)  ->  t: bf16[3, 4]  # {'hash': nan}
"""
JSON = '{"format": "torch.utils._debug_mode.DebugMode.logs", "version": 1, "logs": []}\n'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (HASHES, "dump_tensor_hashes"),
        (HASHES.split("=\n\n")[1], "dump_tensor_hashes"),
        (JSON, "save_logs"),
        (TEXT, "debug_string"),
        ("step 0 loss 1.5\n" + TEXT, "debug_string"),
    ],
)
def test_a_log_of_debug_mode_is_not_taken_for_torchtitans(text: str, name: str, tmp_path: Path) -> None:
    assert recognised(text.encode()) == f"torch DebugMode ({name})"
    (tmp_path / "a.log").write_text(text)
    with pytest.raises(LogError, match="cannot be read yet"):
        read_log(tmp_path / "a.log")


@pytest.mark.parametrize("run", [None, {"command": ["aten::mm(t: f32[2])  ->  t: f32[2]"]}])
def test_a_log_of_ours_or_torchtitans_is_no_other_format(run: dict[str, list[str]] | None) -> None:
    text = log_text(training_step(3), run=run)
    assert recognised(text.encode()) == ""
    assert recognised(text.partition("\n\n")[2].encode()) == ""
