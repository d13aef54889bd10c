"""Module, phase and source frames from the metadata of `torch.fx` graph nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch.fx

from .frames import Frame, parse_traceback
from .messages import warn
from .modules import strip_wrappers

__all__ = ["KEEPS_FUNCTIONS", "Replayed", "of_meta", "of_node"]

KEEPS_FUNCTIONS = hasattr(torch.fx.proxy, "_register_stack_trace_anchor")
"""This torch keeps the frames of annotated functions in a traced graph, not only those of modules."""

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
        frames: the user's frames, innermost first; empty where only its forward operation is known.
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
    # torch 2.11 does not mark the backward pass; but there, all of it after the loss looks like a sum of gradients
    marked = meta.get("autograd_backward") or meta.get("is_gradient_acc")
    backward = bool(marked or meta.get("partitioner_tag") == "is_backward" or forward)
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
    if _adds_gradients(node):
        # as in an eager backward pass, a sum of gradients belongs to the producer of the last one
        before = node.prev
        while before.op == "call_function" and _adds_gradients(before):
            before = before.prev
        giver = of_node(before) if before.op == "call_function" else own
        return Replayed(giver.module, own.backward, giver.frames, own.recompute)
    forward = _forward_nodes(node.graph).get(node.meta.get("seq_nr"))
    if forward is None or forward is node:
        return own
    origin = of_meta(forward.meta)
    return Replayed(origin.module, own.backward, own.frames or origin.frames or (), own.recompute)


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
        if not KEEPS_FUNCTIONS and any(_module(node) is None for node in known.values()):
            warn(
                f"torch {torch.__version__} keeps no functions in a traced graph (2.13 does): "
                "operations outside modules have the name of what runs it"
            )
    return known


def _adds_gradients(node: Any) -> bool:
    return bool(node.meta.get("is_gradient_acc")) and "add" in str(node.target)


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
