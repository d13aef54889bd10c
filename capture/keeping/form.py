"""Form of what is kept of operations, and of plans: versions, folders, tagged trees, names of ways to run them again.

Standard library alone, because the viewer reads it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["AGAIN", "DIGESTS_VERSION", "ITEMSIZE", "KNOWN", "MANIFEST", "ONCE_MORE", "PLAN_VERSION", "RESULT",
    "VERSION", "WIDE", "bundle_folder", "find_bundles", "given_to", "read_content", "results_of", "split_key",
    "tensors_of"]  # fmt: skip

VERSION = 1
"""Of the manifest of a bundle."""
PLAN_VERSION = DIGESTS_VERSION = 1
MANIFEST, RESULT = "manifest.json", "replay.json"
"""Files of a bundle: what was kept, and what came of running it again."""
_END = "_kept"
_KEY = re.compile(r"(?P<module>.*)/op_\d+_(?P<name>.+)", re.DOTALL)
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


def read_content(folder: Path, name: str) -> bytes:
    """Return a content of a bundle.

    Raises:
        OSError: its file cannot be read.
    """
    data = (folder / f"{name}.safetensors").read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


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
