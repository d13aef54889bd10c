"""Which numbers of a file are moved, and what the file is then."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.constants import FACTORS, constants

SOURCE = """\
_LIMIT, _STEPS = 2.0**-3, 64
ONE = 1

def double(x):
    return x[3.5] * 2.5 + other(x, 7) + _LIMIT * _STEPS
"""


def test_numbers_with_a_name_and_floats_are_moved(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE, "utf-8")
    (tmp_path / "two.py").write_text("from one import _STEPS\n\ndef steps():\n    return _STEPS\n", "utf-8")
    found = list(constants(tmp_path, "one.py"))
    assert [(c.line, c.text, c.whole) for c in found] == [(1, "2.0 ** (-3)", False), (1, "64", True), (5, "2.5", False)]
    assert found[1].users == {"one.py:double", "two.py:steps"}
    moved = [found[at].moved(SOURCE.encode(), factor).decode() for at, factor in ((0, "x3"), (1, "/3"), (2, "/3"))]
    assert [one.splitlines()[c.line - 1].strip() for one, c in zip(moved, found, strict=True)] == [
        "_LIMIT, _STEPS = ((2.0 ** (-3)) * 3), 64",
        "_LIMIT, _STEPS = 2.0**-3, (-(-(64) // 3))",
        "return x[3.5] * ((2.5) / 3) + other(x, 7) + _LIMIT * _STEPS",
    ]
    assert set(FACTORS) == {"x3", "/3"}
