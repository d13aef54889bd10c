"""What the nodes of `torch.fx` graphs say about the operations that they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from capture.frames import Frame, parse_traceback
from capture.modules import strip_wrappers

__all__ = ["Replayed", "of_meta", "of_node"]

_WORD = re.compile(r"\w+")
_ROOT = re.compile(r"^[LG]\[(['\"])\w+\1\]")
"""How dynamo's expression for a module begins: with the variable that holds the one it compiles."""
_OF_PYTHON = frozenset({"__dict__", "_modules"})
"""Words in the rest of it (`L['self'].__dict__['_modules']['layers']._modules['0'].wq`) that are no part of a path."""
_RUN_AGAIN = re.compile(r"_recomputed(_\d+)?$")
"""How torch's passes that put recomputed operations into a graph name them: `mul_3_recomputed`."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the node of a graph says of the operation that it runs; None where it says nothing.

    Attributes:
        module: path of its module.
        backward: it belongs to the backward pass.
        frames: the user's frames, innermost first.
        recompute: it runs again what the forward pass has run.
    """

    module: str | None
    backward: bool
    frames: tuple[Frame, ...] | None
    recompute: bool = False


def of_meta(meta: Mapping[str, Any]) -> Replayed:
    """Reads the metadata that tracing leaves at a node."""
    custom = meta.get("custom") or {}
    module = custom.get("module_fqn") or _innermost(meta.get("nn_module_stack"))
    forward = None if module else _innermost(meta.get("fwd_nn_module_stack"))
    backward = bool(meta.get("autograd_backward") or meta.get("partitioner_tag") == "is_backward" or forward)
    text = meta.get("stack_trace") or meta.get("fwd_stack_trace")
    path = module or forward
    return Replayed(
        (strip_wrappers(path) or None) if path else None,
        backward,
        (parse_traceback(text) or None) if text else None,
        recompute=bool(meta.get("recomputed") or custom.get("recomputed")),
    )


def of_node(node: Any) -> Replayed:
    """What a node says, or the node of the forward pass that it is the backward pass of."""
    own = of_meta(node.meta)
    if _RUN_AGAIN.search(node.name):
        own = replace(own, recompute=True)
    if own.module is not None:
        return own
    if node.meta.get("is_gradient_acc"):
        # a sum of gradients belongs, as in an eager backward pass, to what has just brought the last of them
        before = node.prev
        while before.op == "call_function" and before.meta.get("is_gradient_acc"):
            before = before.prev
        giver = of_node(before) if before.op == "call_function" else own
        return Replayed(giver.module, own.backward, giver.frames, own.recompute)
    forward = _forward_nodes(node.graph).get(node.meta.get("seq_nr"))
    if forward is None or forward is node:
        return own
    origin = of_meta(forward.meta)
    return Replayed(origin.module, own.backward, own.frames or origin.frames, own.recompute)


_forward: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()


def _forward_nodes(graph: Any) -> dict[int, Any]:
    """Number that autograd gave a node of the forward pass → the node of the graph that says its module."""
    known = _forward.get(graph)
    if known is None:
        known = _forward[graph] = {}
        for node in graph.nodes:
            number = node.meta.get("seq_nr")
            if (
                node.op != "call_function"
                or number is None
                or node.meta.get("autograd_backward")
                or node.meta.get("is_gradient_acc")
            ):
                continue
            # The first one made the node of the autograd graph, the others made none; a view may be first and say less.
            if number not in known or (_module(node) and not _module(known[number])):
                known[number] = node
    return known


def _module(node: Any) -> str | None:
    return (node.meta.get("custom") or {}).get("module_fqn")


def _innermost(stack: Mapping[str, Any] | None) -> str | None:
    """Path of the innermost module of an `nn_module_stack`: its values are (path as the tracer saw it, class)."""
    if not stack:
        return None
    entry = list(stack.values())[-1]
    path = str(entry[0] if isinstance(entry, tuple) else entry)
    if _ROOT.match(path) or "_modules" in path:
        path = ".".join(word for word in _WORD.findall(_ROOT.sub("", path)) if word not in _OF_PYTHON)
    return path or None
