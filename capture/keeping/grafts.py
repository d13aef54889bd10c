"""Grafts of the command line: what another run kept of the boundaries of its modules, in place of this run's values.

`--graft MODULES=RUN` overwrites what modules are given: inputs, gradients of outputs. `--graft-after MODULES=RUN`
overwrites what they give: outputs, gradients of inputs and of weights. `HERE:THERE=RUN` names modules that have other
names in that run; what a `*` of HERE stands for, the `*` of THERE stands for too.

Standard library alone: options are looked at before the script imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import Any

from .bundle import Bundle, BundleError, read_bundle
from .form import INPUT_GRADIENTS, INPUTS, OF_NO_MODULE, OUTPUT_GRADIENTS, OUTPUTS, find_bundles

__all__ = ["AFTER", "Graft", "HeldAlike", "held_alike", "key_of", "read_grafts", "read_kept"]

HeldAlike = frozenset[tuple[Any, ...]]
"""Tensors of boundaries: the key of a call, side and name."""

BEFORE, AFTER = (INPUTS, OUTPUT_GRADIENTS), (OUTPUTS, INPUT_GRADIENTS)
_SIDES = (*BEFORE, *AFTER)


@dataclass(frozen=True, slots=True)
class Graft:
    """A graft of the command line.

    Attributes:
        here, there: globs of modules in this run and in the other one.
        kinds: which sides of their boundaries.
        path: the other run.
        bundles: what its ranks kept in its steps.
    """

    here: str
    there: str
    kinds: tuple[str, ...]
    path: str
    bundles: Sequence[Bundle] = field(repr=False, compare=False)

    def name_there(self, module: str) -> str | None:
        """Return the name that a module of this run has in the other one, None if it is not meant."""
        if module in OF_NO_MODULE:
            return module if self.here == module else None
        if self.here == self.there:
            return module if fnmatchcase(module, self.here) else None
        found = re.fullmatch(translate(self.here).replace(".*", "(.*)"), module)
        if found is None:
            return None
        stars = iter(found.groups())
        return re.sub(r"\*", lambda _: next(stars, ""), self.there)


def read_grafts(before: Sequence[str], after: Sequence[str]) -> tuple[Graft, ...]:
    """Read what `--graft` and `--graft-after` were given.

    Raises:
        ValueError: one has another form, or its run kept no boundaries.
    """
    found = []
    kept: dict[str, list[Bundle]] = {}
    for option, specs, kinds in (("--graft", before, BEFORE), ("--graft-after", after, AFTER)):
        for spec in specs:
            names, equals, path = spec.partition("=")
            here, colon, there = names.partition(":")
            there = there if colon else here
            if not (equals and path and here and there):
                raise ValueError(f"{option} {spec}: expected MODULES=RUN, as in 'layers.7=runs/a'")
            if here.count("*") != there.count("*"):
                raise ValueError(f"{option} {spec}: {here} and {there} have not the same number of *")
            if path not in kept:
                kept[path] = read_kept(f"{option} {spec}", f"boundary:{there}", path)
            found.append(Graft(here, there, kinds, path, kept[path]))
    return tuple(found)


def held_alike(bundles: Iterable[Bundle]) -> HeldAlike:
    """Return the tensors without placement of which all ranks of a run, several, have the same bits."""
    of_ranks: dict[tuple[Any, ...], dict[Any, Any]] = {}
    bundles = [*bundles]
    for bundle in bundles:
        for call in bundle.boundaries:
            for side in _SIDES:
                for name, told in call.get(side, {}).items():
                    of_ranks.setdefault((*key_of(call), side, name), {})[bundle.run.get("rank")] = told
    ranks = {bundle.run.get("rank") for bundle in bundles}
    return frozenset(
        key for key, of in of_ranks.items() if len(ranks) > 1 and of.keys() == ranks and _alike(of.values())
    )


def _alike(tensors: Iterable[Mapping[str, Any]]) -> bool:
    forms = [[told.get(name) for name in ("storage", "dtype", "shape", "strides", "offset")] for told in tensors]
    return all(form == forms[0] for form in forms) and not any("placement" in told for told in tensors)


def key_of(call: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a call from the others of a step."""
    return call["module"], call["micro_batch"], call["recompute"], call["nth"]


def read_kept(what: str, save: str, path: str) -> list[Bundle]:
    """Return the bundles of a run with boundaries.

    Args:
        what: the option, for messages.
        save: what to keep, for advice.

    Raises:
        ValueError: there are none, or one cannot be read.
    """
    try:
        bundles = [bundle for folder in find_bundles(Path(path)) if (bundle := read_bundle(folder)).boundaries]
    except BundleError as error:
        raise ValueError(f"{what}: {error}") from None
    if not bundles:
        raise ValueError(f"{what}: {path} kept none: capture it with --save '{save}'")
    return bundles
