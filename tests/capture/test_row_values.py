"""Rows of chosen results: measured one by one, written as one field, read alike by both readers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from capture import trace
from capture.row_values import MeasuredRows, chosen, measure_rows, rows_json
from capture.statistics import Statistics
from matchers.comparison import compare
from matchers.explain.tensor_rows import routing_sentence, row_sentences, worst_tokens
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.tensor_rows import rows_of


def scored(path: Path, scale: float = 1.0, **settings: Any) -> OpLog:
    """The log of a call that scores two sequences of three tokens."""
    model = nn.Embedding(9, 8)
    with torch.no_grad():
        model.weight.copy_((torch.arange(72.0).view(9, 8) / 7).sin())
        with trace(model, path=path, forward=True, rows=("*",), **settings):
            scores = torch.log_softmax(model(torch.arange(6).view(2, 3)) * torch.tensor([1.0, scale, 1.0])[:, None], -1)
            picked = scores.gather(-1, torch.ones(2, 3, 1, dtype=torch.long)).squeeze(-1)
            float((picked * 2).sum() + scores.topk(2, -1).indices.sum())
    return read_log(str(path))


def test_rows_are_chosen_by_module_or_operation() -> None:
    assert chosen("layers.0.mlp", "mm", ["layers.*"])
    assert chosen("score", "_log_softmax", ["*/_log_softmax"])
    assert not chosen("layers.0.mlp", "mm", ["*/add", "heads.*"])


def test_each_row_has_the_numbers_of_a_tensor_by_itself() -> None:
    statistics = Statistics()
    tensor = torch.randn(2, 3, 5).transpose(0, 1)
    rows = measure_rows(tensor, statistics)
    assert rows is not None
    assert rows.of == (3, 2)
    alone = [statistics.measure(tensor[k // 2, k % 2]) for k in range(6)]
    summaries = statistics.results()
    assert [summaries[slot] for slot in rows.slots] == [summaries[slot] for slot in alone]


def test_a_number_for_each_token_is_a_row() -> None:
    statistics = Statistics()
    assert measure_rows(torch.randn(2, 3), statistics, [(2, 4)]) == MeasuredRows((2, 3), tuple(range(6)))
    of_matrix = measure_rows(torch.randn(2, 3), statistics, [(5, 4)])
    assert of_matrix is not None
    assert of_matrix.of == (2,)
    assert measure_rows(torch.randn(3), statistics) is None


def test_a_row_that_is_not_finite_has_no_norm() -> None:
    statistics = Statistics()
    rows = measure_rows(torch.tensor([[1.0, math.inf], [3.0, 4.0]]), statistics)
    assert rows is not None
    (told,) = rows_json({0: rows}, statistics.results())
    assert (told["output"], told["rows"], len(told["values"])) == (0, (2,), 4 * math.ceil(2 * 96 / 3))


def test_plain_and_compact_logs_say_the_same_of_rows(tmp_path: Path) -> None:
    plain, compact = scored(tmp_path / "plain.log"), scored(tmp_path / "compact.log", compact=True)
    assert len(plain.texts("Rows"))
    for record in range(len(plain)):
        one, other = rows_of(plain, record), rows_of(compact, record)
        assert [(k, rows.of, rows.digest.tolist()) for k, rows in one.items()] == [
            (k, rows.of, rows.digest.tolist()) for k, rows in other.items()
        ]


def routed(path: Path, *scores: list[float]) -> OpLog:
    """The log of a call that takes the two largest scores of each token."""
    model = nn.Embedding(len(scores), 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(scores))
        with trace(model, path=path, forward=True, rows=("*",)):
            weights, chosen = model(torch.arange(len(scores))).topk(2, -1)
            float(weights.sum() + chosen.sum())
    return read_log(str(path))


def test_tokens_that_choose_otherwise_are_told_by_their_scores(tmp_path: Path) -> None:
    near = 3 - 1e-6
    a = routed(tmp_path / "a.log", [5, 3, 1], [5, 3, near], [5, 4, 1], [5, 3, 1])
    b = routed(tmp_path / "b.log", [5, 3, 1], [5, near, 3], [4, 5, 1], [5, 1, 3.5])

    def told(a: OpLog, b: OpLog) -> list[str]:
        c = compare(a, b)
        return [told for row in range(len(c)) if c.pair[row] >= 0 for told in routing_sentence(c, row)]

    (sentence,) = told(a, b)
    assert sentence == (
        "3 of 4 tokens choose otherwise: 1 the same in another order, 1 between scores that agree within rounding, "
        "1 between scores that do not: [3]"
    )
    assert not told(a, a)


def test_the_rows_that_differ_are_named(tmp_path: Path) -> None:
    c = compare(scored(tmp_path / "a.log"), scored(tmp_path / "b.log", scale=1.5))
    told = {c.a.op_name(int(c.row_a[row])): list(row_sentences(c, row)) for row in range(len(c)) if c.pair[row] >= 0}
    assert told["embedding"] == ["6 rows: equal to the bit"]
    assert told["_log_softmax"][0].startswith("2 of 6 rows differ: [0, 1], [1, 1]; the largest error")
    assert told["topk"][1] == "output 1: 6 rows: equal to the bit"
    tokens = worst_tokens(c)
    assert tokens is not None
    assert sorted(token.place for token in tokens.worst) == ["[0, 1]", "[1, 1]"]
    assert c.a.op_name(int(c.row_a[tokens.row])) == "mul"
    assert {c.a.op_name(int(c.row_a[token.begins])) for token in tokens.worst} == {"mul"}
