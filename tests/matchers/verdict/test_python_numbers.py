"""Numbers that Python puts into tensors, and such that it reads from tensors and gives to operations later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain, headline
from matchers.logs.parser import read_log
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from tests.builders import Op, op, write_log


def step(*, reward: float = 0.5, count: float = 3.0, mask: float = 1.0, read_at: str = "loss.py:4") -> list[Op]:
    """A count of a mask that Python reads, numbers that it puts into a tensor, and two operations with them."""

    def extra(seq: int, digest: float, given: float | None = None, **fields: object) -> Mapping[str, str]:
        told = {name: json.dumps(value) for name, value in fields.items()}
        inputs = {} if given is None else {"Input digests": f"{int(given * 1e9):x}"}
        return {"Seq": str(seq), "Digest": f"{int(digest * 1e9):x}", **inputs, **told}

    return [
        op("m/op_0_gt", mask, location="loss.py:3", extra=extra(0, mask)),
        op(
            "m/op_1_sum",
            count,
            shape=(),
            inputs=[3 * mask],
            producers=["m/op_0_gt"],
            location="loss.py:4",
            extra=extra(1, count, mask, Read=[[count, read_at]]),
        ),
        op(
            "m/op_2_lift_fresh",
            reward,
            shape=(2,),
            location="loss.py:5",
            extra=extra(2, reward, Arguments={"data": [1.0, reward]}),
        ),
        op(
            "m/op_3_exp",
            7 * reward,
            shape=(2,),
            inputs=[3 * reward],
            producers=["m/op_2_lift_fresh"],
            location="loss.py:6",
            extra=extra(3, 7 * reward, reward),
        ),
        op("m/op_4_ones", 1.0, location="loss.py:7", extra=extra(4, 1.0)),
        op(
            "m/op_5_div",
            1 / count,
            inputs=[3.0],
            producers=["m/op_4_ones"],
            location="loss.py:8",
            extra=extra(5, 1 / count, 1.0, Arguments={"other": count}),
        ),
    ]


def compared(tmp_path: Path, one: list[Op], other: list[Op], **run: object) -> Comparison:
    a, b = (
        read_log(write_log(tmp_path / f"{name}.log", records, run={"step": 1, **of}, footer=True))
        for name, records, of in (("a", one, {}), ("b", other, run))
    )
    return compare(a, b)


def test_other_numbers_of_python_are_the_first_cause_at_their_line(tmp_path: Path) -> None:
    c = compared(tmp_path, step(), step(reward=0.75))
    assert c.cause.nonzero()[0].tolist() == [2]
    assert headline(c, 2) == "FIRST CAUSE: data [1.0, 0.5] in a, [1.0, 0.75] in b; from Python"
    assert c.first_difference is not None
    assert c.first_difference.kind.label == "enters"


def test_rounding_of_what_python_computed_is_no_cause(tmp_path: Path) -> None:
    """Rewards of log probabilities that another kernel rounds otherwise; 0.5 is no such number."""
    c = compared(tmp_path, step(reward=0.7346291), step(reward=0.7346292))
    assert not c.red.any()
    assert any(note.endswith(": rounding") for note in explain(c, 2).notes)
    c = compared(tmp_path, step(reward=0.5), step(reward=0.50000006))
    assert c.cause.nonzero()[0].tolist() == [2]


def test_numbers_of_a_rank_are_not_judged(tmp_path: Path) -> None:
    c = compared(tmp_path, step(reward=16), step(reward=8), world_size=2)
    assert (c.status[2], c.reason[2]) == (Status.SHARDED, Reason.OTHER_ARRANGEMENT)


def test_numbers_that_only_one_log_has_are_not_compared(tmp_path: Path) -> None:
    """Those of a tensor that is too large, of which the other run has a chunk."""
    other = step(reward=0.75)
    other[2].extra = {name: text for name, text in other[2].extra.items() if name != "Arguments"}
    other[5].extra = {**other[5].extra, "Arguments": json.dumps({"other": 3.0})}
    c = compared(tmp_path, step(), other)
    assert headline(c, 2).startswith("FIRST CAUSE: the output differs by ")
    assert headline(c, 2).endswith("; from Python")


def test_numbers_of_python_may_follow_from_what_differed_before(tmp_path: Path) -> None:
    c = compared(tmp_path, step(), step(reward=0.75, mask=2.0, count=6.0))
    assert c.cause.nonzero()[0].tolist() == [0]
    assert c.role[2] == Role.RECEIVER


def test_an_argument_may_be_a_number_that_python_has_read(tmp_path: Path) -> None:
    c = compared(tmp_path, step(), step(count=4.0))
    assert "read by Python in a: 3 at loss.py:4" in explain(c, 1).notes
    assert headline(c, 1).startswith("FIRST CAUSE")
    assert not c.cause[5]  # it follows from what was read
    assert headline(c, 5).startswith("CONSEQUENCE: other 3.0 in a, 4.0 in b, perhaps read at loss.py:4; ")


def test_the_guess_needs_one_place_in_both_runs(tmp_path: Path) -> None:
    c = compared(tmp_path, step(), step(count=4.0, read_at="loss.py:40"))
    assert c.cause[5]
    assert headline(c, 5).startswith("FIRST CAUSE: other 3.0 in a, 4.0 in b; ")


def test_reads_are_untrusted(tmp_path: Path) -> None:
    for text in ("[[1]]", "3", '[["x", "a.py:1"], [1e999, "a.py:1"], [1, 2], [[], []]]', "{", "[" * 600):
        one = step()
        one[1].extra = {**one[1].extra, "Read": text}
        c = compared(tmp_path, one, step(count=4.0))
        for row in range(len(c)):
            explain(c, row)
