"""What some version of torch cannot do, for the tests that show it; importable without torch."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.needs import HAS_TORCH

__all__ = ["NOT_CLIPPED"]

NOT_CLIPPED = pytest.mark.xfail(
    HAS_TORCH and tuple(map(int, version("torch").split(".")[:2])) < (2, 12),
    reason="torch 2.11 does not clip partial gradients of DTensors, a difference that is shown",
)
