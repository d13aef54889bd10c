"""`numtui bisect` as a whole, with captures that train nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from numtui.cli.main import main
from numtui.experiments.capturing import CaptureCommand
from tests.conftest import REPOSITORY
from tests.numtui.experiments.made_up import Model, captured, digests, make_repository, model

GOOD = ("--good", "HEAD~7")
COMMAND = ("--", "sub/train.py")


class Bed:
    """A repository, in which `bisect` runs without torch."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.repository, self.output = folder / "repository", folder / "out"
        self.runs: list[str] = []
        self.before: Callable[[int], None] = lambda _: None
        self._capsys = capsys
        monkeypatch.setattr(CaptureCommand, "run", captured(self.runs, self._before))
        self._monkeypatch = monkeypatch

    def _before(self, number: int) -> None:
        self.before(number)

    def make(self, models: list[Model]) -> list[str]:
        hashes = make_repository(self.repository, models)
        self._monkeypatch.chdir(self.repository)
        return hashes

    def bisect(self, *arguments: str, code: int = 1) -> Any:
        """Return the JSON report of `numtui bisect`; the text of what went wrong for code 2."""
        began = digests(self.repository)
        given = arguments or (*GOOD, *COMMAND)
        at = given.index("--") if "--" in given else len(given)
        line = ["bisect", *given[:at], "-o", str(self.output), "--format", "json", *given[at:]]
        assert main(line) == code
        out, err = self._capsys.readouterr()
        assert digests(self.repository) == began
        return err if code > 1 else json.loads(out)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bed:
    return Bed(tmp_path, monkeypatch, capsys)


def since(commit: int, **bug: Any) -> list[Model]:
    """Eight models, with a bug from a commit on."""
    return [model(**(bug if number >= commit else {})) for number in range(8)]


def commits_of(report: Any) -> dict[str, list[str]]:
    return {each["key"]: [commit["subject"] for commit in each["commits"]] for each in report["causes"]}


def test_the_report(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    bed.make(since(4, top=1.01))
    report = bed.bisect()
    assert commits_of(report) == {"layers.top/op_0_mul": ["commit 4"]}
    assert len(bed.runs) == report["runs"] == 5
    assert report["causes"][0]["magnitude"] == -2
    jsonschema.validate(report, json.loads((REPOSITORY / "docs/schema/bisect.schema.json").read_text()))
    assert main(["bisect", "--resume", "-o", str(bed.output)]) == 1
    told, _ = capsys.readouterr()
    assert told.startswith("1 cause, the commit found of it; 5 runs for 7 commits\n")
    assert "mul: diverged by ≈8.9e-03, forward, model.py:3" in told
    assert "→ since" in told
    assert "A U Thor" in told
    assert len(bed.runs) == 5


def test_a_healthy_bad_revision_is_said_at_once(bed: Bed) -> None:
    bed.make(since(8))
    report = bed.bisect(code=0)
    assert report["result"].startswith("Nothing differs between ")
    assert len(bed.runs) == 2


def test_other_weights_end_it_before_anything_is_blamed(bed: Bed) -> None:
    bed.make(since(4, weights="other", top=1.5))
    told = bed.bisect(code=2)
    assert "differ before the step: the parameter differs before the step: w" in told
    assert len(bed.runs) == 2


def test_a_good_revision_that_does_not_start_ends_it(bed: Bed) -> None:
    models = since(4, top=1.5)
    models[0]["starts"] = False
    bed.make(models)
    assert "does not run: ended with 1: ImportError" in bed.bisect(code=2)


@pytest.mark.parametrize("phase", [1, 2, 4])
def test_interrupted_and_resumed_it_comes_to_the_same(bed: Bed, phase: int, tmp_path: Path) -> None:
    bed.make(since(4, top=1.01))
    whole = bed.bisect()
    runs = list(bed.runs)
    bed.runs.clear()
    bed.output = tmp_path / "again"

    def interrupted(number: int) -> None:
        if number == phase:
            raise KeyboardInterrupt

    bed.before = interrupted
    bed.bisect(code=130)
    bed.before = lambda _: None
    assert bed.bisect("--resume") == whole
    assert bed.runs == [*runs[:phase], *runs[phase - 1 :]]
    with (bed.output / "runs.jsonl").open("a") as journal:
        journal.write('{"run": "cut of')
    assert bed.bisect("--resume", "--good", "HEAD~7") == whole


def test_a_folder_of_which_nothing_was_noted_is_begun_anew(bed: Bed) -> None:
    bed.make(since(4, top=1.01))
    bed.output.mkdir()
    (bed.output / ".gitignore").write_text("*")
    (bed.output / "runs.jsonl").write_text('{"asked": {"good": "')
    assert commits_of(bed.bisect()) == {"layers.top/op_0_mul": ["commit 4"]}
    (bed.output / "runs.jsonl").unlink()
    assert "not empty: name another folder" in bed.bisect(code=2)


def test_resuming_goes_on_with_what_was_asked_for(bed: Bed, tmp_path: Path) -> None:
    bed.make(since(4, top=1.01))
    assert "nothing to resume" in bed.bisect("--resume", code=2)
    bed.bisect()
    assert "good was" in bed.bisect("--resume", "--good", "HEAD", code=2)
    assert "not empty: --resume goes on there" in bed.bisect("--good", "HEAD~3", "--", "sub/train.py", code=2)


def test_links_are_there_at_each_revision_and_what_a_run_leaves_is_not(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.make(since(4, top=1.01))
    (bed.repository / "data").mkdir()
    (bed.repository / "data" / "tokens").write_text("1 2 3")
    seen, run = [], CaptureCommand.run

    def reads(self: CaptureCommand, output: Path, cwd: Path) -> str:
        seen.append(((cwd / "data" / "tokens").read_text(), (cwd / "left").exists(), (cwd / "built").read_text()))
        (cwd / "left").write_text("by a run")
        return run(self, output, cwd)

    monkeypatch.setattr(CaptureCommand, "run", reads)
    install = "cat notes.txt > built"
    bed.bisect("--good", "HEAD~7", "--link", "data", "--install", install, "--", "sub/train.py")
    assert {(data, left) for data, left, _ in seen} == {("1 2 3", False)}
    assert len({built for *_, built in seen}) == len(seen)
    assert "no such path" in bed.bisect("--good", "HEAD~3", "--link", "nothing", "--", "sub/train.py", code=2)


def test_flaky_revisions_are_repeated(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.make(since(4, top=1.01))
    run = CaptureCommand.run

    def flaky(self: CaptureCommand, output: Path, cwd: Path) -> str:
        told = json.loads((cwd / "model.json").read_text())
        if told["top"] != 1 and not output.name.endswith("-2"):  # the first run of each is healthy
            (cwd / "model.json").write_text(json.dumps(told | {"top": 1}))
        return run(self, output, cwd)

    monkeypatch.setattr(CaptureCommand, "run", flaky)
    report = bed.bisect("--good", "HEAD~7", "--repeat", "2", "--", "sub/train.py")
    assert commits_of(report) == {"layers.top/op_0_mul": ["commit 4"]}


def test_what_would_run_the_checkout_itself_is_refused(bed: Bed) -> None:
    bed.make(since(4, top=1.01))
    script = bed.repository / "sub" / "train.py"
    assert "write sub/train.py" in bed.bisect("--good", "HEAD~3", "--", str(script), code=2)
    assert "no such revision" in bed.bisect("--good", "nowhere", "--", "sub/train.py", code=2)
    assert "leave -o out" in bed.bisect("--good", "HEAD~3", "--capture=-o x", "--", "sub/train.py", code=2)
