"""The chain of a verdict: sentences that are true of one row and must not be said of another."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.rules.model import IgnoreRule, RuleSet, ToleranceRule
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from numtui.cli.main import main
from numtui.report.explanation import RowExplanation, explain_row
from tests.builders import op, write_log
from tests.captured import Step, captured_log
from tests.conftest import REPOSITORY
from tests.matchers.causes.test_first_causes import CHAIN, changed, flow
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.verdict.test_determinism import GIVEN, RUN, norms
from tests.matchers.verdict.test_determinism import compared as norms_compared

SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "explain.schema.json").read_text(encoding="utf-8"))


def chain(values: dict[str, float], **options: object) -> Comparison:
    a, b = (made_up_log(flow(steps)) for steps in (CHAIN, changed(CHAIN, values)))
    return compare(a, b, **options)  # type: ignore[arg-type]


def said(told: RowExplanation, title: str) -> list[str]:
    return [sentence.text for sentence in told.steps.get(title, ())]


def test_the_terms_of_a_limit_make_the_limit() -> None:
    """Norms of equal inputs, of other inputs, and of an estimate: three limits, each with its own terms."""
    given = [Step(key=f"m/op_{k}_silu", reads=[x], gives=[np.tanh(x)]) for k, x in enumerate(GIVEN)]
    other = [Step(key=step.key, reads=step.reads, gives=[step.gives[0] * np.float32(1 + 1e-7)]) for step in given]
    c = compare(captured_log(given, **RUN), captured_log(other, **RUN))
    alone = said(explain_row(c, 0), "Error and limit")
    assert "Limit 4.8e-07 = 4 ε of float32." in alone
    assert "Inputs are bitwise equal; each element is computed by itself." in alone
    by_norms = said(explain_row(chain({"mm": 3.1}), 2), "Error and limit")
    assert any(text.startswith("Limit 1.5e-05 = 128 ε of float32") for text in by_norms)
    assert not any("bitwise equal; each" in text for text in by_norms)


def test_nothing_is_guessed_of_a_limit_that_other_terms_made() -> None:
    c = chain({"mm": 3.1})
    c.tolerance[2] = 1.7e-5
    assert "Limit 1.7e-05; where it comes from is not stored." in said(explain_row(c, 2), "Error and limit")


def test_a_rule_and_an_option_are_named_as_the_limit() -> None:
    rules = RuleSet((ToleranceRule(match="*mm", rtol=0.5),), path="rules.yaml")
    assert "Limit 5.0e-01: set by rule 1 (rules.yaml)." in said(
        explain_row(chain({"mm": 3.1}, rules=rules), 2), "Error and limit"
    )
    told = explain_row(chain({"mm": 3.1}, expectation=Expectation(rtol=0.25)), 2)
    assert "Limit 2.5e-01: set by --rtol." in said(told, "Error and limit")


def test_the_limit_of_expected_rounding_has_the_error_of_the_inputs() -> None:
    c = chain({"mm": 3.00002, "softmax": 4.0001}, expectation=Expectation(Expect.REDUCTION_ORDER))
    limit = said(explain_row(c, 3), "Error and limit")
    assert "Limit 3.5e-04 = 8 × (1.5e-05 + 4 × 7.1e-06)." in limit
    assert "7.1e-06 is the largest error of its inputs, 4 is room for growth in one operation." in limit
    assert not any("largest error of its inputs" in text for text in said(explain_row(c, 2), "Error and limit"))


def test_siblings_that_repeat_are_counted() -> None:
    c = norms_compared(norms(), norms({1: 1e-6}))
    assert "Repeats elsewhere: 3 of 3 other native_layer_norm with equal inputs agree to the bit." in said(
        explain_row(c, 1), "What repeats"
    )
    assert "Limit 0: others of this form repeat to the bit." in said(explain_row(c, 1), "Error and limit")
    c = norms_compared(norms(), norms(dict.fromkeys(range(4), 1e-6)))
    assert not any(text.startswith("Repeats elsewhere") for text in said(explain_row(c, 1), "What repeats"))


def test_what_would_change_a_verdict_has_been_tried() -> None:
    c = chain({"mm": 3.1})
    (tolerance,) = (text for text in said(explain_row(c, 2), "What would change it") if "tolerance rule" in text)
    rtol = float(tolerance.split()[5].rstrip(","))
    enough = c.with_rules(RuleSet((ToleranceRule(match="m/op_2_mm", rtol=rtol),)))
    assert Status(enough.status[2]) == Status.CLOSE
    assert not any("tolerance" in text for text in said(explain_row(chain({"mm": np.nan}), 2), "What would change it"))
    ignored = c.with_rules(RuleSet((IgnoreRule(op="mm"),), path="r.yaml"))
    assert said(explain_row(ignored, 2), "What would change it") == ["Without rule 1 (r.yaml), it is diverged."]


def test_an_unpaired_row_says_who_could_be_its_partner() -> None:
    a, b = flow(CHAIN), flow([*CHAIN[:3], ("neg", 3.0, ["mm"]), *CHAIN[3:]])
    c = compare(made_up_log(a), made_up_log(b))
    row = int(np.flatnonzero(c.status == Status.ONLY_B)[0])
    assert "a has no neg in this phase." in said(explain_row(c, row), "Pair")


def test_a_consequence_names_its_cause_and_the_way() -> None:
    c = chain({"mul": 2.1, "mm": 3.1, "softmax": 4.1})
    told = explain_row(c, 3)
    assert said(told, "Cause")[0] == "Consequence of row 2, m/op_1_mul (model.py:1), 2 steps back on the data path."
    assert [hop.row for hop in told.hops] == [3, 2, 1]
    assert said(explain_row(c, 1), "Cause")[0] == "First cause 1 of 1: no other red row explains it."
    assert explain_row(c, 0).way is None


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    steps = (CHAIN, changed(CHAIN, {"mul": 2.1, "mm": 3.1}))
    return [str(write_log(tmp_path / f"{k}.log", flow(each))) for k, each in enumerate(steps)]


def test_a_row_is_named_by_its_number_or_its_key(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("3", "m/op_2_mm", "m/op_2"):
        assert main(["explain", *logs, name]) == 0
        assert capsys.readouterr().out.startswith("row 3 of 5: m/op_2_mm\n\nVerdict\n  CONSEQUENCE: ")
    assert main(["explain", *logs]) == 2
    assert "which row of " in capsys.readouterr().err
    for name, why in (
        ("0", "there is no row 0: rows are numbered from 1 to 5"),
        ("m/", "5 rows have a key with 'm/': 1 m/op_0_embedding, 2 m/op_1_mul, "),
        ("conv", "no row has a key with 'conv'"),
    ):
        assert main(["explain", *logs, name]) == 2
        assert why in capsys.readouterr().err


def test_options_that_decide_verdicts_decide_them_here(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *logs, "3", "--rtol", "0.5"]) == 0
    assert "Status close: differs within tolerance; reason within-tolerance." in capsys.readouterr().out


def test_a_row_of_one_log_is_explained(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", logs[0], "3"]) == 0
    out = capsys.readouterr().out
    assert "mm is a matrix product: each element is a sum" in out
    assert "\nPair\n" not in out


def test_json_is_what_its_schema_says(logs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for row in "1", "2", "3":
        assert main(["explain", *logs, row, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        jsonschema.validate(found, SCHEMA)
        assert found["row"] == int(row) - 1
    assert [hop["row"] for hop in found["way"]["hops"]] == [2, 1]
    assert {"text": "It is read by row 4, m/op_3_softmax (model.py:1) [same-print].", "row": 3} in [
        sentence for step in found["steps"] for sentence in step["sentences"]
    ]


def test_text_of_a_log_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for k, value in enumerate((1.0, 2.0)):
        made = op("m/op_0_mm", 3.0, location="\x1b]0;x\x07evil.py:1")
        read = op("m\x1b[2J/op_1_mul", value, inputs=made.outputs, producers=[made.key])
        paths.append(str(write_log(tmp_path / f"{k}.log", [made, read])))
    assert main(["explain", *paths, "2"]) == 0
    out = capsys.readouterr().out
    assert "evil.py:1" in out
    assert "\x1b" not in out
