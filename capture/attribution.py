"""Attribute each operation to its module, phase, micro-batch and source line.

Forward: the running module. Backward: autograd numbers every node it makes, and the operation that made the node is
dispatched right after; the place noted under that number is looked up when the node runs. Recompute: the module
that runs again, or the one whose forward pass ran the same line. Replayed graphs carry the place in their nodes. The
rest (loss, clipping, communication after the backward pass) goes by the user's function that called it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from .frames import Frame, GraphLines, Stack, StackTable
from .graph_nodes import Replayed, of_node
from .modules import ModuleNames, ModuleStack

__all__ = ["BACKWARD", "FORWARD", "OPTIMIZER", "Attribution", "Place"]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
NO_TASK = -1


@dataclass(slots=True)
class Place:
    """Module, phase, micro-batch and origin of one operation.

    Attributes:
        module: path of its module; None when none is running (the call site then names it).
        phase: `forward`, `backward` or `optimizer`.
        stack: number of its stack; for a backward operation, that of the forward operation.
        micro_batch: number of the forward pass of the model in this step, from 0; None before the first.
        recompute: run again by activation checkpointing.
        running: the running module, to which graph paths are relative, where `module` is more specific.
        frames: the user's frames from a graph node, instead of the stack's.
        derived: the backward pass of a known forward operation, with its module and stack.
        in_optimizer: inside an optimizer's step, not just before it.
    """

    module: str | None
    phase: str
    stack: int
    micro_batch: int | None = None
    recompute: bool = False
    running: str | None = None
    frames: tuple[Frame, ...] | None = None
    derived: bool = False
    in_optimizer: bool = False


class Attribution:
    """Find the place of each dispatched operation, in order."""

    def __init__(self, names: ModuleNames, modules: ModuleStack) -> None:
        self.names = names
        self.stacks = StackTable()
        self.graphs = GraphLines()
        self.optimizer_depth = 0
        self.optimizer_task = NO_TASK
        self.closure = False
        self.replayed: Replayed | None = None
        self.micro_batch: int | None = None
        self._modules = modules
        self._passes: dict[int, int] = {}
        self._next_node = 0
        self._nodes: dict[int, Place] = {}
        self._nested: dict[int, tuple[int, Place]] = {}
        self._sites: dict[Any, dict[str, None]] = {}
        self._replays: dict[int, Replayed | None] = {}
        self._backward_seen = False

    def begin_step(self) -> None:
        """Forget the autograd nodes made before this step."""
        self._next_node = torch._C._autograd._get_sequence_nr()

    def entered_root(self, root: Any) -> None:
        """Count the next micro-batch: a model's forward pass begins outside any backward pass."""
        self.micro_batch = self._passes[id(root)] = self._passes.get(id(root), -1) + 1
        self._backward_seen = False
        if self.optimizer_depth:
            self.closure = True

    def place(self, skip: int = 3) -> Place:
        """Return the place of the operation being dispatched, `skip` Python frames up."""
        number = self.stacks.here(skip)
        stack = self.stacks[number]
        task = torch._C._current_graph_task_id()
        replayed = self.replayed or self._graph_node(number, stack)
        if task in (NO_TASK, self.optimizer_task):
            running = self._modules.current
            phase = self._phase(running)
            within = phase == OPTIMIZER and self.optimizer_depth > 0
            place = Place(running, phase, number, self.micro_batch, running=running, in_optimizer=within)
        else:
            self._backward_seen = True
            place = self._in_backward(number, stack, task)
        if replayed is not None:
            self._apply(replayed, place)
        if place.phase == OPTIMIZER:
            place.micro_batch = None
        self._note_nodes(place, task, stack)
        return place

    def notice(self, skip: int = 3) -> None:
        """Note the autograd node that an unrecorded operation (such as a view) may have made."""
        if torch._C._autograd._get_sequence_nr() != self._next_node:
            self.place(skip + 1)

    def _phase(self, running: str | None) -> str:
        if not self.optimizer_depth:
            # behind the backward pass, without gradients, outside the model: clipping, unscaling
            prepares = self._backward_seen and running is None and not torch.is_grad_enabled()
            return OPTIMIZER if prepares else FORWARD
        if self.closure and self._backward_seen:
            self.closure = False
        return FORWARD if self.closure else OPTIMIZER

    def _in_backward(self, number: int, stack: Stack, task: int) -> Place:
        node = torch._C._current_autograd_node()
        origin = self._origin(node, task)
        micro_batch = origin.micro_batch if origin is not None else self.micro_batch
        if stack.recompute:
            module = self._modules.current or self._same_line(stack, origin)
            return Place(module, BACKWARD, number, micro_batch, recompute=True)
        if origin is not None:
            return replace(origin, phase=BACKWARD, recompute=False, derived=True)
        variable = getattr(node, "variable", None)
        parameter = None if variable is None else self.names.parameter(variable)
        module = parameter.rpartition(".")[0] if parameter else self._modules.current
        return Place(module or None, BACKWARD, number, micro_batch)

    def _origin(self, node: Any, task: int) -> Place | None:
        """Return the place noted when an autograd node was made."""
        if node is None:
            return None
        number = node._sequence_nr()
        # Each thread has its own count. A node made inside a backward pass (reentrant checkpointing, on an engine
        # thread) runs inside another pass; the same number in the same pass is a node of the forward pass.
        nested = self._nested.get(number)
        if nested is not None and nested[0] != task:
            return nested[1]
        return self._nodes.get(number)

    def _same_line(self, stack: Stack, origin: Place | None) -> str | None:
        """Return the module whose forward pass ran the recomputed line: a function was checkpointed, not a module."""
        candidates = self._sites.get(stack.site) or {}
        near = origin.module if origin is not None and origin.module else ""
        if not candidates:
            return near or None
        return max(candidates, key=lambda name: _common(name, near))

    def _note_nodes(self, place: Place, task: int, stack: Stack) -> None:
        upcoming = torch._C._autograd._get_sequence_nr()
        if upcoming != self._next_node:
            # smaller: another thread with its own count; its newest node is this operation's
            first = self._next_node if 0 < upcoming - self._next_node < 64 else upcoming - 1
            for number in range(first, upcoming):
                if task == NO_TASK:
                    self._nodes[number] = place
                else:
                    self._nested[number] = (task, place)
            self._next_node = upcoming
        if task == NO_TASK and place.module and stack.site is not None:
            self._sites.setdefault(stack.site, {})[place.module] = None

    def _graph_node(self, number: int, stack: Stack) -> Replayed | None:
        if stack.graph_line is None:
            return None
        if number not in self._replays:
            node = self.graphs.node(*stack.graph_line)
            self._replays[number] = None if node is None else of_node(node)
        return self._replays[number]

    def _apply(self, replayed: Replayed, place: Place) -> None:
        if replayed.module is not None:
            place.module = self.names.within(replayed.module, place.running)
        if replayed.backward:
            self._backward_seen = True
            place.phase = BACKWARD
        if replayed.frames is not None:
            place.frames = replayed.frames
        if replayed.recompute:
            place.recompute = True


def _common(name: str, other: str) -> int:
    """Return the number of leading segments that two module paths share."""
    shared = 0
    for x, y in zip(name.split("."), other.split("."), strict=False):
        if x != y:
            break
        shared += 1
    return shared
