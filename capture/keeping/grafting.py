"""Grafts at work: the values that stand in place of a step's own, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..globs import inside
from .bundle import Bundle
from .form import INPUTS, OF_NO_MODULE, OF_WEIGHTS, OUTPUTS
from .grafts import AFTER, Graft, held_alike, key_of
from .kept_values import KeptRun, NotKept, same_bits

__all__ = ["Grafting"]


@dataclass
class Grafting:
    """The grafts of a capture at work, and what came of them in the step that is recorded.

    Attributes:
        grafts: of the command line.
        like: what ranks kept in another capture of the same command without grafts.
        overwritten, equal: number of tensors that were overwritten, and that had these bits already.
        missed: why others were not, by call, side and name.
        over: the modules of which what they are given, or give, was overwritten in the forward pass.
    """

    grafts: Sequence[Graft]
    like: Sequence[Bundle] = ()
    overwritten: int = 0
    equal: int = 0
    missed: dict[str, str] = field(default_factory=dict)
    over: dict[str, dict[str, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._of_path = {graft.path: KeptRun(graft.bundles) for graft in self.grafts}
        self._alike = held_alike(self.like)
        self._rank = 0

    def begin(self, rank: int, step: int) -> None:
        """Begin a step."""
        self.overwritten = self.equal = 0
        self.missed.clear()
        self.over = {INPUTS: {}, OUTPUTS: {}}
        self._rank = rank
        for run in self._runs:
            run.begin(rank, step)

    def takes(self, module: str, kind: str, path: str = "") -> bool:
        """Return True if a side of a module's boundary is to be overwritten; of gradients of weights, by their name."""
        return self._graft_of(module, kind, path) is not None

    def _graft_of(self, module: str, kind: str, path: str) -> tuple[Graft, str] | None:
        for graft in self.grafts:
            if kind in graft.kinds and (there := graft.name_there(module)) is not None:
                return graft, there
            if module == OF_WEIGHTS and graft.kinds == AFTER and inside(path.rpartition(".")[0], [graft.here]):
                return graft, module
        return None

    def batch(self, micro_batch: int | None, batch: torch.Tensor) -> None:
        """Take the batch of this rank, whose rows say which rows of the other run's tensors are meant."""
        for run in self._runs:
            run.called(micro_batch, batch)
            for bundle in self.like:
                if bundle.run.get("rank") == self._rank:
                    run.learn(bundle, micro_batch)

    def observe(
        self, call: Mapping[str, Any], kind: str, path: str, part: torch.Tensor, placement: Mapping[str, Any] | None
    ) -> None:
        """Take a gradient, before any graft of it: it tells how those of both runs are scaled."""
        for run in self._runs:
            run.observe(call, kind, path, part, placement)

    @property
    def _runs(self) -> list[KeptRun]:
        return list(self._of_path.values())

    def random(self, call: Mapping[str, Any]) -> bytes | None:
        """Return the state of the random generator that the other run had before a call; None if it is not meant."""
        found = self._graft_of(call["module"], INPUTS, "")
        return None if found is None else self._of_path[found[0].path].random({**call, "module": found[1]})

    def value(
        self, call: Mapping[str, Any], kind: str, path: str, part: torch.Tensor, placement: Mapping[str, Any] | None
    ) -> torch.Tensor | None:
        """Return what the other run kept in place of a tensor; None if it did not, or if it has these bits already."""
        found = self._graft_of(call["module"], kind, path)
        assert found is not None
        graft, there = found
        alike = (*key_of(call), kind, path) in self._alike
        if path.startswith(graft.here + ".") and call["module"] == OF_WEIGHTS:
            path = graft.there + path.removeprefix(graft.here)
        try:
            value = self._of_path[graft.path].value({**call, "module": there}, kind, path, part, placement, alike=alike)
        except NotKept as reason:
            self.refused(call, kind, path, str(reason))
            return None
        if same_bits(value, part):
            self.equal += 1
            return None
        self.overwritten += 1
        if kind in self.over and call["module"] not in OF_NO_MODULE:
            self.over[kind][call["module"]] = None
        return value

    def refused(self, call: Mapping[str, Any], kind: str, path: str, why: str) -> None:
        """Note a tensor that was not overwritten."""
        what = f"{kind} {path}".strip().replace("_", " ")
        self.missed.setdefault(f"{call['module']}: {what}", why)

    def as_json(self) -> dict[str, Any]:
        """Return what came of the grafts, for the run info."""
        found: dict[str, Any] = {"overwritten": self.overwritten, "equal": self.equal}
        if factors := [run.factor for run in self._runs if run.factor not in (None, 1.0)]:
            found["gradients_times"] = factors[0]
        found |= {kind: [*modules] for kind, modules in self.over.items() if modules}
        return found | ({"missed": dict(list(self.missed.items())[:100])} if self.missed else {})

    def said(self) -> str:
        """Return what is said of them, beginning with a comma."""
        if not (self.overwritten or self.equal):
            text = ", nothing was grafted"
        elif not self.overwritten:
            text = f", all {self.equal:,} grafted tensors had these bits already"
        else:
            text = (
                f", grafted {self.overwritten:,} tensors: this changes the run ({self.equal:,} had these bits already)"
            )
        if factors := [run.factor for run in self._runs if run.factor not in (None, 1.0)]:
            text += f", gradients times {factors[0]:g} for this rank's part of the batch"
        if self.missed:
            what, why = next(iter(self.missed.items()))
            text += f", {len(self.missed):,} not (the first: {what}: {why})"
        elif not (self.overwritten or self.equal):
            text += ": no module of these names was called"
        return text
