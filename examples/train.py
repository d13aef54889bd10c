"""Train a small llama-like model: `python examples/train.py --help`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import checkpointing
import torch
from bugs import LAYER_BUGS, Planted
from data import derived_seed, initialise, micro_batch
from faults import data_rank, empty_mean, flip_bit
from loss import LOSSES
from model import LayerConfig, ModelConfig, Transformer
from parallel import World, divide_data, number, open_world, split_matrices, synchronised
from parallel_faults import clip_by_local_norm
from settings import Settings, parse
from simulated import batch_of_all, flip_bits, spoiled
from state import digest
from torch import Tensor, nn
from traced import TracedStep, with_stack

Step = Callable[[Tensor, Tensor], Tensor]


def build(settings: Settings) -> Transformer:
    """Build the model of these settings, with weights that depend on the seed only."""
    layers = [
        LayerConfig(experts=settings.experts * (i % 2), top_k=settings.top_k, dropout=settings.dropout)
        for i in range(settings.layers)
    ]
    for bug in settings.bugs:
        fields: dict[str, Any] = LAYER_BUGS.get(bug.name, {})
        layer = settings.layer_of(bug)
        layers[layer] = replace(layers[layer], **fields)
    model = Transformer(
        ModelConfig(
            dim=settings.dim,
            heads=settings.heads,
            kv_heads=settings.kv_heads,
            vocab=settings.vocab,
            seq_len=settings.seq_len,
            tied=settings.tied,
            unused=settings.unused,
            layers=tuple(layers),
        )
    )
    if settings.dtype == "bfloat16":
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    initialise(model, settings.seed)
    return model


def make_optimizer(model: nn.Module, settings: Settings, left_out: nn.Parameter | None = None) -> Any:
    """Make AdamW, without weight decay for norms."""
    parameters = [p for p in model.parameters() if p.requires_grad and p is not left_out]
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


def batch(settings: Settings, world: World, step: int, index: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a micro-batch of this rank, or of all simulated ranks."""

    def of(data_index: int, *, other: bool) -> tuple[Tensor, Tensor]:
        seed = settings.token_seed + other
        return micro_batch(seed, step, index * world.data_size + data_index, size, settings.vocab)

    if world.simulated:
        strangers = {fault.rank for fault in settings.simulated_faults() if fault.name == "other-batch"}
        return batch_of_all(lambda rank: of(rank // world.tensor_size, other=rank in strangers))
    own = data_rank(world.data_rank, world.data_size, world.bug, world.tensor_size)
    return of(own, other=world.bug.here("other-batch"))


def clip(model: nn.Module, settings: Settings, bug: Planted) -> Tensor:
    """Scale gradients down to a norm of at most `settings.clip`; return the norm before."""
    if bug.has("partial-as-replicated") and settings.parallel == "fsdp2":
        return clip_by_local_norm(model, settings.clip)
    return nn.utils.clip_grad_norm_(model.parameters(), settings.clip)


def train(model: Transformer, settings: Settings, world: World) -> None:
    """Run the loop: micro-batches, gradient clipping, optimizer; print one line per step."""
    bug = world.bug
    if bug.has("not-broadcast"):
        initialise(model, settings.seed + world.data_rank)
    if settings.dropout:
        # Ranks that share a layer's matrices have the same activations, and need the same mask.
        torch.manual_seed(derived_seed(settings.seed, "dropout", world.data_rank, bug.here("tp-dropout")))
    split_matrices(model, world)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not fnmatch(name, settings.freeze))
    checkpointing.apply(model, settings.ac, settings.ac_style, restore_rng=not settings.has_bug("rng-not-restored"))
    if settings.compile != "none":
        for layer in model.layers:
            layer.compile(backend=settings.compile)
    called = divide_data(model, settings, world)
    left_out = model.get_parameter(bug.parameter("attention.wq.weight")) if bug.here("left-out") else None
    optimizer = make_optimizer(model, settings, left_out)

    if bug.here("flipped-bit"):
        owner = "attention_norm" if world.tensor_mesh else "attention.wq"
        flip_bit(model.get_parameter(bug.parameter(f"{owner}.weight")))
    faults = settings.simulated_faults()
    flip_bits(model, faults)

    last = world.data_rank == world.data_size - 1
    size = (settings.batch - (settings.uneven and last), settings.seq_len)
    tokens = (settings.batch * world.data_size - settings.uneven) * settings.seq_len
    if not settings.has_bug("accumulation-scale"):
        tokens *= settings.micro_batches
    if bug.has("local-tokens"):
        tokens = tokens // world.data_size
    run = make_step(model, called, settings, tokens)

    for step in range(1, settings.steps + 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for index in range(settings.micro_batches):
            inputs, targets = batch(settings, world, step, index, size)
            with (
                synchronised(called, last=index == settings.micro_batches - 1),
                empty_mean(model.layers[bug.layer], bug, now=step == settings.bug_step),
                spoiled(model, faults, now=step == settings.bug_step),
            ):
                total += run(inputs, targets)
        norm = clip(model, settings, bug)
        if settings.has_bug("weight-decay-off") and step >= settings.bug_step:
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
        optimizer.step()
        print(f"step {step} loss {number(world.sum(total))!r} grad_norm {number(norm)!r}", flush=True)
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
