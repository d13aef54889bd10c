"""Elements of kept tensors: where both sides differ, and what an operation of one run alone does to its input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from capture.keeping.form import given_to, read_content, results_of
from numtui.report.replayed import Case, Replayed, other_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from capture.keeping.replay import Kept
    from matchers.elements.differences import Differences
    from matchers.tensor import Tensor

__all__ = ["Parts", "element_lines", "read_tensor", "read_whole", "tensors_by_name", "weight_lines"]

_MOST_WEIGHTS: Final = 12


def element_lines(case: Case) -> Iterator[str]:
    """Yield a line for each input and result that differs: how many elements, where, by which pattern."""
    if any(side.folder is None for side in case.sides.values()):
        return
    if len(case.sides) < 2:
        yield from _of_one(*case.sides.values())
        return
    a, b = case.sides["a"], case.sides["b"]
    inputs_a, inputs_b = given_to(a.call), given_to(b.call)
    for k in other_inputs(case):
        if max(k + 1, 0) <= min(len(inputs_a), len(inputs_b)):
            yield from _compared(f"input {k}", a, b, inputs_a[k], inputs_b[k])
    results = zip(results_of(a.call), results_of(b.call), a.recorded, b.recorded, strict=False)
    for k, (x, y, one, other) in enumerate(results):
        if one != other:
            yield from _compared(f"result {k}" if len(a.recorded) > 1 else "result", a, b, x, y)


def weight_lines(sides: Mapping[str, tuple[Path, Mapping[str, Any]]], whose: str = "") -> Iterator[str]:
    """Yield how many weights differ before the step, and a line for each of the first.

    Args:
        sides: folder of the bundle and its weights by name, of a and b.
        whose: ` of rank 1` where there are several.
    """
    (folder_a, a), (folder_b, b) = (sides[side] for side in "ab")
    shared = [name for name in a if name in b]
    found = {name: _between(folder_a, folder_b, a[name], b[name]) for name in shared}
    other = [name for name in shared if found[name].many]
    if shared:
        yield f"weights{whose} before the step: {len(other):,} of {len(shared):,} differ"
    for name in other[:_MOST_WEIGHTS]:
        yield f"  {name}: {found[name].text}"
    if len(other) > _MOST_WEIGHTS:
        yield f"  and {len(other) - _MOST_WEIGHTS:,} more"


def _of_one(side: Replayed) -> Iterator[str]:
    """Say what the only result of an operation is of its only floating-point input, if a pattern tells."""
    inputs = [told for told in given_to(side.call) if "float" in told["dtype"]]
    if len(inputs) == len(side.call["returned"]) == 1:
        (result,) = side.call["returned"]
        assert side.folder is not None
        found = _between(side.folder, side.folder, inputs[0], result["tensor"])
        if found.move:
            yield f"its result is its input, {found.move}"
        elif found.relation.endswith(" of a"):
            yield f"its result is {found.relation.removesuffix('a')}its input"


def _compared(name: str, a: Replayed, b: Replayed, x: Mapping[str, Any], y: Mapping[str, Any]) -> Iterator[str]:
    assert a.folder is not None
    assert b.folder is not None
    found = _between(a.folder, b.folder, x, y)
    if found.many:
        yield f"{name}: {found.text}"


def _between(a: Path, b: Path, x: Mapping[str, Any], y: Mapping[str, Any]) -> Differences:
    from matchers.elements.differences import Differences, differences  # numpy, which `--help` does without

    same = all(x[name] == y[name] for name in ("storage", "dtype", "shape", "strides", "offset"))
    return Differences(0, 0) if same else differences(read_tensor(a, x), read_tensor(b, y))


Parts = tuple[tuple["Path", Mapping[str, Any]], ...]
"""Folder and form of a tensor, or of the part of each rank that holds one."""


def tensors_by_name(sides: Mapping[str, Sequence[Kept]]) -> dict[str, dict[str, Parts]]:
    """Return each tensor of kept calls by its name and by side: inputs, then results.

    Args:
        sides: the call, or that of each rank of a merged run.
    """
    found: dict[str, dict[str, Parts]] = {}
    for name, of in (("input", given_to), ("result", results_of)):
        for side, ranks in sides.items():
            held = [of(kept.call) for kept in ranks]
            for k in range(min(map(len, held))):
                parts = tuple((kept.folder, each[k]) for kept, each in zip(ranks, held, strict=True))
                found.setdefault(f"{name} {k}", {})[side] = parts
    return found


def read_whole(parts: Parts) -> Tensor | None:
    """Read a tensor, put together from the parts of the ranks; None if they make no whole.

    Raises:
        OSError: a content cannot be read.
    """
    import numpy as np

    from matchers.tensor import Tensor

    folder, first = parts[0]
    if len(parts) == 1 or all("placement" not in told and told["storage"] == first["storage"] for _, told in parts):
        return read_tensor(folder, first)
    if not all(_is_part(told) for _, told in parts):
        return None
    shape = first["placement"]["shape"]
    own = [read_tensor(*part) for part in parts]
    more = own[0].bits.shape[len(shape) :]  # two numbers of a complex one
    whole, there = np.zeros((*shape, *more), own[0].bits.dtype), np.zeros((*shape, *more), bool)
    for (_, told), each in zip(parts, own, strict=True):
        spans = zip(told["placement"]["offsets"], told["shape"], strict=True)
        at = tuple(slice(start, start + size) for start, size in spans)
        fits = told["placement"]["shape"] == shape and whole[at].shape == each.bits.shape
        if not fits or (there[at] & (whole[at] != each.bits)).any():  # copies that differ
            return None
        whole[at], there[at] = each.bits, True
    return Tensor.of_bits(whole, first["dtype"]) if there.all() else None


def _is_part(told: Mapping[str, Any]) -> bool:
    """Return True for a shard or a copy: of a term that is still to be added up there is no whole."""
    placement = told.get("placement")
    if not isinstance(placement, dict):
        return False
    kinds: Any
    shape: Any
    offsets: Any
    kinds, shape, offsets = (placement.get(name) for name in ("placements", "shape", "offsets"))
    if not all(isinstance(each, list) for each in (kinds, shape, offsets)):
        return False
    numbers = [*shape, *offsets]
    whole = all(type(size) is int and size >= 0 for size in numbers) and len(numbers) == 2 * len(told["shape"])
    return whole and all(isinstance(kind, str) and kind.startswith(("Shard", "Replicate")) for kind in kinds)


def read_tensor(folder: Path, told: Mapping[str, Any]) -> Tensor:
    """Read a tensor of a bundle that was checked.

    Raises:
        OSError: its content cannot be read.
    """
    import numpy as np

    from matchers.tensor import Tensor

    content = read_content(folder, told["storage"])
    found = Tensor.of(content, told["dtype"], told["shape"], told["strides"], told["offset"])
    if told.get("conj") or told.get("neg"):
        bits = found.bits.copy()
        bits[..., 1 if told.get("conj") else slice(None)] ^= np.array(1 << (8 * bits.dtype.itemsize - 1), bits.dtype)
        return Tensor.of_bits(bits, told["dtype"])
    return found
