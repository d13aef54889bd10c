"""Values of module boundaries that another run kept, as tensors: the part that a tensor of this run is of them.

Where the ranks of both runs are the same, a tensor has its like there. Else the rows of the batch, known by their
bytes, say which rows of that run's tensors these are, and placements which part of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from ..kernels.guards import unnoticed
from .bundle import Bundle
from .contents import bytes_of
from .form import OF_NO_MODULE, OF_WEIGHTS, OUTPUT_GRADIENTS
from .grafts import key_of
from .layout import GradientScale, Group, NoWhole, Rows, batch_of, cut, put_together, row_names
from .perform import Memory, Refused

__all__ = ["KeptRun", "NotKept", "same_bits"]

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
Chunks = dict[tuple[tuple[int, ...], tuple[int, ...]], set[int]]
"""By the shapes of a whole and of a part, the numbers of the chunks that such parts were."""


class NotKept(Exception):
    """Raised for a tensor of which the other run kept nothing that could stand in its place: the reason."""


def same_bits(value: torch.Tensor, part: torch.Tensor) -> bool:
    """Return True if two tensors of one shape and dtype have the same bits."""
    with unnoticed():
        x, y = (t.detach().contiguous().cpu().view(-1).view(torch.uint8) for t in (value, part))
        return torch.equal(x, y)


class KeptRun:
    """The boundaries that a run kept.

    Args:
        bundles: of its ranks and steps.

    Attributes:
        factor: that kept gradients were last multiplied with, None before the first: a mean over all rows of the batch
            is not one over this rank's.
    """

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._bundles = bundles
        self._of_rank: dict[int, dict[tuple[Any, ...], Mapping[str, Any]]] = {}
        self._rank, self._world = 0, 1
        self._folders: dict[int, str] = {}
        self._rows = Rows({})
        self._own: dict[int | None, list[str]] = {}
        self.factor: float | None = None
        self._scale = GradientScale()
        self._chunks: Chunks = {}

    def begin(self, rank: int, step: int) -> None:
        """Begin a step of a rank."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._rank, self._world = rank, torch.distributed.get_world_size() if distributed else 1
        steps = {bundle.run.get("step") for bundle in self._bundles}
        self._of_rank, self._folders, self._own, self._chunks, self.factor = {}, {}, {}, {}, None
        self._scale = GradientScale()
        names: dict[tuple[int, int | None], list[str]] = {}
        for bundle in self._bundles:
            if bundle.run.get("step") != step and steps != {None}:
                continue
            number = int(bundle.run.get("rank") or 0)
            self._of_rank[number] = {key_of(entry): entry for entry in bundle.boundaries}
            self._folders[number] = str(bundle.folder)
            for entry in bundle.boundaries:
                key = number, entry["micro_batch"]
                if key not in names and (told := batch_of(entry)) is not None:
                    names[key] = self._row_names(self._tensor(number, told))
        self._rows = Rows(names)

    def called(self, micro_batch: int | None, batch: torch.Tensor) -> None:
        """Note the rows of a micro-batch of this run."""
        if micro_batch not in self._own and self._world != len(self._of_rank):
            self._own[micro_batch] = self._row_names(batch)

    def _row_names(self, batch: torch.Tensor) -> list[str]:
        with unnoticed():
            return row_names(bytes_of(batch.detach().cpu().contiguous().clone()), batch.shape[0] if batch.dim() else 0)

    def random(self, call: Mapping[str, Any]) -> bytes | None:
        """Return the state of the random generator before a call; None if it was not kept, or in another layout."""
        entry = self._entry(self._rank, call) if self._world == len(self._of_rank) else None
        if entry is None or "random" not in entry:
            return None
        with suppress(Refused, OSError), unnoticed():
            return bytes_of(Memory(self._folders[self._rank]).bytes_of(entry["random"]["state"]))
        return None

    def value(
        self,
        call: Mapping[str, Any],
        kind: str,
        path: str,
        part: torch.Tensor,
        placement: Mapping[str, Any] | None,
        *,
        alike: bool = False,
    ) -> torch.Tensor:
        """Return the values of a tensor, in the shape and dtype of `part`.

        Args:
            alike: all ranks hold it alike, so that it is no term of a sum.

        Raises:
            NotKept: there are none.
        """
        try:
            with unnoticed():
                value = self._value(call, kind, path, part, placement, alike=alike).to(part.device, part.dtype)
        except (NoWhole, Refused, OSError) as reason:
            raise NotKept(str(reason)) from None
        if value.shape != part.shape:
            raise NotKept(f"its shape is {list(part.shape)} here, {list(value.shape)} there")
        return value

    def _value(
        self,
        call: Mapping[str, Any],
        kind: str,
        path: str,
        part: torch.Tensor,
        placement: Mapping[str, Any] | None,
        *,
        alike: bool = False,
    ) -> torch.Tensor:
        if self._world == len(self._of_rank):
            ((_, own),) = self._parts(call, kind, path, [self._rank])
            if own.shape == part.shape or self._world == 1:
                return own
        if call["module"] in OF_NO_MODULE:
            if call["module"] == OF_WEIGHTS:
                call = {**call, "nth": self._last_backward()}
            whole = put_together(self._parts(call, kind, path, sorted(self._of_rank)), _empty)
            value: torch.Tensor = cut(whole, placement, part.shape)
            return value

        fetched: dict[Group, torch.Tensor] = {}

        def fetch(group: Group) -> torch.Tensor:
            batch, ranks = group
            parts = self._parts({**call, "micro_batch": batch}, kind, path, ranks)
            return fetched.setdefault(group, put_together(parts, _empty))

        names = self._own.get(call["micro_batch"], [])
        shape = part.shape if placement is None else placement.get("shape", part.shape)
        whole = self._rows.gathered(names, shape, fetch, _empty)
        if whole.dtype in _WHOLE and whole.shape == part.shape:
            there = self._rows.gathered(
                names, [len(names)], lambda at: torch.arange(len(self._rows.groups[at])), _empty
            )
            moved = there - torch.arange(len(names))
            if counts_rows(whole, part, moved):
                return part.detach()
            if moved.any() and any(_rows_apart(each, len(self._rows.groups[group])) for group, each in fetched.items()):
                raise NoWhole("its whole numbers count rows of the batch, which are others here")
        value = cut(whole, placement, part.shape)
        if placement is None and self._world > 1 and len(names) == self._rows.total:
            # ranks share these rows, and nothing says how; zero may be a term, too
            whole_here = alike and value.shape == part.shape and bool(part.any())
            value = value if whole_here else nearest_part(part, value, self._chunks)
        if "gradients" in kind and len(names) != self._rows.total:
            of_rows = [len(self._rows.groups[group]) for group, each in fetched.items() if each is whole]
            share = len(names) / of_rows[0] if of_rows else 1.0  # of a sum over rows, as of a table of positions
            if share == 1:
                value = value * self._factor(call, kind, part, value, self._rows.total / len(names))
            elif not (value.dim() == 0 and same_bits(value, part)):  # that of a loss itself is 1 in any layout
                if self.factor is None:
                    raise NoWhole(
                        "it is a sum over the rows of the batch, and nothing says yet how gradients are scaled"
                    )
                value = value * (self.factor * share)
        return value

    def _factor(
        self, call: Mapping[str, Any], kind: str, part: torch.Tensor, kept: torch.Tensor, factor: float
    ) -> float:
        """Return what kept gradients are multiplied with: as those that only rounding changes, once there is one."""
        norm, norm_there = (float(torch.linalg.vector_norm(x.detach().double())) for x in (part, kept))
        entry = self._entry(min(self._of_rank, default=0), call) or {}
        outermost = kind == OUTPUT_GRADIENTS and entry.get("within") is None
        of_loss = len(entry.get(kind, ())) or 1 if outermost else 0
        scale, sure = self._scale.of(norm, norm_there, factor, of_loss)
        if not sure and of_loss > 1:
            raise NoWhole("nothing says yet how gradients are scaled")  # another one of the loss will
        self.factor = scale
        return scale

    def observe(
        self,
        call: Mapping[str, Any],
        kind: str,
        path: str,
        part: torch.Tensor,
        placement: Mapping[str, Any] | None,
    ) -> None:
        """Learn from a gradient, also of a module without graft, how those of both runs are scaled."""
        own = self._own.get(call["micro_batch"], [])
        if self._scale.factor is None and 0 < len(own) < self._rows.total and call["module"] not in OF_NO_MODULE:
            with suppress(NoWhole, Refused, OSError), unnoticed():
                self._value(call, kind, path, part, placement)

    def learn(self, bundle: Bundle, micro_batch: int | None) -> None:
        """Learn the same from what the loss handed to models on this rank in another capture of the same command."""
        for call in bundle.boundaries:
            if call["within"] is None and call["micro_batch"] == micro_batch and call["module"] not in OF_NO_MODULE:
                for path, told in call.get(OUTPUT_GRADIENTS, {}).items():
                    with suppress(Refused, OSError), unnoticed():
                        part = Memory(str(bundle.folder)).tensor({**told, "device": "cpu"})
                        self.observe(call, OUTPUT_GRADIENTS, path, part, told.get("placement"))

    def _last_backward(self) -> int:
        """Return the number of the last backward pass that was kept, if this is the last one here.

        Raises:
            NoWhole: this rank has not all its rows of the batch yet.
        """
        seen = sum(map(len, self._own.values()))
        if self._rows.total not in (seen, seen * self._world):
            raise NoWhole("gradients of several micro-batches, in another layout")
        last = [key[3] for entries in self._of_rank.values() for key in entries if key[0] == OF_WEIGHTS]
        return max(last, default=0)

    def _parts(
        self, call: Mapping[str, Any], kind: str, path: str, ranks: Sequence[int]
    ) -> list[tuple[Mapping[str, Any], torch.Tensor]]:
        found = []
        for rank in ranks:
            entry = self._entry(rank, call)
            if entry is None:
                raise NoWhole("that run kept no such call")
            told = _named(entry, kind, path)
            if told is None:
                missed = entry.get("missed", {}).get(f"{kind} {path}")
                raise NoWhole(missed or f"that run kept no {kind.replace('_', ' ')} {path}".strip())
            found.append((told, self._tensor(rank, told)))
        return found

    def _tensor(self, rank: int, told: Mapping[str, Any]) -> torch.Tensor:
        with unnoticed():
            tensor: torch.Tensor = Memory(self._folders[rank]).tensor({**told, "device": "cpu"})
            return tensor

    def _entry(self, rank: int, call: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the entry of a call; of a recomputed one, where that run did not recompute, of the call before."""
        entries = self._of_rank.get(rank, {})
        return entries.get(key_of(call)) or entries.get(key_of({**call, "recompute": False}))


def nearest_part(part: torch.Tensor, whole: torch.Tensor, chunks_of: Chunks) -> torch.Tensor:
    """Return the chunk of a whole that a tensor is, by its values: nothing else says which.

    Args:
        chunks_of: the chunks of tensors before it, of the same shapes: they tell where a bug leaves nothing near.

    Raises:
        NoWhole: it is near none: the other elements, or a term of a sum.
    """
    shapes = tuple(whole.shape), tuple(part.shape)
    chunks = [whole]
    if whole.shape != part.shape:
        sizes = list(zip(whole.shape, part.shape, strict=True)) if whole.dim() == part.dim() else []
        other = [dim for dim, (size, own) in enumerate(sizes) if size != own]
        if len(other) != 1 or not part.numel() or whole.shape[other[0]] % part.shape[other[0]]:
            raise NoWhole(f"its shape is {list(part.shape)} here, {list(whole.shape)} there")
        chunks = list(whole.split(part.shape[other[0]], other[0]))
    own = part.detach().double().cpu()
    far = [float(torch.linalg.vector_norm(own - chunk.double())) for chunk in chunks]
    nearest = min(range(len(far)), key=far.__getitem__)
    size = float(torch.linalg.vector_norm(chunks[nearest].double()))
    rival = min((one for k, one in enumerate(far) if k != nearest), default=float("inf"))
    if far[nearest] <= size / 2 and far[nearest] <= rival / 2:
        chunks_of.setdefault(shapes, set()).add(nearest)
    elif len(chunks) > 1 and len(known := chunks_of.get(shapes, set())) == 1:
        (nearest,) = known
    else:
        raise NoWhole("it is far from what that run kept, and nothing says which part of it")
    return chunks[nearest]


def counts_rows(value: torch.Tensor, part: torch.Tensor, moved: torch.Tensor) -> bool:
    """Return True if whole numbers differ only by the place of their row of the batch, as numbers of nodes or tokens.

    Args:
        value, part: of one shape, there and here.
        moved: by how many rows each row of the batch is further on there.
    """
    rows = len(moved)
    if not value.numel() or not moved.any() or value.shape[0] % rows:
        return False
    off = value.long().cpu().reshape(rows, -1) - part.detach().long().cpu().reshape(rows, -1)
    first = int(moved.nonzero()[0])
    step = int(off[first, 0]) // int(moved[first])
    return step > 0 and bool((off == step * moved[:, None]).all())


def _rows_apart(kept: torch.Tensor, rows: int) -> bool:
    """Return True if the numbers of each row of the batch are larger than all of the row before."""
    if rows < 2 or not kept.numel() or kept.shape[0] % rows:
        return False
    of_rows = kept.reshape(rows, -1)
    return bool((of_rows.amin(1)[1:] > of_rows.amax(1)[:-1]).all())


def _empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype)


def _named(entry: Mapping[str, Any], kind: str, path: str) -> Mapping[str, Any] | None:
    """Return a tensor of a side by its name; the only one also under another name."""
    found: Mapping[str, Mapping[str, Any]] = entry.get(kind, {})
    return found.get(path) or (next(iter(found.values())) if len(found) == 1 else None)
