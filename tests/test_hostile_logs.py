"""Whatever a file holds: a sentence or a report, never a traceback, and nothing in it reaches the terminal raw."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from matchers.comparison import compare
from matchers.errors import UserError
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from numtui.report.model import Report
from numtui.report.options import FORMATS, ReportOptions
from numtui.report.write import write
from numtui.text.safe import safe_text
from tests.hostile import RAW_CONTROL, WORKFLOW_COMMAND, hostile_logs, small_log
from tests.needs import stride

LOGS = dict(hostile_logs())


def reports(a: Path | OpLog, b: Path | OpLog) -> dict[str, str]:
    """Every report on two logs; the message alone where one cannot be read."""
    try:
        log_a, log_b = (log if isinstance(log, OpLog) else read_log(log) for log in (a, b))
        comparison = compare(log_a, log_b)
    except UserError as error:
        # As the command line prints it.
        return {"error": safe_text(str(error))}
    made = {}
    report = Report(comparison, ReportOptions(names=("a", "b")))
    for form in FORMATS:
        out = io.StringIO()
        write(report, out, form)
        made[form] = out.getvalue()
    for line in made["jsonl"].splitlines():
        json.loads(line, parse_constant=_refuse)
    assert made["jsonl"].count("\n") == len(comparison)
    return made


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_there_are_a_hundred() -> None:
    assert len(LOGS) >= 100


@pytest.mark.parametrize("name", LOGS)
def test_a_hostile_log_is_reported_on_and_kept_off_the_terminal(name: str, tmp_path: Path) -> None:
    """As one side against a good log (by turns, as both sides read and show a log alike), and as both sides."""
    hostile, good = tmp_path / "hostile.log", tmp_path / "good.log"
    hostile.write_bytes(LOGS[name])
    good.write_bytes(small_log())
    alone = (hostile, good) if [*LOGS].index(name) % 2 else (good, hostile)
    for a, b in (alone, (hostile, hostile)):
        for form, text in reports(a, b).items():
            found = RAW_CONTROL.search(text)
            if found is None and form in ("text", "markdown"):
                found = WORKFLOW_COMMAND.search(text)
            assert found is None, f"{found[0]!r} in {text[max(found.start() - 80, 0) : found.end() + 80]!r}"


def test_a_log_cut_off_anywhere_is_reported_on(tmp_path: Path) -> None:
    """At every eleventh byte; what is read of a log cut off at any byte is for the tests of the reader."""
    whole = small_log()
    good, cut = tmp_path / "good.log", tmp_path / "cut.log"
    good.write_bytes(whole)
    log = read_log(good)
    # A few words of the header are not yet a log; from then on it is one.
    start = len(b"Total captured activations:")
    for length in (0, start - 1, *range(start, len(whole), 11 * stride(5))):
        cut.write_bytes(whole[:length])
        made = reports(cut, log)
        assert not any(map(RAW_CONTROL.search, made.values())), length
        assert ("error" in made) == (length < start), length


def test_text_in_error_messages_is_made_safe(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J.log"
    path.write_bytes(b"no log")
    (message,) = reports(path, path).values()
    assert "␛[2J.log" in message
