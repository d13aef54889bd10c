"""Read the weights of one moment, whatever holds them."""

from __future__ import annotations

import os
import stat

from matchers.errors import LogError
from matchers.weights.checkpoints import form_of, read_checkpoint
from matchers.weights.log import read_weights
from matchers.weights.recognised import is_weight_log
from matchers.weights.states import State, state_of_header, state_of_log

__all__ = ["has_weights", "is_checkpoint", "read_state"]

_NOTHING = (
    "no weights are in it: expected safetensors, torch.save, a distributed checkpoint, a log of weights, "
    "or a captured step (of several ranks, choose one with --rank)"
)


def is_checkpoint(path: str) -> bool:
    """Return True if a file or folder holds a checkpoint. A pipe, readable only once, is not touched."""
    try:
        mode = os.stat(path).st_mode
        return (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and form_of(path) is not None
    except (OSError, ValueError):
        return False  # the reader reports the error


def has_weights(path: str) -> bool:
    """Return True if a file is the log of a captured step whose header has digests of weights."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and bool(state_of_header(path).weights)
    except (OSError, ValueError, LogError):
        return False


def read_state(path: str) -> State:
    """Read a checkpoint, the last step of a log of weights, or the digests in the header of a captured step.

    Raises:
        LogError: it is none of these, or cannot be read.
    """
    if is_checkpoint(path):
        return read_checkpoint(path)
    if os.path.isdir(path):
        raise LogError(f"{path}: {_NOTHING}")
    try:
        if is_weight_log(path) or path.removesuffix(".gz").endswith("_weights.log"):
            log = read_weights(path)
            state = state_of_log(log)
            state.problems += [f"{path}:{problem.line}: {problem.message}" for problem in log.problems]
        else:
            state = state_of_header(path)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not state.weights:
        raise LogError(f"{path}:1: {_NOTHING}")
    return state
