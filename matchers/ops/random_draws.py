"""Operations that draw random numbers."""

from __future__ import annotations

__all__ = ["draws"]

_RANDOM = frozenset(
    {
        *("bernoulli", "bernoulli_", "native_dropout", "rand", "rand_like", "randn", "randn_like", "randint", "normal"),
        *("normal_", "uniform", "uniform_", "random_", "randperm", "multinomial", "exponential_", "dropout"),
    }
)


def draws(op: str) -> bool:
    """True for an operation whose result depends on the state of a random generator."""
    return op in _RANDOM
