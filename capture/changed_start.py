"""Changes of the first recorded step by the options that change a run: `--synthetic`, `--weights-from`, `--perturb`.

Weights are changed once, when a model first runs with values; those of a model that is found later in the step, such as
another stage of a pipeline, before it runs. The batch is changed with the first, and at each further call of the same
model in this step, which is another micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .given_weights import GivenWeights
from .messages import say
from .modules import fsdp_state
from .perturb import perturb
from .settings import Settings
from .synthetic import synthesise_batch, synthesise_weights

__all__ = ["ChangedStart"]


class ChangedStart:
    """Changes of weights and batches, as settings ask for: `perturb`, `synthetic`, `weights_from`.

    Attributes:
        given: what `weights_from` did; None without it.
        before: digests of weights and batch as they were before the perturbation; empty without one.
    """

    def __init__(self, settings: Settings) -> None:
        self.before: dict[str, Any] = {}
        self._perturb, self._synthetic = settings.perturb, settings.synthetic
        self.given: GivenWeights | None = None
        if settings.weights_from is not None:
            self.given = GivenWeights(settings.weights_from, settings.stored)
        self._changed: set[str] = set()
        self._module: Any = None
        self._weights = False
        self._rows = self._batches = 0

    @property
    def undone(self) -> bool:
        """True as long as no model with parameters ran."""
        return not self._weights

    def first(
        self,
        module: Any,
        batch: Any,
        held: tuple[Iterable[tuple[str, Any]], Iterable[tuple[str, Any]]],
        parameters: Iterable[tuple[str, torch.Tensor]],
        measured: Callable[[], dict[str, Any]],
    ) -> None:
        """Change weights and batch before the first call of a model.

        Args:
            held: (path, tensor) of what this rank holds of parameters and buffers, of FSDP1 slices.
            parameters: (path, parameter) of all models, as the program has them.
            measured: measures what the step begins with, as the run info has it.
        """
        self._module, self._weights = module, True
        count = self._batch_of(batch) if self._synthetic is not None else 0
        held, parameters = self._new(*held), list(parameters)
        self._give(*held, f" and {_many(count)}")
        if self._perturb is not None:
            found = measured()
            self.before = {name: found[name] for name in ("parameters_digest", "batch_digest") if name in found}
            count = perturb(parameters, self._perturb)
            inputs = self._perturb_batch(batch)
            told = f"{count:,} parameters" + (f" and {_many(inputs)}" if inputs else "")
            say(f"perturbed {told} by one rounding error (--perturb {self._perturb}): this changes the run")

    def found(
        self,
        held: tuple[Iterable[tuple[str, Any]], Iterable[tuple[str, Any]]],
        parameters: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        """Change the weights of models that were not known at the first call; arguments as of `first`."""
        known = set(self._changed)
        self._give(*self._new(*held))
        if self._perturb is not None:
            perturb([each for each in parameters if each[0] not in known], self._perturb)

    def _new(self, *held: Iterable[tuple[str, Any]]) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Parameters and buffers that were not changed yet, and are from now on."""
        parameters, buffers = ([each for each in of if each[0] not in self._changed] for of in held)
        self._changed |= {name for name, _ in (*parameters, *buffers)}
        return parameters, buffers

    def _give(self, parameters: list[tuple[str, Any]], buffers: list[tuple[str, Any]], batch: str = "") -> None:
        """Give weights their values; `batch` is what is said of the batch."""
        if not parameters:
            return
        if self._synthetic is not None:
            done, left = synthesise_weights(parameters, buffers, self._synthetic)
            rest = f"; {len(left):,} stay as they are: {', '.join(left[:3])}" if left else ""
            told = f"gave {done:,} weights{batch} synthetic values (--synthetic {self._synthetic})"
            say(f"{told}: this changes the run{rest}")
        if self.given is not None:
            self.given.give(parameters, buffers)

    def further(self, module: Any, batch: Any) -> None:
        """Change the batch of a further call in the same step."""
        if module is not self._module:
            return
        if self._synthetic is not None:
            self._batch_of(batch)
        if self._perturb is not None:
            self._perturb_batch(batch)

    def _batch_of(self, batch: Any) -> int:
        assert self._synthetic is not None
        tensors = list({id(each): each for each in map(_with_targets, _inputs(batch))}.values())
        rows = next((tensor.shape[0] for tensor in tensors if tensor.dim()), 0)
        index, many = _data_parallel(self._module)
        first = self._rows * many + index * rows
        self._rows += rows
        return synthesise_batch(tensors, self._synthetic, first)

    def _perturb_batch(self, batch: Any) -> int:
        assert self._perturb is not None
        number, self._batches = self._batches, self._batches + 1
        named = [(f"batch {number} {k}", tensor) for k, tensor in enumerate(_inputs(batch)) if 0 not in tensor.stride()]
        return perturb(named, self._perturb)


def _many(count: int) -> str:
    return f"{count:,} tensor{'s' * (count != 1)} of the batch"


def _inputs(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch that nothing is differentiated through."""
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and not leaf.requires_grad and leaf.layout == torch.strided:
            yield leaf


def _with_targets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor of which this one is all rows, cut short: targets are often the same tokens, one further on."""
    base = tensor._base
    same_rows = base is not None and base.dim() == tensor.dim() and base.shape[:1] == tensor.shape[:1]
    return base if base is not None and same_rows and not base.requires_grad else tensor


def _data_parallel(module: Any) -> tuple[int, int]:
    """Return this process's number among those that read other rows than each other, and how many there are."""
    group = getattr(module, "process_group", None)  # of DistributedDataParallel and FSDP1
    if group is not None and hasattr(group, "rank"):
        return int(group.rank()), int(group.size())
    sharded = getattr(fsdp_state(module), "_fsdp_param_group", None)
    mesh: Any = getattr(getattr(sharded, "mesh_info", None), "mesh", None)
    if mesh is None:
        return 0, 1
    index, many = 0, 1
    for at, size in zip(mesh.get_coordinate() or (0,) * mesh.ndim, mesh.shape, strict=True):
        index, many = index * size + at, many * size
    return index, many
