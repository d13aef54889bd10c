"""The register of operations is what the installed torch says."""

from __future__ import annotations

from pathlib import Path

import torch

from matchers.laws import register
from matchers.laws.reviewed import REVIEWED
from tests.matchers.laws.torch_operations import facts, merged


def test_the_facts_are_those_of_torch() -> None:
    text = Path(register.__file__).with_name("torch_operations.txt").read_text("ascii")
    assert merged(text, torch.__version__.partition("+")[0], facts()) == text, "make register TORCH=…"


def test_what_was_reviewed_is_in_torch() -> None:
    """A name that is misspelt would say nothing."""
    there = {name.partition(".")[0].partition("::")[2] for name in torch._C._dispatch_get_all_op_names()}
    named = {name.rpartition("::")[2] for entry in REVIEWED for name in entry.names.split()}
    assert named <= there | set(register._facts())
