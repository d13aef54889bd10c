"""Generated training step: the operations of a transformer's forward, backward and optimizer, in order.

The layer is written like a model; every call adds an operation, and the backward pass is derived from the forward one
by the rule of each operation, with gradients of a tensor that is used twice added up. The result is a list of
operations with their inputs, which is all that a log of norms needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

__all__ = ["OUTSIDE", "Operation", "numel", "operations_for", "training_step"]

OUTSIDE = -1
"""Producer of an input that no operation made: a parameter or data."""

Shape = tuple[int, ...]
_TOKENS, _WIDTH, _HIDDEN, _HEADS, _VOCABULARY = 2048, 512, 1408, 8, 8000
_ACTIVATION: Shape = (1, _TOKENS, _WIDTH)
_HEAD: Shape = (1, _HEADS, _TOKENS, _WIDTH // _HEADS)
_SCORES: Shape = (1, _HEADS, _TOKENS, _TOKENS)
_OPTIMIZER_LIST = 64
"""Number of tensors per fused operation of the optimizer."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of run a.

    Attributes:
        shape: of the result; None for an in-place operation.
        inputs: their producers, `OUTSIDE` for none.
        site: the place in the program: the same in all layers and micro-batches.
        copy_of: the operation with the same values (a wait, a negation, a recompute), or none.
        recomputed: by activation checkpointing.
    """

    module: str
    name: str
    shape: Shape | None
    inputs: tuple[int, ...]
    location: str
    site: str
    backward: bool = False
    copy_of: int = OUTSIDE
    recomputed: bool = False


class _Tape:
    """The operations so far, and the current place in the program."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._backward = False
        self._part, self._place = "", count()

    def enter(self, part: str, *, backward: bool = False) -> None:
        """Count sites as those of `part` from here on."""
        self._part, self._place, self._backward = part, count(), backward

    def add(
        self, module: str, name: str, shape: Shape | None, *inputs: int, at: str = "", copy_of: int = OUTSIDE
    ) -> int:
        site = f"{self._part}:{next(self._place)}:{name}"
        self.operations.append(Operation(module, name, shape, inputs, at, site, self._backward, copy_of))
        return len(self.operations) - 1

    def again(self, index: int, inputs: Sequence[int]) -> int:
        """Repeat an operation on its recomputed inputs."""
        operation = self.operations[index]
        site = f"{self._part}:{next(self._place)}:{operation.name}"
        copy = replace(operation, inputs=tuple(inputs), site=site, backward=True, copy_of=index, recomputed=True)
        self.operations.append(copy)
        return len(self.operations) - 1


def _norm(tape: _Tape, module: str, x: int, shape: Shape, at: str) -> int:
    square = tape.add(module, "pow", shape, x, at=f"{at}:21")
    mean = tape.add(module, "mean", (*shape[:-1], 1), square, at=f"{at}:21")
    shifted = tape.add(module, "add", (*shape[:-1], 1), mean, at=f"{at}:22")
    scale = tape.add(module, "rsqrt", (*shape[:-1], 1), shifted, at=f"{at}:22")
    scaled = tape.add(module, "mul", shape, x, scale, at=f"{at}:23")
    return tape.add(module, "mul", shape, scaled, OUTSIDE, at=f"{at}:24")


def _gathered(tape: _Tape, module: str, name: str, x: int, shape: Shape, at: str) -> int:
    started = tape.add(module, name, shape, x, at=at)
    return tape.add(module, "wait_tensor", shape, started, at=at, copy_of=started)


def _rotated(tape: _Tape, module: str, x: int) -> int:
    cosine = tape.add(module, "mul", _HEAD, x, OUTSIDE, at="models/rotary.py:52")
    half = tape.add(module, "neg", _HEAD, x, at="models/rotary.py:47", copy_of=x)
    sine = tape.add(module, "mul", _HEAD, half, OUTSIDE, at="models/rotary.py:53")
    return tape.add(module, "add", _HEAD, cosine, sine, at="models/rotary.py:54")


def _attention(tape: _Tape, layer: str, x: int) -> int:
    attention = f"{layer}.attention"
    flat = (_TOKENS, _WIDTH)
    q, k, v = (
        tape.add(f"{attention}.w{which}", "mm", flat, x, OUTSIDE, at=f"models/attention.py:{118 + row}")
        for row, which in enumerate("qkv")
    )
    q = _rotated(tape, attention, _norm(tape, f"{attention}.q_norm", q, _HEAD, "models/norm.py"))
    k = _rotated(tape, attention, _norm(tape, f"{attention}.k_norm", k, _HEAD, "models/norm.py"))
    inner = f"{attention}.inner"
    scores = tape.add(inner, "bmm", _SCORES, q, k, at="models/attention.py:61")
    scores = tape.add(inner, "mul", _SCORES, scores, at="models/attention.py:61")
    masked = tape.add(inner, "add", _SCORES, scores, OUTSIDE, at="models/attention.py:62")
    weights = tape.add(inner, "_softmax", _SCORES, masked, at="models/attention.py:63")
    mixed = tape.add(inner, "bmm", _HEAD, weights, v, at="models/attention.py:64")
    out = tape.add(f"{attention}.wo", "mm", flat, mixed, OUTSIDE, at="models/attention.py:131")
    return _gathered(tape, attention, "all_reduce", out, flat, "models/attention.py:132")


def _feed_forward(tape: _Tape, layer: str, x: int) -> int:
    module = f"{layer}.feed_forward"
    wide = (_TOKENS, _HIDDEN)
    gate = tape.add(f"{module}.w1", "mm", wide, x, OUTSIDE, at="models/feed_forward.py:33")
    gate = tape.add(module, "silu", wide, gate, at="models/feed_forward.py:33")
    up = tape.add(f"{module}.w3", "mm", wide, x, OUTSIDE, at="models/feed_forward.py:33")
    both = tape.add(module, "mul", wide, gate, up, at="models/feed_forward.py:33")
    down = tape.add(f"{module}.w2", "mm", (_TOKENS, _WIDTH), both, OUTSIDE, at="models/feed_forward.py:34")
    return _gathered(tape, module, "all_reduce", down, (_TOKENS, _WIDTH), "models/feed_forward.py:34")


def _layer(tape: _Tape, layer: str, x: int) -> int:
    tape.add(layer, "_allgather_base_", None, OUTSIDE, OUTSIDE)
    x_norm = _norm(tape, f"{layer}.attention_norm", x, _ACTIVATION, "models/norm.py")
    h = tape.add(layer, "add", _ACTIVATION, x, _attention(tape, layer, x_norm), at="models/block.py:88")
    h_norm = _norm(tape, f"{layer}.ffn_norm", h, _ACTIVATION, "models/norm.py")
    h_norm = _gathered(tape, f"{layer}.ffn_norm", "all_gather_into_tensor", h_norm, _ACTIVATION, "models/block.py:89")
    return tape.add(layer, "add", _ACTIVATION, h, _feed_forward(tape, layer, h_norm), at="models/block.py:89")


class _Backward:
    """The backward pass of some operations of a tape."""

    def __init__(self, tape: _Tape, recomputed: dict[int, int]) -> None:
        self._tape = tape
        self._recomputed = recomputed
        self._gradients: defaultdict[int, list[int]] = defaultdict(list)

    def give(self, to: int, gradient: int) -> None:
        """Add a gradient of the result of operation `to`."""
        self._gradients[to].append(gradient)

    def of(self, index: int) -> int:
        """Return the sum of an operation's gradients."""
        operation = self._tape.operations[index]
        total, *others = self._gradients.pop(index)
        for other in others:
            total = self._tape.add(operation.module, "add", operation.shape, total, other, at=operation.location)
        return total

    def through(self, index: int) -> None:
        """Run one operation backward: pass gradients to its inputs."""
        operation = self._tape.operations[index]
        if not self._gradients[index]:
            return  # nothing reads it
        gradient = self.of(index)
        inputs = operation.inputs
        saved = [self._recomputed.get(i, i) for i in inputs]

        def step(name: str, shape: Shape | None, *read: int, copy_of: int = OUTSIDE) -> int:
            return self._tape.add(operation.module, name, shape, *read, at=operation.location, copy_of=copy_of)

        def shape_of(i: int) -> Shape | None:
            return self._tape.operations[i].shape if i != OUTSIDE else operation.shape

        match operation.name:
            case "mm" | "bmm" | "mul" if len(inputs) == 2:
                made = step(operation.name, shape_of(inputs[0]), gradient, saved[1])
                second = shape_of(inputs[1])
                if operation.name == "mm":
                    second = (operation.shape or (1,))[-1:] + (shape_of(inputs[0]) or (1,))[-1:]
                if inputs[1] != OUTSIDE or operation.name == "mm" or "norm" in operation.module:
                    other = step(operation.name, second, gradient, saved[0])
                    if inputs[1] != OUTSIDE:
                        self.give(inputs[1], other)
                    elif operation.name == "mul":
                        step("sum", (operation.shape or (1,))[-1:], other)
            case "add":
                made = gradient
                if len(inputs) == 2 and inputs[1] != OUTSIDE:
                    self.give(inputs[1], gradient)
            case "pow":
                made = step("mul", operation.shape, gradient, step("mul", operation.shape, saved[0]))
            case "rsqrt":
                cubed = step("pow", operation.shape, self._recomputed.get(index, index))
                made = step("mul", operation.shape, step("mul", operation.shape, gradient, cubed))
            case "mean":
                made = step("div", shape_of(inputs[0]), gradient)
            case "silu" | "_softmax":
                name = "silu_backward" if operation.name == "silu" else "_softmax_backward_data"
                made = step(name, operation.shape, gradient, saved[0])
            case "neg":
                made = step("neg", operation.shape, gradient, copy_of=gradient)
            case "all_gather_into_tensor":
                started = step("reduce_scatter_tensor", operation.shape, gradient)
                made = step("wait_tensor", operation.shape, started, copy_of=started)
            case "wait_tensor" | "all_reduce":
                made = gradient
            case _:
                made = step(operation.name, operation.shape, gradient)
        self.give(inputs[0], made)


def _recompute(tape: _Tape, rows: range) -> dict[int, int]:
    """Recompute the feed-forward and its norm without collectives; return original row → its copy."""
    copies: dict[int, int] = {}
    for index in rows:
        operation = tape.operations[index]
        if any(part in operation.module for part in ("ffn_norm", "feed_forward")) and not operation.module.endswith(
            "w2"
        ):
            if operation.name in {"all_gather_into_tensor", "all_reduce", "wait_tensor"}:
                continue
            copies[index] = tape.again(index, [copies.get(i, i) for i in operation.inputs])
    return copies


def training_step(layers: int, micro_batches: int) -> list[Operation]:
    """Make one step: some micro-batches forward and backward, then the optimizer."""
    tape = _Tape()
    logits_shape = (_TOKENS, _VOCABULARY)
    for _ in range(micro_batches):
        tape.enter("embed")
        x = tape.add("tok_embeddings", "embedding", _ACTIVATION, OUTSIDE, OUTSIDE, at="models/model.py:140")
        rows: list[range] = []
        inputs: list[int] = []
        for layer in range(layers):
            tape.enter("layer")
            first = len(tape.operations)
            inputs.append(x)
            x = _layer(tape, f"layers.{layer}", x)
            rows.append(range(first, len(tape.operations)))
        tape.enter("head")
        normed = _norm(tape, "norm", x, _ACTIVATION, "models/norm.py")
        logits = tape.add("output", "mm", logits_shape, normed, OUTSIDE, at="models/model.py:151")
        chances = tape.add("<none>", "_log_softmax", logits_shape, logits, at="train/loss.py:12")
        loss = tape.add("<none>", "nll_loss_forward", (), chances, OUTSIDE, at="train/loss.py:12")
        tape.enter("head backward", backward=True)
        gradient = tape.add("<none>", "nll_loss_backward", logits_shape, loss, chances)
        gradient = tape.add("<none>", "_log_softmax_backward_data", logits_shape, gradient, chances)
        tape.add("output", "mm", (_VOCABULARY, _WIDTH), gradient, normed, at="models/model.py:151")
        gradient = tape.add("output", "mm", _ACTIVATION, gradient, OUTSIDE, at="models/model.py:151")
        for layer in reversed(range(layers)):
            tape.enter("layer backward", backward=True)
            tape.add(f"layers.{layer}", "_allgather_base_", None, OUTSIDE, OUTSIDE)
            backward = _Backward(tape, _recompute(tape, rows[layer]))
            backward.give(rows[layer][-1], gradient)
            for index in reversed(rows[layer]):
                if tape.operations[index].shape is not None:
                    backward.through(index)
            gradient = backward.of(inputs[layer])
            tape.add(f"layers.{layer}", "_reduce_scatter_base_", None, OUTSIDE, OUTSIDE)
        tape.enter("embed backward", backward=True)
        tape.add("tok_embeddings", "embedding_dense_backward", (_VOCABULARY, _WIDTH), gradient)
    tape.enter("optimizer")
    parameters = 9 * layers + 3
    for first in range(0, parameters, _OPTIMIZER_LIST):
        tensors = [OUTSIDE] * min(_OPTIMIZER_LIST, parameters - first)
        tape.add("<none>", "_foreach_norm", (), *tensors, at="train/clip.py:40")
        tape.add("<none>", "_fused_adamw_", None, *tensors * 4, at="train/optimizer.py:71")
    return tape.operations


def operations_for(size: int, layers: int = 32) -> list[Operation]:
    """Make a step of about `size` operations: as many micro-batches as needed, fewer layers if one is too large."""
    one_layer = len(training_step(2, 1)) - len(training_step(1, 1))
    layers = max(min(layers, size // one_layer), 1)
    return training_step(layers, max(round(size / (layers * one_layer)), 1))


def numel(operation: Operation) -> int:
    """Return the number of elements of the result; 1 for an in-place operation."""
    return prod(operation.shape or (1,))
