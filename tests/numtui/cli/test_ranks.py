"""Comparison of two runs of several ranks on the command line: what is wrong with logs, parts, steps, rules."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from matchers.comparison import Comparison
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.part_file import joined, read_part
from matchers.runs.diff.summary import Outcome
from numtui.cli import ranks
from numtui.cli.comparing import compare_logs
from numtui.cli.main import main
from numtui.inputs import OpenRequest
from tests.builders import write_log
from tests.numtui.cli.rank_runs import OPS, ROW, compared, log_of, red_ops, write_runs


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def diff(*options: str) -> int:
    """Exit code of the comparison, in this process."""
    return main(["diff", "a", "b", "--workers", "1", *options])


def test_a_red_rank_is_exit_code_1_and_agreement_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=(1,))
    assert diff() == 1
    printed = capsys.readouterr()
    assert "1 of 3 ranks is red; it began on rank 1\n" in printed.out
    assert printed.err == ""
    write_runs(red=())
    assert diff() == 0
    assert "No divergence: 3 ranks agree\n" in capsys.readouterr().out


def test_pages_of_ranks_and_that_of_all_are_linked(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=(1,))
    assert diff("--pages", "-o", "a b.html") == 1
    page = Path("a b.html").read_text(encoding="utf-8")
    for rank in (0, 1):  # one of each class
        assert f'<a href="./a%20b.rank_{rank}.html">rank {rank}</a>' in page
        assert '<a href="./a%20b.html">all ranks</a>' in Path(f"a b.rank_{rank}.html").read_text(encoding="utf-8")
    assert "numtui diff" not in page
    assert {path.name for path in Path().glob("*.html")} == {"a b.html", "a b.rank_0.html", "a b.rank_1.html"}
    assert diff("--pages", "--format", "html") == 2
    assert "-o FILE.html" in capsys.readouterr().err


def test_a_rank_without_a_log_in_one_run_is_said_and_the_others_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_runs(red=())
    log_of("b", 2).unlink()
    assert diff() == 1
    printed = capsys.readouterr()
    assert "\nNot compared: rank 2; 2 ranks agree\n" in printed.out
    assert printed.err == (
        "numtui: fails on incomplete: rank 2: only a has a log of it\n"
        "numtui: fails on not-compared: rank 2: not compared\n"
    )
    assert diff("--fail-on", "not-compared") == diff("--fail-on", "incomplete") == 1
    assert [each.outcome for each in compared().summaries] == [Outcome.COMPARED, Outcome.COMPARED, Outcome.ABSENT]


def test_ranks_of_which_neither_run_has_a_log_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=())
    for run in ("a", "b"):
        log_of(run, 1).unlink()
    assert diff() == 1
    assert "fails on incomplete: rank 1: neither run has a log\n" in capsys.readouterr().err


def test_runs_of_other_numbers_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(ranks=2, red=())
    for rank in (2, 3):
        write_log(log_of("b", rank), OPS, run={"rank": rank, "world_size": 4, "step": 1}, footer=True)
    assert diff() == 1
    assert "ranks 2, 3: only b has a log of it\n" in capsys.readouterr().err


def test_a_log_that_is_cut_off_is_compared_as_far_as_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=())
    path = log_of("b", 0)
    path.write_text(path.read_text().partition(f"[{OPS[20].key}]")[0])
    assert diff("--fail-on", "incomplete") == 1
    assert "fails on incomplete: rank 0: b: the log is cut off" in capsys.readouterr().err
    summary = compared().summaries[0]
    assert summary.outcome == Outcome.COMPARED
    assert summary.records == (len(OPS), 20)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x01 not a log \xff" * 100, gzip.compress(b"Total captured activations: 5\n")[:20], b"\x1f\x8bdamaged"],
    ids=["empty", "binary", "half an archive", "damaged archive"],
)
def test_a_log_that_cannot_be_read_fails_its_rank_alone(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=(0,))
    log_of("b", 1).write_bytes(content)
    assert diff() == 1
    printed = capsys.readouterr()
    assert "1 of 3 ranks is red; it began on rank 0" in printed.out
    assert "numtui: fails on incomplete: rank 1: " in printed.err
    assert "internal error" not in printed.err


def test_a_log_without_operations_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=())
    for run in ("a", "b"):
        write_log(log_of(run, 1), [], run={"rank": 1}, footer=True)
    assert diff() == 1
    assert "rank 1: a: the log has no operations" in capsys.readouterr().err


def test_a_log_that_is_replaced_meanwhile_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(red=())

    def compare_and_write(request: OpenRequest, rules: Path | None) -> Comparison:
        made = compare_logs(request, rules)
        write_log(log_of("b", 2), red_ops())
        return made

    with monkeypatch.context() as patched:
        patched.setattr("numtui.cli.rank_task.compare_logs", compare_and_write)
        assert diff() == 1
    assert "rank 2: a log was replaced while it was compared" in capsys.readouterr().err
    assert diff() == 1
    assert "1 of 3 ranks is red; it began on rank 2\n" in capsys.readouterr().out


def test_nothing_to_compare_is_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs()
    for rank in range(3):
        log_of("b", rank).write_bytes(b"")
    assert diff() == 2
    assert capsys.readouterr().err.startswith("numtui: nothing was compared: ")
    assert diff("--step", "7") == 2
    assert main(["diff", "a", "nowhere"]) == 2


def test_an_internal_error_of_one_rank_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(red=(0,))

    def fail_on_1(request: OpenRequest, rules: Path | None) -> Comparison:
        if "rank_1_" in request.path_a:
            raise RuntimeError("broken")
        return compare_logs(request, rules)

    monkeypatch.setattr("numtui.cli.rank_task.compare_logs", fail_on_1)
    assert diff() == 1
    assert "rank 1: internal error: RuntimeError: broken (this is a bug)" in capsys.readouterr().err


def test_of_several_steps_one_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(red=(), step=1)
    write_runs(red=(2,), step=2)
    assert diff() == 1
    assert "First to differ: step 2\n" in capsys.readouterr().out
    assert diff("--shard", "1/1", "-o", "part.json") == 2
    assert "--step" in capsys.readouterr().err
    assert diff("--step", "1") == 0
    assert diff("--step", "2") == 1
    assert "3 ranks, step 2" in capsys.readouterr().out


def test_rules_apply_on_every_rank() -> None:
    """An operation that is ignored is red on none."""
    write_runs(red=(0, 2))
    Path("rules.yaml").write_text(f"version: 1\nignore:\n  - match: {OPS[ROW].key}\n    why: known\n")
    assert [each.red for each in compared().summaries] == [1, 0, 1]
    assert [each.red for each in compared("-r", "rules.yaml").summaries] == [0, 0, 0]
    assert diff("-r", "rules.yaml") == 0


def test_known_differences_apply_on_every_rank() -> None:
    """They stay red, and fail nothing."""
    write_runs(red=(0, 2))
    Path("known.yaml").write_text(f"version: 1\nallow:\n  - match: {OPS[ROW].key}\n    why: known\n")
    assert [each.red for each in compared("--allow", "known.yaml").summaries] == [1, 0, 1]
    assert diff("--allow", "known.yaml") == 0
    assert diff() == 1


@pytest.mark.parametrize(("option", "text"), [("-r", "version: ["), ("--allow", "version: ["), ("--allow", "allow: 5")])
def test_files_that_cannot_be_read_are_trouble(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Said once, also where a part of the ranks is compared."""
    write_runs()
    Path("broken.yaml").write_text(text)
    for part in ((), ("--shard", "1/2", "-o", "part.json")):
        assert diff(option, "broken.yaml", *part) == 2
        told = capsys.readouterr().err
        assert told.startswith("numtui: broken.yaml:")
        assert told.count("\n") == 1
    assert not Path("part.json").exists()


def test_a_rule_that_is_broken_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs()
    Path("rules.yaml").write_text("version: 1\npairs: 5\n")
    assert diff("-r", "rules.yaml") == 1
    assert (
        capsys.readouterr().err == "numtui: rules.yaml:2:8: 'pairs' must be a list of rules, each starting with '- '\n"
    )


def test_a_broken_rule_is_in_the_headline_and_fails_also_where_no_rule_was_needed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All ranks are equal by their footers: not one of them has read the rules."""
    write_runs(red=())
    Path("rules.yaml").write_text("version: 1\ntolerance:\n- match: '*'\n  rtol: .nan\n")
    assert diff("-r", "rules.yaml", "--fail-on", "stale-rule") == 1
    printed = capsys.readouterr()
    assert "\nNo divergence: 3 ranks agree; 1 rule entry is broken\n" in printed.out
    assert "fails on stale-rule: rules.yaml:4:9: 'rtol' must be a relative error" in printed.err
    assert main(["diff", "a", "b", "-r", "rules.yaml", "--shard", "1/1", "-o", "part.json"]) == 0
    assert main(["merge", "part.json", "--fail-on", "stale-rule"]) == 1


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(ranks, "_DASK_SECONDS", 0.2)
    write_runs()
    assert diff("--dask", "tcp://127.0.0.1:1") == 2
    assert "numtui: --dask tcp://127.0.0.1:1: no cluster answers there (" in capsys.readouterr().err


class TestParts:
    """`--shard` and `numtui merge`."""

    def parts(self, *options: str, number: int = 2) -> list[str]:
        """The files of all parts."""
        names = [f"part_{k}.json" for k in range(1, number + 1)]
        for k, name in enumerate(names, 1):
            assert diff("--shard", f"{k}/{number}", "-o", name, *options) == 0
        return names

    @pytest.mark.parametrize("number", [1, 2, 5])
    def test_merged_they_are_the_whole(self, number: int, capsys: pytest.CaptureFixture[str]) -> None:
        write_runs(red=(1,))
        assert diff() == 1
        whole = capsys.readouterr().out
        assert main(["merge", *reversed(self.parts(number=number))]) == 1
        assert capsys.readouterr().out == whole

    def test_a_missing_part_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_runs(red=())
        first, _ = self.parts()
        assert main(["merge", first]) == 1
        printed = capsys.readouterr()
        assert "\nNot compared: rank 1; 2 ranks agree\n" in printed.out
        assert "fails on incomplete: rank 1: part 2 of 2 is missing" in printed.err

    @pytest.mark.parametrize("options", [("--rtol", "0.5"), ("--read-all",)])
    def test_parts_of_other_criteria_do_not_fit(
        self, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """How the logs are read is no criterion."""
        write_runs(red=())
        first, second = self.parts()
        assert diff("--shard", "2/2", "-o", second, *options) == 0
        fits = options == ("--read-all",)
        assert main(["merge", first, second]) == (0 if fits else 2)
        assert ("parts of different comparisons" in capsys.readouterr().err) != fits

    def test_parts_of_other_runs_or_numbers_do_not_fit(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_runs(red=())
        first, second = self.parts()
        thirds = [f"of_3_{k}.json" for k in (1, 2)]
        for k, name in enumerate(thirds, 1):
            assert diff("--shard", f"{k}/3", "-o", name) == 0
        assert main(["merge", first, thirds[1]]) == 2
        Path("a").rename("c")
        assert main(["diff", "c", "b", "--workers", "1", "--shard", "2/2", "-o", second]) == 0
        assert main(["merge", first, second]) == 2
        assert capsys.readouterr().err.count("parts of different comparisons") == 2

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text[: len(text) // 2],
            lambda text: "[]",
            lambda text: text.replace('"numtui part": 1', '"numtui part": 99'),
            lambda text: text.replace('"outcome": 1', '"outcome": "red"'),
            lambda text: text.replace('"rank": 0', '"rank": null'),
            lambda text: text.replace('"index": 1', '"indices": 1'),
            lambda text: "[" * 100_000,
            lambda text: "\x00",
        ],
    )
    def test_a_damaged_part_is_trouble(self, change: object, capsys: pytest.CaptureFixture[str]) -> None:
        write_runs(red=())
        first, second = self.parts()
        path = Path(first)
        damaged = change(path.read_text())  # type: ignore[operator]  # a function
        assert damaged != path.read_text()
        path.write_text(damaged)
        assert main(["merge", first, second]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"numtui: {first}: is ")
        assert "internal error" not in told

    def test_a_part_that_is_not_there_is_trouble(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["merge", "nowhere.json"]) == 2
        assert "nowhere.json: cannot be read: No such file" in capsys.readouterr().err

    def test_a_part_goes_to_a_file_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        write_runs()
        assert diff("--shard", "1/2") == 2
        with pytest.raises(SystemExit):
            diff("--shard", "3/2", "-o", "part.json")
        assert not list(Path().glob("part*"))
        assert "-o" in capsys.readouterr().err

    def test_more_parts_than_ranks(self) -> None:
        write_runs(ranks=2, red=())
        found = {name: read_part(Path(name)) for name in self.parts(number=4)}
        assert [len(part.summaries) for part in found.values()] == [1, 1, 0, 0]
        comparison = RunComparison(("a", "b"), joined(found))
        assert [each.outcome for each in comparison.summaries.values()] == [Outcome.COMPARED] * 2

    def test_a_part_is_json_of_a_line(self) -> None:
        write_runs()
        (name,) = self.parts(number=1)
        assert json.loads(Path(name).read_text())["ranks"] == [0, 1, 2]
