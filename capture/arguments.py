"""Arguments of a call besides its tensors: kept while the step runs, formatted after it.

Of numbers, flags, dtypes and the like the value is kept, of any other object its type alone: no tensor is read, and
nothing of the training is kept alive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from struct import pack, unpack
from typing import Any, NamedTuple

import torch

from .op_kind import OpKind
from .privacy import shown_value
from .subclasses import plain

__all__ = ["Arguments", "Form", "arguments_json", "form_of", "forms_text", "given_arguments", "numbers_of"]

Arguments = tuple[tuple[str, Any], ...]
"""Names and values in the order of the call: values as `_kept` returns them."""

_VALUES = frozenset(
    {
        *(bool, int, float, complex, str, type(None)),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
_OF_GROUP = frozenset(
    {"process_group", "reduce_op", "group_name", "group_size", "root_rank", "src", "dst", "ranks", "tag"}
)
"""Arguments of collectives that `Group` tells."""
_MAX_FLOAT32 = torch.finfo(torch.float32).max
_MAX_TEXT = 200
_MAX_ITEMS = 100
_MAX_NUMBERS = 16
"""Elements of a tensor whose numbers are noted where Python makes it."""
_REPEATED = 4
"""Equal items in a row that are written once."""


class _Opaque(NamedTuple):
    """An object of which only the type is noted."""

    type: str


class Form(NamedTuple):
    """Dtype, shape and strides of an input; the strides are None where it is contiguous."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


def given_arguments(kind: OpKind, others: Iterable[tuple[int | str, Any]], *, grouped: bool) -> Arguments:
    """Return what a call was given besides tensors, without what equals the schema's default.

    Args:
        kind: the operator.
        others: (position or name, value) of its arguments that are no tensors.
        grouped: a collective whose group is known, which says some of them.
    """
    found = []
    for spot, value in others:
        name = spot if isinstance(spot, str) else kind.arguments[spot] if spot < len(kind.arguments) else str(spot)
        if name in kind.defaults and _same(value, kind.defaults[name]):
            continue
        if name != "pin_memory" and not (grouped and name in _OF_GROUP):  # which changes no number
            found.append((name, _kept(value)))
    return tuple(found)


def _same(value: Any, default: Any) -> bool:
    cls = type(value)
    return cls is type(default) and (cls in _VALUES or cls is list) and bool(value == default)


def _kept(value: Any) -> Any:
    cls = type(value)
    if cls in _VALUES:
        return value
    if cls is list or cls is tuple:
        return tuple([_kept(item) for item in value])
    return _Opaque(cls.__name__)


def numbers_of(tensor: torch.Tensor) -> Arguments:
    """Return the numbers of a small tensor that Python makes, which nothing has to be awaited for; else nothing."""
    known = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    if not known or tensor.dtype.is_complex or not 0 < tensor.numel() <= _MAX_NUMBERS:
        return ()
    values = tensor.reshape(-1).tolist() if tensor.ndim else [tensor.tolist()]
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        values = [_shortest(value) for value in values]
    return (("data", tuple(values) if tensor.ndim else values[0]),)


def _shortest(value: float) -> float:
    """Return the number of the fewest digits that is this one in float32: 0.1, not 0.10000000149011612."""
    for digits in range(3, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) < _MAX_FLOAT32 and unpack("f", pack("f", short)) == (value,):
            return short
    return value


def arguments_json(arguments: Arguments) -> dict[str, Any]:
    """Return arguments by name, ready for JSON; equal items of a long list are one object (docs/log-format.md)."""
    return {name: _plain(name, value) for name, value in arguments}


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _shown(name, value)
    if isinstance(value, _Opaque):
        return f"<{value.type}>"
    if isinstance(value, tuple):
        return _items(name, value)
    return str(value).removeprefix("torch.")


def _items(name: str, values: tuple[Any, ...]) -> list[Any]:
    out: list[Any] = []
    left = len(values)
    for _, run in groupby(values, key=repr):
        run_of = list(run)
        if len(out) >= _MAX_ITEMS:
            rest = hashlib.sha256(repr(values[-left:]).encode("utf-8", "backslashreplace"))
            return [*out, f"<{left} more: {rest.hexdigest()[:16]}>"]
        items = [_plain(name, item) for item in run_of]
        out += [{"times": len(items), "of": items[0]}] if len(items) >= _REPEATED else items
        left -= len(items)
    return out


@lru_cache(maxsize=1024)
def _shown(name: str, text: str) -> str:
    shown = shown_value(name, text)
    return shown if len(shown) <= _MAX_TEXT else shown[: _MAX_TEXT - 1] + "…"


def form_of(tensor: torch.Tensor) -> Form | None:
    """Return the form of a tensor; None of a nested one, which has no shape."""
    base = plain(tensor)
    if base.is_nested:
        return None
    strided = base.layout is torch.strided and not base.is_contiguous()
    return Form(base.dtype, base.shape, base.stride() if strided else None)


def forms_text(forms: Sequence[Form | None], dtype: str, shape: Sequence[int] | None) -> str:
    """Return the value of `Inputs`: what each input has other than the one before it; empty if that is nothing.

    Args:
        forms: of the inputs.
        dtype, shape: of the first output, before which nothing is; empty and None without one.
    """
    entries = []
    last = tuple(shape) if shape is not None else None
    for form in forms:
        if form is None:
            entries.append("?")
            continue
        entry = ""
        if (name := _dtype_name(form.dtype)) != dtype:
            entry = dtype = name
        if form.shape != last:
            last = form.shape
            entry += f"[{','.join(map(str, last))}]"
        if form.strides is not None:
            entry += f":{','.join(map(str, form.strides))}"
        entries.append(entry)
    return ";".join(entries) if any(entries) else ""


@lru_cache(maxsize=64)
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
