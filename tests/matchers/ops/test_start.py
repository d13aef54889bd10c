"""What two runs begin a step with: how many tensors differ, which first, and how much."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from matchers.ops.start import Start, differing_start
from tests.captured import summary

WEIGHT = np.random.default_rng(5).normal(size=(64, 64)).astype(np.float32)
ULP = np.nextafter(WEIGHT, np.float32(9)) - WEIGHT


def run(*weights: Any, **others: Any) -> dict[str, Any]:
    told = {f"layers.{k}.weight": summary(weight) for k, weight in enumerate(weights)}
    eps = float(np.finfo(np.float32).eps)
    return {
        "parameter_digests": {name: f"{of.digest:016x}" for name, of in told.items()},
        "start_sketches": {
            name: [base64.b64encode(of.sketch or b"").decode(), of.numel, eps * max(-(of.min or 0), of.max or 0)]
            for name, of in told.items()
        },
        **others,
    }


def start(a: Any, b: Any) -> Start:
    return differing_start(a, b, together=True)


def changed(elements: int, by: Any) -> Any:
    other = WEIGHT.copy()
    other.ravel()[100 : 100 + elements] += by if np.isscalar(by) else by.ravel()[100 : 100 + elements]
    return other


ONE = "1 of 3 parameters differs before the step: layers.1.weight"


@pytest.mark.parametrize(
    ("elements", "by", "text"),
    [
        (1, ULP, f"{ONE}, in one element as far as the sketch tells, by {ULP.ravel()[100]:.2g}: rounding"),
        (1, np.float32(0.5), f"{ONE}, in one element as far as the sketch tells, by 0.5"),
        (4000, ULP, f"{ONE}, by ≈"),
        (2, np.float32(0.5), f"{ONE}, by ≈"),
    ],
)
def test_how_much_differs_and_whether_it_is_rounding(elements: int, by: Any, text: str) -> None:
    found = start(run(WEIGHT, WEIGHT, WEIGHT), run(WEIGHT, changed(elements, by), WEIGHT)).parameters
    assert found is not None
    assert found.text.startswith(text)
    assert found.rounding == (by is ULP) == found.text.endswith(": rounding")


def test_the_first_of_several_is_named() -> None:
    found = start(run(WEIGHT, WEIGHT, WEIGHT), run(WEIGHT, 2 * WEIGHT, WEIGHT[::-1])).parameters
    assert found is not None
    assert found.text.startswith("2 of 3 parameters differ before the step, layers.1.weight first, by ≈")
    assert found.text.endswith(" at most")


@pytest.mark.parametrize(
    "entry", [None, [], ["", 1, 1.0], ["x" * 172, 4096, 1.0], [None, -1, "x"], ["AAAA", 1e999, {}]]
)
def test_without_a_sketch_the_extent_is_unknown(entry: Any) -> None:
    other = run(2 * WEIGHT)
    found = start(run(WEIGHT), {**other, "start_sketches": {"layers.0.weight": entry}}).parameters
    assert found is not None
    assert found.text == "the parameter differs before the step: layers.0.weight"
    assert not found.rounding


def test_a_buffer_is_no_weight_and_unknown_is_not_different() -> None:
    found = start(
        run(WEIGHT, buffer_digests={"mean": "1", "mask": "-"}), run(WEIGHT, buffer_digests={"mean": "2", "mask": "3"})
    )
    assert (found.weights, found.buffers and found.buffers.names) == (False, ("mean",))


def test_one_token_of_a_batch() -> None:
    tokens = np.arange(64).reshape(4, 16)
    batches = []
    for given in (tokens, np.where(tokens == 7, 9, tokens)):
        of = summary(given)
        sketch = base64.b64encode(of.sketch or b"").decode()
        batches.append({"batch": [{"shape": [4, 16], "dtype": "int64", "digest": f"{of.digest:x}", "sketch": sketch}]})
    found = start(*batches).tokens
    assert found is not None
    assert found.text == "the batch differs before the step, in one element as far as the sketch tells, by 2"
