# mypy: ignore-errors
"""Train one Llama, in the style that is asked for: every style starts from the same weights."""

import argparse
import importlib
from dataclasses import dataclass

import torch

STYLES = {"hf": "LlamaForCausalLM", "titan": "Transformer", "fused": "FusedTransformer"}
FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
SIZES = {"dim": 32, "heads": 4, "kv_heads": 2, "layers": 2, "vocab": 64, "seq_len": 16, "hidden": 48, "batch": 2}


@dataclass
class Config:
    """Sizes, and the planted bug, `name@layer`."""

    dim: int
    heads: int
    kv_heads: int
    layers: int
    vocab: int
    seq_len: int
    hidden: int
    rope_base: float
    sdpa: bool
    dropout: float
    bug: str

    def at(self, layer, bug, value, usual):
        """`value` in the layer that has this bug."""
        return value if self.bug == f"{bug}@{layer}" else usual


def weights(c, seed):
    """The weights by role; those of a layer as `q.0`."""
    g = torch.Generator().manual_seed(seed)
    kv = c.dim // c.heads * c.kv_heads
    shapes = {"tok": (c.vocab, c.dim), "out": (c.vocab, c.dim), "norm": (c.dim,)}
    for layer in range(c.layers):
        rows = {"q": c.dim, "k": kv, "v": kv, "o": c.dim, "gate": c.hidden, "up": c.hidden}
        shapes |= {f"{role}.{layer}": (n, c.dim) for role, n in rows.items()}
        shapes |= {f"down.{layer}": (c.dim, c.hidden), f"norm1.{layer}": (c.dim,), f"norm2.{layer}": (c.dim,)}
    out = {}
    for name, shape in shapes.items():
        scale = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
        out[name] = torch.randn(shape, generator=g, dtype=torch.float64) * (0.1 if len(shape) == 1 else scale)
        out[name] += len(shape) == 1
    if c.bug.startswith("weight"):  # `weight.q@1`: one element of one weight
        out[c.bug.removeprefix("weight.").replace("@", ".")][1, 2] += 0.05
    return out


def load(model, c, seed):
    """Give a model of any style its weights."""
    values, names, state = weights(c, seed), type(model).NAMES, model.state_dict()
    with torch.no_grad():
        for role, path in names.items():
            if role == "layers":
                continue
            for name in state:
                parts = name.removesuffix(".weight").split(".")
                layer = next((part for part in parts if part.isdigit()), None)
                full = path if layer is None else f"{names['layers']}.{layer}.{path}"
                if name == full + ".weight":
                    keys = [key if layer is None else f"{key}.{layer}" for key in FUSED.get(role, (role,))]
                    state[name].copy_(torch.cat([values[key] for key in keys]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("style", choices=STYLES)
    for name, size in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    parser.add_argument("--rope-base", type=float, default=10000.0)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--bug", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=("foreach", "loop", "fused", "none"), default="foreach")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sdpa", action="store_true")
    args = vars(parser.parse_args())
    style, seed, batch, form, dtype = (args.pop(k) for k in ("style", "seed", "batch", "optimizer", "dtype"))
    c = Config(**args)
    torch.manual_seed(seed)
    model = getattr(importlib.import_module(style), STYLES[style])(c).to(getattr(torch, dtype))
    load(model, c, seed)
    g = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(c.vocab, (batch, c.seq_len + 1), generator=g)
    options = {"foreach": form == "foreach", "fused": form == "fused"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    for _ in range(1):
        optimizer.zero_grad()
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        if form != "none":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=form == "foreach")
            optimizer.step()


if __name__ == "__main__":
    main()
