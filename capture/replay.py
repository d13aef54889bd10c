"""Interpreter for traced graphs that attributes every operation to its module and phase."""

from __future__ import annotations

from typing import Any

import torch.fx

from .graph_nodes import Replayed, of_node
from .tracer import active_tracer

__all__ = ["FQNInterpreter"]


class FQNInterpreter(torch.fx.Interpreter):
    """Run a graph node by node and pass the metadata of each node to the capture.

    A graph that is called flat (`gm(*inputs)`) is recognised by the lines of its generated code and needs no
    interpreter; use this for graphs that already run in one, or whose code is not `torch.fx`'s own.
    """

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        tracer = active_tracer()
        if tracer is None or n.op in ("placeholder", "output"):
            return super().run_node(n)
        attribution = tracer.attribution
        before: Replayed | None = attribution.replayed
        attribution.replayed = of_node(n)
        try:
            return super().run_node(n)
        finally:
            attribution.replayed = before
