"""Forms of run: how run b differs from run a beside the planted bug, and which models can run so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.truth.bugs import BUGS, Bug
from tests.truth.run import Run

__all__ = ["FORMS", "MODELS", "Case", "Form", "cases"]

MODELS = ("conv", "encdec", "packed", "moe", "recurrent", "llama")


@dataclass(frozen=True, kw_only=True)
class Form:
    """A difference of form between two runs of one model.

    Attributes:
        both: settings of both runs.
        b: further settings of run b.
        models: the models that can run so.
        exact: those whose two runs have equal bits where they have the same operations: nothing is expected of the
            comparison. For the others, `--expect reduction-order`.
        by_module: any operation of the bug's module is right, or of one in it: a rank has parts of what lines make.
    """

    name: str
    both: Mapping[str, Any] = field(default_factory=dict)
    a: Mapping[str, Any] = field(default_factory=dict)
    b: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = MODELS
    exact: tuple[str, ...] = ()
    by_module: bool = False


_STILL = {"dropout": False}
_SPLIT = ("encdec", "packed", "moe", "recurrent", "llama")
"""Models without batch norm, whose batch can be split."""
_SHARDED = {"dropout": False, "clip": False, "optimizer": "for-loop"}
"""Sharded and whole parameters are neither clipped nor updated together."""
_TP = ("encdec", "packed", "moe", "llama")

FORMS = (
    Form(name="same", exact=MODELS),
    Form(name="ac", b={"ac": True}, models=("conv", "encdec", "packed", "moe", "llama"), exact=MODELS),
    Form(name="aot_eager", both=_STILL, b={"compiled": True}),
    Form(name="fused", b={"optimizer": "fused"}),
    Form(name="for-loop", b={"optimizer": "for-loop"}, exact=MODELS),
    Form(name="sdpa", both=_STILL, b={"attention": "sdpa"}, models=("encdec", "packed", "moe")),
    Form(name="chunked", b={"chunks": 2}, models=("encdec", "packed", "moe", "llama")),
    Form(name="micro", both=_STILL, b={"micro_batches": 2}, models=_SPLIT),
    Form(name="micro4", both=_STILL, a={"micro_batches": 2}, b={"micro_batches": 4}, models=_SPLIT),
    Form(name="dp2", both=_STILL, a={"micro_batches": 2}, b={"parallel": "dp"}, models=_SPLIT),
    Form(name="tp2", both=_SHARDED, b={"parallel": "tp"}, models=_TP, by_module=True),
    Form(name="tp2-open", both=_SHARDED, b={"parallel": "tp"}, models=("llama",), exact=("llama",), by_module=True),
    Form(name="bf16", both={"dtype": "bfloat16"}, exact=MODELS),
)


@dataclass(frozen=True)
class Case:
    """A pair of runs; without a bug they agree."""

    form: Form
    model: str
    seed: int
    bug: Bug | None = None

    @property
    def runs(self) -> tuple[Run, Run]:
        """Run a, and run b with the bug."""
        common = {"model": self.model, "seed": self.seed, **self.form.both}
        return Run(**common, **self.form.a), Run(**{**common, "bug": self.bug.name if self.bug else "", **self.form.b})

    @property
    def expected(self) -> bool:
        """True if another reduction order is expected."""
        return self.model not in self.form.exact

    @property
    def by_module(self) -> bool:
        return self.form.by_module

    @property
    def same_optimizer(self) -> bool:
        return self.runs[0].optimizer == self.runs[1].optimizer

    @property
    def name(self) -> str:
        return f"{self.model} {self.form.name} {self.bug.name if self.bug else '(no bug)'}"


def cases(
    models: Sequence[str] = (), forms: Sequence[str] = (), bugs: Sequence[str] = (), seeds: Sequence[int] = (1,)
) -> Iterator[Case]:
    """All cases with these models, forms, bugs (`none` for the agreeing pairs); empty for any."""
    for seed in seeds:
        for form in FORMS:
            for model in form.models:
                if (models and model not in models) or (forms and form.name not in forms):
                    continue
                if not bugs or "none" in bugs:
                    yield Case(form, model, seed)
                for bug in BUGS:
                    shown = form.name not in bug.never and (not bug.only or form.name in bug.only)
                    if bug.model == model and shown and (not bugs or bug.name in bugs):
                        yield Case(form, model, seed, bug)
