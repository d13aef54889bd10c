"""What was asked of each operation: arguments, overload, forms of inputs and random numbers, in its record."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 its usual name
from torch.utils.checkpoint import checkpoint

from tests.capture.conftest import Record, Script
from tests.capture.logs import Log, Row

X = torch.linspace(-1, 1, 24).view(4, 6)
Q = X.view(1, 2, 2, 6)


def one(log: Log, op: str) -> Row:
    """The first record of an operation."""
    return next(row for row in log.rows if row.op == op)


def arguments(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row.fields.get("Arguments", "{}"))
    return found


@pytest.mark.parametrize(
    ("call", "op", "expected"),
    [
        (lambda: F.layer_norm(X, (6,), eps=1e-6), "native_layer_norm", {"eps": 1e-6}),
        (lambda: X.softmax(dim=-1), "_softmax", {"dim": -1}),
        (lambda: X.sum(dtype=torch.float64), "sum", {"dtype": "float64"}),
        (lambda: X.clamp(max=math.inf), "clamp", {"max": math.inf}),
        (lambda: X * 0.1, "mul", {"other": 0.1}),
        (lambda: X.add(X, alpha=3), "add", {"alpha": 3}),
        (lambda: F.gelu(X, approximate="tanh"), "gelu", {"approximate": "tanh"}),
        (lambda: X.roll(2, 0), "roll", {"shifts": [2], "dims": [0]}),
        (lambda: X.tril(-1), "tril", {"diagonal": -1}),
        (lambda: X.contiguous(memory_format=torch.preserve_format).clone(), "clone", {}),
        (lambda: F.cross_entropy(X, torch.arange(4), label_smoothing=0.1), "nll_loss_forward", {"ignore_index": -100}),
        (lambda: X[:, torch.tensor([0, 2])], "index", {"indices": [None, "<Tensor>"]}),
        (
            lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True, scale=0.5),
            "_scaled_dot_product_flash_attention_for_cpu",
            {"is_causal": True, "scale": 0.5},
        ),
        (lambda: X.new_full((20,), math.nan), "new_full", {"size": [20]}),
    ],
)
def test_arguments_have_the_names_of_the_schema(record: Record, call: Any, op: str, expected: dict[str, Any]) -> None:
    found = arguments(one(record(nn.Linear(1, 1), call), op))
    assert {name: found[name] for name in expected} == expected
    assert {name: type(found[name]) for name in expected} == {name: type(value) for name, value in expected.items()}


def test_what_equals_the_default_is_left_out(record: Record) -> None:
    log = record(nn.Linear(1, 1), lambda: (X.tril(0), torch.add(X, X, alpha=1), X.argsort(-1, False)))
    assert arguments(one(log, "tril")) == {}
    assert arguments(one(log, "add")) == {}


def test_overloads_of_one_name_are_told_apart(record: Record) -> None:
    log = record(nn.Linear(1, 1), lambda: (X.max(dim=1), X.max(X), X.max()))
    assert [row.fields.get("Overload") for row in log.rows if row.op == "max"] == ["aten.dim", None]
    assert one(log, "maximum").fields.get("Overload") is None


def test_inputs_are_written_as_far_as_they_differ_from_the_first_output(record: Record) -> None:
    log = record(
        nn.Linear(1, 1), lambda: (X + X, X.t() + X.t().double(), torch.cat([X, X]), X.sum(), X[:, ::2] @ X[:3])
    )
    first, second = (row.fields.get("Inputs") for row in log.rows if row.op == "add")
    assert (first, second) == (None, "float32:1,6;float64:1,6")
    assert one(log, "cat").fields["Inputs"] == "[4,6];"
    assert one(log, "sum").fields["Inputs"] == "[4,6]"
    assert one(log, "mm").fields["Inputs"] == "[4,3]:6,2;[3,6]"


def test_random_operations_say_what_they_are_about_to_draw(record: Record) -> None:
    torch.manual_seed(3)
    own = torch.Generator().manual_seed(4)
    log = record(nn.Linear(1, 1), lambda: (F.dropout(X, 0.25), X.bernoulli(0.5), torch.randn(3, generator=own), X + 1))
    drawn = {row.op: json.loads(row.fields["Random"]) for row in log.rows if "Random" in row.fields}
    assert {op: (of["seed"], of.get("given")) for op, of in drawn.items()} == {
        "bernoulli_": (3, None),
        "bernoulli": (3, None),
        "randn": (4, True),
    }
    assert len({of["state"] for of in drawn.values()}) == 3
    assert arguments(one(log, "bernoulli_")) == {"p": 0.75}


def test_a_long_list_is_written_short(record: Record) -> None:
    many = [torch.ones(2) for _ in range(300)]
    numbers = [float(k) for k in range(300)]

    def step() -> None:
        torch._foreach_mul_(many, [0.5] * 300)
        torch._foreach_add_(many, numbers)

    log = record(nn.Linear(1, 1), step)
    assert arguments(one(log, "_foreach_mul_")) == {"scalars": [{"times": 300, "of": 0.5}]}
    scalars = arguments(one(log, "_foreach_add_"))["scalars"]
    assert scalars[:100] == numbers[:100]
    assert scalars[100].startswith("<200 more: ")


def test_text_is_shown_by_the_rules_of_command_lines_and_cut(record: Record) -> None:
    @torch.library.custom_op("numtui_tests::named", mutates_args=())
    def named(x: torch.Tensor, text: str, token: str, number: int = 3) -> torch.Tensor:
        return x + number

    log = record(nn.Linear(1, 1), lambda: (named(X, "mean", "mean"), named(X, "hunter2", "x", 5)))
    first, second = (row for row in log.rows if row.op == "named")
    assert first.fields["Overload"] == "numtui_tests.default"
    assert arguments(first)["text"] == "mean"
    assert arguments(first)["token"].startswith("<private:")
    assert arguments(second)["text"].startswith("<private:")
    assert arguments(second)["number"] == 5


def test_a_state_of_the_random_generator_is_no_content(record: Record) -> None:
    """Attention on a GPU returns memory for it that is never written where nothing is dropped out."""
    library = torch.library.Library("numtui_states", "DEF")
    library.define("attend(Tensor x) -> (Tensor output, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset)")
    library.define("backward(Tensor x, Tensor philox_seed) -> Tensor")
    library.impl("attend", lambda x: (x + 1, x.sum(), torch.tensor(77), torch.tensor(78)), "CPU")
    library.impl("backward", lambda x, seed: x * 2, "CPU")

    def step() -> None:
        output, _, seed, _ = torch.ops.numtui_states.attend(X)
        torch.ops.numtui_states.backward(output, seed)

    log = record(nn.Linear(1, 1), step)
    made, read = one(log, "attend"), one(log, "backward")
    assert [text == "-" for text in made.fields["Digest"].split(", ")] == [False, False, True, True]
    assert [text == "-" for text in read.fields["Input digests"].split(", ")] == [False, True]
    assert read.fields["Input producers"] == f"{made.key};{made.key}"


def test_no_argument_keeps_the_object_that_was_given(record: Record) -> None:
    values = [float(k) for k in range(3)]

    class Watching(nn.Module):
        def forward(self, x: Any) -> Any:
            torch._foreach_mul([x, x, x], values)
            values[:] = [9.0, 9.0, 9.0]
            return x

    log = record(Watching(), lambda: Watching()(X))
    assert arguments(one(log, "_foreach_mul"))["scalars"] == [0.0, 1.0, 2.0]


def test_recomputed_and_compiled_operations_have_them_too(record: Record) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, eps=1e-3))
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)

    def step() -> None:
        checkpoint(model, X, use_reentrant=False).sum().backward()
        compiled(X).sum().backward()

    log = record(model, step)
    assert {arguments(row)["eps"] for row in log.rows if row.op == "native_layer_norm"} == {1e-3}
    assert len([row for row in log.rows if row.op == "native_layer_norm"]) == 3


@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_that_python_puts_into_a_tensor_have_a_record_without_inputs(record: Record, compiled: bool) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any) -> Any:
            x = x * torch.tensor([0.1, 2.0]).repeat(3)
            x[0, 1] = 7
            return torch.where(torch.tensor([[True] * 6] * 4), x, 0)

    model: Any = torch.compile(Scaled(), backend="aot_eager") if compiled else Scaled()
    log = record(model, lambda: model(X))
    rows = [row for row in log.rows if row.op == "lift_fresh"]
    assert [arguments(row) for row in rows] == [{"data": [0.1, 2.0]}, {"data": 7.0}, {}]
    assert not any("Input digests" in row.fields or row.digests == [""] for row in rows)
    used = one(log, "repeat")
    assert used.producers == [rows[0].key]
    assert used.input_digests == rows[0].digests


def test_what_torch_makes_for_itself_in_an_optimizer_is_not_recorded(record: Record) -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        model(X).sum().backward()
        optimizer.step()

    log = record(model, step)
    assert "lift_fresh" in log.excluded
    assert not any(row.op == "lift_fresh" or "Read" in row.fields for row in log.rows)


def test_numbers_that_python_reads_are_noted_where_they_are_made(record: Record) -> None:
    def step() -> None:
        total = X.sum()
        assert int((X > 0).sum().item()) == 12
        if total > 5:
            raise AssertionError
        assert torch.equal(total, total + 0)
        assert len(f"{total:.1f}") > 2

    log = record(nn.Linear(1, 1), step)
    read = [(row.op, value, at) for row in log.rows for value, at in json.loads(row.fields.get("Read", "[]"))]
    assert [(name, value) for name, value, _ in read] == [("sum", True), ("sum", 12), ("gt", False), ("add", True)]
    assert all(at.startswith("capture/test_arguments.py:") for _, _, at in read)
    assert len({at for _, _, at in read}) == 3


def test_so_are_those_of_a_list(record: Record) -> None:
    lists = []

    def step() -> None:
        rewards = torch.arange(40.0).reshape(20, 2) * 2
        lists.append(rewards.tolist())
        assert (X > 0).sum().tolist() == 12
        assert len(repr(rewards + 1)) > 9  # a list that torch makes, to print it

    log = record(nn.Linear(1, 1), step)
    assert lists == [[[4.0 * k, 4.0 * k + 2] for k in range(20)]]
    read = {row.op: json.loads(row.fields["Read"]) for row in log.rows if "Read" in row.fields}
    assert {name: [value for value, _ in told] for name, told in read.items()} == {
        "mul": [2.0 * k for k in range(16)],
        "sum": [12],
    }
    assert all(at.startswith("capture/test_arguments.py:") for told in read.values() for _, at in told)
    assert "tolist" not in vars(torch.Tensor), "it is torch's own again"


def test_the_settings_of_optimizers_are_in_the_run_info(script: Script) -> None:
    log = script("""
        model = net()
        groups = [{"params": [p], "weight_decay": 0.1 * (p.ndim > 1)} for p in model.parameters()]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), foreach=False)
        model(x).sum().backward()
        optimizer.step()
    """).log
    decayed, other = log.run["optimizer_settings"]
    assert (decayed["optimizer"], decayed["parameters"], other["parameters"]) == ("AdamW", 2, 2)
    assert (decayed["lr"], decayed["betas"], decayed["eps"]) == (1e-3, [0.9, 0.95], 1e-8)
    assert (decayed["weight_decay"], other["weight_decay"]) == (0.1, 0.0)
    assert (decayed["names"], other["names"]) == (["0.weight", "2.weight"], ["0.bias", "2.bias"])


@pytest.mark.parametrize("fused", [False, True])
def test_so_is_the_number_of_updates_before(record: Record, fused: bool) -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)

    def step() -> None:
        model(X).sum().backward()
        optimizer.step()

    settings = [record(model, step).run["optimizer_settings"][0].get("step") for _ in range(3)]
    assert settings == [None, 1.0, 2.0]
    optimizer.state[model.bias]["step"] += 1
    assert "step" not in record(model, step).run["optimizer_settings"][0]
