"""Checkpoints: safetensors, files of `torch.save`, distributed ones of torch; nothing in them is executed."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from matchers.errors import LogError
from matchers.logs.imported.files import natural
from matchers.logs.imported.measured import Dumped
from matchers.logs.imported.safetensors import NOT_OF_ONE, index_files, placed
from matchers.logs.imported.torch_file import Located, Made, Unknown, read_pickle, read_torch
from matchers.tensor import SIZES, Tensor, row_major
from matchers.weights.states import State, Weight
from matchers.weights.stored import Divided, InFile, read_bytes

__all__ = ["form_of", "read_checkpoint"]

_ZIP: Final = b"PK\x03\x04"
_OLD_TORCH: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_SAFETENSORS: Final = re.compile(rb".{4}\x00{4}\{\s*[\"}]", re.DOTALL)
_INDEX: Final = re.compile(rb"\s*\{")
_METADATA: Final = ".metadata"
_INDICES: Final = ("*.safetensors.index.json", "*.bin.index.json")
_FILES: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_BESIDE: Final = (
    "training_args.bin",
    "optimizer.bin",
    "scheduler.bin",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state*.pth",
)
"""Files that a trainer writes beside the weights."""
_MOST_INDEX: Final = 100 << 20
_DEEPEST: Final = 64


def form_of(path: str) -> str | None:
    """Return the form of a checkpoint: `safetensors`, `torch.save`, `distributed`; None for what is none.

    Raises:
        OSError: it cannot be looked at.
    """
    if os.path.isdir(path):
        if (Path(path) / _METADATA).is_file():
            return "distributed"
        files = _files(Path(path))
        return form_of(os.fspath(files[0])) if files else None
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith((_ZIP, _OLD_TORCH)):
        return "torch.save"
    if _SAFETENSORS.match(start) or path.endswith(_FILES[0][1:]):
        return "safetensors"
    if path.endswith(tuple(glob[1:] for glob in _INDICES)) and _INDEX.match(start):
        return "safetensors" if path.endswith(_INDICES[0][1:]) else "torch.save"
    return "distributed" if os.path.basename(path) == _METADATA else None


def _files(folder: Path) -> list[Path]:
    """The index of a folder's checkpoint, or its files."""
    for glob in _INDICES:
        if found := sorted(folder.glob(glob)):
            return found[:1]
    for glob in _FILES:
        found = [path for path in folder.glob(glob) if not any(path.match(other) for other in _BESIDE)]
        if found:
            return sorted(found, key=lambda path: natural(path.name))
    return []


def read_checkpoint(path: str) -> State:
    """Read what a checkpoint has; the tensors themselves are read when they are asked for.

    Raises:
        LogError: it cannot be read, or is in a form that is not read.
    """
    state = State(path, form_of(path) or "")
    try:
        if state.form == "distributed":
            folder = Path(path) if os.path.isdir(path) else Path(path).parent
            _distributed(folder, state)
        else:
            for file, names in _parts(path, state):
                _file(os.fspath(file), names, state)
    except OSError as error:
        raise LogError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None
    if not state.weights and not state.problems:
        raise LogError(f"{path}:1: no tensor is in this checkpoint")
    state.weights.sort(key=lambda weight: natural(weight.name))
    return state


def _parts(path: str, state: State) -> Iterator[tuple[Path, set[str] | None]]:
    """The files of a checkpoint, each with the names that its index says; None without one."""
    files = _files(Path(path)) if os.path.isdir(path) else [Path(path)]
    for file in files:
        if not file.name.endswith(".json"):
            yield file, None
            continue
        with file.open("rb") as opened:
            told = index_files(opened.read(_MOST_INDEX), os.fspath(file))
        for name in dict.fromkeys(told.values()):
            part = file.with_name(name)
            if part.is_file():
                yield part, {tensor for tensor, of in told.items() if of == name}
            else:
                state.problem(f"{file}:1: {name} is in the index and not beside it")


def _file(path: str, names: set[str] | None, state: State) -> None:
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(_OLD_TORCH):
        raise LogError(f"{path}:1: torch.save of before torch 1.6: load it and save it again")
    read = _of_torch if start.startswith(_ZIP) else _of_safetensors
    found = dict(read(path, state))
    for name, weight in found.items():
        if name in state.names:
            state.problem(f"{path}:1: {name} is in another file, too, and was taken from there")
        else:
            state.add(weight)
    for name in sorted(names or ()):
        if name not in found:
            state.problem(f"{path}:1: {name} is in the index and not in this file")


def _of_safetensors(path: str, state: State) -> Iterator[tuple[str, Weight]]:
    with open(path, "rb") as file:
        told = placed(file.read, path)
        at = file.tell()
        size = file.seek(0, os.SEEK_END)
    beyond = [one.name for one in told if one.dtype and at + one.end > size]
    if beyond:
        more = f", as {len(beyond) - 1:,} more" if len(beyond) > 1 else ""
        state.problem(f"{path}:1: {beyond[0]} lies beyond the end of the file{more}")
    for one in told:
        if not one.dtype:
            state.problem(f"{path}:1: {one.name}: {NOT_OF_ONE}")
        elif at + one.end <= size:
            stored = InFile(path, one.dtype, one.shape, at + one.begin, one.end - one.begin)
            yield one.name, Weight(one.name, one.shape, one.dtype, stored=stored)


def _of_torch(path: str, state: State) -> Iterator[tuple[str, Weight]]:
    optimizers: set[str] = set()
    for name, one in list(_located(read_torch(path, path, located=True), optimizers)):
        if isinstance(one, Unknown):
            state.problem(f"{path}:1: {name or 'a tensor'} cannot be read: {one.name}")
        else:
            stored = InFile(path, one.dtype, one.shape, one.at, one.size, one.strides, one.offset)
            yield name, Weight(name, one.shape, one.dtype, stored=stored, optimizer=_of_optimizer(name, optimizers))


def _of_optimizer(name: str, optimizers: Collection[str]) -> bool:
    return any(name.startswith(f"{of}." if of else "state.") for of in optimizers)


def _located(
    value: Any, optimizers: set[str], name: str = "", depth: int = 0
) -> Iterator[tuple[str, Located | Unknown]]:
    """Yield the tensors in dicts and lists with their paths, and calls that would have made others.

    Args:
        optimizers: the paths of what is the state of an optimizer by its form are added.
    """
    if isinstance(value, Located) or (isinstance(value, Unknown) and "tensor" in value.name.lower()):
        yield name, value
    elif isinstance(value, dict) and depth < _DEEPEST:
        if {"state", "param_groups"} <= value.keys():
            optimizers.add(name)
        for key, item in value.items():
            yield from _located(item, optimizers, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEEPEST and not hasattr(value, "_fields"):
        for number, item in enumerate(value):
            yield from _located(item, optimizers, f"{name}.{number}" if name else str(number), depth + 1)


# Distributed checkpoints (torch.distributed.checkpoint): what is where stands in a pickle


def _distributed(folder: Path, state: State) -> None:
    file = folder / _METADATA
    if file.stat().st_size > _MOST_INDEX:
        raise LogError(f"{file}:1: the metadata of a checkpoint takes more than {_MOST_INDEX >> 20} MiB")
    told = read_pickle(file.read_bytes(), os.fspath(file))
    tensors, places = (_table(told, name) for name in ("state_dict_metadata", "storage_data"))
    if not tensors:
        raise LogError(f"{file}:1: this is no metadata of torch.distributed.checkpoint")
    where: dict[tuple[str, tuple[int, ...]], Any] = {}
    for index, place in places.items():
        of = _table_of(index)
        where[str(of.get("fqn")), tuple(of.get("offset") or ())] = _table_of(place)
    optimizers = _optimizers(list(map(str, tensors)))
    for name, one in tensors.items():
        try:
            if (weight := _of_chunks(str(name), _table_of(one), where, folder)) is not None:
                state.add(replace(weight, optimizer=_of_optimizer(weight.name, optimizers)))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            state.problem(f"{file}:1: {name} cannot be read: {str(error) or type(error).__name__}")


def _optimizers(names: list[str]) -> set[str]:
    """The beginnings of names that are followed by `state` and by `param_groups`."""
    groups, states = (
        {name.split(mark)[0].rstrip(".") for name in (f".{name}" for name in names) if mark in name}
        for mark in (".param_groups.", ".state.")
    )
    return {name.lstrip(".") for name in groups & states}


def _of_chunks(
    name: str, of: Mapping[str, Any], where: Mapping[tuple[str, tuple[int, ...]], Mapping[str, Any]], folder: Path
) -> Weight | None:
    """Make a tensor of the places of its chunks; None for what is no tensor (an object, bytes)."""
    if "chunks" not in of:
        return None
    properties = of["properties"]
    dtype = (properties.state[0] if isinstance(properties.state, tuple) else properties.state["dtype"]).name
    dtype = dtype.removeprefix("torch.")
    shape = tuple(int(n) for n in of["size"])
    pieces: list[tuple[tuple[int, ...], tuple[int, ...], Callable[[], NDArray[Any]]]] = []
    for chunk in map(_table_of, of["chunks"]):
        offsets, sizes = (tuple(int(n) for n in chunk[key]) for key in ("offsets", "sizes"))
        if len(offsets) != len(shape) or any(
            o < 0 or n < 0 or o + n > m for o, n, m in zip(offsets, sizes, shape, strict=True)
        ):
            raise ValueError("a chunk lies outside of it")
        place = where.get((name, offsets)) or where[name, ()]
        if place.get("transform_descriptors"):
            raise ValueError("it is compressed")
        relative = str(place["relative_path"])
        if os.path.basename(relative) != relative:
            raise ValueError(f"{relative!r} is not the name of a file beside it")
        at, length = int(place["offset"]), int(place["length"])
        read = partial(_chunk, os.fspath(folder / relative), at, length, name, sizes, dtype)
        pieces.append((offsets, sizes, read))
    return Weight(name, shape, dtype, stored=Divided(os.fspath(folder / _METADATA), dtype, shape, pieces))


def _chunk(path: str, at: int, length: int, name: str, sizes: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Read a chunk: a file of `torch.save` within the file, or, in newer checkpoints of safetensors, its bytes."""
    content = read_bytes(path, at, length)
    if not content.startswith(_ZIP):
        raise LogError(f"{path}:1: {name} is stored in a form that is not read")
    saved = read_torch(io.BytesIO(content), path)
    if not isinstance(saved, Dumped) or saved.dtype != dtype or saved.shape != sizes:
        raise LogError(f"{path}:1: {name} is not what the metadata says")
    if dtype not in SIZES:
        raise LogError(f"{path}:1: {name} has the dtype {dtype}, which is not read")
    return Tensor.of(saved.data, dtype, sizes, row_major(sizes), 0).bits


def _table(made: Any, name: str) -> Mapping[Any, Any]:
    found = _table_of(made).get(name)
    return found if isinstance(found, dict) else {}


def _table_of(made: Any) -> Mapping[str, Any]:
    return made.state if isinstance(made, Made) and isinstance(made.state, dict) else {}
