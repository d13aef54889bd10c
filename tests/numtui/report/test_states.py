"""Reports on checkpoints, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from numtui.cli.main import main
from tests.conftest import REPOSITORY
from tests.matchers.weights.checkpoints import fused, saved, separate
from tests.matchers.weights.test_weights import log

SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "states.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changed = separate()
    changed["layers.1.moe.experts.1.w2.weight"][2, 3] += 1
    saved(Path("a.safetensors"), separate())
    saved(Path("b.safetensors"), fused(separate()))
    saved(Path("c.safetensors"), fused(changed))


def test_a_changed_expert_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "a.safetensors", "c.safetensors"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "33 of 34 weights equal; layers.1.moe.experts.1.w2.weight differs."
    assert "  layers.1.moe.experts.1.w2.weight ⇄ layers.1.mlp.down[1] transposed" in lines
    assert "  layers.*.moe.experts.*.w1.weight ↔ layers.*.mlp.gate_up[*, :12] (6 times)" in lines


def test_equal_checkpoints_and_a_table_of_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "a.safetensors", "b.safetensors"]) == 0
    assert "34 of 34 weights equal." in capsys.readouterr().out
    assert main(["weights", "c.safetensors", "a.safetensors", "b.safetensors", "--against", "b.safetensors"]) == 1
    out = capsys.readouterr().out
    assert " a.safetensors     34        –       –             –\n" in out
    assert (
        " c.safetensors     11        –       1             –  layers.1.mlp.down, 1 of 288 elements, all in [1], "
        in out
    )


def test_json_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "a.safetensors", "c.safetensors", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    (of,) = report["comparisons"]
    (different,) = of["different_pairs"]
    assert (of["equal"], different["place"], different["differing"]) == (33, "[1] transposed", 1)
    assert main(["weights", "a.safetensors", "c.safetensors", "--format", "jsonl"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 34


def test_what_is_no_checkpoint_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.txt").write_text("text")
    Path("empty").mkdir()
    for other in ("x.txt", "empty"):
        assert main(["weights", "a.safetensors", other]) == 2
        assert "no weights are in it: expected safetensors" in capsys.readouterr().err


def test_a_log_of_weights_against_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a log only numbers are known; its weights have partners by name."""
    saved(Path("w.safetensors"), {"norm.weight": separate()["norm.weight"]})
    log(Path("rank_0_weights.log"), names=("norm.weight",))
    assert main(["weights", "rank_0_weights.log", "w.safetensors"]) == 1
    assert "step 3 of a log of weights, 1 tensor" in capsys.readouterr().out
