"""Operations that draw random numbers."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool
from matchers.logs.op_log import OpLog

__all__ = ["drawing", "draws"]

_RANDOM = frozenset(
    {
        *("bernoulli", "binomial", "cauchy", "dropout", "exponential", "geometric", "log_normal", "multinomial"),
        *("native_dropout", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
        *("random", "randperm", "rrelu_with_noise", "uniform"),
    }
)


def draws(op: str) -> bool:
    """True for an operation whose result depends on the state of a random generator."""
    return op.rstrip("_") in _RANDOM


def drawing(log: OpLog) -> Bool:
    """bool[n]: the record draws random numbers."""
    return np.array([*map(draws, log.ops), False])[log.op]
