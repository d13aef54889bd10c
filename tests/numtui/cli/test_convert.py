"""`numtui rules convert`: data to standard output or a file, diagnostics to standard error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matchers.rules.file import LARGEST, RuleFile
from numtui.cli.main import ExitCode, main

CSV = "# for run 7\na/op_0_x, b/op_1_x\n"
YAML = "version: 1\n\npairs:\n  # for run 7\n  - a: a/op_0_x\n    b: b/op_1_x\n"


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("o.csv").write_text(CSV)


@pytest.mark.parametrize("more", [[], ["-o", "-"]])
def test_to_standard_output(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "convert", "o.csv", *more]) == ExitCode.SAME
    assert capsys.readouterr() == (YAML, "")


def test_to_a_file_which_is_not_overwritten_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rules", "convert", "o.csv", "-o", "rules.yaml"]
    assert main(arguments) == ExitCode.SAME
    assert Path("rules.yaml").read_text() == YAML
    assert len(RuleFile.load("rules.yaml").rules) == 1
    Path("o.csv").write_text("c,d\n")
    assert main(arguments) == ExitCode.TROUBLE
    assert "rules.yaml: exists already" in capsys.readouterr().err
    assert Path("rules.yaml").read_text() == YAML
    assert main([*arguments, "--force"]) == ExitCode.SAME
    assert "a: c" in Path("rules.yaml").read_text()
    assert capsys.readouterr() == ("", "")


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fsync = os.fsync

    def appear(descriptor: int) -> None:
        Path("rules.yaml").write_text("theirs")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", appear)
    assert main(["rules", "convert", "o.csv", "-o", "rules.yaml"]) == ExitCode.TROUBLE
    assert "rules.yaml: exists already" in capsys.readouterr().err
    assert Path("rules.yaml").read_text() == "theirs"


def test_bad_lines_are_named_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("o.csv").write_text(CSV + "no comma\n" * 30)
    assert main(["rules", "convert", "o.csv", "-o", "rules.yaml"]) == ExitCode.TROUBLE
    out, err = capsys.readouterr()
    assert out == ""
    assert "numtui: o.csv:3: the comma is missing; write" in err
    assert "o.csv: nothing was converted: 30 lines could not be understood (10 more than shown)" in err
    assert len(err.splitlines()) == 21
    assert not Path("rules.yaml").exists()


def test_one_bad_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("o.csv").write_text("no comma\n")
    assert main(["rules", "convert", "o.csv"]) == ExitCode.TROUBLE
    assert capsys.readouterr().err.endswith("nothing was converted: 1 line could not be understood\n")


def test_a_file_without_pairs_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    Path("o.csv").write_text("# later\n")
    assert main(["rules", "convert", "o.csv"]) == ExitCode.SAME
    out, err = capsys.readouterr()
    assert out == "version: 1\n\npairs: []\n  # later\n"
    assert "there are no pairs" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "o.csv: cannot be read: No such file"),
        (b"#" * (LARGEST + 1), "this is no override file"),
        (b"".join(b"%060d,%060d\n" % (n, n) for n in range(31_000)), "larger than 4 MiB; split it"),
        (b"\xff\xfe", "o.csv:1: byte 0xff is not UTF-8"),
    ],
)
def test_what_cannot_be_converted(content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("o.csv").unlink()
    if content is not None:
        Path("o.csv").write_bytes(content)
    assert main(["rules", "convert", "o.csv"]) == ExitCode.TROUBLE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


@pytest.mark.parametrize("arguments", [[], ["convert"], ["nonsense"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["rules", *arguments])
    assert stopped.value.code == ExitCode.TROUBLE
    assert "usage: numtui rules" in capsys.readouterr().err
