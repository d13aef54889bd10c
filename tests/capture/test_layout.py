"""Parts that ranks hold, put together: shards at their places, and nothing that is no part of a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capture.keeping.layout import NoWhole, put_together

X = np.arange(8.0).reshape(4, 2)


def empty(shape: tuple[int, ...], _like: object) -> Any:
    return np.full(shape, np.nan)


def form(*placements: str, offset: int = 0, storage: str = "x") -> dict[str, Any]:
    told = {"placements": list(placements), "shape": [4, 2], "offsets": [offset, 0]}
    return {"placement": told, "storage": storage}


def test_shards_make_a_whole_in_any_order() -> None:
    parts = [(form("Shard(dim=0)", offset=2), X[2:]), (form("Shard(dim=0)"), X[:2])]
    assert np.array_equal(put_together(parts, empty), X)
    with pytest.raises(NoWhole, match="make no whole"):
        put_together(parts[:1], empty)


@pytest.mark.parametrize("kind", ["Partial(sum)", "_MaskPartial(reduce_op=sum, offset_dim=0)", "_NormPartial(2)"])
def test_terms_of_a_sum_are_no_parts(kind: str) -> None:
    """Of a masked lookup each rank holds rows of its own, and others that mean nothing."""
    with pytest.raises(NoWhole, match="still to be added up"):
        put_together([(form(kind), X), (form(kind, storage="y"), X + 1)], empty)
