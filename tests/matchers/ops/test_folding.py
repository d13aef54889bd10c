"""Statistics of a whole from those of its parts."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.ops.combine import folded_counts, folded_statistics
from tests.captured import Array, summary

RNG = np.random.default_rng(3)


def columns(parts: list[Array]) -> tuple[Array, Array, Array]:
    told = [summary(part) for part in parts]
    stats = np.array([[s.l1, s.l2, s.min, s.max, s.mean] for s in told], float).T
    counts = np.array([[s.numel, s.nan, s.inf, s.zero] for s in told]).T
    return stats, counts, np.array([float(part.size) for part in parts])


@pytest.mark.parametrize("broken", [False, True])
def test_parts_have_the_statistics_of_the_whole(broken: bool) -> None:
    parts = [RNG.normal(size=(rows, 5)) for rows in (2, 3, 1)]
    if broken:
        parts[1][0, 0], parts[2][:] = np.nan, np.inf
    stats, counts, size = columns(parts)
    whole, whole_counts, _ = columns([np.concatenate(parts)])
    start = np.array([0])
    np.testing.assert_allclose(folded_statistics(stats, counts, size, start), whole, rtol=1e-12)
    np.testing.assert_array_equal(folded_counts(counts, start), whole_counts)


def test_several_wholes_at_once() -> None:
    parts = [RNG.normal(size=4) for _ in range(5)]
    stats, counts, size = columns(parts)
    folded = folded_statistics(stats, counts, size, np.array([0, 2]))
    whole, _, _ = columns([np.concatenate(parts[:2]), np.concatenate(parts[2:])])
    np.testing.assert_allclose(folded, whole, rtol=1e-12)


def test_unknown_counts_stay_unknown() -> None:
    stats, _, size = columns([RNG.normal(size=4), RNG.normal(size=4)])
    unknown = np.full((4, 2), -1)
    assert (folded_counts(unknown, np.array([0])) == -1).all()
    assert np.isfinite(folded_statistics(stats, unknown, size, np.array([0]))).all()
