"""Module, phase and source frames from the metadata of `torch.fx` graph nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from .frames import Frame, parse_traceback
from .modules import strip_wrappers

__all__ = ["Replayed", "of_meta", "of_node"]

_WORD = re.compile(r"\w+")
_ROOT = re.compile(r"^[LG]\[(['\"])\w+\1\]")
"""Start of dynamo's expression for a module: the variable that holds the compiled module."""
_OF_PYTHON = frozenset({"__dict__", "_modules"})
"""Words in the rest (`L['self'].__dict__['_modules']['layers']._modules['0'].wq`) that are not path segments."""
_RUN_AGAIN = re.compile(r"_recomputed(_\d+)?$")
"""Suffix that torch's passes give recomputed operations in a graph: `mul_3_recomputed`."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Attribution of an operation from its graph node; None where the node has none.

    Attributes:
        module: path of its module.
        backward: it belongs to the backward pass.
        frames: the user's frames, innermost first.
        recompute: it recomputes an operation of the forward pass.
    """

    module: str | None
    backward: bool
    frames: tuple[Frame, ...] | None
    recompute: bool = False


def of_meta(meta: Mapping[str, Any]) -> Replayed:
    """Read the metadata that tracing leaves on a node."""
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
    """Read a node's attribution, from itself or from its forward node."""
    own = of_meta(node.meta)
    if _RUN_AGAIN.search(node.name):
        own = replace(own, recompute=True)
    if own.module is not None:
        return own
    if node.meta.get("is_gradient_acc"):
        # as in an eager backward pass, a sum of gradients belongs to the producer of the last one
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
    """Map autograd's sequence number of a forward node to the graph node that names its module."""
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
            # Only the first one made an autograd node; it may be a view, which carries less metadata.
            if number not in known or (_module(node) and not _module(known[number])):
                known[number] = node
    return known


def _module(node: Any) -> str | None:
    return (node.meta.get("custom") or {}).get("module_fqn")


def _innermost(stack: Mapping[str, Any] | None) -> str | None:
    """Return the innermost module path of an `nn_module_stack`, whose values are (traced path, class)."""
    if not stack:
        return None
    entry = list(stack.values())[-1]
    path = str(entry[0] if isinstance(entry, tuple) else entry)
    if _ROOT.match(path) or "_modules" in path:
        path = ".".join(word for word in _WORD.findall(_ROOT.sub("", path)) if word not in _OF_PYTHON)
    return path or None
