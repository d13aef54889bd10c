"""Modules that a run called in its step, and which of them call which, by what was kept at their boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capture.keeping.form import OF_NO_MODULE
from matchers.logs.op_log import OpLog

__all__ = ["Called", "key_of", "module_of"]


@dataclass(frozen=True)
class Called:
    """The modules that a run called in its step.

    Attributes:
        inner: the modules that each calls itself, by its name.
        outermost: those that no other calls.
    """

    inner: Mapping[str, Sequence[str]]
    outermost: Sequence[str]

    @classmethod
    def of(cls, boundaries: Iterable[Mapping[str, Any]]) -> Called:
        """Read the calls of a bundle."""
        inner: dict[str, dict[str, None]] = {}
        outermost: dict[str, None] = {}
        for call in boundaries:
            name, within = call["module"], call["within"]
            if name in OF_NO_MODULE:
                continue
            inner.setdefault(name, {})
            if within is None:
                outermost[name] = None
            elif within != name:
                inner.setdefault(within, {})[name] = None
        return cls({name: [*of] for name, of in inner.items()}, [*outermost])

    def nearest(self, module: str) -> str:
        """Return a module, or the innermost called one that contains it; empty for none."""
        while module and module not in self.inner:
            module = module.rpartition(".")[0]
        return module

    def blocks(self) -> list[str]:
        """Return the outermost modules that are layers of a stack, as `layers.3`, and those beside their stack."""
        return [block for name in self.outermost for block in self._blocks(name)]

    def _blocks(self, name: str) -> list[str]:
        found = []
        for inner in self.inner[name]:
            numbered = inner.rpartition(".")[2].isdigit()
            expand = not numbered and any(map(_is_layer, self.within(inner)))
            found += self._blocks(inner) if expand else [inner]
        return found or [name]

    def within(self, name: str) -> Iterator[str]:
        """Yield the modules that run in a module, at any depth; none for a name of no module."""
        for inner in self.inner.get(name, ()):
            yield inner
            yield from self.within(inner)


def _is_layer(name: str) -> bool:
    return name.rpartition(".")[2].isdigit()


def key_of(log: OpLog, record: Any) -> str:
    """Return the key of a record, empty for -1."""
    return log.keys[int(record)] if record >= 0 else ""


def module_of(key: str) -> str:
    """Return the module of an operation, by its key."""
    return key.rpartition("/")[0]
