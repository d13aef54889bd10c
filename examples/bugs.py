"""Bugs to plant: each is a field that the code of one layer, or of the training loop, reads."""

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
}
# Not in a layer: the loop and the communication read `Settings.has_bug`.
LOOP_BUGS = ("weight-decay-off", "accumulation-scale", "stale-gather")
BUGS = (*LAYER_BUGS, *LOOP_BUGS)


@dataclass(frozen=True)
class Bug:
    """A bug's name and its layer; None leaves the layer to the settings."""

    name: str
    layer: int | None

    @classmethod
    def parse(cls, text: str) -> "Bug":
        """Parse `negated-attention` or `negated-attention@2`."""
        name, _, layer = text.partition("@")
        if name not in BUGS or (layer and not layer.isdecimal()):
            raise ValueError(text)
        return cls(name, int(layer) if layer else None)
