"""Form of what is kept of operations, and of plans: versions, folders, tagged trees, names of ways to run them again.

Standard library alone, because the viewer reads it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["AGAIN", "CONTENT", "DIGESTS_VERSION", "INPUTS", "INPUT_GRADIENTS", "ITEMSIZE", "KNOWN",
    "LARGEST_HEAD", "MANIFEST",
    "OF_NO_MODULE", "OF_OPTIMIZER", "OF_WEIGHTS", "ONCE_MORE", "OUTPUTS", "OUTPUT_GRADIENTS", "PLAN_VERSION",
    "RESULT", "SAFETENSORS", "SIDES", "VERSION", "WIDE", "StoredBundle",
    "bundle_folder", "find_bundles", "given_to", "is_own", "parse_size", "read_content", "remove_bundle",
    "results_of", "split_key", "stored_bundles", "tensors_of"]  # fmt: skip

VERSION = 1
"""Of the manifest of a bundle."""
PLAN_VERSION = DIGESTS_VERSION = 1
MANIFEST, RESULT = "manifest.json", "replay.json"
"""Files of a bundle: what was kept, and what came of running it again."""
SIDES = INPUTS, OUTPUTS, OUTPUT_GRADIENTS, INPUT_GRADIENTS = (
    "inputs",
    "outputs",
    "output_gradients",
    "input_gradients",
)
"""Of the boundary of a module's call."""
OF_NO_MODULE = OF_WEIGHTS, OF_OPTIMIZER = "gradients", "optimizer"
"""Boundaries of no module: the gradients of weights after each backward pass, and those that optimizers are given."""
_END = "_kept"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE | re.ASCII)
_KEY = re.compile(r"(?P<module>.*)/op_\d+_(?P<name>.+)", re.DOTALL)
CONTENT = re.compile(r"([0-9a-f]{64})\.safetensors", re.ASCII)
"""Names of files with a content."""
_PART = re.compile(r"\.(.*)\.part")
"""Names of files that a capture which was killed has left half-written."""
AGAIN, ONCE_MORE, WIDE = "as captured", "once more", "in float64"
"""Ways to run a call again that every replay has."""
ITEMSIZE = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of an element, by dtype."""
SAFETENSORS = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
}
"""Names that safetensors has for the dtypes of weights."""
LARGEST_HEAD = 100_000_000
"""Bytes of the header of a safetensors file, as the format itself limits them."""
KNOWN = {
    "dtype": tuple(ITEMSIZE),
    "layout": ("strided",),
    "memory_format": ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
}
"""Objects of torch that may be arguments, by tag."""


def bundle_folder(log: Path) -> Path:
    """Return the folder of the bundle of a log: beside it, `rank_0_kept`."""
    return log.with_name(log.name.removesuffix(".gz").removesuffix(".log").removesuffix("_activations") + _END)


def find_bundles(path: Path) -> list[Path]:
    """Return the bundles that a path means: itself, or those of a run's folder, by rank and step."""
    if (path / MANIFEST).is_file():
        return [path]
    places = ("", "numerics/", "numerics/step_*/")
    return [found.parent for place in places for found in sorted(path.glob(f"{place}*{_END}/{MANIFEST}"))]


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A bundle on the disk: its folder, bytes, and when it was written (seconds)."""

    folder: Path
    size: int
    written: float


def stored_bundles(path: Path) -> list[StoredBundle]:
    """Return all bundles below a folder, the newest first; links are not followed."""
    found = []
    for place, folders, _ in os.walk(path):
        for name in folders:
            folder = Path(place, name)
            if name.endswith(_END) and not folder.is_symlink():
                files = [file.lstat() for file in _own_files(folder)]
                if files:
                    size = sum(each.st_size for each in files)
                    found.append(StoredBundle(folder, size, max(each.st_mtime for each in files)))
    return sorted(found, key=lambda one: (-one.written, str(one.folder)))


def remove_bundle(folder: Path) -> None:
    """Delete the files of a bundle, and its folder if nothing else is in it.

    Raises:
        OSError: one cannot be deleted.
    """
    for file in sorted(_own_files(folder), key=lambda file: file.name != MANIFEST):
        file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _own_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if is_own(file.name)]


def is_own(name: str) -> bool:
    """Return True for the name of a file that a capture or a replay writes into a bundle."""
    name = part[1] if (part := _PART.fullmatch(name)) else name
    return name in (MANIFEST, RESULT) or CONTENT.fullmatch(name) is not None


def read_content(folder: Path, name: str) -> bytes:
    """Return a content of a bundle.

    Raises:
        OSError: its file cannot be read.
    """
    data = (folder / f"{name}.safetensors").read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `2GiB`, `500MB` or `4096`; units are powers of 1,024.

    Raises:
        ValueError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size such as 2GiB")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def split_key(key: str) -> tuple[str, str]:
    """Return module and name of `module/op_N_name`."""
    found = _KEY.fullmatch(key)
    return (found["module"], found["name"]) if found else ("", key)


def given_to(call: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tensors among the arguments of a call, in order."""
    return list(tensors_of([call["args"], list(call["kwargs"].values())]))


def results_of(call: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tensors that a call returned, and those that it left in what it wrote to."""
    return list(tensors_of([call["returned"], call["left"]]))


def tensors_of(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the tensors of a tagged tree, in order."""
    if isinstance(tree, list):
        for item in tree:
            yield from tensors_of(item)
    elif isinstance(tree, dict) and "tensor" in tree:
        yield tree["tensor"]
