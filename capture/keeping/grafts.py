"""Grafts: what another run kept of the boundaries of its modules, in place of this run's values.

`--graft MODULES=RUN` overwrites what modules are given: inputs, gradients of outputs. `--graft-after MODULES=RUN`
overwrites what they give: outputs, gradients of inputs and of weights. `HERE:THERE=RUN` names modules that have other
names in that run; what a `*` of HERE stands for, the `*` of THERE stands for too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..globs import inside
from .bundle import BundleError, read_bundle
from .form import INPUT_GRADIENTS, INPUTS, OUTPUT_GRADIENTS, OUTPUTS, find_bundles

if TYPE_CHECKING:
    import torch

    from .kept_values import KeptRun

__all__ = ["Grafts"]

_BEFORE, _AFTER = (INPUTS, OUTPUT_GRADIENTS), (OUTPUTS, INPUT_GRADIENTS)
_OF_WEIGHTS = "gradients"
_OF_OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class _Graft:
    """A graft of the command line.

    Attributes:
        here, there: globs of modules in this run and in the other one.
        kinds: which sides of their boundaries.
        run: the other one.
    """

    here: str
    there: str
    kinds: tuple[str, ...]
    run: KeptRun

    def name_there(self, module: str) -> str | None:
        """Return the name that a module of this run has in the other one, None if it is not meant."""
        if module in (_OF_WEIGHTS, _OF_OPTIMIZER):
            return module if self.here == module else None
        if self.here == self.there:
            return module if fnmatchcase(module, self.here) else None
        found = re.fullmatch(translate(self.here).replace(".*", "(.*)"), module)
        if found is None:
            return None
        stars = iter(found.groups())
        return re.sub(r"\*", lambda _: next(stars, ""), self.there)


@dataclass
class Grafts:
    """The grafts of a capture, and what came of them in the step that is recorded.

    Attributes:
        specs: as they were given.
        overwritten, equal: number of tensors that were overwritten, and that had these bits already.
        missed: why others were not, by call, side and name.
    """

    specs: Mapping[str, Sequence[str]]
    overwritten: int = 0
    equal: int = 0
    missed: dict[str, str] = field(default_factory=dict)
    _grafts: list[_Graft] = field(default_factory=list)

    @classmethod
    def of(cls, before: Sequence[str], after: Sequence[str]) -> Grafts | None:
        """Read what `--graft` and `--graft-after` were given; None if nothing.

        Raises:
            ValueError: one has another form, or its run kept no boundaries.
        """
        made = cls({"graft": tuple(before), "graft_after": tuple(after)})
        runs: dict[str, KeptRun] = {}
        for option, specs, kinds in (("--graft", before, _BEFORE), ("--graft-after", after, _AFTER)):
            for spec in specs:
                names, equals, path = spec.partition("=")
                here, colon, there = names.partition(":")
                there = there if colon else here
                if not (equals and path and here and there):
                    raise ValueError(f"{option} {spec}: expected MODULES=RUN, as in 'layers.7=runs/a'")
                if here.count("*") != there.count("*"):
                    raise ValueError(f"{option} {spec}: {here} and {there} have not the same number of *")
                if path not in runs:
                    runs[path] = _kept_run(option, spec, names, path)
                made._grafts.append(_Graft(here, there, kinds, runs[path]))
        return made if made._grafts else None

    def begin(self, rank: int, step: int) -> None:
        """Begin a step."""
        self.overwritten = self.equal = 0
        self.missed.clear()
        for run in self._runs:
            run.begin(rank, step)

    def wants(self, module: str) -> bool:
        """Return True if a module of this run is meant."""
        return any(graft.name_there(module) is not None for graft in self._grafts)

    def takes(self, module: str, kind: str, path: str = "") -> bool:
        """Return True if a side of a module's boundary is to be overwritten; of gradients of weights, by their name."""
        return self._graft_of(module, kind, path) is not None

    def _graft_of(self, module: str, kind: str, path: str) -> tuple[_Graft, str] | None:
        for graft in self._grafts:
            if kind in graft.kinds and (there := graft.name_there(module)) is not None:
                return graft, there
            if module == _OF_WEIGHTS and graft.kinds == _AFTER and inside(path.rpartition(".")[0], [graft.here]):
                return graft, module
        return None

    def batch(self, micro_batch: int | None, batch: torch.Tensor) -> None:
        """Take the batch of this rank, whose rows say which rows of the other run's tensors are meant."""
        for run in self._runs:
            run.called(micro_batch, batch)

    @property
    def _runs(self) -> list[KeptRun]:
        return list({id(graft.run): graft.run for graft in self._grafts}.values())

    def random(self, call: Mapping[str, Any]) -> bytes | None:
        """Return the state of the random generator that the other run had before a call; None if it is not meant."""
        found = self._graft_of(call["module"], _BEFORE[0], "")
        return None if found is None else found[0].run.random({**call, "module": found[1]})

    def value(
        self, call: Mapping[str, Any], kind: str, path: str, part: torch.Tensor, placement: Mapping[str, Any] | None
    ) -> torch.Tensor | None:
        """Return what the other run kept in place of a tensor; None if it did not, or if it has these bits already."""
        from .kept_values import NotKept, same_bits

        found = self._graft_of(call["module"], kind, path)
        assert found is not None
        graft, there = found
        if path.startswith(graft.here + ".") and call["module"] == _OF_WEIGHTS:
            path = graft.there + path.removeprefix(graft.here)
        try:
            value = graft.run.value({**call, "module": there}, kind, path, part, placement)
        except NotKept as reason:
            self.refused(call, kind, path, str(reason))
            return None
        if same_bits(value, part):
            self.equal += 1
            return None
        self.overwritten += 1
        return value

    def refused(self, call: Mapping[str, Any], kind: str, path: str, why: str) -> None:
        """Note a tensor that was not overwritten."""
        what = f"{kind} {path}".strip().replace("_", " ")
        self.missed.setdefault(f"{call['module']}: {what}", why)

    def as_json(self) -> dict[str, Any]:
        """Return what came of the grafts, for the run info."""
        found: dict[str, Any] = {name: list(of) for name, of in self.specs.items() if of}
        found |= {"overwritten": self.overwritten, "equal": self.equal}
        if factors := [run.factor for run in self._runs if run.factor not in (None, 1.0)]:
            found["gradients_times"] = factors[0]
        return found | ({"missed": dict(list(self.missed.items())[:100])} if self.missed else {})

    def said(self) -> str:
        """Return what is said of them, beginning with a comma."""
        if not (self.overwritten or self.equal):
            text = ", nothing was grafted"
        elif not self.overwritten:
            text = f", all {self.equal:,} grafted tensors had these bits already"
        else:
            text = f", grafted {self.overwritten:,} tensors: this changes the run ({self.equal:,} had these bits already)"
        if factors := [run.factor for run in self._runs if run.factor not in (None, 1.0)]:
            text += f", gradients times {factors[0]:g} for this rank's part of the batch"
        if self.missed:
            what, why = next(iter(self.missed.items()))
            text += f", {len(self.missed):,} not (the first: {what}: {why})"
        elif not (self.overwritten or self.equal):
            text += ": no module of these names was called"
        return text


def _kept_run(option: str, spec: str, names: str, path: str) -> KeptRun:
    from .kept_values import KeptRun

    try:
        bundles = [read_bundle(folder) for folder in find_bundles(Path(path))]
    except BundleError as error:
        raise ValueError(f"{option} {spec}: {error}") from None
    if not any(bundle.boundaries for bundle in bundles):
        wanted = names.partition(":")[2] or names
        raise ValueError(f"{option} {spec}: {path} kept none: capture it with --save 'boundary:{wanted}'")
    return KeptRun([bundle for bundle in bundles if bundle.boundaries])
