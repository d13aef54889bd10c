"""Bundles beside made-up logs: operations on arrays, kept whole, and a Python that replays them without torch."""

from __future__ import annotations

import hashlib
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capture.keeping.bundle import write_bundle
from capture.keeping.form import bundle_folder
from tests.captured import Step, summary, write_captured

__all__ = ["replaying_python", "write_kept"]

_REPLAYS = """#!{python} -S
import json, sys
job = json.load(sys.stdin)
for variant in job["variants"]:
    found = [
        {{"distance": {{side: [1e-7, 1.0] for side in call["against"]}}}}
        if variant.get("wide")
        else {{"returned": call["digests"]["returned"], "written": call["digests"]["left"]}}
        for call in job["calls"]
    ]
    print(json.dumps(found), flush=True)
"""
_WAITS = """#!{python} -S
import signal, sys
sys.stdin.read()
signal.pause()
"""


def write_kept(log: Path, steps: Sequence[Step], kept: Sequence[str], **run: Any) -> Path:
    """Write a log and, beside it, the bundle of the operations of some keys; return the bundle's folder."""
    log.parent.mkdir(parents=True, exist_ok=True)
    write_captured(log, steps, **run)
    contents: dict[str, bytes] = {}
    calls = []
    for seq, step in enumerate(steps):
        if step.key not in kept:
            continue
        given = [_tensor(values, contents) for values in step.reads]
        inputs = ", ".join(_digest(values) for values in step.reads)
        calls.append(
            {
                "key": step.key,
                "seq": seq,
                "operator": f"aten::{step.key.rpartition('_')[2]}",
                "schema": "aten::op(Tensor self) -> Tensor",
                "record": f"[{step.key}]\n  Input digests: {inputs}",
                "args": given,
                "kwargs": {},
                "written": [],
                "returned": [_tensor(values, contents) for values in step.gives],
                "left": [],
                "planned": [],
                "flags": {"threads": 1, "deterministic": False, "mkldnn": True},
                "aliased": False,
                "digests": {"returned": [_digest(values) for values in step.gives], "left": []},
            }
        )
    folder = bundle_folder(log)
    write_bundle(folder, {"log": log.name, "run": run, "missed": []}, calls, contents)
    return folder


def _digest(values: Any) -> str:
    return f"{summary(values).digest:016x}"


def _tensor(values: Any, contents: dict[str, bytes]) -> dict[str, Any]:
    array = np.ascontiguousarray(values)
    data = array.tobytes()
    name = hashlib.sha256(data).hexdigest()
    contents[name] = data
    strides = [step // array.itemsize for step in array.strides]
    form = {"dtype": array.dtype.name, "shape": list(array.shape), "strides": strides, "offset": 0, "device": "cpu"}
    return {"tensor": {"memory": len(contents), "storage": name, **form}}


def replaying_python(path: Path, *, waits: bool = False) -> str:
    """A program in place of a Python with torch: each variant gives the bits of the log, or it waits for a signal."""
    path.write_text((_WAITS if waits else _REPLAYS).format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
