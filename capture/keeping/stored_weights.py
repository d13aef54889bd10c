"""Whole weights by name, as files have them: safetensors, the index or folder of several, a run that kept its weights.

Standard library alone: options are looked at before the script imports torch. Headers are read, no tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from .bundle import Bundle, BundleError, read_bundle
from .form import ITEMSIZE, LARGEST_HEAD, SAFETENSORS, find_bundles

__all__ = ["InFile", "KeptParts", "Stored", "read_stored"]

_INDEX, _FILE = ".safetensors.index.json", ".safetensors"


@dataclass(frozen=True, slots=True)
class InFile:
    """A whole tensor in a safetensors file.

    Attributes:
        dtype: as torch names it.
        start, stop: its bytes in the file.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class KeptParts:
    """Parts of a tensor that the ranks of a run kept: the folder of each bundle, and the tensor in its manifest."""

    parts: tuple[tuple[str, Mapping[str, Any]], ...]


Stored = Mapping[str, InFile | KeptParts]


def read_stored(path: str) -> Stored:
    """Find the weights of a file, of a folder of files, or of a run with `--save weights`.

    Raises:
        ValueError: it has none, or is damaged: path and reason.
    """
    at = Path(path)
    try:
        if at.is_dir():
            return _of_folder(at)
        return _of_index(at) if at.name.endswith(_INDEX) else dict(_of_file(at))
    except OSError as error:
        raise ValueError(f"{error.filename or path}: {error.strerror or error}") from None
    except BundleError as error:
        raise ValueError(str(error)) from None


def _of_folder(folder: Path) -> Stored:
    if index := sorted(folder.glob(f"*{_INDEX}")):
        return _of_index(index[0])
    if bundles := find_bundles(folder):
        return _of_run(folder, [read_bundle(bundle) for bundle in bundles])
    files = sorted(folder.glob(f"*{_FILE}"))
    if not files:
        raise ValueError(
            f"{folder}: no safetensors file, and no run that kept its weights: capture one with --save weights"
        )
    return _without_doubles(entry for file in files for entry in _of_file(file))


def _of_index(index: Path) -> Stored:
    if index.stat().st_size > LARGEST_HEAD:
        raise ValueError(f"{index}: has more than 100 MB: expected a JSON object with weight_map")
    try:
        places = dict(json.loads(index.read_bytes())["weight_map"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{index}: no JSON object with weight_map") from None
    files = sorted({*places.values()}, key=str)
    if any(not isinstance(name, str) or os.path.basename(name) != name for name in files):
        raise ValueError(f"{index}: weight_map names files outside its folder")
    found = {name: dict(_of_file(index.with_name(name))) for name in files}
    missing = [name for name, file in places.items() if name not in found[file]]
    if missing:
        raise ValueError(f"{index}: {missing[0]} is not in {places[missing[0]]}")
    return {name: found[file][name] for name, file in places.items()}


def _without_doubles(entries: Iterator[tuple[str, InFile]]) -> Stored:
    found: dict[str, InFile] = {}
    for name, entry in entries:
        if name in found:
            raise ValueError(f"{entry.path}: {name} is in {found[name].path} too: name one file, or an index")
        found[name] = entry
    return found


def _of_file(path: Path) -> Iterator[tuple[str, InFile]]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(LARGEST_HEAD, size - 8):
            raise ValueError(f"{path}: no safetensors file, or cut off")
        try:
            head = dict(json.loads(file.read(length)))
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{path}: no safetensors file: its header is no JSON object") from None
    for name, told in head.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (start, stop) = SAFETENSORS[told["dtype"]], tuple(told["shape"]), told["data_offsets"]
            whole = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
        except (TypeError, KeyError, ValueError):
            continue  # of a dtype that no trained weight has, or damaged: it has no place, which is said
        if not whole or stop - start != prod(shape) * ITEMSIZE[dtype] or 8 + length + stop > size:
            raise ValueError(f"{path}: {name[:80]}: its dtype, shape and place in the file are not of one tensor")
        yield name, InFile(str(path), dtype, shape, 8 + length + start, 8 + length + stop)


def _of_run(folder: Path, bundles: list[Bundle]) -> Stored:
    """The weights that a run kept before its first captured step."""
    with_weights = [bundle for bundle in bundles if bundle.weights]
    if not with_weights:
        raise ValueError(f"{folder}: the run kept no weights: capture it with --save weights")
    steps = [bundle.run.get("step") for bundle in with_weights]
    first = min((step for step in steps if type(step) is int), default=None)
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for bundle, step in zip(with_weights, steps, strict=True):
        for weight in bundle.weights if step == first else ():
            found.setdefault(weight["name"], []).append((str(bundle.folder), weight["tensor"]))
    return {name: KeptParts(tuple(parts)) for name, parts in found.items()}
