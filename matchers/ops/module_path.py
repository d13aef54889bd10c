"""Module paths as the matching sees them.

The same module goes by different names in two runs: wrapped (`_orig_mod`), under the root's class name, or without its
layer. `canonical` removes what only a wrapper added; `Template` separates the repeated structure from the place in it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_MODULE", "Template", "canonical", "template"]

NO_MODULE = "<none>"
"""What a log writes where it does not know the module."""

_WRAPPERS = frozenset({"_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module", "module"})


def canonical(module: str) -> str:
    """The path without wrapper segments and without the root's class name; `<none>` as the empty path.

    A first segment that starts with a capital is taken for a class name: attributes of a module do not.
    """
    if module == NO_MODULE:
        return ""
    parts = [part for part in module.split(".") if part not in _WRAPPERS]
    if parts and parts[0][:1].isupper():
        parts = parts[1:]
    return ".".join(parts)


@dataclass(frozen=True, slots=True)
class Template:
    """`layers.3.attention.wq` as the pattern `layers.{}.attention.wq` and the place `3`."""

    pattern: str
    place: str


def template(path: str) -> Template:
    """Splits a canonical path into what its siblings share and where among them it stands."""
    parts = path.split(".")
    numbers = [part for part in parts if part.isdigit()]
    if not numbers:
        return Template(path, "")
    return Template(".".join(["{}" if part.isdigit() else part for part in parts]), ".".join(numbers))
