"""The start of a step: which parameters, buffers and tensors of the batch differ between two runs, and how much.

Told by the run info above the logs, where it has their digests, and for the extent their sketches; untrusted text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capture.log_format import UNKNOWN_DIGEST
from matchers.logs.op_log import OpLog, once_per_log
from matchers.ops.json_values import hex_digest, number
from matchers.ops.module_path import canonical
from matchers.ops.sketch import decode_sketches

__all__ = [
    "Differing",
    "Start",
    "computed",
    "differing_start",
    "extent",
    "known_digests",
    "other_batch",
    "read_tensors",
    "table",
    "weights_by_digest",
]

_SUMS = 1e-12
"""Error of the sums in a sketch, relative to its largest number; one element is told from several by more."""
_STEPS = 4.0
"""Distances between neighbouring numbers that count as rounding."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Tensors of one kind that differ before the step.

    Attributes:
        kind: `parameter`, `buffer` or `batch`.
        names: of those that differ, in the order of a; empty text for the first tensor of a batch.
        known: number of those that both runs have.
        error: the largest ‖a − b‖ relative to the larger of both, of those that differ; NaN if one is unknown.
        element: the difference of the only element that differs, as far as the sketch tells; NaN for several, or
            unknown.
        rounding: the elements differ by a few times what the largest is apart from the next number, as far as sketches
            tell.
    """

    kind: str
    names: tuple[str, ...]
    known: int
    error: float = math.nan
    element: float = math.nan
    rounding: bool = False

    @property
    def text(self) -> str:
        """`1 of 28 parameters differs before the step: layers.2.down.weight, in one element as far as the sketch
        tells, by 1.9e-09: rounding`. May quote the logs.
        """
        told = self.many
        if self.names[0]:
            told += f": {self.names[0]}" if len(self.names) == 1 else f", {self.names[0]} first"
        return told + self.extent

    @property
    def many(self) -> str:
        """`1 of 28 parameters differs before the step`."""
        one = len(self.names) == 1
        many = f"{len(self.names):,} of {self.known:,} {self.kind}s" if self.known > 1 else f"the {self.kind}"
        if self.known == len(self.names) > 1:
            many = f"all {self.known:,} {self.kind}s"
        return f"{many} {'differs' if one else 'differ'} before the step"

    @property
    def extent(self) -> str:
        """`, in one element as far as the sketch tells, by 0.5`; empty if unknown."""
        why = ": rounding" if self.rounding else ""
        if not math.isnan(self.element):
            return f", in one element as far as the sketch tells, by {self.element:.2g}{why}"
        return (
            "" if math.isnan(self.error) else f", by ≈{self.error:.1e}{'' if len(self.names) == 1 else ' at most'}{why}"
        )


@dataclass(frozen=True, slots=True)
class Start:
    """What two runs begin the step with.

    Attributes:
        parameters, buffers, tokens: those that differ; None for none, and where a log does not say. `tokens` is the
            first tensor of the batch.
        batch: True where the batch is another one; None where a log does not say.
        told: both logs have digests of parameters, of the same parts.
    """

    parameters: Differing | None
    buffers: Differing | None
    tokens: Differing | None
    batch: bool | None
    told: bool

    @property
    def weights(self) -> bool | None:
        """True where parameters differ; None where the logs do not say."""
        return self.parameters is not None if self.told else None


def differing_start(a: Mapping[str, Any], b: Mapping[str, Any], *, together: bool) -> Start:
    """Compare the parameters and buffers that both runs name, and the tensors of the batch.

    Args:
        together: both hold the same parts of the same dtypes: else digests of parameters and buffers say nothing.
    """
    sketches = [named(run, "start_sketches") for run in (a, b)]
    parameters, buffers = (
        _differing(kind, *(known_digests(run, f"{kind}_digests") for run in (a, b)), *sketches) if together else None
        for kind in ("parameter", "buffer")
    )
    one, other = (read_tensors(run) for run in (a, b))
    told = one and other and not computed(one, other)
    batch = other_batch(one, other) if told else None
    tokens = _batch(one[0], other[0]) if batch else None
    common = known_digests(a, "parameter_digests").keys() & known_digests(b, "parameter_digests").keys()
    return Start(parameters, buffers, tokens, batch, told=together and bool(common))


def _differing(
    kind: str,
    of_a: Mapping[str, str],
    of_b: Mapping[str, str],
    sketches_a: Mapping[str, Any],
    sketches_b: Mapping[str, Any],
) -> Differing | None:
    names = [name for name, digest in of_a.items() if of_b.get(name, digest) != digest]
    if not names:
        return None
    found = [extent(sketches_a.get(name), sketches_b.get(name)) for name in names]
    return Differing(
        kind,
        tuple(names),
        sum(name in of_b for name in of_a),
        math.nan if any(math.isnan(error) for error, _, _ in found) else max(error for error, _, _ in found),
        found[0][1] if len(found) == 1 else math.nan,
        all(rounding for _, _, rounding in found),
    )


def extent(x: Any, y: Any) -> tuple[float, float, bool]:
    """(error, element, rounding) as of `Differing`, of entries of `start_sketches`; NaN where they do not say."""
    (one, n, step), (other, m, further) = _sketch(x), _sketch(y)
    if not one or not other or n != m:
        return math.nan, math.nan, False
    apart = [abs(s - t) for s, t in zip(one, other, strict=True)]
    least, largest = min(apart), max(apart)
    distance = math.hypot(*apart)
    size = max(math.hypot(*one), math.hypot(*other))
    floor = _SUMS * max(map(abs, (*one, *other)))
    resolution = _STEPS * max(step, further)
    if least > 8 * floor and largest - least <= 2 * floor:
        return distance / size, (least + largest) / 2, least <= resolution
    return (distance / size if size else 0.0), math.nan, distance / 4 <= resolution * math.sqrt(n)


def _batch(a: Mapping[str, Any], b: Mapping[str, Any]) -> Differing:
    """The first tensors of two batches, which differ."""
    one, other = ([tensor.get("sketch"), _numel(tensor), 0.0] for tensor in (a, b))
    error, element, _ = extent(one, other)
    return Differing("batch", ("",), 1, error, element)


def _numel(tensor: Mapping[str, Any]) -> int:
    shape = tensor.get("shape")
    known = isinstance(shape, list) and len(shape) < 32 and all(type(n) is int and 0 < n < 1 << 40 for n in shape)
    return math.prod(shape) if known and isinstance(shape, list) else 0


def _sketch(entry: Any) -> tuple[tuple[float, ...], int, float]:
    """An entry of `start_sketches`; without sums if it is none."""
    text, size, step = entry if isinstance(entry, list) and len(entry) == 3 else ("", 0, 0.0)
    sums = tuple(decode_sketches([text if isinstance(text, str) else ""])[0].tolist())
    known = all(map(math.isfinite, sums)) and type(size) is int and 0 < size < 1 << 60 and number(step) >= 0
    return (sums, size, number(step)) if known else ((), 0, 0.0)


def table(run: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An entry of the run info that is an object; else empty."""
    value = run.get(name)
    return value if isinstance(value, Mapping) else {}


def named(run: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An entry about parameters or buffers, by their canonical names."""
    return {canonical(str(key)): value for key, value in table(run, name).items()}


def known_digests(run: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The digests of parameters or buffers that were read."""
    return {key: digest for key, digest in named(run, name).items() if digest != UNKNOWN_DIGEST}


@once_per_log
def weights_by_digest(log: OpLog) -> dict[int, str]:
    """The parameter or buffer that has a digest before the step, where one alone has it."""
    held = [known_digests(log.header.run, kind) for kind in ("parameter_digests", "buffer_digests")]
    found = {name: digest for each in held for name, text in each.items() if (digest := hex_digest(text)) is not None}
    many = Counter(found.values())
    return {digest: name for name, digest in found.items() if many[digest] == 1}


def read_tensors(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tensors of the batch that were read."""
    batch = run.get("batch")
    held = [tensor for tensor in batch if isinstance(tensor, Mapping)] if isinstance(batch, list) else []
    return [tensor for tensor in held if tensor.get("digest") != UNKNOWN_DIGEST]


def computed(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if operations in a log made the first tensor of its batch: they show where it differs."""
    return a[0].get("computed") is True or b[0].get("computed") is True


def other_batch(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """The first tensor (tokens, images) is another one, told from the digests of all."""
    fewer, more = sorted(([str(tensor.get("digest")) for tensor in batch] for batch in (a, b)), key=len)
    return not (set(fewer) <= set(more) or (fewer[0] in more and more[0] in fewer))
