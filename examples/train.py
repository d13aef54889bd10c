"""Train a small llama-like model: `python examples/train.py --help`."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bugs import LAYER_BUGS
from data import initialise, micro_batch
from loss import LOSSES
from model import LayerConfig, ModelConfig, Transformer
from settings import Settings, parse
from state import digest


def build(settings: Settings) -> nn.Module:
    """The model of these settings, with weights that depend on the seed only."""
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
    """AdamW; norms are not decayed."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    form = {"fused": settings.optimizer == "fused", "foreach": settings.optimizer == "foreach"}
    return torch.optim.AdamW(groups, lr=settings.lr, **form)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as the command line says, and print what became of it."""
    settings = parse(arguments)
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(settings.seed)
    model = build(settings)
    optimizer = make_optimizer(model, settings)
    loss_function = LOSSES[settings.loss]
    tokens_per_step = settings.micro_batches * settings.batch * settings.seq_len

    for step in range(1, settings.steps + 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for index in range(settings.micro_batches):
            inputs, targets = micro_batch(
                settings.seed, step, index, (settings.batch, settings.seq_len), settings.vocab
            )
            loss = loss_function(model(inputs), targets) / tokens_per_step
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        print(f"step {step} loss {total.item()!r} grad_norm {norm.item()!r}", flush=True)
    if settings.print_state:
        print(f"state {digest(model, optimizer)}")


if __name__ == "__main__":
    main()
