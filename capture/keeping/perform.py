"""Settings of torch under which a kept call ran. A file by itself, which needs torch and nothing else."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["FLAGS", "read_flags"]

FLAGS: dict[str, tuple[Any, Any]] = {
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "fill_uninitialized": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on),
    ),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "mkldnn": (
        lambda: torch.backends.mkldnn.enabled,
        lambda on: setattr(torch.backends.mkldnn, "enabled", on),
    ),
    "cudnn": (lambda: torch.backends.cudnn.enabled, lambda on: setattr(torch.backends.cudnn, "enabled", on)),
    "cudnn_tf32": (lambda: torch.backends.cudnn.allow_tf32, lambda on: setattr(torch.backends.cudnn, "allow_tf32", on)),
    "cudnn_benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
    ),
    "bf16_reduction": (
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", on),
    ),
    "fp16_reduction": (
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", on),
    ),
}
"""Settings of torch that may change the bits of a result: how each is read, and set."""


def read_flags() -> dict[str, Any]:
    """Return the settings as they are, without those that this torch does not have."""
    found = {}
    for name, (read, _) in FLAGS.items():
        try:
            found[name] = read()
        except (AttributeError, RuntimeError):
            continue
    return found
