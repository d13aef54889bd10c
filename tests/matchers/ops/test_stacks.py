"""Stacks of parameters, and the single ones that another run has."""

from __future__ import annotations

from matchers.ops.stacks import parts_of_stack

KNOWN = {
    "blocks.0.experts.0.up.weight": (6, 1.0),
    "blocks.0.experts.1.up.weight": (6, 2.0),
    "blocks.1.experts.0.up.weight": (6, 3.0),
    "blocks.1.experts.1.up.weight": (6, 4.0),
    "blocks.1.experts.0.down.weight": (6, 3.0),
    "blocks.1.experts.1.down.weight": (6, 4.0),
    "norm.weight": (12, 3.0),
}


def test_a_stack_consists_of_what_has_its_norm_together() -> None:
    found = parts_of_stack("blocks.0.stack.up_weight", 12, 3.0, KNOWN)
    assert found == ("blocks.0.experts.0.up.weight", "blocks.0.experts.1.up.weight")


def test_of_equal_norms_the_name_decides() -> None:
    found = parts_of_stack("blocks.1.stack.down_weight", 12, 7.0, KNOWN)
    assert found == ("blocks.1.experts.0.down.weight", "blocks.1.experts.1.down.weight")


def test_another_norm_or_size_is_no_stack() -> None:
    assert parts_of_stack("blocks.0.stack.up_weight", 12, 3.0001, KNOWN) == ()
    assert parts_of_stack("blocks.0.stack.up_weight", 13, 3.0, KNOWN) == ()
