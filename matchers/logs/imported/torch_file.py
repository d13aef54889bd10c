"""Files of `torch.save`, read without torch. Nothing in them is executed: what they call is compared by its name."""

from __future__ import annotations

import math
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.measured import Dumped
from matchers.tensor import SIZES, Tensor, row_major

__all__ = ["Unknown", "read_torch", "tensors_in"]

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
_MOST_STEPS: Final = 1 << 21
_REPEATED: Final = 16
"""Largest ratio of the elements of a tensor to those of its storage; an expanded tensor has more, and is not read."""
_SMALL: Final = 1 << 20
_DEEPEST: Final = 64
_OTHER_ERRORS: Final = (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, EOFError, ValueError)
"""Exceptions of Python's reader for damaged archives, beside OSError."""


class Unknown(NamedTuple):
    """An object of a class or function that is not known here."""

    name: str


class _Storage(NamedTuple):
    dtype: str
    key: str
    numel: int


def read_torch(file: str | IO[bytes], path: str) -> Any:
    """Read the object that was saved; tensors are `Dumped`, and objects of other classes `Unknown`.

    Args:
        file: the file, or its path.
        path: for messages.

    Raises:
        LogError: it is no such file, or damaged.
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return _Reading(archive, path).object()
    except (*_OTHER_ERRORS, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LogError(f"{path}:1: a damaged file of torch.save: {str(error) or type(error).__name__}") from None


def tensors_in(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Dumped]]:
    """Yield the tensors in dicts and lists, and numbers as such of one element, with their paths."""
    if isinstance(value, Dumped):
        yield name, value
    elif isinstance(value, bool | int | float):
        number = isinstance(value, float) or not -(1 << 63) <= value < 1 << 63
        yield name, Dumped("float64" if number else "int64", (), struct.pack("<d" if number else "<q", value))
    elif isinstance(value, dict | list | tuple) and depth < _DEEPEST:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors_in(item, f"{name}.{key}" if name else str(key), depth + 1)


class _Reading:
    """A machine for the few instructions that torch writes.

    Of a global it keeps the name; a call of one makes a tensor, a dict, or an `Unknown`.
    """

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive, self._path = archive, path
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        self._members = {name: member for name, member in members.items() if member.compress_type == zipfile.ZIP_STORED}
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        if self._members.get("byteorder") and self._content("byteorder") == b"big":
            raise LogError(f"{path}:1: big-endian numbers are not read")

    def _content(self, name: str) -> bytes:
        return self._archive.read(self._members[name])

    def object(self) -> Any:
        """Return what the file has."""
        if self._members["data.pkl"].file_size > _LARGEST_TREE:
            raise LogError(f"{self._path}:1: its objects without the tensors take more than {_LARGEST_TREE >> 20} MiB")
        for steps, (code, argument, _) in enumerate(pickletools.genops(self._content("data.pkl"))):
            if code.name == "STOP":
                return self._stack.pop()
            if steps > _MOST_STEPS:
                break
            self._step(code.name, argument)
        raise ValueError("it does not end")

    def _step(self, code: str, argument: Any) -> None:
        stack = self._stack
        if code in _VALUES:
            stack.append(argument)
        elif code in _MADE:
            stack.append(_MADE[code]())
        elif code in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif code in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[int(argument)] = stack[-1]
        elif code == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif code == "MARK":
            self._marks.append(len(stack))
        elif code in _TUPLES:
            many = _TUPLES[code]
            stack[len(stack) - many :] = [tuple(stack[len(stack) - many :])]
        elif code == "TUPLE":
            stack.append(tuple(self._marked()))
        elif code in ("APPEND", "APPENDS"):
            items = self._marked() if code == "APPENDS" else [stack.pop()]
            stack[-1].extend(items)
        elif code in ("SETITEM", "SETITEMS"):
            items = self._marked() if code == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif code == "GLOBAL":
            stack.append(Unknown(argument.replace(" ", ".")))
        elif code == "STACK_GLOBAL":
            name = stack.pop()
            stack.append(Unknown(f"{stack.pop()}.{name}"))
        elif code == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif code in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack.append(self._called(stack.pop(), arguments))
        elif code == "BUILD":
            stack.pop()  # attributes of an object
        elif code not in ("PROTO", "FRAME"):
            raise ValueError(f"an instruction {code} that torch does not write")

    def _marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        at = self._marks.pop()
        items = self._stack[at:]
        del self._stack[at:]
        return items

    def _called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        name = function.name if isinstance(function, Unknown) else ""
        if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"):
            dtype = arguments[6].name.removeprefix("torch.") if name.endswith("v3") else arguments[0].dtype
            return self._tensor(arguments[0], dtype, *arguments[1:4])
        if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"):
            return arguments[0]
        if name == "collections.OrderedDict":
            return {}
        return list(arguments[0]) if name == "torch.Size" else Unknown(name)

    def _tensor(
        self, storage: _Storage, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Dumped | Unknown:
        numel, size = math.prod(shape), SIZES.get(dtype, 1)
        if numel > max(_REPEATED * storage.numel, _SMALL) or any(step < 0 for step in (offset, *strides, *shape)):
            return Unknown("a tensor that is larger than its storage")
        data = self._content(f"data/{storage.key}")
        if len(data) == numel * size and list(strides) == row_major(shape):
            return Dumped(dtype, tuple(shape), data)
        return Dumped(dtype, tuple(shape), Tensor.of(data, dtype, shape, strides, offset).bits.tobytes())


def _storage(told: tuple[Any, ...]) -> _Storage:
    kind, numel = told[1].name.rpartition(".")[2], told[4]
    if told[0] != "storage" or type(numel) is not int:
        raise ValueError("a reference that is no storage")
    return _Storage(_STORAGES[kind], str(told[2]), numel)


_VALUES: Final = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINSTRING", "SHORT_BINSTRING"),
    }
)
_MADE: Final[dict[str, Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
