"""Bugs to plant, the layouts in which each can exist, and the rank that has it."""

from collections.abc import Sequence
from dataclasses import dataclass

# Fields of `LayerConfig` that differ in the layer that has the bug.
LAYER_BUGS: dict[str, dict[str, object]] = {
    "rope-base": {"rope_base": 50_000.0},
    "softmax-scale": {"softmax_scale": 1.01},
    "bf16-matmul": {"bf16_down_projection": True},
    "norm-eps": {"norm_eps": 1e-4},
    "negated-attention": {"negate_attention": True},
    "permuted-heads": {"rotate_heads": 1},
    "detached-keys": {"detach_keys": True},
    "inf-softmax": {"naive_softmax": True},
    "counter": {"counted": True},
}
# Not in a layer: the loop reads `Settings.has_bug`.
LOOP_BUGS = ("weight-decay-off", "accumulation-scale", "rng-not-restored")
# Of ranks, of what they share and how they communicate: the values of --parallel with which each can exist.
RANK_BUGS: dict[str, Sequence[str]] = {
    "flipped-bit": ("ddp", "tp", "fsdp2+tp"),
    "not-broadcast": ("ddp",),
    "not-reduced": ("ddp", "fsdp2", "tp", "fsdp2+tp"),
    "wrong-group": ("ddp", "fsdp2+tp"),
    "sum-not-mean": ("ddp", "fsdp2", "tp", "fsdp2+tp"),
    "wrong-shard": ("fsdp2", "tp", "fsdp2+tp"),
    "partial-as-replicated": ("fsdp2", "tp", "fsdp2+tp"),
    "local-tokens": ("ddp", "fsdp2", "fsdp2+tp"),
    "same-batch": ("ddp", "fsdp2", "fsdp2+tp"),
    "other-batch": ("tp", "fsdp2+tp"),
    "tp-dropout": ("tp", "fsdp2+tp"),
    "corrupt-reduce-scatter": ("fsdp2", "fsdp2+tp"),
    "stale-gather": ("fsdp2", "fsdp2+tp"),
    "skipped-collective": ("ddp", "fsdp2", "fsdp2+tp"),
    "left-out": ("none", "ddp", "fsdp2", "tp", "fsdp2+tp"),
    "nan": ("none", "ddp", "fsdp2", "tp", "fsdp2+tp"),
}
# Of which several ranks that one process simulates can each have one.
SIMULATED_BUGS = ("flipped-bit", "other-batch", "nan")
FLOAT32_BUGS = ("flipped-bit", "corrupt-reduce-scatter")
# What megatron.py must be given for a bug to exist.
MEGATRON_BUGS: dict[str, Sequence[str]] = {
    "flipped-bit": ("--dp",),
    "not-broadcast": ("--dp",),
    "not-reduced": ("--dp",),
    "wrong-group": ("--dp", "--tp"),
    "sum-not-mean": ("--dp",),
    "same-batch": ("--dp",),
    "other-batch": ("--tp",),
    "tp-dropout": ("--tp", "--dropout"),
    "corrupt-reduce-scatter": ("--tp", "--sequence-parallel"),
    "stale-gather": ("--tp", "--sequence-parallel"),
    "skipped-collective": ("--tp",),
    "left-out": (),
    "nan": (),
}
BUGS = (*LAYER_BUGS, *LOOP_BUGS, *RANK_BUGS)


@dataclass(frozen=True)
class Bug:
    """A bug's name, its layer and its rank; None leaves these to the settings."""

    name: str
    layer: int | None
    rank: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Bug":
        """Parse `negated-attention`, `negated-attention@2`, or of a simulated rank `nan:5`, `nan@2:5`."""
        named, _, rank = text.partition(":")
        name, _, layer = named.partition("@")
        if name not in BUGS or any(number and not number.isdecimal() for number in (layer, rank)):
            raise ValueError(text)
        return cls(name, int(layer) if layer else None, int(rank) if rank else None)


@dataclass(frozen=True)
class Planted:
    """The bug of a run as one of its ranks sees it.

    Attributes:
        name: Empty without one.
        layer: Index of its layer.
        rank: Global rank that has it, where a single one has.
        own_rank: Global rank of this process.
    """

    name: str = ""
    layer: int = 0
    rank: int = 0
    own_rank: int = 0

    def has(self, name: str) -> bool:
        """Return True if this bug is planted on any rank."""
        return self.name == name

    def here(self, name: str) -> bool:
        """Return True if this rank has this bug."""
        return self.name == name and self.own_rank == self.rank

    def parameter(self, name: str) -> str:
        """Return the full name of a parameter of the bug's layer."""
        return f"layers.{self.layer}.{name}"


NO_BUG = Planted()


def planted(bug: Bug | None, layers: int, wanted_rank: int, own_rank: int, world_size: int) -> Planted:
    """Return the bug as `own_rank` sees it: in the middle layer unless it names one, at most on the last rank."""
    layer = layers // 2 if bug is None or bug.layer is None else bug.layer
    rank = wanted_rank if bug is None or bug.rank is None else bug.rank
    return Planted(bug.name if bug else "", layer, min(rank, world_size - 1), own_rank)
