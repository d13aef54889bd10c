"""The choice of `--save`: modules by pattern, the records of a plan that `numtui plan` wrote, boundaries, weights.

Standard library alone: options are looked at before the script imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..globs import inside
from .form import PLAN_VERSION, split_key

__all__ = ["Wanted"]

_MODULE, _BOUNDARY, _WEIGHTS = "module:", "boundary:", "weights"
_LARGEST_PLAN = 64 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The operations to keep.

    Attributes:
        modules: globs over module paths; a path matches its submodules too.
        boundaries: globs over module paths: of these, what each call is given and gives.
        weights: keep parameters and buffers before the step.
        planned: the records of plans, by the keys that they have in either run.
    """

    modules: tuple[str, ...] = ()
    weights: bool = False
    boundaries: tuple[str, ...] = ()
    planned: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    _named: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, specs: Sequence[str]) -> Wanted:
        """Read what `--save` was given.

        Raises:
            ValueError: one is neither `module:GLOB`, `boundary:GLOB` nor `weights` nor a plan that can be read.
        """
        modules: list[str] = []
        planned: dict[str, list[Mapping[str, Any]]] = {}
        for spec in specs:
            if spec.startswith(_MODULE):
                modules.append(spec.removeprefix(_MODULE))
            for record in () if spec.startswith((_MODULE, _BOUNDARY)) or spec == _WEIGHTS else _plan(spec):
                for key in {record.get("key_a"), record.get("key_b")}:
                    if key:
                        planned.setdefault(key, []).append(record)
        boundaries = tuple(spec.removeprefix(_BOUNDARY) for spec in specs if spec.startswith(_BOUNDARY))
        named = frozenset(map(split_key, planned))
        return cls(tuple(modules), _WEIGHTS in specs, boundaries, planned, named)

    @property
    def any(self) -> bool:
        """True if anything is to be kept."""
        return bool(self.modules or self.weights or self.planned or self.boundaries)

    def keeps_boundary(self, module: str) -> bool:
        """Return True if the boundary of a module is kept; of none, empty, if any is."""
        return bool(self.boundaries) and (not module or any(fnmatchcase(module, glob) for glob in self.boundaries))

    def may_want(self, module: str | None, name: str) -> bool:
        """Return False for an operation that is certainly not wanted, while its key is not known yet.

        Args:
            module: its module, None while that is unknown.
            name: without namespace and overload.
        """
        if module is not None:
            return (module, name) in self._named or self._matches(module)
        return bool(self.modules) or any(name == known for _, known in self._named)

    def wants(self, key: str, rank: int) -> bool:
        """Return True if the operation of this key is to be kept."""
        return bool(self.records(key, rank)) or self.of_modules(key)

    def of_modules(self, key: str) -> bool:
        """Return True if it is one of the modules that are kept."""
        return self._matches(split_key(key)[0])

    def records(self, key: str, rank: int) -> list[Mapping[str, Any]]:
        """Return the records of plans that mean the operation of this key on this rank; of any only without those."""
        found = self.planned.get(key, ())
        of_rank = [record for record in found if record.get("rank") == rank]
        return of_rank or [record for record in found if record.get("rank") is None]

    def absent(self, keys: frozenset[str], rank: int) -> int:
        """Return the number of records that both of a plan's runs have, and of which this run has neither key."""
        known = {id(record): record for key in self.planned for record in self.records(key, rank)}
        both = [{each.get("key_a"), each.get("key_b")} for each in known.values()]
        return sum(None not in each and keys.isdisjoint(each) for each in both)

    def _matches(self, module: str) -> bool:
        return inside(module, self.modules)


def _plan(path: str) -> list[dict[str, Any]]:
    try:
        with Path(path).open("rb") as file:
            told = json.loads(file.read(_LARGEST_PLAN))
    except OSError as error:
        advice = "a plan of numtui plan, weights, boundary:GLOB, or module:GLOB, as in 'module:layers.2.*'"
        raise ValueError(f"--save {path}: {error.strerror or error}; expected {advice}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--save {path}: is no plan: {error}") from None
    records = told.get("records") if isinstance(told, dict) and told.get("version") == PLAN_VERSION else None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"--save {path}: is no plan of this version of numtui (version {PLAN_VERSION})")
    texts = [value for record in records for name in ("key_a", "key_b") if (value := record.get(name)) is not None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"--save {path}: keys of its records are texts")
    return records
