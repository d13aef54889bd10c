"""Fused weights by their sizes and norms, where a log has no digests of rows."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from matchers.ops.fused import Fused, fused, fused_by_norms, fused_otherwise, renamed
from matchers.ops.run_info import Severity, compare_run_info

Weight = tuple[int, float, float]
"""Number of elements, norm, mean."""


def run(weights: dict[str, Weight]) -> dict[str, Any]:
    return {
        "parameter_digests": {name: f"{crc32(name.encode()):016x}" for name in weights},
        "start_sketches": {name: ["", size] for name, (size, _, _) in weights.items()},
        "end_state": {name: ["0", norm, mean] for name, (_, norm, mean) in weights.items()},
    }


EXPERTS: dict[str, Weight] = {
    f"layers.{layer}.experts.{expert}.w{k}.weight": (8, 3.0 + layer + expert / 8 + k / 32, 0.01 * k - 0.001 * expert)
    for layer in (0, 1)
    for expert in (0, 1)
    for k in (1, 2, 3)
}


def together(layer: int, *kinds: int) -> Weight:
    of = [EXPERTS[f"layers.{layer}.experts.{expert}.w{k}.weight"] for expert in (0, 1) for k in kinds]
    return 8 * len(of), sum(norm**2 for _, norm, _ in of) ** 0.5, sum(mean for _, _, mean in of) / len(of)


STACKED: dict[str, Weight] = {
    f"layers.{layer}.experts.{name}": together(layer, *kinds)
    for layer in (0, 1)
    for name, kinds in (("gate_up_proj", (1, 3)), ("down_proj", (2,)))
}
COMMON: dict[str, Weight] = {"embed.weight": (64, 8.0, 0.0)}


def test_the_digit_of_a_name_is_no_index() -> None:
    """`w1` and `w3` of all experts of a layer are one weight, `w2` another."""
    a, b = run(COMMON | EXPERTS), run(COMMON | STACKED)
    assert not fused(a, b)
    found = fused_by_norms(a, b)
    assert [(one.side, one.whole) for one in found] == [("b", name) for name in STACKED]
    kinds = (("w1", "w3"), ("w2",)) * 2
    for one, of in zip(found, kinds, strict=True):
        layer = one.whole.split(".")[1]
        expected = {name for name in EXPERTS if name.split(".")[1] == layer and name.split(".")[4] in of}
        assert set(one.parts) == expected
    assert fused_by_norms(b, a) == [Fused("a", *one[1:]) for one in found]


@pytest.mark.parametrize("other", [(32, 9.0, 0.0), (31, *STACKED["layers.0.experts.gate_up_proj"][1:])])
def test_another_norm_or_size_is_another_weight(other: Weight) -> None:
    b = run(COMMON | STACKED | {"layers.0.experts.gate_up_proj": other})
    assert "layers.0.experts.gate_up_proj" not in {one.whole for one in fused_by_norms(run(COMMON | EXPERTS), b)}


@pytest.mark.parametrize("entry", [None, [], ["0", "x", 1.0], ["0", float("nan"), 0.0]])
def test_damaged_entries_are_unknown(entry: Any) -> None:
    b = run(COMMON | STACKED)
    b["end_state"] = dict.fromkeys(b["end_state"], entry)
    assert not fused_by_norms(run(COMMON | EXPERTS), b)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_with_other_rows_is_told_by_those_of_other_layers(swapped: bool) -> None:
    a, b = run(COMMON | EXPERTS), run(COMMON | STACKED)
    a["row_digests"] = {name: f"{at:016x}" for at, name in enumerate(EXPERTS, 1)}
    b["row_digests"] = {}
    for one in fused_by_norms(a, b):
        stale = one.whole == "layers.1.experts.gate_up_proj"
        rows = sum(int(a["row_digests"][part], 16) for part in one.parts)
        b["row_digests"][one.whole] = f"{rows + stale:016x}"
    runs = (b, a) if swapped else (a, b)
    found = fused(*runs)
    (odd,) = fused_otherwise(*runs, found)
    assert (odd.side, odd.whole, len(odd.parts)) == ("a" if swapped else "b", "layers.1.experts.gate_up_proj", 4)
    notes = compare_run_info(*({**of, "step": 1} for of in runs), draws=False)
    told = [note for note in notes if note.severity == Severity.FATAL]
    assert [note.text for note in told] == [f"1 of 4 fused or renamed weights has other rows: {odd.whole}"]
    assert not fused_otherwise(*runs, [])


def port(*, stale: bool, untied: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model, and one with other names: all bits are equal but for a stale weight; a head may be a copy."""
    a, b = (run({f"{name}.{layer}.up": (8, 1.0, 0.0) for layer in (0, 1)} | COMMON) for name in ("layers", "blocks"))
    for layer in (0,) if stale else (0, 1):
        b["parameter_digests"][f"blocks.{layer}.up"] = a["parameter_digests"][f"layers.{layer}.up"]
    for one, elements in ((a, 80), (b, 144 if untied else 80)):
        one["parameters"] = {"elements": elements}
    if untied:
        b["parameter_digests"]["head.weight"] = b["parameter_digests"]["embed.weight"]
        b["start_sketches"]["head.weight"] = b["start_sketches"]["embed.weight"]
    return a, b


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("untied", [False, True])
def test_weights_of_other_names_are_known_by_their_bits(stale: bool, untied: bool) -> None:
    a, b = port(stale=stale, untied=untied)
    found = renamed(a, b)
    expected = [Fused("a", f"layers.{layer}.up", (f"blocks.{layer}.up",)) for layer in range(2 - stale)]
    assert found == expected + [Fused("b", "head.weight", ("embed.weight",))] * untied
    notes = [note for note in compare_run_info(a | {"step": 1}, b | {"step": 1}, draws=False) if "weight" in note.text]
    fatal = [note.text for note in notes if note.severity == Severity.FATAL]
    odd = f"1 of {2 + untied} fused or renamed weights has other rows: layers.1.up"
    assert fatal == [odd] * stale
    have = f"{len(found)} weights have other names" if len(found) > 1 else "1 weight has another name"
    told = f"{have} and the same bits (layers.0.up in a, blocks.0.up in b)"
    assert [note.text for note in notes if note.severity == Severity.HARMLESS] == [told]
