"""Files of `torch.save`, read without torch. Nothing in them is executed: what they call is compared by its name."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.measured import Dumped
from matchers.logs.imported.pickled import Made, Unknown, Unpickler
from matchers.tensor import SIZES, Tensor, row_major

__all__ = ["Located", "Made", "Unknown", "read_pickle", "read_torch", "tensors_in"]

_STORAGES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_LARGEST_TREE: Final = 16 << 20
"""Bytes of what is no tensor."""
_REPEATED: Final = 16
"""Largest ratio of the elements of a tensor to those of its storage; an expanded tensor has more, and is not read."""
_SMALL: Final = 1 << 20
_MOST_ITEMS: Final = 1 << 20
_LONGEST: Final = 4096
"""Characters of a name."""
_DEEPEST: Final = 64
_NAME_LENGTH: Final = 26
"""Bytes of a member's header before the lengths of its name and of what follows it."""
_OTHER_ERRORS: Final = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError, ValueError)
"""Exceptions of Python's reader for damaged archives, beside OSError; RuntimeError of encrypted ones."""
_DAMAGE: Final = (*_OTHER_ERRORS, KeyError, IndexError, TypeError, AttributeError, OverflowError)


class Located(NamedTuple):
    """A tensor that was not read: strides and offset in elements, the place of its storage in the file in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    at: int
    size: int


class _Storage(NamedTuple):
    dtype: str
    key: str
    numel: int


def read_torch(file: str | IO[bytes], path: str, *, located: bool = False) -> Any:
    """Read the object that was saved; tensors are `Dumped`, and objects of other classes `Unknown` or `Made`.

    Args:
        file: the file, or its path.
        path: for messages.
        located: read no tensors, only where they are: `Located`.

    Raises:
        LogError: it is no such file, or damaged.
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            content = _Archive(archive, path, located=located)
            return _Reading(content.tree(), content).object()
    except _DAMAGE as error:
        raise LogError(f"{path}:1: a damaged file of torch.save: {str(error) or type(error).__name__}") from None


def read_pickle(content: bytes, path: str) -> Any:
    """Read a pickle without tensors, as the metadata of a distributed checkpoint; nothing of it is executed.

    Raises:
        LogError: it is damaged, or no such pickle.
    """
    try:
        return _Reading(content).object()
    except _DAMAGE as error:
        raise LogError(f"{path}:1: a damaged pickle: {str(error) or type(error).__name__}") from None


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Dumped]]:
    """Yield the tensors in dicts and lists, and numbers as such of one element, with their paths.

    Of what lies deep, or in a great many containers (a few may contain each other over and over), no more is yielded.
    """
    stack: list[tuple[str, Any, int]] = [(name, value, 0)]
    room = _MOST_ITEMS
    while stack:
        name, value, depth = stack.pop()
        if isinstance(value, Dumped):
            yield name, value
        elif isinstance(value, bool | int | float):
            number = isinstance(value, float) or not -(1 << 63) <= value < 1 << 63
            yield name, Dumped("float64" if number else "int64", (), struct.pack("<d" if number else "<q", value))
        elif isinstance(value, dict | list | tuple) and depth < _DEEPEST and len(value) <= room:
            room -= len(value)
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            stack += [(f"{name}.{key}"[-_LONGEST:] if name else str(key), item, depth + 1) for key, item in items[::-1]]


class _Archive:
    """The members of a file of `torch.save`."""

    def __init__(self, archive: zipfile.ZipFile, path: str, *, located: bool) -> None:
        self._archive, self._path, self._located = archive, path, located
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        self._members = {name: member for name, member in members.items() if member.compress_type == zipfile.ZIP_STORED}
        if self._members.get("byteorder") and self._content("byteorder") == b"big":
            raise LogError(f"{path}:1: big-endian numbers are not read")

    def _content(self, name: str) -> bytes:
        return self._archive.read(self._members[name])

    def tree(self) -> bytes:
        """The pickle of all that is no tensor."""
        if self._members["data.pkl"].file_size > _LARGEST_TREE:
            raise LogError(f"{self._path}:1: its objects without the tensors take more than {_LARGEST_TREE >> 20} MiB")
        return self._content("data.pkl")

    def tensor(
        self, storage: _Storage, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Dumped | Located | Unknown:
        numel, size = math.prod(shape), SIZES.get(dtype, 1)
        if numel > max(_REPEATED * storage.numel, _SMALL) or any(step < 0 for step in (offset, *strides, *shape)):
            return Unknown("a tensor that is larger than its storage")
        if self._located:
            return Located(dtype, tuple(shape), tuple(strides), offset, *self._place(f"data/{storage.key}"))
        data = self._content(f"data/{storage.key}")
        if len(data) == numel * size and list(strides) == row_major(shape):
            return Dumped(dtype, tuple(shape), data)
        return Dumped(dtype, tuple(shape), Tensor.of(data, dtype, shape, strides, offset).bits.tobytes())

    def _place(self, name: str) -> tuple[int, int]:
        """Return the offset of a member's bytes in the file, and their number."""
        member = self._members[name]
        with self._archive.open(member):  # which checks the header before them
            file: Any = self._archive.fp
            file.seek(member.header_offset + _NAME_LENGTH)
            lengths: tuple[int, int] = struct.unpack("<HH", file.read(4))
        return member.header_offset + _NAME_LENGTH + 4 + sum(lengths), member.file_size


class _Reading(Unpickler):
    """A machine for what torch writes beside tensors; a call of a global makes a tensor, a dict, or an `Unknown`."""

    def __init__(self, content: bytes, archive: _Archive | None = None) -> None:
        super().__init__(content)
        self._archive = archive

    def referred(self, told: Any) -> _Storage:
        return _storage(told)

    def called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"):
            dtype = arguments[6].name.removeprefix("torch.") if name.endswith("v3") else arguments[0].dtype
            if self._archive is None:
                raise ValueError("a tensor in a pickle without tensors")
            return self._archive.tensor(arguments[0], dtype, *arguments[1:4])
        if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"):
            return arguments[0]
        if name == "collections.OrderedDict":
            return {}
        return list(arguments[0]) if name == "torch.Size" else Unknown(name)


def _storage(told: tuple[Any, ...]) -> _Storage:
    kind, numel = told[1].name.rpartition(".")[2], told[4]
    if told[0] != "storage" or type(numel) is not int or not isinstance(told[2], str):
        raise ValueError("a reference that is no storage")
    return _Storage(_STORAGES[kind], told[2], numel)
