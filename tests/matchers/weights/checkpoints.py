"""Checkpoints in two forms: weights one by one, and fused, stacked and under other names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.matchers.logs.imported.dumps import safetensors

Weights = dict[str, NDArray[np.float32]]

LAYERS, EXPERTS, WIDTH, HIDDEN = 2, 3, 8, 12


def separate(seed: int = 0) -> Weights:
    """Every projection and expert has a weight of its own."""
    random = np.random.default_rng(seed)
    sizes = {f"attention.{name}": (rows, WIDTH) for name, rows in (("q", 8), ("k", 4), ("v", 4))}
    sizes["attention.out"] = (WIDTH, 8)
    for expert in range(EXPERTS):
        name = f"moe.experts.{expert}"
        sizes |= {f"{name}.w1": (HIDDEN, WIDTH), f"{name}.w2": (WIDTH, HIDDEN), f"{name}.w3": (HIDDEN, WIDTH)}
    found = {"embed.weight": (20, WIDTH), "norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        found |= {f"layers.{layer}.{name}.weight": size for name, size in sizes.items()}
        found |= {f"layers.{layer}.attention.{name}.bias": sizes[f"attention.{name}"][:1] for name in "qkv"}
    return {name: random.standard_normal(size).astype(np.float32) for name, size in found.items()}


def fused(weights: Weights) -> Weights:
    """One weight for q, k and v; one for all experts' w1 and w3, and w2 transposed; the rest under other names."""
    found = {"tok.weight": weights["embed.weight"], "last.weight": weights["norm.weight"]}
    for layer in range(LAYERS):
        of = f"layers.{layer}."
        for kind in ("weight", "bias"):
            parts = [weights[f"{of}attention.{name}.{kind}"] for name in "qkv"]
            found[f"{of}attn.qkv.{kind}"] = np.concatenate(parts)
        found[f"{of}attn.o.weight"] = weights[f"{of}attention.out.weight"]
        experts = [[weights[f"{of}moe.experts.{e}.{w}.weight"] for w in ("w1", "w2", "w3")] for e in range(EXPERTS)]
        found[f"{of}mlp.gate_up"] = np.stack([np.concatenate([w1, w3]) for w1, _, w3 in experts])
        found[f"{of}mlp.down"] = np.stack([w2.T for _, w2, _ in experts])
    return found


def saved(path: Path, weights: Weights) -> str:
    path.write_bytes(safetensors(weights))
    return str(path)
