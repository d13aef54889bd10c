"""Random steps of several ranks, and ways to spoil them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.matchers.runs.lockstep import Array
from tests.matchers.runs.plan import Layout, Plan

__all__ = ["flipped", "layouts", "nan", "plans", "raised"]


@st.composite
def layouts(draw: st.DrawFn, *, at_least: int = 1) -> Layout:
    """Layouts of up to six ranks."""
    sizes = [(dp, tp, pp) for dp in (1, 2, 3) for tp in (1, 2, 3) for pp in (1, 2) if at_least <= dp * tp * pp <= 6]
    dp, tp, pp = draw(st.sampled_from(sizes))
    form = draw(st.sampled_from(["plain", "sharded", "sequence"]))
    return Layout(dp=dp, tp=tp, pp=pp, sharded=form == "sharded", sequence=form == "sequence")


@st.composite
def plans(draw: st.DrawFn, *, at_least: int = 1) -> Plan:
    """Steps of at least so many ranks."""
    yes_or_no = st.booleans()
    return Plan(
        layout=draw(layouts(at_least=at_least)),
        layers=draw(st.integers(1, 2)),
        batch=draw(st.sampled_from([8, 1, 3])),
        width=draw(st.sampled_from([12, 1, 2])),
        hidden=draw(st.sampled_from([8, 1, 3])),
        scale=draw(yes_or_no),
        bucket=draw(yes_or_no),
        mean=draw(yes_or_no),
        functional=draw(yes_or_no),
        lists=draw(yes_or_no),
        clip=draw(yes_or_no),
        checkpoint=draw(yes_or_no),
        dropout=draw(yes_or_no),
        dtype=draw(st.sampled_from(["float32", "float64", "float16"])),
        seed=draw(st.integers(0, 99)),
    )


def flipped(values: Array) -> Array:
    """The same values but for the lowest bit of one."""
    bits = values.copy()
    bits.reshape(-1).view(np.uint8)[0] ^= 1
    return bits


def raised(values: Array) -> Array:
    """The same values but for one, which is far larger."""
    out = values.copy()
    out.reshape(-1)[-1] += 1 + np.abs(values).max()
    return out


def nan(values: Array) -> Array:
    """The same values but for one, which is NaN."""
    out = values.copy()
    out.reshape(-1)[0] = np.nan
    return out
