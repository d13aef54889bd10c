"""Rows that are assumed equal, and the causes behind them."""

from __future__ import annotations

import numpy as np

from matchers.comparison import Comparison, compare
from numtui.session.listing import Listing
from numtui.session.what_if import WhatIf, what_if
from tests.matchers.causes.test_further_causes import FIRST, SECOND, stepped


def assumed(c: Comparison, before: WhatIf | None, row: int) -> WhatIf:
    found = what_if(c, before, row)
    assert isinstance(found, WhatIf)
    return found


def three_mistakes() -> tuple[Comparison, list[int]]:
    """A first cause, one downstream that is certain, and one that only one run has: their rows."""
    c = compare(stepped(), stepped({FIRST: 0.25, "layers.2/op_0_mul": 0.75}, bent="3"))
    keys = [FIRST, "layers.2/op_0_mul", "layers.3/op_2_neg"]
    found = [c.shown(row)[0].keys[c.shown(row)[1]] for row in range(len(c))]
    return c, [found.index(key) for key in keys]


def test_each_assumption_brings_the_next_cause_until_nothing_red_is_left() -> None:
    c, (first, second, third) = three_mistakes()
    one = assumed(c, None, first)
    assert (one.next, one.told) == (second, f"{one.red:,} red rows left · next: row {second + 1}, independent cause")
    two = assumed(c, one, second)
    assert two.next == third
    assert two.told.endswith("possible cause")
    three = assumed(c, two, third)
    assert (three.red, three.told) == (0, "no red row is left")
    assert two.explained[c.red].sum() > one.explained[c.red].sum()


def test_an_assumption_is_taken_back_and_only_a_red_row_is_one() -> None:
    c, (first, _, _) = three_mistakes()
    one = assumed(c, None, first)
    back = assumed(c, one, first)
    assert (back.assumed, back.told) == ((), "nothing is assumed equal any more")
    assert what_if(c, one, first + 1) == "explained by what is assumed equal already"
    equal = int(np.flatnonzero(~c.red & ~c.cause)[0])
    assert what_if(c, None, equal) == "not red: W on a red row assumes that it were equal"


def test_keys_stop_at_what_is_left_until_the_verdicts_change() -> None:
    c = compare(stepped(), stepped({FIRST: 0.25, SECOND: 0.75}))
    listing = Listing(c)
    first, (second,) = int(np.flatnonzero(c.cause)[0]), c.further_causes[0]
    listing.assume(assumed(c, None, first))
    assert listing.cursor == second
    listing.go_line(0)
    listing.next_red()
    assert listing.cursor == second
    listing.go_line(0)
    listing.next_cause()
    assert listing.cursor == second
    assert np.flatnonzero(listing.view.map(len(c))).tolist() == np.flatnonzero(c.red)[second - first :].tolist()
    listing.show_comparison(compare(c.a, c.b))
    listing.go_line(0)
    listing.next_red()
    assert listing.cursor == first
