"""Settings of one captured step; no torch, so that a cached log is found without it."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Run"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One captured training step.

    Attributes:
        model: name of a module of `tests.truth.models`, or `llama` for examples/train.py.
        bug: name of the planted bug, empty for none.
        seed: of weights and batch.
        ac: full activation checkpointing of every block.
        compiled: blocks (or a model without any) compiled with aot_eager.
        optimizer: `foreach`, `fused` or `for-loop`.
        attention: `math` or `sdpa`.
        chunks: parts in which the loss is computed.
        micro_batches: parts into which a process splits its batch.
        parallel: `none`, `dp` or `tp`, over two ranks.
        dtype: `float32` or `bfloat16`, of all parameters.
        dropout: False for a model without dropout.
        clip: False for no clipping of the gradient's norm.
    """

    model: str
    bug: str = ""
    seed: int = 1
    ac: bool = False
    compiled: bool = False
    optimizer: str = "foreach"
    attention: str = "math"
    chunks: int = 1
    micro_batches: int = 1
    parallel: str = "none"
    dtype: str = "float32"
    dropout: bool = True
    clip: bool = True

    @property
    def name(self) -> str:
        """A file name with every setting that is not the default."""
        parts = [self.model]
        for setting in fields(self)[1:]:
            value = getattr(self, setting.name)
            if value != setting.default:
                parts.append(f"{setting.name}={value}")
        return ",".join(parts)

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return 1 if self.parallel == "none" else 2
