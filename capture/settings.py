"""Settings of a capture: the filters and switches of the command line and the API."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .globs import inside
from .guard import pass_on
from .keeping.against import Table, read_table
from .keeping.wanted import Wanted
from .messages import describe

if TYPE_CHECKING:
    from .keeping.bundle import Bundle
    from .keeping.grafts import Graft
    from .keeping.stored_weights import Stored

__all__ = ["MAX_OPERATIONS", "Settings", "parse_when"]

MAX_OPERATIONS = 2_000_000
"""Of a step that seems never to end."""


_LOSS, _NORM = "loss-is-nan", "grad-norm-above:"


def parse_when(text: str) -> float:
    """Return the gradient norm above which a step is written; NaN for `loss-is-nan`.

    Raises:
        ValueError: it is no condition.
    """
    if text == _LOSS:
        return math.nan
    try:
        limit = float(text.removeprefix(_NORM)) if text.startswith(_NORM) else math.nan
    except ValueError:
        limit = math.nan
    if not limit >= 0:
        raise ValueError(f"--when {text}: expected {_LOSS} or {_NORM}X")
    return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Filters and switches of a capture; a filter leaves records out and never changes the keys of the others.

    The default records everything. What is wrong is a ValueError when they are made, before anything is captured.

    Attributes:
        ops: globs of the operation names to record (`mm`, `*attention*`); empty for all.
        exclude_ops: globs of operation names to leave out.
        modules: globs over module paths (`layers.3.*`; a path matches its submodules too).
        dtypes: names of dtypes (`float32`); operations without a tensor of one of them are left out.
        min_numel: operations whose results all have fewer elements are left out.
        max_operations: the recording of a step ends after so many.
        sketch: take sketches (docs/sketch.md).
        compact: write once what repeats in a log (docs/log-format.md).
        keep_diff: keep the uncommitted changes of the training code in the header, as text.
        hash: a function of a tensor, or its name as `module:function`, whose values are recorded for every output.
        rows: globs of modules, or of `module/operation`: the rows of their results are measured, too.
        forward: a step is a call of a model, with gradients or without.
        of: globs over paths of modules; with `forward`, calls of these are the steps. Empty for whole models.
        ranks: ranks that write a log, None for all.
        save: operations to keep whole in a bundle beside the log: `module:GLOB`, or the path of a plan.
        save_limit: bytes that they may fill together.
        against: path of the digests of another run; the first operations that differ from it are kept whole.
        stop: end the process at the first of these.
        when: of all recorded steps, only the first one that meets this condition is written: `loss-is-nan`, or
            `grad-norm-above:X`; None to write all.
        keep_last: with `when`: that step and the recorded ones before it, so many together, are written.
        perturb: seed of a perturbation of all parameters, and of the floats of the batch, by one ε before the first
            recorded step, None for none.
        synthetic: seed of values by name and position that weights and batch get before the first recorded step.
        weights_from: path of the whole weights that the run gets before the first recorded step: a safetensors file,
            a folder of them, a run that kept its own; None for none.
        graft: `MODULES=RUN`: what these modules are given is overwritten by what that run kept.
        graft_after: the same, of what they give.
        graft_like: an earlier capture of the same command without grafts, which tells what all ranks hold alike, and
            how gradients are scaled.

    The last five change the run, and no others.
    """

    ops: tuple[str, ...] = ()
    exclude_ops: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    min_numel: int = 0
    max_operations: int = MAX_OPERATIONS
    sketch: bool = True
    compact: bool = False
    keep_diff: bool = False
    hash: Callable[[Any], Any] | str | None = None
    rows: tuple[str, ...] = ()
    forward: bool = False
    of: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    save: tuple[str, ...] = ()
    save_limit: int = 2 << 30
    against: str | None = None
    stop: bool = False
    when: str | None = None
    keep_last: int = 1
    perturb: int | None = None
    graft: tuple[str, ...] = ()
    graft_after: tuple[str, ...] = ()
    graft_like: str | None = None
    synthetic: int | None = None
    weights_from: str | None = None
    stored: Stored = field(init=False, repr=False, compare=False)
    wanted: Wanted = field(init=False, repr=False, compare=False)
    tables: Mapping[tuple[int, int], Table] = field(init=False, repr=False, compare=False)
    grafts: tuple[Graft, ...] = field(init=False, repr=False, compare=False)
    like: tuple[Bundle, ...] = field(init=False, repr=False, compare=False)
    hash_function: Callable[[Any], Any] | None = field(init=False, repr=False, compare=False)
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for glob in (*self.ops, *self.exclude_ops, *self.modules, *self.rows, *self.of):
            try:
                fnmatchcase("", glob)
            except re.error as error:  # before Python 3.11, as of `[z-a]`
                raise ValueError(f"{glob}: no pattern of names: {error}") from None
        object.__setattr__(self, "forward", self.forward or bool(self.of))
        if self.when is not None:
            parse_when(self.when)
        if self.keep_last < 1 or (self.keep_last > 1 and self.when is None):
            raise ValueError(f"--keep-last {self.keep_last}: expected a number of steps, from 1, of --when")
        object.__setattr__(self, "wanted", Wanted.of(self.save))
        object.__setattr__(self, "tables", {} if self.against is None else read_table(self.against))
        grafts: tuple[Graft, ...] = ()
        like: tuple[Bundle, ...] = ()
        if self.graft or self.graft_after:
            from .keeping.grafts import read_grafts, read_kept

            grafts = read_grafts(self.graft, self.graft_after)
            if self.graft_like is not None:
                like = tuple(read_kept(f"--graft-like {self.graft_like}", "boundary:*", self.graft_like))
        object.__setattr__(self, "grafts", grafts)
        object.__setattr__(self, "like", like)
        stored: Stored = {}
        if self.weights_from is not None:
            from .keeping.stored_weights import read_stored

            try:
                stored = read_stored(self.weights_from)
            except ValueError as reason:
                raise ValueError(f"--weights-from {reason}") from None
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "hash_function", _resolved(self.hash))

    def wants_op(self, name: str) -> bool:
        """Return True if operations of this name are recorded."""
        if self.ops and not any(fnmatchcase(name, glob) for glob in self.ops):
            return False
        return not any(fnmatchcase(name, glob) for glob in self.exclude_ops)

    def wants(self, module: str, name: str) -> bool:
        """Return True if operations of this name in this module are recorded."""
        known = self._known.get((module, name))
        if known is None:
            chosen = not self.modules or inside(module, self.modules)
            known = self._known[module, name] = chosen and self.wants_op(name)
        return known

    def wants_rank(self, rank: int) -> bool:
        """Return True if this rank writes a log."""
        return self.ranks is None or rank in self.ranks

    @property
    def noun(self) -> str:
        """The unit that is counted and recorded: a step, or a call of a model."""
        return "call" if self.forward else "step"

    @property
    def filters_results(self) -> bool:
        """True if an operation's results decide whether it is recorded."""
        return bool(self.dtypes) or self.min_numel > 0

    def wants_results(self, results: list[tuple[str, int]]) -> bool:
        """Return True if an operation with results of these (dtype, number of elements) is recorded."""
        if self.dtypes and not any(dtype in self.dtypes for dtype, _ in results):
            return False
        return not results or max(numel for _, numel in results) >= self.min_numel

    @property
    def changes_run(self) -> list[str]:
        """The options that change the run, as of the command line."""
        said = (("perturb", self.perturb), ("synthetic", self.synthetic), ("weights-from", self.weights_from),
            ("graft-like", self.graft_like))  # fmt: skip
        return [f"--{name} {value}" for name, value in said if value is not None] + [
            f"--{name} {spec}" for name, of in (("graft", self.graft), ("graft-after", self.graft_after)) for spec in of
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for the run info."""
        out: dict[str, Any] = {}
        for name in ("ops", "exclude_ops", "modules", "dtypes", "rows", "of", "ranks"):
            if value := getattr(self, name):
                out[name] = list(value)
        if self.min_numel:
            out["min_numel"] = self.min_numel
        out["sketch"] = self.sketch
        if self.forward:
            out["forward"] = True
        if self.perturb is not None:
            out["perturb"] = self.perturb
        if self.synthetic is not None:
            out["synthetic"] = self.synthetic
        if changes := self.changes_run:
            out["changes_run"] = changes
        if self.hash is not None:
            # not its text: an address or the arguments of a partial
            named = getattr(self.hash, "__qualname__", type(self.hash).__qualname__)
            out["hash"] = self.hash if isinstance(self.hash, str) else named
        return out


def _resolved(named: Callable[[Any], Any] | str | None) -> Callable[[Any], Any] | None:
    """Return the function of a name such as `module:function`, which imports the module.

    Raises:
        ValueError: the name has another form, or there is no such function.
    """
    if named is None or callable(named):
        return named
    from importlib import import_module

    module, colon, function = named.partition(":")
    if not (colon and module and function) or module.startswith("."):
        raise ValueError(f"--hash {named}: expected module:function, as in mypackage.checks:row_sums")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--hash {named}: {error}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 the module is any program
        pass_on(error)
        raise ValueError(f"--hash {named}: {describe(error)}") from None
    if not callable(found):
        raise ValueError(f"--hash {named}: {function} is not a function")
    return found
