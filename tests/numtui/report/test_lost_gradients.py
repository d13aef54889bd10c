"""Gradients that one run lacks, by the boundaries of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capture.keeping.bundle import Bundle
from numtui.report.lost_gradients import LostGradients, lost_gradients


def call(module: str, within: str | None, given: str = "x", gradients: str = "x", **more: Any) -> dict[str, Any]:
    sides = {"inputs": given.split(), "input_gradients": gradients.split(), "output_gradients": ["y"]}
    told = {"module": module, "within": within, "nth": 0, "recompute": False, "micro_batch": None}
    return told | {side: {name: {} for name in names} for side, names in sides.items()} | more


def bundle(*calls: dict[str, Any]) -> list[Bundle]:
    return [Bundle(Path("kept"), (), boundaries=calls)]


def test_it_is_cut_by_the_module_that_has_it_and_hands_it_on_without() -> None:
    a = bundle(call("m", None, "x c", "x c"), call("m.cross", "m", "x c", "x c"), call("m.cross.k", "m.cross"))
    b = bundle(call("m", None, "x c", "x c"), call("m.cross", "m", "x c"), call("m.cross.k", "m.cross", gradients=""))
    assert lost_gradients(a, b) == LostGradients(("m",))
    assert lost_gradients(a, a) == lost_gradients(b, b) == LostGradients()


def test_it_is_cut_by_the_module_that_takes_a_result_and_has_a_gradient_itself() -> None:
    a = bundle(call("m", None), call("m.k", "m"), call("m.k.up", "m.k"))
    none: dict[str, Any] = {"gradients": "", "output_gradients": {}}
    assert lost_gradients(
        a, bundle(call("m", None), call("m.k", "m", **none), call("m.k.up", "m.k", **none))
    ).cut_in == ("m",)
    assert lost_gradients(a, bundle(call("m", None, **none), call("m.k", "m", **none))).cut_in == (), (
        "the loss lacks it"
    )


def test_what_was_not_kept_tells_nothing() -> None:
    a = bundle(call("m", None), call("m.k", "m"))
    missed = call("m.k", "m", gradients="", missed={"input_gradients x": "too much"})
    assert lost_gradients(a, bundle(call("m", None), missed)).cut_in == ()


def test_weights_without_gradient_have_names() -> None:
    a, b = (bundle(call("optimizer", None, given, "")) for given in ("m.k.weight m.v.weight", "m.v.weight"))
    assert lost_gradients(a, b).weights == {"m.k"}
    assert lost_gradients(a, bundle()).weights == frozenset(), "an optimizer that was not captured"
