"""What a tracer gets that stands on DebugMode's own recording: the thirteen faults are shown on this."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils._debug_mode import DebugMode
from torch.utils._pytree import tree_leaves

_ID = re.compile(r"\bt\$(\d+)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_VIEWS = {"t", "view", "transpose", "_unsafe_view", "expand", "detach", "alias", "unsqueeze"}


@dataclass
class StockRecord:
    """One operation: DebugMode's L1 norms, the module that was running, and the frames of its stack, innermost last."""

    op: str
    module: str
    hashes: tuple[float, ...]
    input_hashes: tuple[float, ...]
    frames: list[tuple[str, str]]
    inputs: list[int]
    outputs: list[int]
    text: str

    @property
    def view(self) -> bool:
        return self.op in _VIEWS

    @property
    def printed(self) -> tuple[object, ...]:
        """What would stand in a log, with the seven digits that it is written with."""
        shown = (tuple(f"{value:.6e}" for value in values) for values in (self.hashes, self.input_hashes))
        return (self.op, self.module, *shown)


def stock(step: Callable[[], Any]) -> list[StockRecord]:
    """DebugMode's recording of a step, with all that it offers switched on."""
    mode = DebugMode(record_nn_module=True, record_stack_trace=True, record_ids=True)
    with DebugMode.log_tensor_hashes("norm", hash_inputs=True), mode:
        step()
    records: list[StockRecord] = []
    running: list[tuple[int, str]] = []
    for call in mode.operators:
        while running and running[-1][0] >= call.call_depth:
            running.pop()
        if hasattr(call, "tag"):
            running.append((call.call_depth, call.tag))
            continue
        text = call.render([])
        given, _, came = text.partition("  ->  ")
        records.append(
            StockRecord(
                op=str(call.op).split(".")[1],
                module=running[-1][1] if running else "<none>",
                hashes=_numbers((call.log or {}).get("hash")),
                input_hashes=_numbers((call.log or {}).get("input_hash")),
                frames=_FRAME.findall(call.stack_trace),
                inputs=[int(n) for n in _ID.findall(given)],
                outputs=[int(n) for n in _ID.findall(came.partition("  # ")[0])],
                text=text,
            )
        )
    return records


def _numbers(tree: Any) -> tuple[float, ...]:
    return tuple(leaf for leaf in tree_leaves(tree) if isinstance(leaf, float))
