"""What of a row can be copied."""

from __future__ import annotations

import pytest

from matchers.status import Status
from numtui.session.export import copies_of
from tests.numtui.fakes import comparison_of

E, A = Status.EQUAL, Status.ONLY_A


def test_each_text_once_and_said_whose_it_is() -> None:
    same, other = (comparison_of([E], keys=["m/op_0_mm"], keys_b=[b]) for b in ("m/op_0_mm", "w/op_3_mm"))
    assert copies_of(same, (0, 0)) == [("the key", "m/op_0_mm"), ("the source line", "model.py:1")]
    assert copies_of(other, (0, 0)) == [
        ("a's key", "m/op_0_mm"),
        ("b's key", "w/op_3_mm"),
        ("the source line", "model.py:1"),
    ]


@pytest.mark.parametrize(("spot", "expected"), [((0, -1), ["the key", "the source line"]), ((-1, -1), [])])
def test_a_row_of_one_side_and_none(spot: tuple[int, int], expected: list[str]) -> None:
    assert [what for what, _ in copies_of(comparison_of([A]), spot)] == expected
