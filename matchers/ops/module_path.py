"""Module paths without wrappers, split into a repeated structure and a place in it.

The same module has different names in two runs: wrapped (`_orig_mod`), under the root's class name, or without its
layer. `canonical` removes wrapper segments; `Template` separates the repeated structure from the place in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

__all__ = ["NO_MODULE", "Template", "canonical", "is_within", "template"]

NO_MODULE = "<none>"
"""The log's entry for an unknown module."""

_WRAPPERS = frozenset({"_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module", "module"})


@lru_cache(1 << 16)
def canonical(module: str) -> str:
    """The path without wrapper segments and the root's class name; empty for `<none>`.

    A first segment with a capital letter is a class name: module attributes are lower case.
    """
    if module == NO_MODULE:
        return ""
    parts = [part for part in module.split(".") if part not in _WRAPPERS]
    if parts and parts[0][:1].isupper():
        parts = parts[1:]
    return ".".join(parts)


def is_within(path: str, module: str) -> bool:
    """True if a path is that of a module, or of what is inside it."""
    return f"{path}.".startswith(f"{module}.")


class Template(NamedTuple):
    """`layers.3.attention.wq` as the pattern `layers.{}.attention.wq` and the place `3`."""

    pattern: str
    place: str


@lru_cache(1 << 16)
def template(path: str) -> Template:
    """Split a canonical path into the pattern shared with its siblings and its place among them."""
    parts = path.split(".")
    numbers = [part for part in parts if part.isdigit()]
    if not numbers:
        return Template(path, "")
    return Template(".".join(["{}" if part.isdigit() else part for part in parts]), ".".join(numbers))
