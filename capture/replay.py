"""Replaying a traced graph so that every operation says which module and phase it belongs to."""

from __future__ import annotations

from typing import Any

import torch.fx

from capture.graph_nodes import Replayed, of_node
from capture.tracer import active_tracer

__all__ = ["FQNInterpreter"]


class FQNInterpreter(torch.fx.Interpreter):
    """Runs a graph node by node and tells the capture what the metadata of each node says.

    A graph that is called flat (`gm(*inputs)`) is recognised by the lines of its generated code and needs no
    interpreter; this is for graphs that are run by one already, or whose code is not `torch.fx`'s own.
    """

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs one node."""
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
