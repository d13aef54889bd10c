# mypy: allow-subclassing-any
"""The planted communication bug: an all-gather to which one rank sends stale weights."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather


class StaleAllGather(DefaultAllGather):
    """All-gather of a layer's weights; the last rank sends the buffer of the previous gather, at first zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Tensor | None = None

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        """Gather into `output_tensor`."""
        if dist.get_rank(group) == dist.get_world_size(group) - 1:
            fresh = input_tensor.clone()
            input_tensor = torch.zeros_like(fresh) if self.sent is None else self.sent
            self.sent = fresh
        return super().__call__(output_tensor, input_tensor, group, async_op)
