"""What the command line expects of two runs: `--expect`, `--rtol`, `--noise`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numtui.cli.main import main
from numtui.inputs import OpenRequest
from numtui.session.loading import load
from numtui.session.session import Session
from numtui.views.header import header
from tests.conftest import DATA


def logs(*names: str) -> list[str]:
    return [str(DATA / f"order_bf16_{name}.log.gz") for name in names]


@pytest.mark.parametrize(
    ("other", "options", "code"),
    [
        ("b", [], 1),
        ("b", ["--expect", "reduction-order"], 0),
        ("b", ["--expect", "low-precision"], 0),
        ("b", ["--expect", "bitwise"], 1),
        ("b", ["--rtol", "0.5"], 0),
        ("b", ["--noise", *logs("noise")], 0),
        ("bug", ["--expect", "reduction-order"], 1),
        ("bug", ["--noise", *logs("noise")], 1),
    ],
)
def test_the_exit_code_tells(
    other: str, options: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diff", *logs("a", other), *options, "-o", "out.txt"]) == code
    told = Path("out.txt").read_text()
    if other == "bug":
        assert "  1. layers.1.attention/op_5_mul\n" in told
    if code:
        assert f"\nNext: numtui {' '.join([*logs('a', other), *options])}\n" in told
    assert ("--expect reduction-order\n  (separates" in told) == (not options)


def test_a_run_folder_can_be_the_log_of_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "again" / "numerics"
    folder.mkdir(parents=True)
    (folder / "rank_0_activations.log.gz").write_bytes(Path(logs("noise")[0]).read_bytes())
    assert main(["diff", *logs("a", "b"), "--noise", "again", "-o", "out.txt"]) == 0
    assert "the noise log repeats a, perturbed" in Path("out.txt").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rtol", "1e-3", "--expect", "bitwise"], "exclude each other"),
        (["--noise", "x.log", "--expect", "bitwise"], "allows no noise"),
        (["--noise", "-"], "not standard input"),
        (["--noise", "no-such.log"], "no-such.log"),
    ],
)
def test_contradictions_are_answered(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diff", *logs("a", "b"), *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "much"])
def test_a_tolerance_is_a_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["diff", *logs("a", "b"), f"--rtol={value}"])
    assert "a tolerance is a number from 0 on" in capsys.readouterr().err


def test_the_explorer_expects_the_same(tmp_path: Path) -> None:
    a, b, noise = logs("a", "b", "noise")
    request = OpenRequest(
        path_a=a, path_b=b, name_a="a", name_b="b", rules_path=tmp_path / "none.yaml", noise_path=noise
    )
    told: list[str] = []
    loaded = load(request, lambda what, _fraction: told.append(what))
    assert not loaded.comparison.red.any()
    assert any(what.startswith("noise: ") for what in told)
    session = Session(loaded.comparison, loaded.file)
    assert "noise measured" in "".join(text for line in header(session, 200) for text, _ in line)
