"""Write a kept call, or those of two runs, as a script that needs torch alone and asserts the digests of the log."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .bundle import BundleError, safetensors_head
from .form import given_to, read_content
from .replay import Kept

__all__ = ["write_script"]

_OPERATOR = re.compile(r"(?P<space>[A-Za-z_]\w*)::(?P<name>[A-Za-z_]\w*)(?:\.(?P<overload>\w+))?", re.ASCII)
_PROGRAM = Path(__file__).with_name("perform.py")
_HEAD = '''\
"""{title}: run again, it gives the bits of the log. Needs torch alone; its tensors lie beside it."""

import json
import os
from pathlib import Path

import torch

with Path(__file__).with_name("tensors.safetensors").open("rb") as file:
    head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = bytearray(file.read())


def content(name):
    first, last = head[name]["data_offsets"]
    return torch.tensor(data[first:last], dtype=torch.uint8)


def tensor(memory, dtype, shape, strides, offset):
    return torch.empty(0, dtype=dtype, device=memory.device).set_(memory.untyped_storage(), offset, shape, strides)


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [t for item in value or () for t in flat(item)]


'''


def write_script(folder: Path, sides: Mapping[str, Kept]) -> None:
    """Write `repro.py` and `tensors.safetensors` into a folder, which is made.

    Args:
        folder: where.
        sides: the kept calls of an operation, by run.

    Raises:
        BundleError: a call cannot be written as a script: an opaque argument.
        OSError: the folder cannot be written.
    """
    contents: dict[str, bytes] = {}
    bodies = [_body(side, kept, contents) for side, kept in sides.items()]
    first = next(iter(sides.values())).call
    title = ascii(f"{first['operator']} of {first['key']}")[1:-1].replace('"', "'").replace("\\", "/")
    source = _PROGRAM.read_text(encoding="utf-8")
    digest = source[source.index("def digest(") : source.index("def operator(")]
    folder.mkdir(parents=True, exist_ok=True)
    for typed, plain in (("tensor: Any", "tensor"), (") -> str:", "):"), ("number: int) -> int", "number)")):
        digest = digest.replace(typed, plain)
    script = _HEAD.format(title=title) + digest + "\n".join(bodies)
    (folder / "repro.py").write_text(script, encoding="ascii")
    (folder / "tensors.safetensors").write_bytes(b"".join([safetensors_head(contents), *contents.values()]))


def _body(side: str, kept: Kept, contents: dict[str, bytes]) -> str:
    call = kept.call
    found = _OPERATOR.fullmatch(call["operator"])
    if found is None:
        raise BundleError(f"{call['key']}: {call['operator'][:80]!r} is no operator that a script can call")
    source = _Source(side, kept.folder, contents)
    given = [source.of(tree) for tree in call["args"]]
    given += [f"{name}={source.of(tree)}" for name, tree in call["kwargs"].items()]
    lines = [f"# {ascii(call['key'])[1:-1]}, as {side} ran it"]
    if (threads := call["flags"].get("threads")) is not None:
        lines.append(f"torch.set_num_threads({int(threads)})")
    if workspace := call["flags"].get("cublas_workspace"):
        lines.append(f"os.environ['CUBLAS_WORKSPACE_CONFIG'] = {str(workspace)!a}")
    lines.append(f"torch.use_deterministic_algorithms({bool(call['flags'].get('deterministic'))})")
    lines += source.lines
    if (random := call.get("random")) and not random.get("given"):
        of = "" if random["device"] == "cpu" else f"{_kind(random['device'])}."
        lines.append(f"torch.{of}set_rng_state({source.content(random['state'])})")
    operator = f"torch.ops.{found['space']}.{found['name']}.{found['overload'] or 'default'}"
    lines.append(f"with torch.no_grad():\n    result = flat({operator}({', '.join(given)}))")
    tensors = given_to(call)
    names = ", ".join(source.names[id(tensors[at])] for at in call["written"])
    expected = [None if one == "-" else one for one in (*call["digests"]["returned"], *call["digests"]["left"])]
    lines.append(f"found = [digest(each) for each in [*result{', ' + names if names else ''}]]")
    lines.append(f"print({side!r}, found)")
    lines.append(
        f"assert all(want in (None, one) for want, one in zip({expected}, found)), {f'not the bits of {side}'!r}"
    )
    return "\n".join([*lines, ""])


class _Source:
    """Arguments as Python's source; tensors are variables that lines before the call make."""

    def __init__(self, side: str, folder: Path, contents: dict[str, bytes]) -> None:
        self._side, self._folder, self._contents = side, folder, contents
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self._memories: dict[int, str] = {}

    def of(self, tree: Any) -> str:
        if isinstance(tree, list):
            return f"[{', '.join(map(self.of, tree))}]"
        if not isinstance(tree, dict):
            return ascii(tree)
        ((tag, told),) = tree.items()
        if tag == "tensor":
            return self._tensor(told)
        if tag == "float":
            return _number(told)
        if tag == "complex":
            return f"complex({', '.join(map(_number, told))})"
        if tag in ("dtype", "layout", "memory_format"):
            return f"torch.{told}"
        if tag == "device":
            return f"torch.device({_kind(told)!r})"
        raise BundleError(f"an argument, {tag} {str(told)[:40]}, cannot be written as a script")

    def content(self, name: str) -> str:
        if name not in self._contents:
            self._contents[name] = read_content(self._folder, name)
        return f'content("{name}")'

    def _tensor(self, told: dict[str, Any]) -> str:
        memory = self._memories.get(told["memory"])
        if memory is None:
            memory = self._memories[told["memory"]] = f"{self._side}_memory_{len(self._memories)}"
            self.lines.append(f"{memory} = {self.content(told['storage'])}{_to(told['device'])}")
        name = self.names[id(told)] = f"{self._side}_{len(self.names)}"
        form = f"torch.{told['dtype']}, {told['shape']}, {told['strides']}, {told['offset']}"
        made = f"tensor({memory}, {form})"
        if told.get("conj"):
            made = f"torch._conj({made})"
        if told.get("neg"):
            made = f"torch._neg_view({made})"
        self.lines.append(f"{name} = {made}")
        return name


def _kind(device: str) -> str:
    """Return a device without its number: who runs the script may have one alone."""
    return device.partition(":")[0]


def _to(device: str) -> str:
    return "" if device == "cpu" else f".to({_kind(device)!r})"


def _number(text: str) -> str:
    value = float.fromhex(text)
    return repr(value) if math.isfinite(value) else f"float('{value!r}')"
