"""Forward, loss and backward as one graph, traced once and then replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.stateless import _reparametrize_module

LossFunction = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]


def with_stack(function: Any) -> Any:
    """Mark a function so that tracing keeps its frames in stack traces, as it does for modules."""
    return traceback.annotate_fn({})(function)


class TracedStep:
    """Call the graph with flat inputs and accumulate its gradients into the parameters, as autograd would."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        self.model = model
        self.loss = with_stack(loss)
        self.graph: Any = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a micro-batch and leave its gradients in the parameters."""
        parameters = dict(self.model.named_parameters())
        buffers = dict(self.model.named_buffers())
        flat = [*parameters.values(), *buffers.values(), inputs, targets]
        if self.graph is None:
            self.graph = self._trace(list(parameters), list(buffers), flat)
        with torch.no_grad():
            loss, *gradients = self.graph(*flat)
            for parameter, gradient in zip(parameters.values(), gradients, strict=True):
                if gradient is None:
                    continue
                if parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad += gradient
        return loss

    def _trace(self, parameters: list[str], buffers: list[str], flat: list[Tensor]) -> Any:
        def step(*tensors: Tensor) -> list[Tensor]:
            *state, inputs, targets = tensors
            # Open during the backward pass too: checkpoints call modules again in it.
            tensors_by_name = dict(zip(parameters + buffers, state, strict=True))
            with _reparametrize_module(self.model, tensors_by_name, tie_weights=True):
                loss = self.loss(self.model, inputs, targets)
                # Marks backward operations with the sequence number of the forward operation they belong to.
                roots: list[Any] = [loss.grad_fn]
                setup_stacktrace_preservation_hooks(roots)
                gradients = torch.autograd.grad(loss, state[: len(parameters)], allow_unused=True)
            return [loss.detach(), *gradients]

        with traceback.preserve_node_meta(), _named_modules_annotated(self.model):
            graph = make_fx(step, tracing_mode="fake", record_stack_traces=True)(*flat)
        _describe_backward(graph)
        return graph


def _describe_backward(graph: Any) -> None:
    """Give each backward operation the module and the stack of the forward operation it belongs to."""
    forward: dict[int, dict[str, Any]] = {}
    for node in graph.graph.nodes:
        number = node.meta.get("seq_nr")
        if number is None or node.meta.get("is_gradient_acc"):
            continue
        if not node.meta.get("autograd_backward"):
            # The operation that made the autograd node comes first; what follows under its number made none.
            forward.setdefault(number, node.meta)
            continue
        for key in ("custom", "stack_trace"):
            if key in forward.get(number, {}):
                node.meta.setdefault(key, forward[number][key])


@contextmanager
def _named_modules_annotated(model: nn.Module) -> Iterator[None]:
    """Open a context in which operations traced in a module's forward carry its name in their metadata."""
    modules: list[tuple[str, Any]] = [(name, module) for name, module in model.named_modules() if name]
    for name, module in modules:
        fqn = name.replace("_checkpoint_wrapped_module.", "").removesuffix("._checkpoint_wrapped_module")
        module.forward = traceback.annotate_fn({"module_fqn": fqn})(module.forward)
    try:
        yield
    finally:
        for _, module in modules:
            del module.forward
