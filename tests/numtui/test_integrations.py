"""Callbacks for libraries that are not there; with them, tests/integrations."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

LIBRARIES = ("transformers", "lightning", "lightning.pytorch", "pytorch_lightning")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("transformers", "numtui.integrations.transformers needs transformers"),
        ("lightning", "numtui.integrations.lightning needs lightning or pytorch_lightning"),
    ],
)
def test_a_library_that_is_missing_is_named(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"numtui.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=words):
        import_module(f"numtui.integrations.{name}")
