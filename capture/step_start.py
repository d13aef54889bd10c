"""What a step started from: the parameters, the states of the random generators, the batch.

Two runs that differ here cannot agree later, and a comparison says so first.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from capture.kernels.guards import unnoticed
from capture.local_parts import LocalParts, dtype_name
from capture.log_writer import format_digest
from capture.machine import started_cuda
from capture.statistics import Statistics

__all__ = ["StepStart", "autocast_settings", "combined_digest", "rng_digests"]

_MOST_PARAMETERS = 10_000
_MOST_TENSORS_OF_A_BATCH = 64


class StepStart:
    """Measures what a step starts from, at the moment it is made; nothing is kept but numbers.

    Draws no random numbers and, on a GPU, waits for nothing; only `as_json` waits.

    Args:
        parameters: (name, parameter) of all models.
        batch: what the model is called with, nested as it likes.
    """

    def __init__(self, parameters: Iterable[tuple[str, torch.Tensor]], batch: Any = None) -> None:
        self._statistics = Statistics(sketch=False)
        self._rng = rng_digests()
        self._autocast = autocast_settings()
        self._parameters = [(name, self._measured(tensor)) for name, tensor in parameters]
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        self._batch = [(self._measured(tensor), tuple(tensor.shape), dtype_name(tensor)) for tensor in tensors]

    def _measured(self, tensor: torch.Tensor) -> LocalParts:
        return LocalParts(tensor, self._statistics, sketch=False)

    def as_json(self, rank: int = 0) -> dict[str, Any]:
        """The part of the run info that is about the start of the step.

        Args:
            rank: whose part, where several ranks are simulated in one process.
        """
        results = self._statistics.results()
        digests = {name: parts.digest(rank, results) for name, parts in self._parameters}
        batch = [(parts.digest(rank, results), shape, dtype) for parts, shape, dtype in self._batch]
        out: dict[str, Any] = {"rng_digest": combined_text(sorted(self._rng.items())), "rng_digests": self._rng}
        if self._autocast:
            out["autocast"] = self._autocast
        if digests:
            out["parameters_digest"] = combined_text((n, format_digest(digest)) for n, digest in digests.items())
            out["parameter_digests"] = {
                name: format_digest(digest) for name, digest in list(digests.items())[:_MOST_PARAMETERS]
            }
        if batch:
            out["batch_digest"] = combined_digest(digest for digest, _, _ in batch)
            out["batch"] = [
                {"shape": list(shape), "dtype": dtype, "digest": format_digest(digest)}
                for digest, shape, dtype in batch[:_MOST_TENSORS_OF_A_BATCH]
            ]
        return out


def combined_digest(digests: Iterable[int | None]) -> str:
    """One digest (16 hexadecimal digits) of several, in their order."""
    return combined_text((format_digest(digest),) for digest in digests)


def combined_text(rows: Iterable[tuple[str, ...]]) -> str:
    """One digest (16 hexadecimal digits) of rows of text."""
    return hashlib.sha256("".join("\t".join(row) + "\n" for row in rows).encode(errors="replace")).hexdigest()[:16]


def rng_digests() -> dict[str, str]:
    """Digest of the state of each random generator that there is (`torch`, `cuda`, `python`, `numpy`).

    States are looked at, never drawn from; numpy and CUDA only where the run has started them.
    """
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in _rng_states()}


def _rng_states() -> Iterator[tuple[str, bytes]]:
    yield "torch", _generator_state(torch.default_generator)
    cuda = started_cuda()
    if cuda is not None:
        yield "cuda", _generator_state(cuda.default_generators[cuda.current_device()])
    yield "python", repr(random.getstate()).encode()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, key, *rest = numpy_random.get_state()
        yield "numpy", kind.encode() + key.tobytes() + repr([float(number) for number in rest]).encode()


def _generator_state(generator: torch.Generator) -> bytes:
    with unnoticed():
        state = generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.numel())


def autocast_settings() -> dict[str, str]:
    """Device type → dtype, for those where autocast is on."""
    devices = ("cuda", "cpu")
    return {
        device: str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        for device in devices
        if torch.is_autocast_enabled(device)
    }
