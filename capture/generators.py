"""Random generators: their states and what is about to be drawn, read and never drawn from."""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .kernels.guards import unnoticed
from .machine import started_cuda

__all__ = ["draws_of", "drawn_from", "generator_of", "key_of", "rng_digests", "state_of"]


def rng_digests() -> dict[str, str]:
    """Return digests of the random generators' states (`torch`, `cuda`, `python`, `numpy`).

    States are read, never drawn from; numpy's and CUDA's only where the run has started them.
    """
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in _rng_states()}


def _rng_states() -> Iterator[tuple[str, bytes]]:
    yield "torch", state_of(torch.default_generator)
    cuda = started_cuda()
    if cuda is not None:
        yield "cuda", state_of(cuda.default_generators[cuda.current_device()])
    yield "python", repr(random.getstate()).encode()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, key, *rest = numpy_random.get_state()
        yield "numpy", kind.encode() + key.tobytes() + repr([float(number) for number in rest]).encode()


def state_of(generator: torch.Generator) -> bytes:
    """Return the state of a random generator."""
    with unnoticed():
        state = generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.numel())


def draws_of(device: torch.device, given: torch.Generator | None) -> dict[str, Any] | None:
    """Return which random numbers an operation is about to draw, ready for JSON; None if that is unknown.

    Waits for no device. Of a generator without an offset, as that of the CPU, the state has a digest.

    Args:
        device: of the result.
        given: the generator that it was given, None for the device's own.
    """
    try:
        generator = given or generator_of(device)
        if generator is None:
            return None
        found: dict[str, Any] = {"seed": generator.initial_seed()}
        if generator.device.type == "cpu":
            found["state"] = hashlib.sha256(state_of(generator)).hexdigest()[:16]
        else:
            found["offset"] = generator.get_offset()
    except RuntimeError:  # of a graph that is being recorded, or of a backend without these
        return None
    return found if given is None else {**found, "given": True}


def drawn_from(tensors: Sequence[torch.Tensor], others: Sequence[Any]) -> tuple[torch.device, torch.Generator | None]:
    """Return the device that a call draws on, and the generator among its arguments, None for the device's own.

    Args:
        tensors: its arguments that are tensors.
        others: at least the other ones.
    """
    devices = [tensor.device for tensor in tensors[:1]] + [value for value in others if type(value) is torch.device]
    given = next((value for value in others if isinstance(value, torch.Generator)), None)
    return devices[0] if devices else torch.device("cpu"), given


def generator_of(device: torch.device) -> Any:
    """Return the generator from which operations on a device draw; None where it is unknown."""
    if device.type == "cpu":
        return torch.default_generator
    module: Any = getattr(torch, device.type, None)
    generators = getattr(module, "default_generators", ())
    index = device.index if device.index is not None else module.current_device() if generators else 0
    return generators[index] if index < len(generators) else None


def key_of(seed: int, name: str) -> int:
    """Return a whole number of 64 bits that a seed and a name alone determine: the same in every run and layout."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
