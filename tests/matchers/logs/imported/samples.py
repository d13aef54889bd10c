"""Small logs of torch's DebugMode as it writes them, in its three forms: the same calls, from Python values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["STEP", "Line", "hashes", "saved", "text"]


class Line(NamedTuple):
    """A call as DebugMode keeps it.

    Attributes:
        depth: `call_depth`.
        name: of an operation; of an annotation its header in brackets.
        arguments: as text; of an annotation its tag.
        result: as text; empty for none.
        inputs: hashes of the positional arguments; None: not hashed.
        output: hash of the result, nested as it is.
        named: hashes of the keyword arguments.
        stack, forward_stack: Python's tracebacks.
    """

    depth: int
    name: str
    arguments: str = ""
    result: str = ""
    inputs: tuple[Any, ...] | None = None
    output: Any = None
    named: Mapping[str, Any] = {}
    stack: str | None = None
    forward_stack: str | None = None

    @property
    def annotation(self) -> str:
        """The header of an annotation; empty for an operation."""
        return self.name[1:-1] if self.name.startswith("[") else ""

    @property
    def log(self) -> dict[str, Any]:
        """The hashes as DebugMode keeps them."""
        read: dict[str, Any] = {} if self.inputs is None else {"input_hash": (self.inputs, dict(self.named))}
        return read if self.output is None and not self.result else {**read, "hash": self.output}

    @property
    def hashed(self) -> bool:
        """True if it has a number."""
        return self.inputs is not None or self.output is not None


STEP = (
    Line(1, "[nn.Mod]", "M"),
    Line(2, "[nn.Mod]", "M.a"),
    Line(3, "aten::t", "t$0: f32[8, 4]", "t$1: f32[4, 8]", (8.25,), 8.25),
    Line(3, "aten::addmm", "t$2: f32[8], t$3: f32[3, 4], t$1: f32[4, 8]", "t$4: f32[3, 8]", (1.5, 9.75, 8.25), 12.125),
    Line(
        2,
        "aten::split.Tensor",
        "t$4: f32[3, 8], 4, 1",
        "['t$5: f32[3, 4]', 't$6: f32[3, 4]']",
        (12.125, None, None),
        [5.5, 6.625],
    ),
    Line(2, "aten::mul.Tensor", "t$6: f32[3, 4], 2.0", "t$7: f32[3, 4]", (6.625, None), 13.25),
    Line(1, "aten::mul.Tensor", "t$7: f32[3, 4], nan", "t$8: f32[3, 4]", (13.25, None), math.nan),
    Line(1, "aten::_local_scalar_dense", "t$8: f32[]", "0.5", (0.5,), None),
    Line(0, "[record function]", "Optimizer.step#SGD.step"),
    Line(
        2,
        "aten::_foreach_add_.List",
        "['t$0: f32[8, 4]', 't$2: f32[8]'], ['t$8: f32[8, 4]', 't$9: f32[8]']",
        "",
        ([8.25, 1.5], [0.75, 0.25]),
    ),
    Line(2, "aten::sum", "t$0: f32[8, 4]", "t$10: f32[]", (8.5,), 3.5),
    Line(1, "aten::empty.memory_format", "[3]", "t$11: f32[3]"),
    Line(
        1,
        "aten::native_dropout",
        "t$10: bf16[3, 4], 0.5, True",
        "('t$12: bf16[3, 4]', 't$13: b8[3, 4]')",
        (3.5, None, None),
        (1.25, 6.0),
    ),
)
"""A step: a view, a parameter, two results, NaN, a number for Python, a list in place, memory without content."""


def text(lines: Sequence[Line] = STEP) -> str:
    """The text of `debug_string`."""
    return "".join(
        "  " * (line.depth + 1)
        + (
            f"{line.name} {line.arguments}"
            if line.annotation
            else f"{line.name}({line.arguments})"
            + (f"  ->  {line.result}" if line.result else "")
            + (f"  # {line.log}" if line.hashed else "")
        )
        + "\n"
        for line in lines
    )


def saved(lines: Sequence[Line] = STEP, version: int = 1) -> str:
    """The JSON of `save_logs`."""
    calls: list[dict[str, Any]] = []
    for line in lines:
        call: dict[str, Any] = {
            "call_depth": line.depth,
            "log": _tagged(line.log) if line.hashed else None,
            "output_str": f"  ->  {line.result}" if line.result else None,
            "stack_trace": line.stack,
            "fwd_stack_trace": line.forward_stack,
        }
        if line.annotation:
            call |= {"type": "annotate", "tag": line.arguments, "header": line.annotation}
        else:
            call |= {"type": "op", "op_name": line.name, "args_str": line.arguments, "kwargs_str": ""}
        calls.append(call)
    return json.dumps({"format": "torch.utils._debug_mode.DebugMode.logs", "version": version, "logs": calls}) + "\n"


def _tagged(value: Any) -> dict[str, Any]:
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "nonfinite_float", "value": str(value)}
    if isinstance(value, (tuple, list)):
        return {"type": type(value).__name__, "items": [_tagged(item) for item in value]}
    if isinstance(value, dict):
        return {"type": "dict", "items": [[key, _tagged(item)] for key, item in value.items()]}
    return {"type": "scalar", "value": value}


def hashes(lines: Sequence[Line] = STEP) -> str:
    """The text of `dump_tensor_hashes`."""
    modules: list[tuple[int, str]] = []
    counted: dict[str, int] = {}
    blocks = []
    for index, line in enumerate(lines):
        while modules and modules[-1][0] >= line.depth:
            modules.pop()
        if line.annotation == "nn.Mod":
            modules.append((line.depth, line.arguments))
        if line.annotation or not line.hashed:
            continue
        module = modules[-1][1] if modules else "<none>"
        counted[module] = number = counted.get(module, -1) + 1
        told = [("Call type", "torch op"), ("Call index", str(index)), ("Call depth", str(line.depth))]
        told += [("Input hashes", _listed((line.inputs,), ""))] if line.inputs is not None else []
        told += [("Output hashes", _listed(line.output, ""))] if line.output is not None else []
        blocks.append(f"[{module}/op_{number}_{line.name}]\n" + "".join(f"  {name}: {value}\n" for name, value in told))
    head = f"Total captured tensor hash ops: {len(blocks)}\n{'=' * 80}\n\n"
    return head + "".join(f"{block}\n" for block in blocks)


def _listed(value: Any, path: str) -> str:
    composite = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], float) and type(value[1]) is int
    if isinstance(value, (tuple, list)) and not composite:
        found = [_listed(item, f"{path}[{k}]") for k, item in enumerate(value)]
        return ", ".join(filter(None, found))
    number = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
    return "" if value is None else f"{path or '<root>'}={json.dumps(number)}"
