"""Bundles: folders of kept operations, without pickle. Standard library alone, to write and to read.

A bundle has `manifest.json`, written last, and each content once, as a safetensors file of bytes named by its SHA-256.
What is read is untrusted: `read_bundle` checks its structure, so that whoever runs a call need not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .form import ITEMSIZE, KNOWN, MANIFEST, RESULT, SIDES, VERSION, given_to, is_own, results_of

__all__ = ["Bundle", "BundleError", "read_bundle", "safetensors_head", "write_bundle"]

_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
_DEVICE = re.compile(r"(cpu|cuda|xpu|mps)(:\d{1,4})?", re.ASCII)
_CALL: dict[str, type] = {
    **dict.fromkeys(("key", "operator", "schema", "record"), str),
    **dict.fromkeys(("args", "written", "returned", "left", "planned"), list),
    **dict.fromkeys(("kwargs", "flags", "digests"), dict),
    "aliased": bool,
}


class BundleError(Exception):
    """A bundle that cannot be read, or that asks for something that no capture wrote: path, reason."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose structure was checked.

    Attributes:
        folder: where it is.
        calls: the kept operations, in dispatch order, as in the manifest.
        weights: parameters and buffers before the step: `name`, `tensor`.
        boundaries: calls of modules: what each was given and gave, tensors by name under the names of `SIDES`.
        missed: operations that were to be kept and were not: `key`, `seq`, `why`.
        run: the run info of the log.
    """

    folder: Path
    calls: Sequence[Mapping[str, Any]]
    weights: Sequence[Mapping[str, Any]] = ()
    boundaries: Sequence[Mapping[str, Any]] = ()
    missed: Sequence[Mapping[str, Any]] = ()
    run: Mapping[str, Any] = field(default_factory=dict)


def write_bundle(
    folder: Path, head: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], contents: Mapping[str, bytes]
) -> None:
    """Write a bundle, readable by its owner alone; an old one at this path is replaced.

    Raises:
        OSError: the disk is full, or the folder cannot be written. There is then no manifest.
    """
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / MANIFEST).unlink(missing_ok=True)
    old = [path for path in folder.iterdir() if is_own(path.name) and path.name != RESULT]
    try:
        _write_contents(folder, contents)
        lines = ",\n".join(json.dumps(call) for call in calls)
        told = json.dumps({"version": VERSION, **head}, default=str).removesuffix("}")
        _write(folder / MANIFEST, f'{told}, "calls": [\n{lines}\n]}}\n'.encode())
    except OSError:
        for name in contents:  # they may have filled the disk
            (folder / f"{name}.safetensors").unlink(missing_ok=True)
        raise
    new = {MANIFEST, *(f"{name}.safetensors" for name in contents)}
    for path in old:  # of another capture, also of one that was killed
        if path.name not in new:
            path.unlink(missing_ok=True)


def _write_contents(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        _write(folder / f"{name}.safetensors", safetensors_head({"bytes": data}), data)


def safetensors_head(contents: Mapping[str, bytes]) -> bytes:
    """Return what stands before the contents, in their order, in a file of the safetensors format."""
    told, at = {}, 0
    for name, data in contents.items():
        told[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    header = json.dumps(told).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _write(path: Path, *parts: bytes) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as out:
            out.writelines(parts)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle and check its structure: tags, names, and that each tensor lies within its content.

    Raises:
        BundleError: it has no manifest, or one that no capture wrote.
    """
    manifest = folder / MANIFEST
    try:
        told = json.loads(manifest.read_bytes())
    except FileNotFoundError:
        raise BundleError(f"{folder}: no {MANIFEST}: its capture did not come to its end, or it is no bundle") from None
    except OSError as error:
        raise BundleError(f"{manifest}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{manifest}: is no JSON: {error}") from None
    if not isinstance(told, dict) or told.get("version") != VERSION:
        raise BundleError(f"{manifest}: is no bundle of this version of numtui (version {VERSION})")
    checked, calls, weights = _Checked(folder), told.get("calls"), told.get("weights", [])
    boundaries = told.get("boundaries", [])
    if not (isinstance(calls, list) and isinstance(weights, list) and isinstance(boundaries, list)):
        raise BundleError(f"{manifest}: has no list of calls")
    checks = [*((checked.call, call) for call in calls), *((checked.weight, weight) for weight in weights)]
    for number, (check, call) in enumerate([*checks, *((checked.boundary, each) for each in boundaries)]):
        try:
            check(call)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise BundleError(f"{manifest}: call {number} is refused, and nothing was run: {reason}") from None
    missed, run = told.get("missed"), told.get("run")
    missed, run = missed if isinstance(missed, list) else [], run if isinstance(run, dict) else {}
    return Bundle(folder, calls, weights, boundaries, missed, run)


class _Checked:
    """Checks of the calls of one bundle; what is wrong is a ValueError, KeyError or TypeError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def call(self, call: dict[str, Any]) -> None:
        for name, kind in _CALL.items():
            if not isinstance(call[name], kind):
                raise ValueError(f"{name} is no {kind.__name__}")
        for name in ("returned", "left"):
            digests = call["digests"][name]
            if len(digests) != len(call[name]) or not all(isinstance(each, str) for each in digests):
                raise ValueError("each result has a digest")
            for tree in call[name]:
                self._tensor(tree["tensor"])
        for tree in (*call["args"], *call["kwargs"].values()):
            self._tree(tree)
        if not all(name.isidentifier() for name in call["kwargs"]):
            raise ValueError("arguments have names")
        given = given_to(call)
        if any(type(at) is not int or not 0 <= at < len(given) for at in call["written"]):
            raise ValueError("an argument that it writes to is none of its tensors")
        if (random := call.get("random")) is not None:
            self._generator(random)
        if (group := call.get("group")) is not None:
            _group(group)
        size = sum(_numel(told) * ITEMSIZE[told["dtype"]] for told in given)
        size += sum(_numel(told) * ITEMSIZE[told["dtype"]] for told in results_of(call))
        if size > self._most:
            raise ValueError(f"its tensors need {size:,} bytes, this machine has {self._most:,}")
        call["bytes"] = size

    def weight(self, weight: dict[str, Any]) -> None:
        if not isinstance(weight["name"], str):
            raise ValueError("the name of a weight is no text")
        self._tensor(weight["tensor"])
        if _numel(weight["tensor"]) * ITEMSIZE[weight["tensor"]["dtype"]] > self._most:
            raise ValueError("a weight is larger than this machine's memory")

    def boundary(self, call: dict[str, Any]) -> None:
        if not isinstance(call["module"], str) or type(call["recompute"]) is not bool or type(call["nth"]) is not int:
            raise ValueError("a call of a module has its name and number")
        if not isinstance(call["micro_batch"], (int, type(None))) or not isinstance(call["within"], (str, type(None))):
            raise ValueError("a call of a module has a micro-batch, and a module that calls it")
        grafted = call.setdefault("grafted", {})
        if not all(isinstance(name, str) for side in SIDES for name in grafted.get(side, ())):
            raise ValueError("what was grafted has names")
        for told in (each for side in SIDES for each in call.get(side, {}).values()):
            self._tensor(told)
            if _numel(told) * ITEMSIZE[told["dtype"]] > self._most:
                raise ValueError("a tensor is larger than this machine's memory")
        if (random := call.get("random")) is not None:
            self._generator(random)

    def _tree(self, value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                self._tree(item)
        elif isinstance(value, dict):
            ((tag, told),) = value.items()
            if tag == "tensor":
                self._tensor(told)
            elif tag == "generator":
                self._generator(told)
            elif tag == "float":
                float.fromhex(told)
            elif tag == "complex":
                (_, _) = map(float.fromhex, told)
            elif tag == "device":
                _matches(_DEVICE, told)
            elif tag != "opaque" and told not in KNOWN.get(tag, ()):
                raise ValueError(f"{told!r} is no {tag}")
        elif not isinstance(value, (bool, int, str, type(None))):
            raise ValueError(f"{value!r} is no argument")

    def _tensor(self, told: dict[str, Any]) -> None:
        shape, strides, offset = told["shape"], told["strides"], told["offset"]
        if any(type(number) is not int or number < 0 for number in (*shape, *strides, offset, told["memory"])):
            raise ValueError("a tensor's shape, strides and offset are whole numbers from 0 on")
        _matches(_DEVICE, told["device"])
        reach = offset + 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
        if _numel(told) and reach * ITEMSIZE[told["dtype"]] > self._size(told["storage"]):
            raise ValueError(f"a tensor reaches past the end of its content {told['storage'][:12]}…")

    def _generator(self, told: dict[str, Any]) -> None:
        _matches(_DEVICE, told["device"])
        self._size(told["state"])

    def _size(self, name: str) -> int:
        """Return the bytes of a content; its name is a digest and thus no way out of the folder."""
        if name not in self._sizes:
            _matches(_NAME, name)
            path = self._folder / f"{name}.safetensors"
            try:
                with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as file:
                    head = int.from_bytes(file.read(8), "little")
                    self._sizes[name] = os.fstat(file.fileno()).st_size - 8 - head
            except OSError as error:
                raise ValueError(f"the content {name[:12]}… cannot be read: {error.strerror}") from None
        return self._sizes[name]


def _group(group: dict[str, Any]) -> None:
    ranks, name, op = group["ranks"], group["name"], group.get("op")
    numbers = (*ranks, group["nth"], group.get("root", 0))
    if not ranks or any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError("ranks of a group are whole numbers from 0 on")
    if not isinstance(name, str) or not isinstance(op, (str, type(None))):
        raise ValueError("a group has a name, and a reduction is text")


def _matches(pattern: re.Pattern[str], text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no name that a bundle has")


def _numel(told: Mapping[str, Any]) -> int:
    numel = 1
    for size in told["shape"]:
        numel *= size
    return numel
