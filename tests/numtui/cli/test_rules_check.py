"""`numtui rules check`: what is wrong goes to standard output, with its place, and the exit code says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from numtui.cli.main import main
from tests.builders import training_step, write_log

GOOD = "pairs:\n  - a: layers.0.attention.wq/op_0_mm\n    b: layers.0.attention.wq/op_0_mm\n"
BAD = GOOD + "  - a: layers.9.attention.wq/op_0_mm\n    b: layers.0.attention.wk/op_0_mm\n"


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    return [str(write_log(tmp_path / f"{name}.log", training_step())) for name in "ab"]


def rules(folder: Path, text: str) -> str:
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rules(tmp_path, BAD)
    assert main(["rules", "check", path]) == 0
    assert capsys.readouterr().out == f"{path}: 2 rules (2 pairs), all are understood\n"
    path = rules(tmp_path, BAD + "    enabled: false\n")
    assert main(["rules", "check", path]) == 0
    assert capsys.readouterr().out == f"{path}: 2 rules (2 pairs), 1 disabled, all are understood\n"
    path = rules(tmp_path, BAD + "  - c: d\n")
    assert main(["rules", "check", path]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{path}:6:")
    assert out[-1] == f"{path}: 2 rules (2 pairs), 1 rule broken"


def test_with_two_logs(tmp_path: Path, logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = rules(tmp_path, BAD)
    assert main(["rules", "check", path, *logs]) == 1
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[0].startswith(f"{path}:4:")
    assert "1 matches nothing, 1 is not needed for these two logs" in out[1]
    path = rules(tmp_path, GOOD)
    assert main(["rules", "check", path, *logs, "--hints"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "is not needed for these two logs: its pair is found without it" in out[0]
    assert out[1].endswith("nothing is wrong")


def test_what_cannot_be_checked(tmp_path: Path, logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err
    assert main(["rules", "check", rules(tmp_path, GOOD), logs[0]]) == 2
    assert "only" in capsys.readouterr().err
