"""A trainer against an engine: the same tokens are scored by both, and a bug of the engine is the first cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare, noise_floor
from matchers.explain.sentences import headline
from matchers.explain.tensor_rows import row_sentences, worst_tokens
from matchers.logs.parser import read_log
from matchers.rules.model import RowsRule, RuleSet
from matchers.verdict.expectation import Expectation
from numtui.query.source_line import source_lines, split_location
from tests.capture.runs import EXAMPLE, run_captured

ENGINE = EXAMPLE.parent / "engine.py"
FIRST = "rank_0_activations.log"
# By bug, what both are given besides, and the line of the first cause or what is said of it.
BUGS = {
    "rope-bf16": ("", "turns).bfloat16()"),
    "stale-weight": ("", "1 of 30 parameters differs before the step: layers.1.attention.wo.weight"),
    "zero-buffer": ("", "1 of 6 buffers differs before the step: layers.1.attention.rope.turns"),
    "temperature": ("", "logits / 0.7"),
    "mask": ("", "future.triu(2)"),
    "norm-eps": ("", "other 1e-05 in a, 0.0001 in b"),
    "router-bf16": ("--experts 4", "dtype differs: float32 in a, bfloat16 in b"),
}


def log_of(folder: Path, arguments: str, call: int = 1) -> Path:
    """The log of a call of the engine, or of the trainer."""
    run_captured(ENGINE, folder, arguments, f"--calls {call}")
    return folder / "numerics" / FIRST


def compared(folder: Path, a: str, b: str, call: int = 1) -> Comparison:
    logs = [read_log(str(log_of(folder / side, text, call))) for side, text in (("a", a), ("b", b))]
    return compare(logs[0], logs[1])


def first_cause(c: Comparison) -> str:
    """Its headline, and the source lines of both."""
    row = next(row for row in range(len(c)) if c.cause[row])
    told = [headline(c, row)]
    for location in source_lines(c, row):
        file, line = split_location(location)
        told.append((ENGINE.parent / Path(file).name).read_text(encoding="utf-8").splitlines()[line - 1])
    return "\n".join(told)


@pytest.mark.parametrize("both", ["", "--experts 4"])
def test_a_healthy_pair_agrees_to_the_bit(tmp_path: Path, both: str) -> None:
    c = compared(tmp_path, f"--trainer {both}", both)
    assert c.coverage.enough
    assert not c.red.any()
    assert c.first_difference is None


@pytest.mark.parametrize(("bug", "both", "told"), [(bug, *found) for bug, found in BUGS.items()])
def test_a_bug_of_the_engine_is_the_first_cause(tmp_path: Path, bug: str, both: str, told: str) -> None:
    assert told in first_cause(compared(tmp_path, f"--trainer {both}", f"{both} --bug {bug}"))


def by_rows(folder: Path, bug: str = "") -> Comparison:
    """A prefill of all tokens by the trainer against the second decode step of the same."""
    logs = []
    for side, text, call in (("a", "--trainer", 1), ("b", f"--bug {bug}" if bug else "", 3)):
        run_captured(ENGINE, folder / side, f"--given {text}", f"--calls {call} --rows *")
        logs.append(read_log(str(folder / side / "numerics" / FIRST)))
    return compare(logs[0], logs[1])


class TestRows:
    def test_a_decode_step_agrees_with_its_rows_of_a_prefill(self, tmp_path: Path) -> None:
        c = by_rows(tmp_path)
        assert not c.red.any()
        assert c.coverage.enough
        told = [note.text for note in c.comparability.notes if note.kind == "rows"]
        assert told == ["compared by rows: 2 of 22 in a, of 2 in b (9, 20)"]
        tokens = worst_tokens(c)
        assert tokens is not None
        assert (tokens.many, tokens.differ) == (2, 0)

    def test_a_rule_says_which_rows_are_the_same(self, tmp_path: Path) -> None:
        c = by_rows(tmp_path)
        others = RowsRule(a=":, 8", b=":, 0")
        wrong = c.with_rules(RuleSet((others, RowsRule(a=":, :, 1", b="0, :, :"))))
        assert [note.text for note in wrong.comparability.notes if note.kind == "rows"] == [
            "compared by rows: 2 of 22 in a, of 2 in b (8, 19)"
        ]
        assert "embedding" in wrong.a.keys[int(wrong.row_a[wrong.cause.argmax()])]
        used, unused = wrong.usage
        assert used.matched > 50
        assert "matches nothing: no pair of results has rows of 3 dimensions" in str(unused.problem)
        assert not wrong.with_rules(RuleSet((replace(others, enabled=False),))).red.any()

    @pytest.mark.parametrize(
        ("bug", "told"),
        [
            ("norm-eps", "other 1e-05 in a, 0.0001 in b"),
            ("position", "pairs * turns"),
            ("temperature", "logits / 0.7"),
        ],
    )
    def test_a_bug_of_a_decode_step_is_its_first_cause(self, tmp_path: Path, bug: str, told: str) -> None:
        assert told in first_cause(by_rows(tmp_path, bug))

    def test_rows_that_differ_are_named_and_where_those_of_a_token_begin_to(self, tmp_path: Path) -> None:
        c = by_rows(tmp_path, "norm-eps")
        row = next(row for row in range(len(c)) if c.cause[row])
        told = " ".join(row_sentences(c, row))
        assert told.startswith("2 of 2 common rows differ: [0, 9] ([0, 0] in b), [1, 9] ([1, 0] in b); the largest")
        tokens = worst_tokens(c)
        assert tokens is not None
        assert tokens.worst
        assert all(token.begins == row for token in tokens.worst)


def test_noise_of_another_batch_is_told_from_a_bug(tmp_path: Path) -> None:
    logs = {}
    for name, text, call in (
        ("trainer", "--trainer", 1),
        ("engine", "--bug norm-eps", 3),
        ("prefill", "--bug norm-eps --prompt 11 --new 0", 1),
    ):
        run_captured(ENGINE, tmp_path / name, f"--given {text}", f"--calls {call} --rows *")
        logs[name] = read_log(str(tmp_path / name / "numerics" / FIRST))
    noise = noise_floor(logs["trainer"], logs["engine"], logs["prefill"])
    assert (noise.side, noise.other_batch) == ("b", True)
    c = compare(logs["trainer"], logs["engine"], expectation=Expectation(noise=noise))
    assert "other 1e-05 in a, 0.0001 in b" in first_cause(c)
    assert any("the noise log repeats b" in note.text and "batch" in note.text for note in c.comparability.notes)


def test_a_bug_of_decoding_shows_in_the_first_decode_step(tmp_path: Path) -> None:
    assert not compared(tmp_path / "prefill", "", "--bug position").red.any()
    assert "pairs * turns" in first_cause(compared(tmp_path / "decode", "", "--bug position", call=2))
