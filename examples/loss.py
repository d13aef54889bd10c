"""Cross entropy, summed over tokens: the caller divides by the number of tokens of the whole batch."""

import torch
from torch import Tensor
from torch.nn import functional


def whole(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the loss from one float32 copy of all logits: (batch, sequence, vocab), (batch, sequence) to a scalar."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


def chunked(logits: Tensor, targets: Tensor, chunks: int = 4) -> Tensor:
    """Compute the same in chunks of the sequence, so that only one chunk at a time is copied to float32."""
    pieces = zip(logits.chunk(chunks, dim=1), targets.chunk(chunks, dim=1), strict=True)
    return torch.stack([whole(piece, wanted) for piece, wanted in pieces]).sum()


LOSSES = {"whole": whole, "chunked": chunked}
