"""Digests of rows prove that a fused weight has the rows of its parts, from the headers of two captured runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from capture.row_sums import RowSums, rows_together
from capture.step_start import StepStart
from matchers.ops.fused import Fused, fused
from matchers.ops.run_info import compare_run_info


def run(**weights: torch.Tensor) -> dict[str, Any]:
    named = [(name.replace("_", "."), weight) for name, weight in weights.items()]
    return StepStart([(name, nn.Parameter(weight)) for name, weight in named], sketch=True, rows=True).as_json()


def test_the_parts_of_fused_and_stacked_weights_add_up() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(rows, 12) for rows in (8, 4, 4))
    experts = [[torch.randn(6, 12) for _ in range(2)] for _ in range(3)]
    single = {f"layers_0_experts_{e}_w{w}": weight for e, of in enumerate(experts) for w, weight in enumerate(of)}
    a = run(layers_0_q=q, layers_0_k=k, layers_0_v=v, norm=torch.ones(12), **single)
    stacked = torch.stack([torch.cat(of) for of in experts])
    b = run(layers_0_qkv=torch.cat([q, k, v]), layers_0_experts_all=stacked, norm=torch.ones(12))
    found = {of.whole: of for of in fused(a, b)}
    assert found["layers.0.qkv"] == Fused("b", "layers.0.qkv", ("layers.0.q", "layers.0.k", "layers.0.v"))
    assert len(found["layers.0.experts.all"].parts) == 6
    notes = [note.text for note in compare_run_info(a, b, draws=False) if note.kind == "parameters"]
    assert notes == ["2 fused weights have the rows of 9 single ones (layers.0.qkv)"]
    assert fused(b, a)[0].side == "a"


def test_one_element_breaks_the_sum() -> None:
    q, k = torch.randn(8, 12), torch.randn(4, 12)
    whole = torch.cat([q, k])
    whole[3, 5] *= -1
    assert not fused(run(m_q=q, m_k=k), run(m_qk=whole))


def test_rows_are_digested_together_where_they_are_long() -> None:
    assert [rows_together(n) for n in (1, 64, 128, 2048, 4096, 11008, 1 << 20)] == [1, 1, 2, 32, 64, 64, 64]
    odd = RowSums([("w", torch.randn(33, 2048)), ("bias", torch.randn(8)), ("turned", torch.randn(4, 8).T)])
    assert odd.as_json() == {}
