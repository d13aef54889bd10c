"""What a result without anything red rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.comparison import Comparison, compare
from matchers.status import Status
from numtui.report.evidence_basis import agreement, certificate
from tests.builders import training_step
from tests.captured import Step, captured_log
from tests.matchers.drifted_logs import made_up_log

ROWS = len(training_step(4))


def told(*status: Status) -> tuple[str, list[str]]:
    """Of a comparison whose rows are of these statuses."""
    log = made_up_log(training_step(4))
    c = compare(log, log)
    rows = np.full(len(c), Status.IGNORED, np.int8)
    rows[: len(status)] = status
    error = np.where(rows == Status.CLOSE, 1e-4 * np.arange(1, len(c) + 1), 0.0)
    made: Comparison = replace(c, verdict=rows, error=error, bound=np.ones(len(c), bool))
    return agreement(made), list(certificate(made))


def test_norms_say_what_they_cannot_see() -> None:
    outcome, sentences = told(Status.SAME_PRINT, Status.SAME_PRINT)
    assert outcome == "No divergence: 2 operations agree."
    assert sentences[0].startswith("2 operations by printed norms, which miss reordering")
    assert sentences[1] == f"Not compared: {ROWS - 2} ignored by rules."


def test_the_largest_error_within_the_tolerance_is_told() -> None:
    outcome, sentences = told(Status.EQUAL, Status.CLOSE, Status.CLOSE, Status.IGNORED, Status.RECOMPUTE)
    assert outcome == "No divergence: 3 operations agree."
    assert sentences[1] == "2 operations within tolerance, largest error ≥3.0e-04."
    assert sentences[2] == f"Not compared: 1 recomputed on one side, {ROWS - 4} ignored by rules."


def test_equal_bits_are_called_so() -> None:
    values = np.arange(4.0, dtype=np.float32)
    log = captured_log([Step(key="m/op_0_mul", reads=[values], gives=[values * 2])])
    c = compare(log, log)
    assert agreement(c) == "No divergence: 1 operation agrees bitwise."
    assert list(certificate(c)) == ["1 operation by digest: inputs and outputs are bitwise equal."]


def test_what_was_not_compared_does_not_agree() -> None:
    assert agreement(compare(made_up_log([]), made_up_log([]))) == "Nothing was compared: both logs are empty."
    assert told()[0] == "Nothing was compared: rules ignore every operation."
