"""Source locations of operations in the user's code.

The stack is walked when an operation is dispatched and stored as code objects and instruction offsets, each distinct
stack once. Names and lines are looked up once per distinct stack, at the end of the step.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import torch

__all__ = ["Frame", "GraphLines", "Stack", "StackTable", "parse_traceback"]

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CAPTURE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = tuple({os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
_SITE = tuple({os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")})

_STAND_IN = "typing_extensions.py"
"""Not the user's code, wherever it is installed: its wrappers call torch's deprecated functions."""

_UTILITIES = os.path.join("torch", "nn", "utils", "")
_CHECKPOINT = os.path.join("torch", "utils", "checkpoint.py")
_RUN_AGAIN = ("unpack_hook", "recompute_fn", "backward")
_AUTOGRAD = (os.path.join("torch", "autograd", "__init__.py"), os.path.join("torch", "autograd", "graph.py"))
_GENERATED = "<eval_with_key>"
"""File name of the code that `torch.fx` generates for a graph."""

_TRACEBACK_LINE = re.compile(
    r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]*)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A call in the user's code."""

    file: str
    line: int
    function: str

    @property
    def location(self) -> str:
        """Return the last two parts of the path and the line, `common/attention.py:534`."""
        return f"{'/'.join(self.file.replace(os.sep, '/').split('/')[-2:])}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.function}"


@dataclass(frozen=True, slots=True)
class Stack:
    """A distinct call stack, reduced to the facts that attribution needs.

    Attributes:
        frames: the user's frames, innermost first, without those of torch, Python and this capture.
        called_back: how many of them autograd called, if it did: a function's `backward`, a hook.
        caller: name of the `torch.nn.utils` function that the innermost user frame called, or "".
        recompute: activation checkpointing is running a region of the forward pass again.
        graph_line: a graph's generated code and the line that ran, None outside a graph.
        site: identity of the instruction of the innermost user frame, None without one.
        direct: the user's code called the operation itself, and no other library in between.
    """

    frames: tuple[Frame, ...]
    called_back: int
    caller: str
    recompute: bool
    graph_line: tuple[CodeType, int] | None
    site: tuple[int, int] | None
    direct: bool


@cache
def is_user_file(path: str) -> bool:
    """Return True for a user's file: not torch, the standard library, this package or generated code."""
    if path.startswith("<"):
        return False
    path = os.path.abspath(path)
    if path.startswith((_TORCH, _CAPTURE)) or os.path.basename(path) == _STAND_IN:
        return False
    return path.startswith(_SITE) or not path.startswith(_STDLIB)


def _function_name(code: CodeType) -> str:
    """Return a function's name, with its class where Python knows it (3.11 on): `Trainer.train_step`."""
    return str(getattr(code, "co_qualname", code.co_name)).rpartition("<locals>.")[2]


def _line(frame: Any) -> int:
    """Return the line that a frame runs; that of its function for an instruction that has none."""
    line: int = frame.f_lineno or frame.f_code.co_firstlineno
    return line


def parse_traceback(text: str) -> tuple[Frame, ...]:
    """Return the user's frames of a printed traceback (as `torch.fx` stores for its nodes), innermost first."""
    found = [Frame(m["file"], int(m["line"]), m["function"].strip()) for m in _TRACEBACK_LINE.finditer(text)]
    return tuple(frame for frame in reversed(found) if is_user_file(frame.file))


class StackTable:
    """Distinct call stacks of a step."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}  # keeps them, so that no other gets their id
        self._stacks: list[Stack] = []

    def __getitem__(self, index: int) -> Stack:
        return self._stacks[index]

    def here(self, skip: int = 2) -> int:
        """Return the number of the current stack, from `skip` frames up."""
        frame: Any = sys._getframe(skip)
        # by their ids: the hash of a code object is that of all its instructions
        key: list[int] = []
        append = key.append
        while frame is not None:
            append(id(frame.f_code))
            append(frame.f_lasti)
            frame = frame.f_back
        found = tuple(key)
        index = self._ids.get(found)
        if index is None:
            index = self._ids[found] = len(self._stacks)
            self._stacks.append(self._read(sys._getframe(skip)))
        return index

    def _read(self, frame: Any) -> Stack:
        frames: list[Frame] = []
        called_back: int | None = None
        caller, recompute, engine = "", None, False
        graph_line: tuple[CodeType, int] | None = None
        site: tuple[int, int] | None = None
        between = False
        while frame is not None:
            this, code, frame = frame, frame.f_code, frame.f_back
            self._codes[id(code)] = code
            path = code.co_filename
            if path.startswith("<"):
                if graph_line is None and path.startswith(_GENERATED):
                    graph_line = (code, _line(this))
                continue
            if path.endswith(_AUTOGRAD) and code.co_name in ("backward", "grad", "_engine_run_backward"):
                engine = True
                called_back = len(frames) if called_back is None else called_back
            elif recompute is None and path.endswith(_CHECKPOINT) and code.co_name in _RUN_AGAIN:
                # the nearer frame decides: recomputing the forward pass, or the backward pass of the recomputed region
                recompute = not engine
            if is_user_file(path):
                site = site or (id(code), this.f_lasti)
                frames.append(Frame(path, _line(this), _function_name(code)))
                continue
            between |= not (frames or path.startswith(_CAPTURE))
            if not frames and _UTILITIES in path and not code.co_name.startswith("_"):
                caller = code.co_name
        if called_back is None:  # a thread of autograd's own
            called_back = len(frames)
        direct = bool(frames) and not between
        return Stack(tuple(frames), called_back, caller, bool(recompute), graph_line, site, direct=direct)


class GraphLines:
    """Map from lines of generated `forward` code to the graph nodes they run."""

    def __init__(self) -> None:
        self._maps: dict[CodeType, Mapping[int, Any]] = {}

    def add(self, graph_module: Any) -> None:
        """Learn the lines of a `torch.fx.GraphModule`."""
        code = getattr(getattr(type(graph_module), "forward", None), "__code__", None)
        lines = getattr(graph_module, "_lineno_map", None)
        if code is None or not lines or self._maps.get(code):
            return
        start = getattr(graph_module, "_prologue_start", 0) or 0
        nodes = list(graph_module.graph.nodes)
        self._maps[code] = {
            line + start: nodes[index] for line, index in lines.items() if index is not None and index < len(nodes)
        }

    def node(self, code: CodeType, line: int) -> Any:
        """Return the node that a line runs, None for an unknown graph."""
        if code not in self._maps:
            self._maps[code] = {}
            self._search(code)
        return self._maps[code].get(line)

    def _search(self, code: CodeType) -> None:
        """Search once for a graph whose `forward` was called without `__call__`, which bypasses the hooks."""
        for candidate in gc.get_objects():
            # not isinstance: some objects warn when their class is read
            if not issubclass(type(candidate), torch.fx.GraphModule):
                continue
            if getattr(type(candidate).forward, "__code__", None) is code:
                self.add(candidate)
                return
