"""The names that `matchers` offers as a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import matchers
from matchers import Comparison, RuleSet, compare, read_log
from tests.builders import training_step, write_log


def test_the_names() -> None:
    assert matchers.__all__ == ["Comparison", "RuleSet", "compare", "read_log"]
    assert all(getattr(matchers, name).__name__ == name for name in matchers.__all__)
    with pytest.raises(AttributeError, match="module 'matchers' has no attribute 'comparer'"):
        getattr(matchers, "comparer")  # noqa: B009


def test_they_compare_two_logs(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", training_step()))
    comparison = compare(log, log, RuleSet())
    assert isinstance(comparison, Comparison)
    assert not comparison.red.any()


def test_importing_costs_nothing() -> None:
    code = "import matchers, sys; print('numpy' in sys.modules, 'yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
