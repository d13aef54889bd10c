"""Forward, loss and backward as one graph that is traced once and then replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch._functorch._aot_autograd.utils import copy_fwd_metadata_to_bw_nodes
from torch.func import functional_call
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx


class TracedStep:
    """Calls the graph with flat inputs, and adds its gradients to the parameters' as autograd would."""

    def __init__(self, model: nn.Module, loss: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        self.model = model
        self.loss = loss
        self.graph: Any = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a micro-batch; its gradients are in the parameters afterwards."""
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
            weights = state[: len(parameters)]

            def forward(tokens: Tensor) -> Tensor:
                return functional_call(self.model, dict(zip(parameters + buffers, state, strict=True)), (tokens,))

            loss = self.loss(forward, inputs, targets)
            # Marks what the backward pass adds, with the sequence number of the forward operation it belongs to.
            setup_stacktrace_preservation_hooks([loss.grad_fn])
            return [loss.detach(), *torch.autograd.grad(loss, weights, allow_unused=True)]

        with traceback.preserve_node_meta(), _named_modules_annotated(self.model):
            graph = make_fx(step, tracing_mode="fake", record_stack_traces=True)(*flat)
        copy_fwd_metadata_to_bw_nodes(graph)
        return graph


@contextmanager
def _named_modules_annotated(model: nn.Module) -> Iterator[None]:
    """While this is open, what is traced in a module's forward carries the module's name in its metadata."""
    modules: list[tuple[str, Any]] = [(name, module) for name, module in model.named_modules() if name]
    for name, module in modules:
        fqn = name.replace("_checkpoint_wrapped_module.", "").removesuffix("._checkpoint_wrapped_module")
        module.forward = traceback.annotate_fn({"module_fqn": fqn})(module.forward)
    try:
        yield
    finally:
        for _, module in modules:
            del module.forward
