"""The order of the judges: what each may claim, and that it says why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.verdict import verdicts
from matchers.verdict.case import Case, Judgement
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from matchers.verdict.verdicts import JUDGES, Judge
from tests.conftest import DATA, REPOSITORY
from tests.matchers.drifted_logs import pairs_of_logs
from tests.matchers.reasons import check_reasons
from tests.needs import examples

EXPECTATIONS = (Expectation(), *(Expectation(preset=preset) for preset in Expect))
PAIRS = (
    ("ac_none", "dtype_bf16"),
    ("fsdp2", "fsdp2_traced"),
    ("bug_base", "bug_neg_attn_l2"),
    ("order_bf16_a", "order_bf16_bug"),
    ("order_f32_a", "order_f32_b"),
)


def watched(judge: Judge) -> Judge:
    """The judge, whose claims are held against what it says."""

    def judged(case: Case, found: Judgement) -> Judgement:
        after = judge.judge(case, found)
        old, new = found.verdicts, after.verdicts
        claimed = old.reason != new.reason
        refined = {Reason(reason) for reason in old.reason[claimed].tolist()}
        assert refined <= judge.refines, (judge.judge, refined - judge.refines)
        np.testing.assert_array_equal(old.status[~claimed], new.status[~claimed], str(judge.judge))
        return after

    return judge._replace(judge=judged)


@pytest.fixture(autouse=True, scope="module")
def _watched() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "JUDGES", tuple(map(watched, JUDGES)))
        yield


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda e: e.preset.value if e.preset else "open")
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_judges_of_real_logs_claim_what_they_may_and_say_why(a: str, b: str, expectation: Expectation) -> None:
    logs = [read_log(DATA / f"{name}.log.gz") for name in (a, b)]
    check_reasons(compare(logs[0], logs[1], expectation=expectation))


@settings(max_examples=examples(60))
@given(pairs_of_logs())
def test_judges_of_drifted_logs_claim_what_they_may_and_say_why(logs: tuple[OpLog, OpLog]) -> None:
    for expectation in EXPECTATIONS:
        check_reasons(compare(*logs, expectation=expectation))


def test_the_docs_name_every_reason() -> None:
    docs = (REPOSITORY / "docs" / "matching.md").read_text(encoding="utf-8")
    assert [reason.label for reason in Reason if reason and f"`{reason.label}`" not in docs] == []
