"""The recipe for accelerate, as it stands in the docs: the log of `numtui capture` of the same script."""

from __future__ import annotations

from pathlib import Path

from tests.capture.runs import run_captured, run_plain
from tests.integrations.conftest import Runs, agree
from tests.test_docs import TEXTS, blocks

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=4, shuffle=True)
def loss_of(model, batch):
    return model(batch).square().mean()
"""


def test_the_recipe_of_the_docs(tmp_path: Path) -> None:
    [block] = [block for block in blocks(TEXTS["docs/capture.md"], "python") if "accelerator.prepare" in block]
    script = tmp_path / "train.py"
    script.write_text(HEAD + block)
    run_plain(script)
    # the recipe leaves the process to this
    run_captured(script, tmp_path / "b")
    runs = Runs(script, tmp_path)
    (log,) = runs.logs("runs/a").values()
    assert log.complete
    assert [row.fields["Micro-batch"] for row in log.of("addmm", "0")] == ["0", "1"]
    assert log.run["coverage"]["optimizers"] == [1, 1]
    assert agree(tmp_path / "runs" / "a", tmp_path / "b")
