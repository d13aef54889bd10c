"""Subjects, their forms and bugs, and the pairs of runs made of them; no torch, so that kept logs are found without it.

A subject is a module of `subjects` (one process) or `ranks` (several) with

    FORMS       names of ways to compute the same thing; the first is the reference
    BUGS        what can be planted
    build(run)  -> the model, with the same parameters in every form
    batch(run)  -> a dict of its inputs, drawn from `run.seed`
    step(model, data, optimizer, run) -> the loss, after forward, backward, clipping and the step of the optimizer

and, where needed, `optimizer(model, run)` in place of the usual one, `canonical(tensors, run)`, which names and cuts
gradients or parameters by name as the first form does; `DTYPES`, of `float32`, `bfloat16`, `float64`; `PAIRS` of
forms, in place of all; `PRECISION`, the dtype that a form rounds gradients to; `RANKS` of each form. What subjects of
several ranks share is in `parallel`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

from tests.truth.bugs import marks

__all__ = ["Bug", "Case", "Run", "cases", "chosen", "load", "subjects"]

_HERE = Path(__file__).parent
_SHARED = ("subject.py", "oracle.py", "captures.py", "layered.py")
_COMMON = {
    "ranks": ("parallel/[a-z]*.py",),
    "divisions": ("dividing.py",),
    "sequences": ("sequence.py", "sharing.py"),
    "experts": ("routing.py", "sharing.py"),
    "tensors": ("tensor.py",),
}
"""By folder, the files that its subjects share."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training step of a subject.

    Attributes:
        bug: name of the planted bug, empty for none.
        size: of the bug, relative; 0 for bugs that are there or not.
        every: the bug is in every layer, not in layer 1 alone.
        only: the rank that alone has the bug; -1 for all.
        ranks: number of processes.
    """

    subject: str
    form: str
    bug: str = ""
    size: float = 0.0
    every: bool = False
    only: int = -1
    seed: int = 1
    dtype: str = "float32"
    ranks: int = 1

    def has(self, bug: str, layer: int = 1) -> bool:
        """True where a planted bug is in a layer (and on this rank)."""
        if self.bug != bug or not (self.every or layer == 1):
            return False
        if self.only < 0:
            return True
        import torch.distributed as dist

        return bool(dist.get_rank() == self.only)

    def factor(self, bug: str, layer: int = 1) -> float:
        """The factor by which a planted bug scales what it touches; 1 without it."""
        return 1.0 + self.size if self.has(bug, layer) else 1.0

    @property
    def folder(self) -> str:
        """A name that tells this run from any other, and from those of other code."""
        parts = [self.form, self.dtype, *([self.bug, f"{self.size:g}"] if self.bug else [])]
        digest = hashlib.sha256((_code(self.subject) + json.dumps(asdict(self))).encode()).hexdigest()[:10]
        return f"{self.subject},{','.join(parts)},{digest}"


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug and its place: the lines `# bug: NAME` of the subject's file.

    Attributes:
        module: pattern of the module's path; `{}` in it is the layer. Empty for any.
        phase: `forward`, `backward`, `optimizer`; empty for any.
        parameters, ops: of bugs that write a wrong parameter or state, as of `tests.truth.bugs.Bug`.
        sizes: relative sizes; (0.0,) for a bug that is there or not.
        layers: it can be in one layer, or in every one.
        forms: the forms that can have it; empty for all.
        ranks: of it alone have the bug, in turn; -1 stands for all ranks.
    """

    name: str
    module: str = ""
    phase: str = "forward"
    parameters: str = ""
    ops: str = ""
    sizes: tuple[float, ...] = (0.0,)
    layers: bool = False
    forms: tuple[str, ...] = ()
    ranks: tuple[int, ...] = (-1,)
    lines: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """A pair of runs; without a bug they agree."""

    a: Run
    b: Run
    bug: Bug | None = None
    by_module: bool = False

    @property
    def name(self) -> str:
        bug = f" {self.b.bug} {self.b.size or ''}{' every' * self.b.every}".rstrip() if self.bug else ""
        rank = f" rank {self.b.only}" if self.b.only >= 0 else ""
        return f"{self.a.subject} {self.a.form}-{self.b.form} {self.a.dtype}{bug}{rank}"

    @property
    def same_optimizer(self) -> bool:
        return self.a.form == self.b.form


def load(subject: str) -> Any:
    """The module of a subject."""
    return importlib.import_module(f"tests.truth.wide.{_path(subject).parent.name}.{subject}")


def subjects(folder: str = "*s") -> list[str]:
    """Names of all subjects, of one process (`subjects`) or several (`ranks`)."""
    return [path.stem for path in sorted(_HERE.glob(f"{folder}/[a-z]*.py"))]


def cases(subject: str, seed: int) -> Iterator[Case]:
    """The pairs of a subject: each two forms, and each bug in the same form and in another.

    Other dtypes have the pairs of the first form with each other one.
    """
    module = load(subject)
    forms, ranks = module.FORMS, getattr(module, "RANKS", {})
    lines: dict[str, set[str]] = {}
    for path in _files(subject):
        for name, marked in marks(path).items():
            lines.setdefault(name, set()).update(marked)

    def run(form: str, **changes: Any) -> Run:
        return Run(subject=subject, form=form, seed=seed, ranks=ranks.get(form, 1), **changes)

    for dtype in getattr(module, "DTYPES", ("float32",)):
        for a, b in getattr(module, "PAIRS", combinations(forms, 2)):
            if dtype == "float32" or a == forms[0]:
                yield Case(run(a, dtype=dtype), run(b, dtype=dtype), by_module=ranks.get(b, 1) > 1)
    for index, bug in enumerate(module.BUGS):
        able = [form for form in bug.forms or forms if form in forms]
        spread = (False, True) if bug.layers else (False,)
        variants = list(product(bug.sizes, spread, bug.ranks))
        for turn, (size, every, only) in enumerate(variants):
            form_b = able[(seed + index + turn) % len(able)]
            only = only if only < ranks.get(form_b, 1) else -1
            layer = r"\d+" if every else "1"
            placed = replace(
                bug, module=bug.module.replace("{}", layer), lines=frozenset(lines.get(bug.name, frozenset()))
            )
            for form_a in dict.fromkeys((form_b, forms[0])):
                b = run(form_b, bug=bug.name, size=size, every=every, only=only)
                yield Case(run(form_a), b, placed, by_module=b.ranks > 1)


@cache
def _path(subject: str) -> Path:
    (path,) = _HERE.glob(f"*s/{subject}.py")
    return path


def _files(subject: str) -> list[Path]:
    """The file of a subject, and those that subjects of several ranks share."""
    path = _path(subject)
    shared = _COMMON.get(path.parent.name, ())
    return [path, *(file for pattern in shared for file in sorted(_HERE.glob(pattern)))]


@cache
def _code(subject: str) -> str:
    """Digest of what a run depends on."""
    files = [*_files(subject), *(_HERE / name for name in _SHARED)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def chosen(names: Sequence[str], seed: int) -> list[Case]:
    """The cases of some subjects, all if none is named."""
    return [case for name in names or subjects() for case in cases(name, seed)]
