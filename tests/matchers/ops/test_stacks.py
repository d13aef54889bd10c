"""Stacks of parameters, and the single ones that another run has."""

from __future__ import annotations

from matchers.ops.stacks import modules_of, parts_of_stack

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


def test_norms_that_are_alike_prove_no_stack() -> None:
    """Biases begin as zeros, weights of norms as ones: those of three layers are no bias of queries, keys, values."""
    zeros = {f"layers.{k}.norm.bias": (48, 0.0) for k in range(3)}
    assert parts_of_stack("layers.0.qkv.bias", 144, 0.0, zeros) == ()
    ones = {f"layers.{k}.norm.weight": (48, 48.0) for k in range(3)}
    assert parts_of_stack("layers.0.qkv.scale", 144, 144.0, ones) == ()
    experts = {f"blocks.0.experts.{k}.up.bias": (6, 0.0) for k in range(2)}
    beside = {
        modules_of("blocks.0.experts.up_weight", ("blocks.0.experts.0.up.weight", "blocks.0.experts.1.up.weight"))
    }
    assert parts_of_stack("blocks.0.experts.up_bias", 12, 0.0, experts, beside) == tuple(experts)
