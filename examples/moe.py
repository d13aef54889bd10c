# mypy: allow-subclassing-any
"""A mixture of experts with top-k routing, in which no token is dropped."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class MixtureOfExperts(nn.Module):
    """Each token goes to the `top_k` experts with the highest router scores; their weighted outputs are added."""

    def __init__(self, dim: int, hidden: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = Experts(dim, hidden, experts)
        self.top_k = top_k

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, dim) to the same."""
        tokens = x.flatten(0, 1)
        # In float32: a tie or a rounding here sends a token to another expert.
        probabilities = torch.softmax(self.router(tokens).float(), dim=-1)
        weights, chosen = probabilities.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)

        # One row per (token, expert), in the order of the experts, so that each expert sees one block of rows.
        order = chosen.flatten().argsort(stable=True)
        rows = order // self.top_k
        # Counted by comparison: bincount has no static shape, and cannot be traced.
        ids = torch.arange(self.experts.number, device=x.device)
        ends = (chosen.flatten() == ids[:, None]).sum(-1).cumsum(0)
        outputs = self.experts(tokens[rows], ends.to(torch.int32))
        weighted = outputs * weights.flatten()[order, None].to(outputs.dtype)
        return torch.zeros_like(tokens).index_add(0, rows, weighted.to(tokens.dtype)).view_as(x)


class Experts(nn.Module):
    """The feed-forward layers of all experts, as three stacks of matrices."""

    def __init__(self, dim: int, hidden: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.w1 = nn.Parameter(torch.empty(number, dim, hidden))
        self.w2 = nn.Parameter(torch.empty(number, hidden, dim))
        self.w3 = nn.Parameter(torch.empty(number, dim, hidden))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        """Pass rows `ends[e - 1]` to `ends[e]` of `x` through expert `e`.

        In bfloat16 whatever the model's dtype: grouped products support it on every device.
        """
        w1, w2, w3 = (weight.bfloat16() for weight in (self.w1, self.w2, self.w3))
        narrow = x.bfloat16()
        gate = functional.silu(functional.grouped_mm(narrow, w1, offs=ends))
        return functional.grouped_mm(gate * functional.grouped_mm(narrow, w3, offs=ends), w2, offs=ends).to(x.dtype)
