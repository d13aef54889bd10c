"""The thirteen faults of a tracer that stands on DebugMode's own recording: each is there, and is not in our log.

The third, collectives that are read before they are done, needs two processes: tests/capture/test_collectives.py.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._debug_mode import DebugMode
from torch.utils.checkpoint import checkpoint

from capture.statistics import Statistics
from tests.capture.conftest import Record
from tests.capture.logs import Row
from tests.capture.stock import StockRecord, stock

FILE = __file__


class Net(nn.Module):
    """Two layers with a name each, and an operation of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.outer(self.inner(x).sigmoid())

    @classmethod
    def line(cls) -> int:
        """Where its operations are called."""
        return int(cls.forward.__code__.co_firstlineno) + 1


def values(*shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sketch(row: Row) -> tuple[float, ...]:
    return struct.unpack("<16d", base64.b64decode(row.fields["Sketch"]))


class TestOneValues:
    """Seven digits of an L1 norm see neither sign nor order nor small changes."""

    x = values(64, 64)
    shuffled = torch.randperm(64, generator=torch.Generator().manual_seed(2))
    nudge = 1 + 1e-7 * values(64, 64, seed=3).double()

    @pytest.mark.parametrize("change", ["sign", "order", "small"])
    def test_a_change_is_seen_and_its_size_is_known(self, record: Record, change: str) -> None:
        module = nn.Identity()
        x = self.x.double()
        other = {"sign": -x, "order": x[self.shuffled], "small": x * self.nudge}[change]

        def step(source: Any) -> Callable[[], Any]:
            return source.clone

        (theirs,), (theirs_changed,) = ([r for r in stock(step(source)) if r.op == "clone"] for source in (x, other))
        assert theirs.printed == theirs_changed.printed

        ours, changed = (record(module, step(source)).of("clone")[0] for source in (x, other))
        assert ours.digests != changed.digests
        estimate = math.sqrt(sum((a - b) ** 2 for a, b in zip(sketch(ours), sketch(changed), strict=True)) / 16)
        assert estimate == pytest.approx(float((x - other).norm()), rel=0.5)
        assert float(ours.fields["Output hash"]) == float(x.abs().sum()) or change == "order"


@pytest.mark.parametrize(("form", "wrong"), [("fused", "weight_decay"), ("foreach", "lr")])
def test_two_a_wrong_optimizer_step_is_seen_in_the_parameter_that_it_spoils(
    record: Record, form: str, wrong: str
) -> None:
    """What `_fused_adamw_` and `_foreach_addcdiv_` return is nothing; what they change is the weights."""
    good = {"weight_decay": 0.1 if form == "fused" else 0.0, "lr": 1e-3}

    def step(options: dict[str, float]) -> tuple[nn.Module, Callable[[], Any]]:
        model = nn.Linear(4, 4, bias=False)
        model.weight.data = values(4, 4)
        model.weight.grad = values(4, 4, seed=2)
        return model, torch.optim.AdamW(model.parameters(), **{form: True}, **options).step

    def theirs(options: dict[str, float]) -> list[tuple[object, ...]]:
        return [r.printed for r in stock(step(options)[1]) if r.op.startswith("_f")]

    if form == "fused":
        assert theirs(good) == theirs(good | {wrong: 0.0})
        assert not [r for r in stock(step(good)[1]) if r.op == "_fused_adamw_" and r.hashes]
    else:
        # the last operation, which moves the weights
        assert theirs(good)[-1] == theirs(good | {wrong: 0.01})[-1]

    sound, spoiled = (record(*step(options)).rows[-1] for options in (good, good | {wrong: 0.01}))
    (weight,) = [entry for entry in sound.mutated if entry.get("name") == "weight"]
    (other,) = [entry for entry in spoiled.mutated if entry.get("name") == "weight"]
    assert sound.input_digests[0] == spoiled.input_digests[0]
    assert weight["digest"] != other["digest"]
    assert weight["sketch"] != other["sketch"]


class Checkpointed(nn.Module):
    """A function of a module is checkpointed, not the module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.wrapped = nn.ModuleList(Piece(layer) for layer in self.layers)

    def forward(self, x: Any) -> Any:
        for piece in self.wrapped:
            x = piece(x)
        return x


class Piece(nn.Module):
    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def body(self, x: Any) -> Any:
        return self.linear(x).sin() * x

    def forward(self, x: Any) -> Any:
        return checkpoint(self.body, x, use_reentrant=False)


def test_four_what_a_checkpoint_runs_again_keeps_its_layer(record: Record) -> None:
    model, x = Checkpointed(), values(4, 8)

    def step() -> None:
        model(x).sum().backward()

    theirs = [r for r in stock(step) if r.op == "sin"]
    assert [r.module for r in theirs] == ["Checkpointed.wrapped.0", "Checkpointed.wrapped.1", "<none>", "<none>"]

    ours = record(model, step).of("sin")
    again = [row for row in ours if row.fields.get("Recompute") == "true"]
    assert [row.module for row in ours] == ["wrapped.0", "wrapped.1", "wrapped.1", "wrapped.0"]
    assert again == ours[2:]
    assert [row.fields["Location"] for row in ours] == [ours[0].fields["Location"]] * 4


class TestFiveDtypesAndSizes:
    """Complex, integer and float64 tensors and small ones are recorded, and no key depends on the batch size."""

    def test_every_dtype_keeps_its_digits(self, record: Record) -> None:
        """float32, in which integers are normed, cannot tell 2²⁴ from 2²⁴ + 1."""
        big = torch.tensor([2**24])
        theirs, other = (stock(value.clone)[0] for value in (big, big + 1))
        assert theirs.hashes == other.hashes

        ours, other_row = (record(nn.Identity(), value.clone).rows[0] for value in (big, big + 1))
        assert ours.digests != other_row.digests
        assert ours.fields["Output hash"] != other_row.fields["Output hash"]

    @pytest.mark.parametrize(
        "dtype",
        [
            "float64",
            "float16",
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "complex64",
            "int64",
            "int8",
            "uint8",
            "bool",
        ],
    )
    def test_every_dtype_is_recorded(self, record: Record, dtype: str) -> None:
        x = torch.tensor([0.0, 1.0, 2.0, 1.0]).to(getattr(torch, dtype))
        (row,) = record(nn.Identity(), x.clone).of("clone")
        assert row.fields["Shape"] == f"torch.Size([4]), Dtype: torch.{dtype}"
        assert row.counts == {"numel": 4, "nan": 0, "inf": 0, "zero": 1}
        assert float(row.fields["Output hash"]) == (3.0 if dtype == "bool" else 4.0)

    @staticmethod
    def forward_and_backward(model: nn.Module, x: Any) -> None:
        model.zero_grad()
        model(x).sum().backward()

    def test_keys_do_not_depend_on_the_batch_size(self, record: Record) -> None:
        model = Net()

        def filtered(records: list[StockRecord]) -> list[str]:
            """Keys of a tracer that leaves out what has fewer than 1,000 elements, and counts what it keeps."""
            kept = [r for r in records if not r.view and f"{batch}, 8]" in r.text and batch * 8 >= 1000]
            return [f"{r.module}/op_{n}_{r.op}" for n, r in enumerate(kept)]

        theirs, ours = [], []
        for batch in (4, 256):
            step = partial(self.forward_and_backward, model, values(batch, 8))
            theirs.append(filtered(stock(step)))
            ours.append(record(model, step).keys)
        assert theirs[0] != theirs[1]
        assert ours[0] == ours[1]


def test_six_inputs_have_producers_through_views_and_casts(record: Record) -> None:
    """The product's input is a view of what the sigmoid gave, in another dtype."""
    weight = values(8, 8).bfloat16()

    def step() -> Any:
        gate = values(4, 8).sigmoid()
        return gate.bfloat16().view(2, 2, 8).transpose(0, 1).reshape(4, 8) @ weight

    theirs = stock(step)
    recorded = {n for r in theirs if not r.view and r.op != "_to_copy" for n in r.outputs}
    (product,) = [r for r in theirs if r.op == "mm"]
    assert not recorded & set(product.inputs)

    log = record(nn.Identity(), step)
    (ours,) = log.of("mm")
    reshaped = log[ours.producers[0]]
    cast = log[reshaped.producers[0]]
    assert (reshaped.op, cast.op, log[cast.producers[0]].op) == ("clone", "_to_copy", "sigmoid")


def test_seven_every_output_has_numbers_of_its_own(record: Record) -> None:
    """Which token goes to which expert is the second output of `topk`; norms do not know one order from another."""
    scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])

    def step(rows: Any) -> Callable[[], Any]:
        return lambda: rows.topk(2, dim=-1)

    assert stock(step(scores))[0].printed == stock(step(scores.flip(0)))[0].printed

    ours, other = (record(nn.Identity(), step(rows)).rows[0] for rows in (scores, scores.flip(0)))
    (indices,), (other_indices,) = ours.outputs, other.outputs
    assert indices["dtype"] == "int64"
    assert indices["shape"] == [2, 2]
    assert indices["counts"] == [4, 0, 0, 1]
    assert indices["digest"] == ours.digests[1] != other_indices["digest"]


def lambda_loss(output: Any) -> Any:
    return output.square().mean()


def test_eight_nothing_is_called_none(record: Record) -> None:
    """The loss, what follows the backward pass, and the optimizer have names; so has all of the backward pass."""
    model, x = Net(), values(4, 8)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(2):
            lambda_loss(model(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    assert sum(r.module == "<none>" for r in stock(step)) > 30

    log = record(model, step)
    # autograd's first gradient, a one, is the step's own: it called `backward`
    assert set(log.modules) == {"inner", "outer", "Net", "lambda_loss", "step", "clip_grad_norm_", "optimizer"}
    backward = {row.module for row in log if row.phase == "backward"}
    assert backward == {"inner", "outer", "Net", "lambda_loss"}
    # what it does with one parameter alone is said of that parameter's module
    assert {row.module for row in log if row.phase in {"gradients", "optimizer"}} == {
        "clip_grad_norm_",
        "optimizer",
        "inner",
        "outer",
    }


def test_a_loop_that_clips_is_of_the_phase_gradients(record: Record) -> None:
    """Without `no_grad` it looks like what prepares a pass; what does prepare one keeps its phase."""
    model, x = Net(), values(4, 8)
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        for _ in range(2):
            model(-x).sum().backward()
        squares = torch.zeros(())
        for parameter in model.parameters():
            squares = squares + parameter.grad.norm() ** 2
        for parameter in model.parameters():
            parameter.grad.mul_(0.5 / squares.sqrt())
        optimizer.step()

    log = record(model, step)
    phases = {
        op: {row.phase for row in log if row.op == op} for op in ("zeros", "linalg_vector_norm", "pow", "sqrt", "mul_")
    }
    assert set.union(*phases.values()) == {"gradients"}
    assert {row.phase for row in log if row.op == "neg"} == {"prepare"}
    named = [row.fields.get("Parameter", "") for row in log if row.op == "linalg_vector_norm"]
    assert "outer.weight.grad" in named


def test_nine_the_location_is_a_line_of_the_user(record: Record) -> None:
    """Backward operations have the line of their forward operation; frames of torch are left out."""
    model, x = Net(), values(4, 8)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    theirs = {r.frames[-1][0] for r in stock(step) if r.op == "addmm"}
    assert [path.rpartition("/torch/")[2] for path in theirs] == ["nn/modules/linear.py"]
    assert not [r for r in stock(step) if r.op == "mm" and (FILE, str(Net.line())) in r.frames]

    log = record(model, step)
    lines = {row.fields["Location"] for row in log if row.module in ("inner", "outer", "Net")}
    assert lines == {f"capture/test_faults.py:{Net.line()}"}
    frames = log.of("addmm")[0].fields["Stack"].split(" < ")
    functions = [frame.rpartition(":")[2] for frame in frames[:2]]
    # Python 3.10 does not know of what class a method is
    assert functions in (["Net.forward", "step"], ["forward", "step"])
    assert not any("/torch/" in row.fields["Stack"] for row in log)


def test_ten_the_log_says_what_was_run(record: Record) -> None:
    """Two micro-batches of the same data: nothing in the stock recording says which is which, or under which seed."""
    model, x = Net(), values(4, 8)

    def step() -> None:
        for _ in range(2):
            model(x).sum().backward()

    theirs = [r.printed for r in stock(step) if r.module.startswith("Net")]
    assert theirs[: len(theirs) // 2] == theirs[len(theirs) // 2 :]

    log = record(model, step)
    said = ("step", "rank", "world_size", "seed", "deterministic", "precision", "parameters_digest", "batch_digest")
    assert not [name for name in said if name not in log.run]
    assert (log.run["step"], log.run["rank"], log.run["world_size"]) == (1, 0, 1)
    products = log.of("addmm", "inner")
    assert [row.fields["Micro-batch"] for row in products] == ["0", "1"]
    assert [row.fields["Micro-batch"] for row in log.of("mm", "inner")] == ["0", "1"]


def test_eleven_a_tensor_is_read_once_and_no_number_is_waited_for(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DebugMode reads each tensor again wherever it goes, and asks for each number at once."""
    x = values(4, 8)

    def step() -> None:
        y = x.clone()
        for factor in range(10):
            y * factor

    reads = {"stock": 0, "ours": 0, "item": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            reads[name] += 1
            return function(*args, **kwargs)

        return call

    debug_mode = import_module(DebugMode.__module__)
    monkeypatch.setattr(debug_mode, "norm_hash_fn", counted("stock", debug_mode.norm_hash_fn))
    monkeypatch.setattr(Statistics, "measure", counted("ours", Statistics.measure))
    monkeypatch.setattr(torch.Tensor, "item", counted("item", torch.Tensor.item))
    stock(step)
    assert reads["item"] == reads["stock"] == 2 + 10 * 2

    reads["item"] = 0
    record(nn.Identity(), step)
    assert reads["item"] == 0
    assert reads["ours"] == 2 + 10


def test_twelve_one_nan_hides_nothing_else(record: Record) -> None:
    x = values(4, 8)
    x[0, 0] = math.nan
    x[1, 1] = math.inf

    first, second = (stock(partial(torch.mul, x, k))[0] for k in (1.0, 2.0))
    assert math.isnan(first.hashes[0])
    assert math.isnan(second.hashes[0])

    ours, doubled = (record(nn.Identity(), partial(torch.mul, x, k)).rows[0] for k in (1.0, 2.0))
    finite = x[x.isfinite()].double()
    assert ours.counts == {"numel": 32, "nan": 1, "inf": 1, "zero": 0}
    assert float(ours.fields["Output hash"]) == pytest.approx(float(finite.abs().sum()), rel=1e-12)
    assert float(ours.fields["L2 norm"]) == pytest.approx(float(finite.norm()), rel=1e-12)
    assert float(doubled.fields["Max"]) == 2 * float(ours.fields["Max"]) == 2 * float(finite.max())


def test_thirteen_all_numbers_of_a_record_are_of_one_moment(record: Record) -> None:
    """A result is changed in place afterwards: what is looked at later no longer is what was hashed."""
    x = values(4, 8)
    kept: list[Any] = []

    def step() -> None:
        y = x * 2
        y.add_(100.0)

    mode = DebugMode(store_original_args=True)
    with DebugMode.log_tensor_hashes("norm", hash_inputs=True), mode:
        step()
    change = mode.operators[-1]
    hashed = change.log["input_hash"][0][0]
    kept.append(change.args[0])
    assert hashed != pytest.approx(float(kept[0].double().norm(p=1)))

    (row,) = record(nn.Identity(), step).of("mul")
    y = (x * 2).double()
    given = {name: float(row.fields[name]) for name in ("Output hash", "L2 norm", "Min", "Max", "Mean")}
    wanted = {
        "Output hash": y.abs().sum(), "L2 norm": y.norm(), "Min": y.min(), "Max": y.max(), "Mean": y.mean(),
    }  # fmt: skip
    assert given == pytest.approx({name: float(value) for name, value in wanted.items()}, rel=1e-12, abs=1e-12)
