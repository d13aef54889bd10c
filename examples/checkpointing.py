"""Activation checkpointing: layers whose activations are recomputed in the backward pass."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def apply(model: Any, kind: str, style: str, *, restore_rng: bool = True) -> None:
    """Checkpoint each layer of `model`.

    Args:
        model: The transformer.
        kind: `none`; `full`; `selective`, which keeps the results of matrix products and recomputes the rest.
        style: `wrapper` puts a module around each layer, `function` and `function-reentrant` call it through
            `torch.utils.checkpoint.checkpoint`.
        restore_rng: Recompute with the random numbers of the forward pass.
    """
    if kind == "none":
        return
    options: dict[str, Any] = {} if restore_rng else {"preserve_rng_state": False}
    if kind == "selective":
        kept = [torch.ops.aten.mm.default, torch.ops.aten.bmm.default]
        options["context_fn"] = partial(create_selective_checkpoint_contexts, kept)

    if style == "wrapper":
        for index, layer in enumerate(model.layers):
            model.layers[index] = checkpoint_wrapper(layer, **options)
        return

    def call_layer(layer: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(layer, x, use_reentrant=style == "function-reentrant", **options)

    model.call_layer = call_layer
