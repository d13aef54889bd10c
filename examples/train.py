"""Train a small llama-like model: `python examples/train.py --help`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import checkpointing
import torch
from bugs import LAYER_BUGS
from data import initialise, micro_batch
from loss import LOSSES
from model import LayerConfig, ModelConfig, Transformer
from parallel import World, divide_data, open_world, split_matrices, synchronised, whole
from settings import Settings, parse
from state import digest
from torch import Tensor, nn
from traced import TracedStep, with_stack

Step = Callable[[Tensor, Tensor], Tensor]


def build(settings: Settings) -> Transformer:
    """Build the model of these settings, with weights that depend on the seed only."""
    layers = [LayerConfig(experts=settings.experts * (i % 2), top_k=settings.top_k) for i in range(settings.layers)]
    if settings.bug and settings.bug.name in LAYER_BUGS:
        fields: dict[str, Any] = LAYER_BUGS[settings.bug.name]
        layers[settings.bug_layer] = replace(layers[settings.bug_layer], **fields)
    model = Transformer(
        ModelConfig(
            dim=settings.dim,
            heads=settings.heads,
            kv_heads=settings.kv_heads,
            vocab=settings.vocab,
            seq_len=settings.seq_len,
            tied=settings.tied,
            layers=tuple(layers),
        )
    )
    if settings.dtype == "bfloat16":
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    initialise(model, settings.seed)
    return model


def make_optimizer(model: nn.Module, settings: Settings) -> Any:
    """Make AdamW, without weight decay for norms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    form: dict[str, Any] = {"fused": settings.optimizer == "fused", "foreach": settings.optimizer == "foreach"}
    return torch.optim.AdamW(groups, lr=settings.lr, **form)


def make_step(model: nn.Module, called: Callable[[Tensor], Tensor], settings: Settings, tokens: int) -> Step:
    """Return a function that runs a micro-batch forward and backward and returns its share of the step's loss.

    Args:
        model: Owns the parameters.
        called: The model, or its wrapper for distributed training.
        tokens: In the batch of the whole step; the loss is a mean over them.
    """
    loss_function = with_stack(LOSSES[settings.loss]) if settings.traced else LOSSES[settings.loss]

    def loss_of(forward: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.dtype == "amp"):
            return loss_function(forward(inputs), targets) / tokens

    def eager_step(inputs: Tensor, targets: Tensor) -> Tensor:
        loss = loss_of(called, inputs, targets)
        torch.autograd.backward(loss)
        return loss.detach()

    return TracedStep(model, loss_of) if settings.traced else eager_step


def train(model: Transformer, settings: Settings, world: World) -> None:
    """Run the loop: micro-batches, gradient clipping, optimizer; print one line per step."""
    split_matrices(model, world)
    checkpointing.apply(model, settings.ac, settings.ac_style)
    if settings.compile != "none":
        for layer in model.layers:
            layer.compile(backend=settings.compile)
    called = divide_data(model, settings, world)
    optimizer = make_optimizer(model, settings)

    size = (settings.batch, settings.seq_len)
    tokens = settings.batch * settings.seq_len * world.data_size
    if not settings.has_bug("accumulation-scale"):
        tokens *= settings.micro_batches
    run = make_step(model, called, settings, tokens)

    for step in range(1, settings.steps + 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for index in range(settings.micro_batches):
            batch_index = index * world.data_size + world.data_rank
            inputs, targets = micro_batch(settings.token_seed, step, batch_index, size, settings.vocab)
            with synchronised(called, last=index == settings.micro_batches - 1):
                total += run(inputs, targets)
        norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        if settings.has_bug("weight-decay-off") and step >= settings.bug_step:
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
        optimizer.step()
        print(f"step {step} loss {world.sum(total).item()!r} grad_norm {whole(norm).item()!r}", flush=True)
    if settings.print_state:
        print(f"state {digest(model, optimizer)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the settings of the command line."""
    settings = parse(arguments)
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(settings.seed)
    # Every rank first has the same full model, and keeps its shard once it has joined the others.
    model = build(settings)
    with open_world(settings) as world:
        train(model, settings, world)


if __name__ == "__main__":
    main()
