"""State at the start of a step: parameters, random generators, batch.

Two runs that differ here cannot agree later, and a comparison reports it first.
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

from .kernels.guards import unnoticed
from .local_parts import LocalParts, dtype_name
from .log_writer import format_digest
from .machine import started_cuda
from .statistics import Statistics

__all__ = ["StepStart", "autocast_settings", "combined_digest", "rng_digests"]

_MAX_PARAMETERS = 10_000
_MAX_BATCH_TENSORS = 64


class StepStart:
    """Digests of the state a step starts from, taken when the object is made; keeps no tensors.

    Draws no random numbers; on a GPU only `as_json` waits for the device.

    Args:
        parameters: (name, parameter) of all models.
        batch: the arguments of the model, nested in any way.
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
        """Return the entries of the run info about the start of the step.

        Args:
            rank: one of several simulated ranks.
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
                name: format_digest(digest) for name, digest in list(digests.items())[:_MAX_PARAMETERS]
            }
        if batch:
            out["batch_digest"] = combined_digest(digest for digest, _, _ in batch)
            out["batch"] = [
                {"shape": list(shape), "dtype": dtype, "digest": format_digest(digest)}
                for digest, shape, dtype in batch[:_MAX_BATCH_TENSORS]
            ]
        return out


def combined_digest(digests: Iterable[int | None]) -> str:
    """Combine digests, in order, into one of 16 hexadecimal digits."""
    return combined_text((format_digest(digest),) for digest in digests)


def combined_text(rows: Iterable[tuple[str, ...]]) -> str:
    """Combine rows of text into one digest of 16 hexadecimal digits."""
    return hashlib.sha256("".join("\t".join(row) + "\n" for row in rows).encode(errors="replace")).hexdigest()[:16]


def rng_digests() -> dict[str, str]:
    """Return digests of the random generators' states (`torch`, `cuda`, `python`, `numpy`).

    States are read, never drawn from; numpy's and CUDA's only where the run has started them.
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
    """Return device type → dtype for devices with autocast on."""
    devices = ("cuda", "cpu")
    return {
        device: str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        for device in devices
        if torch.is_autocast_enabled(device)
    }
