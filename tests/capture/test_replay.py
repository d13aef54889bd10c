"""Graphs that are replayed: called flat, run by an interpreter, or part of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch.fx import GraphModule, Interpreter
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.stateless import _reparametrize_module

from capture import FQNInterpreter, graph_nodes
from capture.tracer import StepTracer
from tests.capture.conftest import Record, Script
from tests.capture.logs import Log


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 8)
        self.gate = nn.Sigmoid()
        self.outer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.outer(self.gate(self.inner(x)))


X = torch.linspace(-1, 1, 32).view(4, 8)
MODULES = {"inner", "gate", "outer"}
KEEPS_FUNCTIONS = graph_nodes.KEEPS_FUNCTIONS


def loss_of(output: Any) -> Any:
    return output.square().mean()


def traced(model: nn.Module) -> GraphModule:
    """Forward, loss and backward of a model as one graph whose nodes say their modules, as torchtitan's tracer does."""
    names = [name for name, _ in model.named_parameters()]
    loss = fx_traceback.annotate_fn({})(loss_of)  # without this its frames are not kept

    def step(*tensors: Any) -> Any:
        *state, x = tensors
        with _reparametrize_module(model, dict(zip(names, state, strict=True))):
            result = loss(model(x))
            # marks what the backward pass adds
            setup_stacktrace_preservation_hooks([result.grad_fn])
            return torch.autograd.grad(result, state)

    restored = [(module, module.forward) for name, module in model.named_modules() if name]
    for name, module in model.named_modules():
        if name:
            module.forward = fx_traceback.annotate_fn({"module_fqn": name})(module.forward)
    try:
        with fx_traceback.preserve_node_meta():
            graph = make_fx(step, record_stack_traces=True)(*model.parameters(), X)
    finally:
        for module, forward in restored:
            module.forward = forward
    return graph


def inputs(model: nn.Module) -> list[Any]:
    return [*(p.detach() for p in model.parameters()), X]


@pytest.fixture(scope="module")
def net() -> Net:
    return Net()


@pytest.fixture(scope="module")
def graph(net: Net) -> GraphModule:
    return traced(net)


def eager(model: nn.Module) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(loss_of(model(X)), list(model.parameters()))


def places(log: Log) -> list[tuple[object, ...]]:
    """Of the operations that a graph says the place of: torch 2.11 and 2.12 keep no functions outside modules."""
    known = [row for row in log if row.op != "ones_like" and (KEEPS_FUNCTIONS or row.module in MODULES)]
    return sorted(((row.module, row.op, row.phase, *row.digests) for row in known), key=str)


class TestAGraph:
    @pytest.mark.parametrize("way", ["flat", "interpreter", "flat without call"])
    def test_has_the_modules_and_phases_of_the_eager_step(
        self, record: Record, net: Net, graph: GraphModule, way: str
    ) -> None:
        ways = {
            "flat": lambda: graph(*inputs(net)),
            "interpreter": lambda: FQNInterpreter(graph).run(*inputs(net)),
            "flat without call": lambda: graph.forward(*inputs(net)),
        }
        log = record(net, ways[way])
        assert set(log.modules) >= MODULES | ({"loss_of"} if KEEPS_FUNCTIONS else set())
        assert places(log) == places(record(net, eager(net)))

    def test_whose_backward_pass_is_marked_as_sums_of_gradients(self, record: Record, net: Net) -> None:
        """As torch 2.11 marks all of it after the loss."""
        graph = traced(net)
        for node in graph.graph.nodes:
            if node.meta.pop("autograd_backward", False) or node.meta.get("is_gradient_acc"):
                node.meta = {"seq_nr": node.meta["seq_nr"], "is_gradient_acc": True}
        log = record(net, lambda: graph(*inputs(net)))
        assert places(log) == places(record(net, eager(net)))

    @pytest.mark.parametrize("keeps", [True, False])
    def test_without_functions_is_spoken_of(
        self, record: Record, net: Net, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keeps: bool
    ) -> None:
        monkeypatch.setattr(graph_nodes, "KEEPS_FUNCTIONS", keeps)
        graph = traced(net)
        record(net, lambda: graph(*inputs(net)))
        assert ("keeps no functions in a traced graph" in capsys.readouterr().err) is not keeps

    def test_has_the_users_lines(self, record: Record, net: Net, graph: GraphModule) -> None:
        log = record(net, lambda: FQNInterpreter(graph).run(*inputs(net)))
        line = Net.forward.__code__.co_firstlineno + 1
        assert {row.fields["Location"] for row in log.of("addmm")} == {f"capture/test_replay.py:{line}"}
        assert not [row.key for row in log if "<eval_with_key>" in row.fields.get("Stack", "")]

    def test_is_run_as_by_any_interpreter(self, net: Net, graph: GraphModule) -> None:
        """Without a capture there is nothing to tell anybody."""
        for ours, theirs in zip(
            FQNInterpreter(graph).run(*inputs(net)), Interpreter(graph).run(*inputs(net)), strict=True
        ):
            assert torch.equal(ours, theirs)

    def test_without_metadata_goes_by_what_calls_it(self, record: Record, net: Net) -> None:
        plain = make_fx(lambda x: x.sin() + 1)(X)
        log = record(net, lambda: plain(X))
        assert [row.op for row in log] == ["sin", "add"]
        assert "<none>" not in log.modules

    def test_counts_each_run_as_a_micro_batch(self, record: Record, net: Net, graph: GraphModule) -> None:
        def step() -> None:
            graph(*inputs(net))
            graph(*inputs(net))

        log = record(net, step)
        assert [row.fields["Micro-batch"] for row in log.of("addmm", "inner")] == ["0", "1"]


class TestCompiledRegions:
    @pytest.fixture(autouse=True)
    def _fresh(self) -> Any:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.filterwarnings("ignore")
    def test_say_their_modules(self, record: Record) -> None:
        model = Net()
        model.compile(backend="aot_eager")

        def step() -> None:
            loss_of(model(X)).backward()

        log = record(model, step)
        assert [row.module for row in log.of("addmm")] == ["inner", "outer"]
        assert {row.module for row in log.of("mm")} == {"inner", "outer"}
        assert {row.phase for row in log.of("mm")} == {"backward"}
        assert log.of("sigmoid")[0].module == "gate"

    @pytest.mark.filterwarnings("ignore")
    def test_are_of_the_forward_pass_wherever_they_detach_a_tensor(self, record: Record) -> None:
        """What is saved for the backward pass is detached in the graph of the forward pass."""

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.conv = torch.nn.GroupNorm(2, 8), torch.nn.Conv1d(8, 8, 3, padding=1)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                out: torch.Tensor = x + self.conv(torch.nn.functional.silu(self.norm(x)))
                return out

        model = torch.nn.Sequential(Block(), Block())
        for block in model:
            block.compile(backend="aot_eager")
        log = record(model, lambda: model(torch.randn(4, 8, 6)).sum().backward())
        assert [row.phase for row in log.of("native_group_norm")] == ["forward"] * 2

    @pytest.mark.filterwarnings("ignore")
    def test_say_them_too_when_they_were_compiled_before(self, record: Record) -> None:
        """The code is the same with and without a capture: nothing is compiled again for it."""
        model = Net()
        model.compile(backend="aot_eager")
        model(X).sum().backward()
        compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        log = record(model, lambda: model(X).sum().backward())
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled
        assert log.of("addmm")
        assert "<none>" not in log.modules

    @pytest.mark.filterwarnings("ignore")
    def test_the_capture_itself_is_not_compiled(self, record: Record) -> None:
        """Where a graph breaks in a loop, torch runs the rest of a function as it is, but compiles what that calls."""
        model = Net()

        @torch.compile(backend="aot_eager")
        def broken(x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = torch.sin(x)
                torch._dynamo.graph_break()
            return model(x)

        log = record(model, lambda: broken(X).sum().backward())
        assert len(log.of("sin")) == 2
        compiled = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        assert not compiled(StepTracer.__torch_dispatch__.__code__)

    @pytest.mark.filterwarnings("ignore")
    def test_a_model_compiled_in_place_begins_a_step(self, script: Script) -> None:
        """Its call runs no hooks; and the way it is compiled is not changed by the capture."""
        run = script("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 1)

                def forward(this, x):
                    return this.outer(torch.relu(this.inner(x)))

            torch._dynamo.utils.counters.clear()
            model = Net()
            model.compile(backend="aot_eager")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(x).sum().backward()
            optimizer.step()
            print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        """)
        assert run.printed == "1\n"
        assert [row.module for row in run.log.of("addmm")] == ["inner", "outer"]
        assert run.log.of("relu")[0].module == "Net"
        assert run.log.complete

    def test_nothing_is_left_of_watching_modules_that_are_compiled_in_place(self, record: Record) -> None:
        model = Net()
        model.compile(backend="aot_eager")
        before = (nn.Module.compile, model._compiled_call_impl)
        record(model, lambda: None)
        assert (nn.Module.compile, model._compiled_call_impl) == before
