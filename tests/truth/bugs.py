"""The planted bugs and where each of them is: lines of source, parameters, modules, phase."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["BUGS", "Bug", "marked_lines", "marks"]

_FOLDER = Path(__file__).parent
_EXAMPLE = _FOLDER.parents[1] / "examples" / "model.py"
_MARKER = re.compile(r"# bug: ([\w, -]+)$")


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug and its place.

    Attributes:
        name: of the marker `# bug: NAME` at the lines that compute the wrong value, or read it first.
        model: the model that has it.
        module: pattern of the module's path (re.fullmatch), empty for any.
        phase: `forward`, `backward`, `optimizer`; empty for any: a constant of the loss is also in its gradient.
        parameters: pattern of the names of the parameters, buffers or states whose content is wrong first; where it is
            given, a row is right that writes one of them.
        ops: pattern of the operations that do so; it counts where both runs have the same form of the optimizer, and
            alone where a row names no parameter (the denominators of Adam).
        code: pieces of the lines of examples/model.py, which has no markers.
        only, never: forms that show it; those that do not.
    """

    name: str
    model: str
    module: str = ""
    phase: str = "forward"
    parameters: str = ""
    ops: str = ""
    code: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def lines(self) -> frozenset[str]:
        """The marked lines as logs name them: `models/conv.py:12`."""
        if self.code:
            return frozenset(
                f"examples/model.py:{number}"
                for number, line in enumerate(_EXAMPLE.read_text(encoding="utf-8").splitlines(), 1)
                if any(piece in line for piece in self.code)
            )
        return marked_lines().get((self.model, self.name), frozenset())


@cache
def marked_lines() -> dict[tuple[str, str], frozenset[str]]:
    """The marked lines by model and bug; those of the loop count for every model."""
    found: dict[tuple[str, str], set[str]] = {}
    models = sorted((_FOLDER / "models").glob("[a-z]*.py"))
    for path in (*models, _FOLDER / "loop.py"):
        owners = [path.stem] if path in models else [model.stem for model in models]
        for name, lines in marks(path).items():
            for owner in owners:
                found.setdefault((owner, name), set()).update(lines)
    return {key: frozenset(lines) for key, lines in found.items()}


def marks(path: Path) -> dict[str, set[str]]:
    """The marked lines of a file by bug, as logs name them.

    A marker at the end of a line, or on a line of its own above it, stands for the whole statement.
    """
    text = path.read_text(encoding="utf-8")
    spans = {
        number: range(statement.lineno, (statement.end_lineno or 0) + 1)
        for statement in ast.walk(ast.parse(text))
        if isinstance(statement, ast.stmt) and not hasattr(statement, "body")
        for number in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    found: dict[str, set[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if marker := _MARKER.search(line):
            at = number + line.strip().startswith("#")
            for name in marker[1].split(","):
                places = {f"{path.parent.name}/{path.name}:{n}" for n in spans.get(at, [at])}
                found.setdefault(name.strip(), set()).update(places)
    return found


_MATRICES = r"(?!.*(norm|bias)).*weight"
_LLAMA = r"layers\.1\.attention(\..*)?"
_VECTORS = r".*(norm\d?\.weight|bn\d?\.weight|bias)"

BUGS = (
    # -- convolutions
    Bug(name="bn-eps", model="conv", module=r"blocks\.1\.bn2"),
    Bug(name="bn-momentum", model="conv", module=r"blocks\.1\.bn2"),
    Bug(name="bn-eval", model="conv", module=r"blocks\.1\.bn1"),
    Bug(name="padding", model="conv", module=r"blocks\.1\.conv2"),
    Bug(name="pool", model="conv", module=r"blocks\.1\.se"),
    Bug(name="gate-function", model="conv", module=r"blocks\.1\.se"),
    Bug(name="gate-detached", model="conv", module=r"blocks\.1\.se", phase="backward"),
    Bug(name="shortcut-scale", model="conv", module=r"blocks\.1"),
    Bug(name="label-smoothing", model="conv", phase=""),
    Bug(name="dampening", model="conv", phase="optimizer", parameters=r".*\.momentum_buffer", ops=r".*add.*"),
    Bug(
        name="decay-of-vectors",
        model="conv",
        phase="optimizer",
        parameters=_VECTORS + r"(\.momentum_buffer)?",
        ops=r".*add.*",
    ),
    Bug(name="ema-decay", model="conv", phase=""),
    Bug(name="bn-recomputed", model="conv", module=r"blocks\.\d.*", phase="", only=("ac",)),
    # -- encoder and decoder
    Bug(name="softmax-scale", model="encdec", module=r"decoder\.1\.cross"),
    Bug(name="gelu-tanh", model="encdec", module=r"decoder\.1\.ffn"),
    Bug(name="causal-mask", model="encdec", module=r"decoder\.1"),
    Bug(name="padding-visible", model="encdec", module=r"decoder\.1"),
    Bug(name="norm-eps", model="encdec", module=r"decoder\.1\.norm2"),
    Bug(name="memory-detached", model="encdec", module=r"decoder\.1\.cross\.(key|value)", phase="backward"),
    Bug(name="positions-shifted", model="encdec"),
    Bug(name="embedding-scale", model="encdec"),
    Bug(name="tie-detached", model="encdec", phase="backward"),
    Bug(name="padding-counted", model="encdec", phase=""),
    Bug(name="label-smoothing", model="encdec", phase=""),
    Bug(name="dropout-differs", model="encdec", module=r"decoder\.1\.ffn.*"),
    Bug(name="clip-norm", model="encdec", phase="", never=("tp2",)),
    Bug(
        name="skipped-parameter",
        model="encdec",
        phase="optimizer",
        parameters=r"encoder\.1\.ffn\.inner\.weight.*",
    ),
    Bug(name="random-state-lost", model="encdec", module=r".*ffn.*", phase="", only=("ac",)),
    # -- packed sequences
    Bug(name="document-mask", model="packed", module=r"layers\.1\.attention"),
    Bug(name="positions-not-reset", model="packed"),
    Bug(name="rope-base", model="packed", module=r"layers\.1\.attention"),
    Bug(name="key-norm", model="packed", module=r"layers\.1\.attention.*"),
    Bug(name="swapped-heads", model="packed", module=r"layers\.1\.attention"),
    Bug(name="gate-swapped", model="packed", module=r"layers\.1\.ffn.*"),
    Bug(name="residual-scale", model="packed", module=r"layers\.1"),
    Bug(name="norm-backward", model="packed", module=r"layers\.1\.attention_norm", phase="backward"),
    Bug(name="loss-mask", model="packed", phase=""),
    Bug(name="z-loss", model="packed", phase=""),
    Bug(name="no-decay", model="packed", phase="optimizer", parameters=_MATRICES, ops=r".*mul_", never=("bf16",)),
    Bug(
        name="learning-rate",
        model="packed",
        phase="optimizer",
        parameters=_VECTORS,
        ops=r".*addcdiv.*",
        never=("bf16",),
    ),
    Bug(
        name="second-beta",
        model="packed",
        phase="optimizer",
        parameters=r".*\.exp_avg_sq",
        ops=r".*(mul|addcmul|div).*",
    ),
    Bug(name="adam-eps", model="packed", phase="optimizer", parameters=r".*\.weight", ops=r".*(add|div).*"),
    Bug(name="step-count", model="packed", phase="optimizer", parameters=r".*\.step", ops=r".*add_"),
    Bug(name="accumulation-scale", model="packed", phase="", only=("micro", "micro4", "dp2")),
    # -- mixture of experts
    Bug(name="straight-through", model="moe", phase="backward"),
    Bug(name="norm-eps", model="moe", module=r"layers\.1\.norm2"),
    Bug(name="slope", model="moe", module=r"layers\.1\.attention"),
    Bug(name="values-low-precision", model="moe", module=r"layers\.1\.attention", never=("bf16",)),
    Bug(name="expert-activation", model="moe", module=r"layers\.1\.moe\.experts\.2"),
    Bug(name="router-low-precision", model="moe", module=r"layers\.1\.moe", never=("bf16",)),
    Bug(name="weights-not-normalised", model="moe", module=r"layers\.1\.moe"),
    Bug(name="weights-detached", model="moe", module=r"layers\.1\.moe", phase="backward"),
    Bug(name="counter-twice", model="moe"),
    Bug(name="counter-recomputed", model="moe", module=r"layers\.1\.moe", phase="", only=("ac",)),
    Bug(name="balance-of-one-layer", model="moe", phase=""),
    Bug(name="balance-weight", model="moe", phase=""),
    Bug(name="second-beta", model="moe", phase="optimizer", parameters=r".*\.exp_avg_sq", ops=r".*(mul|addcmul|div).*"),
    # -- recurrent
    Bug(name="reset-misplaced", model="recurrent", module="cell"),
    Bug(name="gates-swapped", model="recurrent", module="cell"),
    Bug(name="padding-pooled", model="recurrent", module="pool"),
    Bug(name="state-not-reset", model="recurrent", module="(lstm)?"),
    Bug(name="truncated", model="recurrent", module="cell.*", phase="backward"),
    Bug(name="states-shifted", model="recurrent"),
    Bug(name="loss-weight", model="recurrent", phase=""),
    Bug(name="clip-norm", model="recurrent", phase=""),
    Bug(name="no-decay", model="recurrent", phase="optimizer", parameters=r".*weight.*", ops=r".*add.*"),
    # -- the example
    Bug(name="softmax-scale", model="llama", module=_LLAMA, code=("* self.scale",)),
    Bug(name="norm-eps", model="llama", module=r"layers\.1\.(attention|feed_forward)_norm", code=("+ self.eps",)),
    Bug(
        name="bf16-matmul",
        model="llama",
        module=r"layers\.1\.feed_forward\.w2",
        code=("functional.linear(x.to(self.compute_dtype)",),
        never=("bf16",),
    ),
    Bug(
        name="detached-keys",
        model="llama",
        module=_LLAMA,
        phase="backward",
        code=("q @ k.transpose", "k = k.repeat_interleave"),
    ),
    Bug(name="permuted-heads", model="llama", module=_LLAMA, code=("mixed.roll(",)),
    Bug(name="rope-base", model="llama", module=_LLAMA, code=("pairs * self.turns",)),
    Bug(name="negated-attention", model="llama", module=_LLAMA, code=("-mixed",)),
    Bug(name="inf-softmax", model="llama", module=_LLAMA, code=("torch.exp(", "powers / powers.sum")),
    Bug(
        name="learning-rate",
        model="llama",
        phase="optimizer",
        parameters=r".*norm\.weight",
        ops=r".*addcdiv.*",
        never=("bf16",),
    ),
)
"""All bugs; a name may occur in several models."""
