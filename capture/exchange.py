"""Parts of the vector that the members of a process group exchange in a collective.

Each tensor that a rank gives or receives lies somewhere in one vector, the same for all members: what an all-gather
puts together, a reduce-scatter divides, an all-reduce adds up. Sketches taken at positions in that vector add up: those
of what the members give to those of what they receive.

Coalesced forms exchange several such vectors, one per tensor. That of an all-to-all is ordered by sender, then
receiver. Where pieces have different sizes, no rank knows all of them, and the positions stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from .calls import flat_tensors
from .process_groups import ProcessGroup
from .sketch import Positions
from .subclasses import plain

__all__ = ["Exchange", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """Place of a tensor in the vector that a group exchanges.

    Attributes:
        group: the process group.
        vector: its number where several are exchanged, else None.
        numel: of the tensor.
        start: position of the first element if the first member had it; None if unknown.
        step: how much further it is for each next member.
        runs: number of equal runs that the tensor consists of.
        stride: from run to run.
        only: index of the only member whose tensor is part of it; None for all.
        pieces: number of pieces, one for each member in order, whose content is noted one by one; 0 for none.
    """

    group: ProcessGroup
    vector: int | None
    numel: int
    start: int | None
    step: int = 0
    runs: int = 1
    stride: int = 0
    only: int | None = None
    pieces: int = 0

    def counts(self, rank: int | None) -> bool:
        """Return True if a simulated rank's tensor is part of the vector; None: this process's."""
        return self.only is None or self.only == self.group.index(rank)

    def first(self, rank: int | None) -> int | None:
        """Return the position of a simulated rank's first element; None: of this process; None if unknown."""
        index = self.group.index(rank)
        return None if self.start is None or index < 0 else self.start + index * self.step

    def positions(self, rank: int | None) -> Positions | None:
        """Return the positions of the elements, None if unknown; arguments as of `first`."""
        first = self.first(rank)
        if first is None or not self.numel:
            return None
        length = self.numel // self.runs
        return _positions(first, length, self.runs, self.stride or first + length)


@lru_cache(maxsize=4096)
def _positions(first: int, length: int, runs: int, stride: int) -> Positions:
    return Positions((runs, stride), ((range(runs),), (range(first, first + length),)), flat=True)


class _Side(Enum):
    """Tensors of a member on one side of a collective."""

    WHOLE = auto()
    """The vector: one tensor, or a list of its pieces in order."""
    OWN = auto()
    """The member's piece."""
    TO_EACH = auto()
    """The pieces for each member, in order, in one tensor or a list."""
    FROM_EACH = auto()
    """The pieces from each member."""


_ALIKE = _Side.WHOLE, _Side.WHOLE
_GATHER = _Side.OWN, _Side.WHOLE
_SCATTER = _Side.WHOLE, _Side.OWN
_ALL_TO_ALL = _Side.TO_EACH, _Side.FROM_EACH

_RESULTS = ""
_Form = tuple[str | None, str | None, tuple[_Side, _Side]]
"""Arguments with what a member gives and with what it receives, None for nothing; what they are."""
_C10D: Mapping[str, _Form] = {
    "allreduce_": ("tensors", "tensors", _ALIKE),
    "allreduce_coalesced_": ("tensors", "tensors", _ALIKE),
    "broadcast_": ("tensors", "tensors", _ALIKE),
    "reduce_": ("tensors", "tensors", _ALIKE),
    "send": ("tensors", None, _ALIKE),
    "recv_": (None, "tensors", _ALIKE),
    "recv_any_source_": (None, "tensors", _ALIKE),
    "_allgather_base_": ("input_tensor", "output_tensor", _GATHER),
    "allgather_": ("input_tensors", "output_tensors", _GATHER),
    "allgather_coalesced_": ("input_list", "output_lists", _GATHER),
    "allgather_into_tensor_coalesced_": ("inputs", "outputs", _GATHER),
    "gather_": ("input_tensors", "output_tensors", _GATHER),
    "_reduce_scatter_base_": ("input_tensor", "output_tensor", _SCATTER),
    "reduce_scatter_": ("input_tensors", "output_tensors", _SCATTER),
    "reduce_scatter_tensor_coalesced_": ("inputs", "outputs", _SCATTER),
    "scatter_": ("input_tensors", "output_tensors", _SCATTER),
    "alltoall_": ("input_tensors", "output_tensors", _ALL_TO_ALL),
    "alltoall_base_": ("input", "output", _ALL_TO_ALL),
}
_FUNCTIONAL: Mapping[str, _Form] = {
    "all_reduce": ("input", _RESULTS, _ALIKE),
    "all_reduce_": ("input", _RESULTS, _ALIKE),
    "all_reduce_coalesced": ("inputs", _RESULTS, _ALIKE),
    "all_reduce_coalesced_": ("inputs", _RESULTS, _ALIKE),
    "broadcast": ("input", _RESULTS, _ALIKE),
    "broadcast_": ("input", _RESULTS, _ALIKE),
    "all_gather_into_tensor": ("input", _RESULTS, _GATHER),
    "all_gather_into_tensor_out": ("input", _RESULTS, _GATHER),
    "all_gather_into_tensor_coalesced": ("inputs", _RESULTS, _GATHER),
    "reduce_scatter_tensor": ("input", _RESULTS, _SCATTER),
    "reduce_scatter_tensor_out": ("input", _RESULTS, _SCATTER),
    "reduce_scatter_tensor_coalesced": ("inputs", _RESULTS, _SCATTER),
    "all_to_all_single": ("input", _RESULTS, _ALL_TO_ALL),
}
_MAX_PIECES = 64
"""Members of the largest group whose pieces are noted one by one, which costs a second pass over the tensor."""
_UNKNOWN: _Form = (None, None, _ALIKE)
_BY_MEMBER = frozenset({"output_lists"})
"""Lists of lists whose outer one is that of the members, not that of the vectors."""
_SPLITS = "input_split_sizes", "output_split_sizes"
_ONE_GIVES, _ONE_RECEIVES = frozenset({"broadcast_", "broadcast", "scatter_"}), frozenset({"reduce_", "gather_"})


class Exchange:
    """Parts of the tensors of one call; keeps no tensor.

    Args:
        name: of the operation; if it is not known here, no tensor has a part.
        arguments: of the call, by name.
        group: of the call.
        root: index of the member that alone gives (or receives) in some operations.

    Attributes:
        given: for each tensor among the arguments its part, None if it only takes a result.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], group: ProcessGroup, root: int | None) -> None:
        gives, receives, sides = (_C10D if "process_group" in arguments else _FUNCTIONAL).get(name, _UNKNOWN)
        self._group, self._side, self._results = group, sides[1], receives == _RESULTS
        self._only = root if name in _ONE_RECEIVES else None
        given, received = (
            _tensors(arguments.get(argument, ()), side, argument) if argument else []
            for argument, side in zip((gives, receives), sides, strict=True)
        )
        self._divided = sides in (_GATHER, _SCATTER)
        splits = [size for argument in _SPLITS for size in arguments.get(argument) or ()]
        # the sizes of simulated ranks are no plain numbers where they differ
        even = all(type(size) is int and size == splits[0] for size in splits)
        self._even = even and _is_even(given, received, together=sides is _ALL_TO_ALL)
        only = root if name in _ONE_GIVES else None
        parts: list[Part | None] = [self._part_of(tensor, sides[0], only) for tensor in given]
        self.given: list[Part | None] = []
        for argument, value in arguments.items():
            self.given += parts if argument == gives else [None] * len(flat_tensors(value))
        self._received = [self._part_of(tensor, self._side, self._only) for tensor in received]

    def received(self, results: Sequence[torch.Tensor]) -> list[Part]:
        """Return the part of each tensor that the call returned or, where it returns none, wrote to."""
        if self._results:
            value = results[0] if len(results) == 1 else results
            return [self._part_of(tensor, self._side, self._only) for tensor in _tensors(value, self._side)]
        return self._received

    def _part_of(self, tensor: _Tensor, side: _Side, only: int | None) -> Part:
        part, members = _part(self._group, side, tensor, even=self._even, only=only), len(self._group.ranks)
        several = self._divided and side is _Side.WHOLE and not tensor.listed and 1 < members <= _MAX_PIECES
        return replace(part, pieces=members) if several and tensor.numel % members == 0 else part


class _Tensor(NamedTuple):
    """A tensor of a call: its vector (None for the only one), its number among the pieces of it, its elements.

    The number is -1 for a tensor with the pieces of all members in an all-to-all. `listed`: one of a list of pieces.
    """

    vector: int | None
    piece: int
    numel: int
    listed: bool = False


def _tensors(value: Any, side: _Side, argument: str = "") -> list[_Tensor]:
    """Return the tensors of an argument, in order."""
    by_piece = side in _ALL_TO_ALL
    if isinstance(value, torch.Tensor):
        return [_Tensor(None, -1 if by_piece else 0, plain(value).numel())]
    found: list[tuple[int, int, torch.Tensor]] = []
    listed = not all(isinstance(item, torch.Tensor) for item in value)
    for outer, item in enumerate(value):
        if isinstance(item, torch.Tensor):
            found.append((0, outer, item) if by_piece else (outer, 0, item))
        elif argument in _BY_MEMBER:
            found += [(inner, outer, tensor) for inner, tensor in enumerate(item)]
        else:
            found += [(outer, inner, tensor) for inner, tensor in enumerate(item)]
    several = any(vector for vector, _, _ in found)
    return [
        _Tensor(vector if several else None, piece, plain(tensor).numel(), listed) for vector, piece, tensor in found
    ]


def _is_even(given: Sequence[_Tensor], received: Sequence[_Tensor], *, together: bool) -> bool:
    """Return True if all pieces of each vector have one size, also on both sides together."""
    sizes: dict[tuple[bool, int | None], set[int]] = {}
    for gives, tensors in ((True, given), (False, received)):
        for tensor in tensors:
            sizes.setdefault((gives or together, tensor.vector), set()).add(tensor.numel)
    return all(len(found) == 1 for found in sizes.values())


def _part(group: ProcessGroup, side: _Side, tensor: _Tensor, *, even: bool, only: int | None) -> Part:
    members, (vector, piece, numel, _) = len(group.ranks), tensor
    part = Part(group, vector, numel, None, only=only)
    if not even:
        return part
    if side is _Side.WHOLE:
        return replace(part, start=piece * numel)
    if side is _Side.OWN:
        return replace(part, start=0, step=numel)
    size = numel if piece >= 0 else numel // members
    if side is _Side.TO_EACH:
        return replace(part, start=max(piece, 0) * size, step=members * size)
    if piece >= 0:
        return replace(part, start=piece * members * size, step=size)
    return replace(part, start=0, step=size, runs=members, stride=members * size)
