"""Logs that torch's own DebugMode writes of a step: compared with each other, and with our capture of the same step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._debug_mode import DebugMode

from capture import trace
from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.status import Role, Status
from tests.matchers.logs.imported.samples import Line, hashes, saved, text

Form = Callable[[Sequence[Line]], str]
FORMS = (text, saved, hashes)


class Block(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16, eps=1e-3 if bug == "eps" else 1e-5)
        self.approximate = "tanh" if bug == "gelu" else "none"

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)), approximate=self.approximate))


class Model(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(bug if k == 1 else "") for k in range(3))
        self.head = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def stepping(bug: str) -> tuple[nn.Module, Callable[[], None]]:
    """A model, and a step of its training."""
    torch.manual_seed(0)
    model = Model(bug)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    x, targets = torch.randn(4, 16), torch.tensor([0, 1, 2, 3])

    def step() -> None:
        nn.functional.cross_entropy(model(x), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False)
        optimizer.step()

    return model, step


def recorded(bug: str = "") -> tuple[str, list[Line]]:
    """Text that DebugMode prints of a step, and its calls."""
    _, step = stepping(bug)
    with (
        DebugMode(record_nn_module=True, record_ids=True, record_stack_trace=True) as mode,
        DebugMode.log_tensor_hashes(hash_inputs=True),
    ):
        step()
    return mode.debug_string(show_stack_trace=False) + "\n", list(map(_line, mode.logs))


def _line(call: Any) -> Line:
    if hasattr(call, "header"):
        return Line(call.call_depth, f"[{call.header}]", str(call.tag))
    log = call.log or {}
    inputs, named = log.get("input_hash", (None, {}))
    return Line(
        call.call_depth,
        call.op.__qualname__,
        call.args_str + call.kwargs_str,
        (call.output_str or "").removeprefix("  ->  "),
        inputs,
        log.get("hash"),
        named,
        call.stack_trace,
        call.fwd_stack_trace,
    )


@pytest.fixture(scope="module")
def printed_and_calls() -> dict[str, tuple[str, list[Line]]]:
    return {bug: recorded(bug) for bug in ("", "again", "eps", "gelu")}


@pytest.fixture
def log_of(tmp_path: Path, printed_and_calls: dict[str, tuple[str, list[Line]]]) -> Callable[[str, Form], OpLog]:
    def read(bug: str, form: Form) -> OpLog:
        printed, calls = printed_and_calls[bug]
        path = tmp_path / f"{bug}.log"
        path.write_text(printed if form is text else form(calls))
        log = read_log(path)
        assert log.problems == ()
        return log

    return read


def test_the_samples_of_tests_are_printed_as_torch_prints_calls(
    printed_and_calls: dict[str, tuple[str, list[Line]]],
) -> None:
    printed, calls = printed_and_calls[""]
    assert text(calls) == printed


def causes(c: Comparison) -> list[str]:
    shown = [c.shown(row) for row in np.flatnonzero(c.role == Role.ORIGIN).tolist()]
    return [log.keys[int(record)] for log, record in shown]


@pytest.mark.parametrize("form", FORMS)
def test_two_runs_that_agree_have_no_red_row(form: Form, log_of: Callable[[str, Form], OpLog]) -> None:
    c = compare(log_of("", form), log_of("again", form))
    assert set(c.status.tolist()) == {Status.SAME_PRINT}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("bug", "cause"), [("eps", "layers.1.norm/op_0_native_layer_norm"), ("gelu", "layers.1/op_0_gelu")]
)
def test_a_bug_is_found_where_it_is(form: Form, bug: str, cause: str, log_of: Callable[[str, Form], OpLog]) -> None:
    assert causes(compare(log_of("", form), log_of(bug, form))) == [cause]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bug", ["", "gelu"])
def test_operations_pair_with_those_of_our_own_log(
    form: Form, bug: str, log_of: Callable[[str, Form], OpLog], tmp_path: Path
) -> None:
    model, step = stepping("")
    with trace(model, path=tmp_path / "own.log"):
        step()
    own = read_log(tmp_path / "own.log")
    c = compare(own, log_of(bug, form))
    assert (c.pair >= 0).sum() >= 0.95 * len(own)
    if bug:
        assert causes(c) == ["layers.1/op_0_gelu"]
    else:
        assert not any(Status(status).red for status in c.status)
