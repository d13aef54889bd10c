"""From two runs that ask one operation something else to that argument: both values, in the right line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.parser import read_log
from tests.capture.runs import run_captured

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(4, 6, 16)
target = torch.randint(0, 16, (4, 6))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16, eps=EPS)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(4, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=CAUSAL, scale=SCALE)
        mixed = F.dropout(mixed.transpose(1, 2).reshape(4, 6, 16), P)
        gate = torch.softmax(self.out(mixed), dim=DIM)
        return x + torch.roll(gate, SHIFT, 1) * mixed


model = nn.Sequential(Block(), Block())
run = torch.compile(model, backend="aot_eager") if COMPILED else model
parameters = list(model.parameters())
optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, BETA2), eps=ADAM_EPS, weight_decay=DECAY, foreach=FOREACH)
loss = F.cross_entropy(run(x).flatten(0, 1), target.flatten(), label_smoothing=SMOOTHING)
loss.backward()
nn.utils.clip_grad_norm_(parameters, CLIP)
optimizer.step()
"""
DEFAULT = {"EPS": "1e-5", "CAUSAL": "True", "SCALE": "0.3", "P": "0.1", "DIM": "-1", "SHIFT": "1", "SMOOTHING": "0.1",
    "CLIP": "0.01", "LR": "1e-3", "BETA2": "0.99", "ADAM_EPS": "1e-8", "DECAY": "0.1", "FOREACH": "True",
    "COMPILED": "False"}  # fmt: skip


class Runs:
    """Captured runs of the script; each is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[tuple[tuple[str, str], ...], Path] = {}

    def log(self, **values: str) -> Path:
        key = tuple(sorted(values.items()))
        if key not in self._logs:
            folder = self._folder / str(len(self._logs))
            folder.mkdir()
            script = folder / "model.py"
            text = textwrap.dedent(SCRIPT)
            for name, value in {**DEFAULT, **values}.items():
                text = text.replace(f"={name}", f"={value}").replace(f" {name}", f" {value}")
            script.write_text(text)
            self._logs[key] = next(run_captured(script, folder / "out").folder.rglob("rank_0_activations.log"))
        return self._logs[key]

    def compared(self, one: dict[str, str], other: dict[str, str]) -> Comparison:
        return compare(read_log(self.log(**one)), read_log(self.log(**other)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("arguments"))


def causes(c: Comparison) -> list[str]:
    return [headline(c, row) for row in c.cause.nonzero()[0].tolist()]


def line(c: Comparison, row: int) -> str:
    """The line of the script that a row names."""
    number = int(c.a.location_text(int(c.row_a[row])).rpartition(":")[2])
    return SCRIPT.splitlines()[number - 1]


CASES = {
    "norm eps within tolerance": ({"EPS": "1.2e-5"}, "eps 1e-05 in a, 1.2e-05 in b", "self.norm(x)"),
    "norm eps": ({"EPS": "1e-3"}, "eps 1e-05 in a, 0.001 in b", "self.norm(x)"),
    "attention scale": ({"SCALE": "0.3001"}, "scale 0.3 in a, 0.3001 in b", "scaled_dot_product"),
    "is_causal": ({"CAUSAL": "False"}, "is_causal True in a, not given in b", "scaled_dot_product"),
    "dropout p": ({"P": "0.2"}, "p 0.9 in a, 0.8 in b", "F.dropout"),
    "softmax dim": ({"DIM": "1"}, "dim -1 in a, 1 in b", "torch.softmax"),
    "roll": ({"SHIFT": "2"}, "shifts [1] in a, [2] in b", "torch.roll"),
    "learning rate": ({"LR": "1.001e-3"}, "lr 0.001 in a, 0.001001 in b", "optimizer.step()"),
    "weight decay": ({"DECAY": "0.101"}, "weight_decay 0.1 in a, 0.101 in b", "optimizer.step()"),
    "beta2": ({"BETA2": "0.9901"}, "betas [0.9, 0.99] in a, [0.9, 0.9901] in b", "optimizer.step()"),
    "adam eps": ({"ADAM_EPS": "1e-9"}, "eps 1e-08 in a, 1e-09 in b", "optimizer.step()"),
}


COMPILED_TOLD = {"dropout p": "p 0.1 in a, 0.2 in b"}
OF_THE_OPTIMIZER = ("learning rate", "weight decay", "beta2", "adam eps")
"""Its step is not compiled, so one of them shows what a compiled model in front of it changes."""


@pytest.mark.parametrize(
    ("case", "compiled"),
    [
        *((case, "False") for case in CASES),
        *((case, "True") for case in CASES if case not in OF_THE_OPTIMIZER[1:]),
    ],
)
def test_another_argument_is_the_first_cause(runs: Runs, case: str, compiled: str) -> None:
    other, told, where = CASES[case]
    c = runs.compared({"COMPILED": compiled}, {**other, "COMPILED": compiled})
    first = int(c.cause.nonzero()[0][0])
    told = COMPILED_TOLD.get(case, told) if compiled == "True" else told
    assert headline(c, first).startswith(f"FIRST CAUSE: {told}; ")
    assert where in line(c, first)
    assert all(told in cause for cause in causes(c))


@pytest.mark.parametrize("case", OF_THE_OPTIMIZER)
def test_settings_of_another_implementation_of_the_optimizer(runs: Runs, case: str) -> None:
    other, told, where = CASES[case]
    c = runs.compared({}, {**other, "FOREACH": "False"})
    first = int(c.cause.nonzero()[0][0])
    assert headline(c, first).startswith(f"FIRST CAUSE: {told}; ")
    assert where in line(c, first)


def test_label_smoothing_and_clipping(runs: Runs) -> None:
    for other, told, where in (
        ({"SMOOTHING": "0.2"}, "0.9 in a, 0.8 in b", "cross_entropy"),
        ({"CLIP": "0.02"}, "0.01 in a, 0.02 in b", "clip_grad_norm_"),
    ):
        c = runs.compared({}, other)
        assert any(told in cause for cause in causes(c)), causes(c)
        assert where in line(c, int(c.cause.nonzero()[0][0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({}, {"DIM": "2"}),
        ({}, {"EPS": "0.00001"}),
        ({}, {"FOREACH": "False"}),
        ({}, {"COMPILED": "True"}),
        ({"FOREACH": "False"}, {"COMPILED": "True", "DIM": "2"}),
    ],
)
def test_another_form_of_the_same_step_has_no_other_arguments(
    runs: Runs, one: dict[str, str], other: dict[str, str]
) -> None:
    c = runs.compared(one, other)
    assert causes(c) == []
    assert not c.red.any()
