"""What two captures have in common, told from their run info: the sentence above the report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from tests.capture.conftest import LOOP, Script

NAME = "numerics/rank_0_activations.log"


def captured(script: Script, folder: Path, text: str) -> OpLog:
    shutil.rmtree(folder / "out", ignore_errors=True)
    _ = script(text).log
    return read_log(folder / "out" / NAME)


OTHER_SEED = "Not comparable: all 4 parameters differ before the step, 0.weight first, by ≈"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOOP, ""),
        ("x = x + 1\n" + LOOP, "Not comparable: the batches differ, by ≈"),
        ("torch.manual_seed(43)\n" + LOOP, OTHER_SEED),
        (
            LOOP.replace("net()", "net().double(); x = x.double()"),
            "Compare with care: the dtype of the first batch",
        ),
        (LOOP.replace("model(x)", "model(x[:2])"), "Compare with care: the shape of the first batch is [4, 8] in a "),
    ],
)
def test_one_sentence_before_any_row(text: str, said: str, script: Script, tmp_path: Path) -> None:
    a, b = captured(script, tmp_path, LOOP), captured(script, tmp_path, text)
    sentence = compare(a, b).comparability.sentence
    assert sentence.startswith(said)
    assert bool(sentence) == bool(said)
