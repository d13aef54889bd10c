"""Partners among the weights of two checkpoints: by name, by values, by parts; and what is said of the rest."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.errors import LogError
from matchers.weights.checkpoints import read_checkpoint
from matchers.weights.fibres import Unit, region_of
from matchers.weights.numbers import Outcome
from matchers.weights.partners import How
from matchers.weights.state_compare import StateComparison, compare_states
from tests.matchers.weights.checkpoints import Weights, fused, saved, separate


def compared(tmp_path: Path, a: Weights, b: Weights) -> StateComparison:
    one, other = (saved(tmp_path / f"{side}.safetensors", weights) for side, weights in (("a", a), ("b", b)))
    return compare_states(read_checkpoint(one), read_checkpoint(other))


def places(c: StateComparison) -> dict[str, tuple[str, str, How]]:
    """By the name of a part in a: its partner, where it lies there, and how it was found."""
    return {
        one.pair.a.name: (one.pair.b.name, "" if one.pair.region is None else one.pair.region.text, one.pair.how)
        for one in c.judged
    }


@pytest.mark.parametrize("turned", [False, True])
def test_fused_stacked_and_renamed_weights_have_their_parts_as_partners(tmp_path: Path, turned: bool) -> None:
    pair = separate(), fused(separate())
    c = compared(tmp_path, *(reversed(pair) if turned else pair))
    assert c.agrees
    assert len(c.of(Outcome.EQUAL)) == len(pair[0])
    if not turned:
        found = places(c)
        assert found["layers.1.attention.k.weight"] == ("layers.1.attn.qkv.weight", "[8:12]", How.VALUES)
        assert found["layers.1.attention.v.bias"] == ("layers.1.attn.qkv.bias", "[12:]", How.NAMES_OF_OTHERS)
        assert found["layers.0.moe.experts.2.w3.weight"] == ("layers.0.mlp.gate_up", "[2, 12:]", How.VALUES)
        assert found["layers.0.moe.experts.1.w2.weight"] == ("layers.0.mlp.down", "[1] transposed", How.VALUES)
        assert found["embed.weight"] == ("tok.weight", "", How.VALUES)


@pytest.mark.parametrize("whole", [False, True])
def test_one_changed_expert_is_named(tmp_path: Path, whole: bool) -> None:
    a, changed = separate(), separate()
    expert = changed["layers.1.moe.experts.1.w3.weight"]
    expert[:] = expert * np.float32(1.5) if whole else np.where(np.arange(12)[:, None] == 3, expert + 1, expert)
    c = compared(tmp_path, a, fused(changed))
    (one,) = c.of(Outcome.DIFFERENT)
    assert (one.pair.a.name, one.pair.b.name) == ("layers.1.moe.experts.1.w3.weight", "layers.1.mlp.gate_up")
    assert one.pair.region is not None
    assert one.pair.region.text == "[1, 12:]"
    assert one.numbers.differing == (12 * 8 if whole else 8)
    assert one.numbers.error == pytest.approx(1 / 3 if whole else np.sqrt(8) / np.linalg.norm(expert), rel=1e-3)
    assert c.complete


def test_weights_that_all_moved_have_partners_by_their_directions(tmp_path: Path) -> None:
    a = separate()
    random = np.random.default_rng(1)
    moved = {name: w + np.float32(0.01) * random.standard_normal(w.shape).astype(np.float32) for name, w in a.items()}
    found = fused(moved)
    found = {name: w for name, w in found.items() if "mlp.down" not in name}
    c = compared(tmp_path, {name: w for name, w in a.items() if "w2" not in name}, found)
    assert len(c.of(Outcome.DIFFERENT)) == len(a) - 6
    assert places(c)["layers.0.attention.v.weight"][:2] == ("layers.0.attn.qkv.weight", "[12:]")


def test_other_rows_shards_and_unrelated_weights(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    w, x = (random.standard_normal((8, 4)).astype(np.float32) for _ in range(2))
    a: Weights = {"permuted": w, "shard": x, "alone": random.standard_normal((8, 4)).astype(np.float32)}
    b: Weights = {"rows": w[[1, 0, 3, 2, 6, 4, 7, 5]], "shard": x[:, :2], "other": np.ones((8, 4), np.float32)}
    c = compared(tmp_path, a, b)
    assert "its rows in another order" in str(places(c)["permuted"])
    assert c.gaps == (("a", "shard", 2, 4),)
    assert ([one.name for one in c.only_a], [one.name for one in c.only_b]) == (["alone"], ["other"])
    assert not c.agrees
    assert not c.of(Outcome.DIFFERENT)


def test_constant_weights_are_not_tied_by_chance_and_equal_ones_are(tmp_path: Path) -> None:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    ones = np.ones(4, np.float32)
    c = compared(tmp_path, {"embed": w, "norm": ones}, {"embed": w, "head": w, "norm": ones, "other": ones})
    assert [(one.pair.b.name, one.pair.how) for one in c.judged if one.pair.how is How.TIED] == [("head", How.TIED)]
    assert [one.name for one in c.only_b] == ["other"]


def test_zeros_nan_and_only_signs(tmp_path: Path) -> None:
    w = np.arange(1, 5, dtype=np.float32)
    a: Weights = {"dead": w, "nan": w, "sign": np.zeros(4, np.float32)}
    nan = np.where(w == 2, np.nan, w).astype(np.float32)
    b: Weights = {"dead": w * 0, "nan": nan, "sign": -np.zeros(4, np.float32)}
    found = {one.pair.a.name: one.numbers for one in compared(tmp_path, a, b).judged}
    assert {one.outcome for one in found.values()} == {Outcome.DIFFERENT}
    assert (found["dead"].b, found["nan"].b, found["sign"].differing) == ((4, 0), (0, 1), 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4), st.data())
def test_blocks_of_rows_are_found_from_most_of_their_places(
    block: int, many: int, start: int, gap: int, data: st.DataObject
) -> None:
    """A part in blocks at equal distances, of which one row may be unknown, is where it was put."""
    at = np.array([start + k // block * (block + gap) + k % block for k in range(block * many)], np.int64)
    known = at.copy()
    if len(at) > 4 * block:
        known[data.draw(st.integers(2 * block, len(at) - 1))] = -1
    region = region_of(known, (int(at[-1]) + 1, 3), Unit.ROW, Unit.ROW)
    assert region is not None
    assert region.at.tolist() == at.tolist()


def test_a_folder_with_an_index_and_what_is_missing(tmp_path: Path) -> None:
    weights = separate()
    names = list(weights)
    files = {"1.safetensors": names[:5], "2.safetensors": names[5:]}
    for file, some in files.items():
        saved(tmp_path / file, {name: weights[name] for name in some})
    index = {"weight_map": {name: file for file, some in files.items() for name in some} | {"lost": "3.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    state = read_checkpoint(str(tmp_path))
    assert sorted(weight.name for weight in state.weights) == sorted(names)
    (problem,) = state.problems
    assert problem.endswith("model.safetensors.index.json:1: 3.safetensors is in the index and not beside it")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: struct.pack("<Q", 1 << 60) + b'{"a":{', "with a header of 1,152,921,504,606,846,976 bytes"),
        (lambda content: content[:60], "the header of the safetensors file is no JSON object"),
        (lambda _: b"", "the header of the safetensors file is no JSON object"),
    ],
)
def test_a_damaged_header_is_an_error(tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "a.safetensors"
    saved(path, separate())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LogError, match=rf"a\.safetensors:1: .*{message}"):
        read_checkpoint(str(path))


def test_tensors_beyond_the_end_or_of_wrong_sizes_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    saved(path, separate())
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    state = read_checkpoint(str(path))
    assert len(state.problems) == 1
    assert "lies beyond the end of the file" in state.problems[0]
    path.write_bytes(content.replace(b"[20, 8]", b"[21, 8]"))
    state = read_checkpoint(str(path))
    assert state.problems == [f"{path}:1: embed.weight: its dtype, shape and place in the file are not of one tensor"]
