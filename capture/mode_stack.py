"""Insert and remove a dispatch mode at the bottom of the mode stack.

A captured step begins inside one call and ends inside another, and the training code may enter and leave modes of its
own in between (a FLOP counter, selective checkpointing). Modes are popped last in, first out. At the
bottom ours disturbs no other mode and sees the operations that are really executed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = [
    "compiles",
    "computes_shapes",
    "has_numbers",
    "insert_below",
    "inside_compiled_call",
    "is_tracing",
    "never_compile",
    "remove",
    "run_parts",
]

_DYNAMO = os.path.join("torch", "_dynamo", "eval_frame.py")

_frames = torch._C._dynamo.eval_frame
_mode_of = torch._C._get_dispatch_mode
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_FUNCTIONAL = torch._C._TorchDispatchModeKey.FUNCTIONAL

_FLAGS = (
    "old_dispatch_mode_flags",
    "old_non_infra_dispatch_mode_flags",
    "old_without_ignore_compile_internals_dispatch_mode_flags",
)
"""State that a mode saves on entry about the modes below it, and restores on exit."""


def is_tracing() -> bool:
    """Return True while operations are traced, with or without values, instead of trained."""
    return _mode_of(_FAKE) is not None or _mode_of(_PROXY) is not None or _mode_of(_FUNCTIONAL) is not None


def computes_shapes(args: Any) -> bool:
    """Return True for a call whose results have no numbers, as it is given a tensor of the meta device."""
    return any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in tree_leaves(args))


def has_numbers(output: Any) -> bool:
    """Return True if a tensor among these results of a call has numbers, which those of the meta device have not."""
    return any(isinstance(leaf, torch.Tensor) and not leaf.is_meta for leaf in tree_leaves(output))


def compiles() -> bool:
    """Return True where the compiler looks at every function that is called, inside a compiled one."""
    return _frames.get_eval_frame_callback() is not None


def never_compile(function: Callable[..., Any]) -> None:
    """Keep the compiler from a function, though not from those that it calls.

    Raises:
        AttributeError: this torch cannot be told.
    """
    skip = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT)
    _frames.set_code_exec_strategy(function.__code__, skip)


with suppress(AttributeError):
    never_compile(compiles)


def inside_compiled_call() -> bool:
    """Return True inside a compiled function.

    On return it restores the active dispatch keys but not the stack of modes: a mode entered inside is never called,
    and if the only mode was removed inside, every later call looks for a missing one.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper" and frame.f_code.co_filename.endswith(_DYNAMO):
            return True
        frame = frame.f_back
    return False


def insert_below(mode: TorchDispatchMode, keep_below: tuple[type, ...] = ()) -> None:
    """Enter `mode` at the bottom of the stack, but above the modes of the types `keep_below`."""
    above = _pop_until(lambda other: isinstance(other, keep_below))
    with _put_back(above):
        mode.__enter__()
        if above:
            lowest = above[-1]
            _inherit(mode, lowest)
            inside = (True, not mode.is_infra_mode(), not mode.ignore_compile_internals())
            for name, value in zip(_FLAGS, inside, strict=True):
                memory = getattr(lowest, name, None)
                if memory:
                    memory[-1] = memory[-1] or value


def remove(mode: TorchDispatchMode) -> None:
    """Leave `mode` wherever it is in the stack; nothing happens when it is not there."""
    above = _pop_until(lambda other: other is mode)
    with _put_back(above):
        if torch._C._len_torch_dispatch_stack() > 0:
            if above:
                _inherit(above[-1], mode)
                for name, value in zip(_FLAGS, _present(), strict=True):
                    if memory := getattr(mode, name, None):
                        memory[-1] = value
            mode.__exit__(None, None, None)


def run_parts(mode: TorchDispatchMode, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a composite operator from within the mode's dispatch, with the mode in force for what it calls.

    Under `inference_mode` these arrive whole, as the keys are left out that would take them apart.
    """
    torch._C._push_on_torch_dispatch_stack(mode)
    try:
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    finally:
        torch._C._pop_torch_dispatch_stack(None)


@contextmanager
def _put_back(above: list[Any]) -> Iterator[None]:
    """Push the modes of the program again that were popped, whatever happens meanwhile."""
    try:
        yield
    finally:
        for other in reversed(above):
            torch._C._push_on_torch_dispatch_stack(other)


def _pop_until(found: Callable[[Any], bool]) -> list[Any]:
    """Pop modes until `found` accepts the top one or none is left; return them topmost first."""
    popped = []
    while (depth := torch._C._len_torch_dispatch_stack()) > 0:
        if found(torch._C._get_dispatch_stack_at(depth - 1)):
            break
        popped.append(torch._C._pop_torch_dispatch_stack(None))
    return popped


def _present() -> tuple[bool, ...]:
    """Return the state that a mode entered now would save, so that leaving with it changes nothing."""
    return (
        _python_dispatch._is_in_torch_dispatch_mode,
        _python_dispatch._is_in_non_infra_torch_dispatch_mode,
        _python_dispatch._is_in_any_mode_without_ignore_compile_internals,
    )


def _inherit(heir: Any, other: Any) -> None:
    """Copy the state that `other` saved about the modes below it to `heir`."""
    for name in _FLAGS:
        mine, theirs = getattr(heir, name, None), getattr(other, name, None)
        if mine and theirs:
            mine[-1] = theirs[-1]
