"""Synthetic tokens and weights that depend only on a seed and a name, not on the number of ranks."""

import hashlib
import random
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def derived_seed(*parts: object) -> int:
    """Derive a seed of 63 bits from these parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def micro_batch(seed: int, step: int, index: int, size: tuple[int, int], vocab: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of micro-batch `index` of the global batch of `step`, each (sequences, length).

    Small token ids are frequent, so that there is something to learn. Drawn from Python's generator, which leaves
    torch's untouched.
    """
    source = random.Random(derived_seed(seed, "tokens", step, index))  # noqa: S311
    sequences, length = size
    tokens = torch.tensor([[int(vocab * source.random() ** 4) for _ in range(length + 1)] for _ in range(sequences)])
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def matrix(seed: int, name: str, shape: Sequence[int]) -> Tensor:
    """Draw a matrix of (…, outputs, inputs), or a stack of (inputs, outputs), from a generator seeded by its name."""
    generator = torch.Generator().manual_seed(derived_seed(seed, "weights", name))
    return torch.randn(shape, generator=generator) * shape[1] ** -0.5


def initialise(model: nn.Module, seed: int) -> None:
    """Draw all matrices; vectors belong to the norms and stay one."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            with torch.no_grad():
                parameter.copy_(matrix(seed, name, parameter.shape))
