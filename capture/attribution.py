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

__all__ = ["AFTER", "BACKWARD", "FORWARD", "GRADIENTS", "OPTIMIZER", "PHASES", "PREPARE", "Attribution", "Place"]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
PREPARE = "prepare"
"""Before a forward pass: batches, noise, targets of other models."""
GRADIENTS = "gradients"
"""Between the backward pass and the optimizer: clipping, unscaling, accumulation across ranks."""
AFTER = "after"
"""After the last optimizer step: averaged copies, target networks, buffers."""
PHASES = [PREPARE, FORWARD, BACKWARD, GRADIENTS, OPTIMIZER, AFTER]
NO_TASK = -1


@dataclass(slots=True)
class Place:
    """Module, phase, micro-batch and origin of one operation.

    Attributes:
        module: path of its module; None when none is running (the call site then names it).
        phase: one of the constants above.
        stack: number of its stack; for a backward operation, that of the forward operation.
        forward_pass: number of the model's forward pass (`Attribution.micro_batches`), None before the first.
        recompute: run again by activation checkpointing.
        running: the running module, to which graph paths are relative, where `module` is more specific.
        frames: the user's frames instead of the stack's: from a graph node; where autograd calls the user's code, those
            of that and of the forward operation.
        derived: the backward pass of a known forward operation, with its module and stack.
        in_optimizer: inside an optimizer's step, not just before it.
    """

    module: str | None
    phase: str
    stack: int
    forward_pass: int | None = None
    recompute: bool = False
    running: str | None = None
    frames: tuple[Frame, ...] | None = None
    derived: bool = False
    in_optimizer: bool = False


class Attribution:
    """Find the place of each dispatched operation, in order.

    Attributes:
        stage: phase of what is neither differentiated nor part of an optimizer's step: `prepare` until a forward pass
            begins, `after` once an optimizer has stepped.
        backward_seen: a backward pass has run, and since then neither a forward pass nor a step of an optimizer.
    """

    def __init__(self, names: ModuleNames, modules: ModuleStack) -> None:
        self.names = names
        self.stacks = StackTable()
        self.graphs = GraphLines()
        self.optimizer_depth = 0
        self.optimizer_task = NO_TASK
        self.closure = False
        self.replayed: Replayed | None = None
        self.stage = PREPARE
        self.forward_pass: int | None = None
        self._modules = modules
        self._passes: list[int] = []
        self._open: set[int] = set()
        self._called: set[int] = set()
        self._next_node = 0
        self._nodes: dict[int, Place] = {}
        self._nested: dict[int, tuple[int, Place]] = {}
        self._sites: dict[Any, dict[str, None]] = {}
        self._replays: dict[int, Replayed | None] = {}
        self.backward_seen = False

    def begin_step(self) -> None:
        """Forget the autograd nodes made before this step."""
        self._next_node = torch._C._autograd._get_sequence_nr()

    def forget_nodes(self) -> None:
        """Forget all autograd nodes: their graphs have run."""
        self._nodes.clear()
        self._nested.clear()

    def entered_root(self, root: Any) -> None:
        """Count a model's forward pass: one that begins outside any backward pass."""
        if self.stage == PREPARE:
            return
        self._called.add(id(root))
        self._begin_pass(root)

    def _begin_pass(self, root: Any) -> None:
        self.forward_pass = len(self._passes)
        self._passes.append(id(root))
        self._open.add(id(root))
        self.backward_seen = False
        if self.optimizer_depth:
            self.closure = True

    def entered_part(self, root: Any) -> None:
        """Count a forward pass of a model that is not called itself, only its parts: one until the backward pass.

        Of a model that is, a part belongs to the last pass: a head that is called for one piece of the loss at a time.
        """
        if id(root) in self._called:
            self.forward_pass = max(number for number, of in enumerate(self._passes) if of == id(root))
            self.backward_seen = False
        elif id(root) not in self._open and self.stage != PREPARE:
            self._begin_pass(root)

    def entered_closure(self) -> None:
        """Expect a forward pass inside an optimizer's step."""
        self.closure, self.backward_seen = True, False

    def optimizer_stepped(self) -> None:
        """Enter the stage between an optimizer's step and the next forward or backward pass."""
        self.closure = False
        self.begin_anew(AFTER)

    def begin_anew(self, stage: str) -> None:
        """Enter a stage in which no forward pass has begun."""
        self.stage, self.backward_seen = stage, False
        self._open.clear()
        self._called.clear()

    @property
    def passes(self) -> int:
        """Number of forward passes so far."""
        return len(self._passes)

    def current_pass(self, *, recompute: bool) -> int | None:
        """Return the number of the forward pass that runs, or is run again by the backward pass."""
        task = torch._C._current_graph_task_id()
        origin = self._origin(torch._C._current_autograd_node(), task) if recompute and task != NO_TASK else None
        return self.forward_pass if origin is None else origin.forward_pass

    def micro_batches(self, first: int = 0) -> dict[int | None, int | None]:
        """Return forward pass → micro-batch: its number among those of the same model from pass `first` on.

        Passes before that are none: what a step differentiates before its own first pass still follows their last.
        """
        counts: dict[int, int] = {}
        numbers: dict[int | None, int | None] = dict.fromkeys((None, *range(first)))
        for number, root in enumerate(self._passes[first:], first):
            numbers[number] = counts[root] = counts.get(root, -1) + 1
        return numbers

    def place(self, skip: int = 3, *, recorded: bool = True) -> Place:
        """Return the place of the operation being dispatched, `skip` Python frames up.

        Only recorded ones tell where the step is: a compiled forward pass detaches tensors for the backward pass.
        """
        number = self.stacks.here(skip)
        stack = self.stacks[number]
        task = torch._C._current_graph_task_id()
        replayed = self.replayed or self._graph_node(number, stack)
        if task in (NO_TASK, self.optimizer_task):
            running = self._modules.current
            phase = self._phase(running)
            within = phase == OPTIMIZER and self.optimizer_depth > 0
            place = Place(running, phase, number, self.forward_pass, running=running, in_optimizer=within)
        else:
            self.backward_seen, self.stage = True, PREPARE
            self._open.clear()
            place = self._in_backward(number, stack, task)
        if replayed is not None:
            self._apply(replayed, place, recorded)
        if place.phase not in {FORWARD, BACKWARD}:
            place.forward_pass = None
        self._note_nodes(place, task, stack)
        return place

    def notice(self, skip: int = 3) -> None:
        """Note the autograd node that an unrecorded operation (such as a view) may have made."""
        if torch._C._autograd._get_sequence_nr() != self._next_node:
            self.place(skip + 1, recorded=False)

    def _phase(self, running: str | None) -> str:
        if not self.optimizer_depth:
            if self.backward_seen and running is None and not torch.is_grad_enabled():
                return GRADIENTS
            # a loss may be computed without any module
            differentiated = torch._C._autograd._get_sequence_nr() != self._next_node
            return FORWARD if differentiated else self.stage
        if self.closure and self.backward_seen:
            self.closure = False
        return FORWARD if self.closure else OPTIMIZER

    def _in_backward(self, number: int, stack: Stack, task: int) -> Place:
        node = torch._C._current_autograd_node()
        origin = self._origin(node, task)
        forward_pass = origin.forward_pass if origin is not None else self.forward_pass
        if stack.recompute:
            module = self._modules.current or self._same_line(stack, origin)
            return Place(module, BACKWARD, number, forward_pass, recompute=True)
        if origin is not None:
            frames = origin.frames
            if stack.called_back:  # the line that differs may be there
                frames = stack.frames[: stack.called_back] + (frames or self.stacks[origin.stack].frames)
            return replace(origin, phase=BACKWARD, recompute=False, derived=True, frames=frames)
        variable = getattr(node, "variable", None)
        parameter = None if variable is None else self.names.parameter(variable)
        module = parameter.rpartition(".")[0] if parameter else self._modules.current
        return Place(module or None, BACKWARD, number, forward_pass)

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

    def _apply(self, replayed: Replayed, place: Place, recorded: bool) -> None:
        if replayed.module is not None:
            place.module = self.names.within(replayed.module, place.running)
        if replayed.backward:
            if recorded:
                self.backward_seen, self.stage = True, PREPARE
                self._open.clear()
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
