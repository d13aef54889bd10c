"""`numtui cache` and what reports take from it: the same text, messages and exit code as made anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matchers.files.cache_folder import CacheFolder
from matchers.logs import cache, file_identity
from numtui.cli import comparing, kept_report
from numtui.cli.main import main
from numtui.cli.user_cache import user_cache
from numtui.folders import cache_folder
from numtui.inputs import OpenRequest
from numtui.session.loading import load, warm
from tests.builders import training_step, write_log
from tests.conftest import EXAMPLES


@pytest.fixture(autouse=True)
def _fresh_cache_for_small_logs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache" / "numtui"
    cache.mkdir(parents=True, mode=0o700)
    for library in Path(os.environ["XDG_CACHE_HOME"], "numtui").glob("*.so"):
        shutil.copy(library, cache)  # it takes a second to compile
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    monkeypatch.setattr(file_identity, "WORTHWHILE", 0)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    """One operation differs, and b is cut off."""
    ops = training_step(1)
    a = write_log(tmp_path / "a.log", ops)
    b = write_log(tmp_path / "b.log", [replace(ops[0], outputs=[1.0], l2=1.0), *ops[1:]])
    b.write_bytes(b.read_bytes()[:-9])
    return str(a), str(b)


_SMALL_LOGS_TOO = """
from matchers.logs import file_identity
file_identity.WORTHWHILE = 0
from numtui.__main__ import run
run()
"""


class Report:
    """`numtui diff`, and what it told."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["diff", *arguments])
        return code, *self._capfd.readouterr()

    def kept(self, *arguments: str) -> tuple[int, str, str] | None:
        """What is told without reading a log or comparing anything; None where that is needed."""

        class Needed(Exception):
            pass

        def fail(*_: object, **__: object) -> None:
            raise Needed

        with self._monkeypatch.context() as patch:
            patch.setattr("numtui.cli.comparing.compared", fail)
            code, out, err = self(*arguments)
        return None if "Needed" in err else (code, out, err)


@pytest.fixture
def report(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    return Report(capfd, monkeypatch)


def test_the_second_report_is_the_first(logs: tuple[str, str], report: Report) -> None:
    anew = report("--no-cache", *logs)
    assert cache_folder().exists() is False
    assert "1 first cause" in anew[1]
    assert "the log is cut off" in anew[2]
    assert report(*logs) == anew
    assert report.kept(*logs) == anew
    assert report.kept("--no-cache", *logs) is None


@pytest.mark.parametrize("options", [["--fail-on", "unmatched,incomplete"], ["--name-a", "one"], ["--rtol", "0.5"]])
def test_other_options_make_another_report(logs: tuple[str, str], report: Report, options: list[str]) -> None:
    report(*logs)
    assert report.kept(*logs, *options) is None
    anew = report("--no-cache", *logs, *options)
    assert report(*logs, *options) == anew
    assert report.kept(*logs, *options) == anew


def test_what_a_report_is_made_of_changes_it(logs: tuple[str, str], report: Report) -> None:
    rules, allowed = Path("r.yaml"), Path("known.yaml")
    allow = "version: 1\nallow:\n  - match: '{}'\n    why: agreed\n"
    rules.write_text("version: 1\n")
    allowed.write_text(allow.format("x"))
    told = [*logs, "-r", "r.yaml", "--allow", "known.yaml"]
    report(*told)
    assert report.kept(*told) is not None
    rules.write_text("version: 1\ntolerance:\n  - match: '*'\n    rtol: 1.0e+9\n")
    assert report.kept(*told) is None
    assert report(*told) == report("--no-cache", *told)
    allowed.write_text(allow.format("*"))
    assert report.kept(*told) is None
    assert report(*told) == report("--no-cache", *told)


def test_rules_from_a_pipe_are_read_once(logs: tuple[str, str]) -> None:
    rules = "version: 1\ntolerance:\n  - match: '*'\n    rtol: 1.0e+9\n"
    command = [sys.executable, "-c", _SMALL_LOGS_TOO, "diff", *logs, "-r", "/dev/stdin"]
    for _ in range(2):
        done = subprocess.run(command, input=rules, capture_output=True, text=True, check=False)
        assert "Rules: 1 rule from /dev/stdin" in done.stdout


def test_rules_that_change_meanwhile_keep_nothing(
    logs: tuple[str, str], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report was made of other rules than its name says."""
    rules = Path("r.yaml")
    rules.write_text("version: 1\n")

    def compared(*arguments: Any, **options: Any) -> Any:
        rules.write_text("version: 1\ntolerance:\n  - match: '*'\n    rtol: 1.0e+9\n")
        return before(*arguments, **options)

    before = comparing.compared
    with monkeypatch.context() as patch:
        patch.setattr(comparing, "compared", compared)
        late = report(*logs, "-r", "r.yaml")
    assert late == report("--no-cache", *logs, "-r", "r.yaml")
    rules.write_text("version: 1\n")
    assert report.kept(*logs, "-r", "r.yaml") is None


def test_rules_that_are_found_in_this_folder(logs: tuple[str, str], report: Report) -> None:
    report(*logs)
    Path("overrides.yaml").write_text("version: 1\n")
    assert report.kept(*logs) is None, "they are mentioned"
    anew = report(*logs)
    assert "overrides.yaml was found" in anew[2]
    assert report.kept(*logs) == anew


def test_a_report_to_a_file(logs: tuple[str, str], report: Report) -> None:
    report(*logs, "-o", "one.txt")
    assert report.kept(*logs, "-o", "two.txt") is not None
    assert Path("one.txt").read_bytes() == Path("two.txt").read_bytes()


@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_other_forms_are_made_anew_from_columns(logs: tuple[str, str], report: Report, form: str) -> None:
    first, second = (report(*logs, "--format", form) for _ in range(2))
    assert first == second == report("--no-cache", *logs, "--format", form)
    assert {item.path.suffix for item in CacheFolder(cache_folder(), 1 << 30).items()} == {f".{cache.COLUMNS}"}


def test_a_log_that_changed_under_the_same_name_and_times(
    logs: tuple[str, str], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = report(*logs)
    known = {path: file_identity.FileIdentity.of(path) for path in logs}
    path = Path(logs[1])
    path.write_text(path.read_text().replace("Mean: ", "Mean:9", 1))
    monkeypatch.setattr(file_identity.FileIdentity, "of", known.get)
    assert report.kept(*logs) is None
    assert report(*logs) != before
    assert report(*logs) == report("--no-cache", *logs)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_damaged_entries_only_cost_time(logs: tuple[str, str], report: Report, damage: str) -> None:
    anew = report(*logs)
    items = CacheFolder(cache_folder(), 1 << 30).items()
    assert len(items) == 3
    for item in items:
        data = bytearray(item.path.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
        elif damage == "cut":
            del data[-1:]
        else:
            data[:] = b"" if damage == "empty" else items[0].path.read_bytes()
        item.path.write_bytes(data)
    assert report(*logs) == anew
    assert report.kept(*logs) == anew, "made anew and kept again"


def test_other_code_makes_the_report_anew(
    logs: tuple[str, str], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(*logs)
    monkeypatch.setattr(kept_report, "source_digest", lambda *_: "other")
    assert report.kept(*logs) is None


def test_a_third_log_and_standard_input(logs: tuple[str, str], report: Report) -> None:
    report(*logs, "--noise", logs[0])
    assert report.kept(*logs, "--noise", logs[0]) is None
    command = [sys.executable, "-m", "numtui", "diff", logs[0], "-"]
    with open(logs[1], "rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, check=False)
    assert b"1 first cause" in done.stdout


def test_a_report_that_nobody_reads_to_the_end_is_an_error_as_ever(logs: tuple[str, str], report: Report) -> None:
    report(*logs)
    code, _, err = report(*logs, "-o", "/dev/full")
    assert (code, "cannot be written" in err) == (2, True)


def test_turned_off(logs: tuple[str, str], report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMTUI_CACHE", "0")
    report(*logs)
    assert user_cache() is None
    monkeypatch.delenv("NUMTUI_CACHE")
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "numtui" / "config.yaml"
    settings.parent.mkdir()
    for text, limit in (("cache: false", None), ("cache: 3 MiB", 3 << 20), ("", 1 << 30), ("cache: 3 apples", None)):
        settings.write_text(text)
        found = user_cache()
        assert (found and found.limit) == limit
    report(*logs)
    assert not cache_folder().exists()


def test_the_command_says_where_and_how_much(
    logs: tuple[str, str], report: Report, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*arguments: str) -> str:
        assert main(["cache", *arguments]) == 0
        return capfd.readouterr().out

    assert told() == f"{cache_folder()}: 0 logs and 0 reports, 0 bytes of 1 GiB\n"
    assert told("clear") == f"{cache_folder()}: 0 bytes deleted\n"
    report(*logs)
    assert told().startswith(f"{cache_folder()}: 2 logs and 1 report, ")
    cache_folder().chmod(0o777)
    assert "others may write there" in told()
    monkeypatch.setenv("NUMTUI_CACHE", "0")
    assert "(turned off)" in told()
    assert told("clear").endswith("KiB deleted\n")
    assert "0 logs and 0 reports" in told()


def test_the_explorer_keeps_and_finds_logs(logs: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder(cache_folder(), 1 << 30)
    request = OpenRequest(
        path_a=logs[0], path_b=logs[1], name_a="a", name_b="b", rules_path=Path("overrides.yaml"), cache=folder
    )
    first = load(request, lambda _what, _fraction: None)
    warm(first, folder)
    assert len(folder.items()) == 2
    monkeypatch.setattr(cache, "read_log", None)
    second = load(request, lambda _what, _fraction: None)
    assert second.comparison.status.tolist() == first.comparison.status.tolist()


def test_small_logs_are_not_kept(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(file_identity, "WORTHWHILE", 1 << 20)
    report(str(EXAMPLES / "eager"), str(EXAMPLES / "traced"))
    assert not cache_folder().exists()
