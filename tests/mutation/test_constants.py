"""Which numbers of a package are moved, which lines read them, and what the package does then."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutation.constants import FACTORS, Constant, Sources
from tests.mutation.moved import Package

ONE = """\
from functools import cache

_LIMIT, _STEPS = 2.0**-3, 64
_TWICE = 2 * _LIMIT
ONE = 1

def double(x):
    return x * 2.5 + other(x, 7) + _LIMIT * _STEPS

def other(x, y):
    return [x * y][-1 * ONE]

@cache
def twice():
    return _TWICE
"""
TWO = "from numbers_of_one.one import _STEPS as STEPS\n\n_LIMIT = 3\n\ndef steps():\n    return STEPS\n"


def package(folder: Path) -> Sources:
    room = folder / "numbers_of_one"
    room.mkdir()
    for name, text in (("__init__", ""), ("one", ONE), ("two", TWO)):
        (room / f"{name}.py").write_text(text, "utf-8")
    return Sources(room)


def test_numbers_with_a_name_and_floats_are_moved(tmp_path: Path) -> None:
    sources = package(tmp_path)
    one, two = "numbers_of_one/one.py", "numbers_of_one/two.py"
    found = list(sources.constants(one))
    assert [(c.line, c.text, c.whole) for c in found] == [
        (3, "2.0 ** (-3)", False),
        (3, "64", True),
        (4, "2", True),
        (8, "2.5", False),
    ]
    names = frozenset({"_LIMIT", "_STEPS"})
    assert [c.names for c in found] == [names, names, frozenset({"_TWICE"}), frozenset()]
    limit = {(one, 8), (one, 15), (two, 6)}  # not the name of another file
    assert [sources.read_at(c) for c in found] == [limit, limit, {(one, 15)}, {(one, 8)}]
    assert [found[at].moved(ONE, factor).splitlines()[found[at].line - 1] for at, factor in ((1, "/3"), (3, "x3"))] == [
        "_LIMIT, _STEPS = 2.0**-3, (-(-(64) // 3))",
        "    return x * ((2.5) * 3) + other(x, 7) + _LIMIT * _STEPS",
    ]
    assert set(FACTORS) == {"x3", "/3"}


@pytest.mark.parametrize(("at", "values"), [(0, (33.5, 0.75, 64)), (1, (33.5, 0.25, 192)), (3, (22.5, 0.25, 64))])
def test_all_that_is_made_of_a_number_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, values: tuple[float, float, int]
) -> None:
    """The function that reads it, others made of it, what a cache holds, and who has imported it."""
    sources = package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    one, two = (import_module(f"numbers_of_one.{name}") for name in ("one", "two"))
    try:
        double = one.double
        assert (double(1), one.twice(), two.steps()) == (17.5, 0.25, 64)
        changed: Constant = list(sources.constants("numbers_of_one/one.py"))[at]
        Package(sources).move(changed, "x3")
        assert (double(1), one.twice(), two.steps()) == values
    finally:
        for name in [name for name in sys.modules if name.startswith("numbers_of_one")]:
            del sys.modules[name]
