"""The judge of the table knows the place of a bug, and when two logs of one step have been paired rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchers.logs.parser import read_log
from tests.builders import Op, log_text
from tests.matchers.logs.imported.dumps import determinism
from tests.truth.imported.__main__ import FORMS, Like, like_own, place, right


@pytest.mark.parametrize(
    ("key", "frames", "expected"),
    [
        ("layers.1.attention.wo/op_0_mm", [], True),
        ("model.layers.1.attention/op_0_mul", [], True),
        ("layers.1.attention_norm/op_0_pow", [], False),
        ("layers.10.attention/op_0_mul", [], False),
        ("<none>/op_4_mul", ["examples/model.py:134"], True),
        ("<none>/op_4_mm", ["examples/model.py:99", "examples/model.py:134", "examples/train.py:9"], True),
        ("<none>/op_4_mul", ["examples/model.py:66", "examples/train.py:134"], False),
        ("", [""], False),
    ],
)
def test_a_bug_is_right_in_its_module_or_in_its_source(key: str, frames: list[str], expected: bool) -> None:
    assert right(key, "layers.1.attention", frames) == expected


def test_the_first_cause_is_meant_or_else_the_first_difference() -> None:
    said = {"a_keys": [], "b_keys": ["m/op_0_neg"], "location": "x.py:1"}
    assert place({"causes": [said], "first_difference": None}) == ("m/op_0_neg", "x.py:1")
    assert place({"causes": [], "first_difference": said})[0] == "m/op_0_neg"
    assert place({"causes": [], "first_difference": None}) == ("", "")


def test_pairs_of_a_log_of_modules_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(determinism("summary"))
    ops = [Op(key=f"decoder.layer{k}.input/op_0_add", shape=(2, 4), dtype="bfloat16", l2=90.5) for k in (0, 1)]
    (tmp_path / "b.log").write_text(log_text(ops))
    found = like_own(read_log(tmp_path / "a.jsonl"), read_log(tmp_path / "b.log"))
    assert found[:3] == Like(2, 2, 0, 0)[:3]


@pytest.mark.torch
def test_every_form_names_a_writer() -> None:
    from tests.truth.imported.writers import WRITERS

    assert {form.writer for form in FORMS.values()} == WRITERS.keys()
