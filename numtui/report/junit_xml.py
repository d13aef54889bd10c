"""JUnit's XML: suites of test cases, each passed, failed or skipped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from numtui.report.gate import Failure

__all__ = ["MAX_TEXT", "Case", "gate_cases", "write_suites"]

MAX_TEXT: Final = 400
"""Characters of an attribute."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: `failure` is a line, `details` the text under it; `skipped` says why nothing was judged."""

    name: str
    failure: str = ""
    details: str = ""
    skipped: str = ""


def gate_cases(fail_on: Iterable[str], failures: Collection[Failure], meanings: Mapping[str, str]) -> list[Case]:
    """Return a case per condition: those that were asked for, and others that hold.

    Args:
        meanings: of the conditions.
    """
    cases = []
    for condition in dict.fromkeys((*fail_on, *(failure.condition for failure in failures))):
        texts = [safe_text(failure.text, MAX_TEXT) for failure in failures if failure.condition == condition]
        name = f"{condition}: {meanings[condition]}"
        cases.append(Case(name, "; ".join(texts[:1]) + ("; …" if len(texts) > 1 else ""), "\n".join(texts)))
    return cases


def write_suites(
    name: str, suites: Sequence[tuple[str, Sequence[Case]]], out: TextIO, properties: Mapping[str, str] | None = None
) -> None:
    """Write the suites that have cases, by name.

    Args:
        properties: of the first suite.
    """
    suites = [(suite, cases) for suite, cases in suites if cases]
    told = "".join(f'<property name="{key}" value={_quoted(value)}/>' for key, value in (properties or {}).items())
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(f"<testsuites name={_quoted(name)} {_totals([case for _, cases in suites for case in cases])}>\n")
    for number, (suite, cases) in enumerate(suites):
        out.write(f"  <testsuite name={_quoted(suite)} {_totals(cases)}>\n")
        if number == 0 and told:
            out.write(f"    <properties>{told}</properties>\n")
        out.writelines(_xml(suite, case) for case in cases)
        out.write("  </testsuite>\n")
    out.write("</testsuites>\n")


def _totals(cases: Sequence[Case]) -> str:
    failed, skipped = sum(bool(c.failure) for c in cases), sum(bool(c.skipped) for c in cases)
    # No real time: two reports of the same logs must be equal.
    return f'tests="{len(cases)}" failures="{failed}" errors="0" skipped="{skipped}" time="0"'


def _xml(suite: str, case: Case) -> str:
    head = f'    <testcase classname={_quoted(suite)} name={_quoted(case.name)} time="0"'
    if case.failure:
        told = f"<failure message={_quoted(case.failure)} type={_quoted(suite)}>{escape(case.details)}</failure>"
        return f"{head}>{told}</testcase>\n"
    return f"{head}><skipped message={_quoted(case.skipped)}/></testcase>\n" if case.skipped else f"{head}/>\n"


def _quoted(text: str) -> str:
    return quoteattr(safe_text(text, MAX_TEXT))
