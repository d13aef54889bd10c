"""A training step of several ranks, computed with numpy.

The model has layers of a norm's weight, two matrices with a ReLU between them, and a residual connection. Ranks divide
batches, matrices, parameters and layers between them as in training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.matchers.runs.lockstep import Array, Lockstep, Spread, Tensor, digest, named
from tests.matchers.runs.plan import Faults, Plan

__all__ = ["TrainingStep"]

_LR = 0.1
_LIMIT = 0.5
"""Norm above which gradients are scaled down."""


class TrainingStep:
    """The step of all ranks; `run` computes it, once.

    Attributes:
        world: the ranks, with their records.
    """

    def __init__(self, plan: Plan, faults: Faults) -> None:
        self._plan, self._layout, self._faults = plan, plan.layout, faults
        self.world = Lockstep(plan.layout.world, functional=plan.functional, dtype=plan.dtype, faults=faults.results)
        self._weights = self._initial()
        self._gradients: dict[str, Spread] = {}
        self._saved: dict[int, tuple[Spread, ...]] = {}

    def run(self) -> dict[int, dict[str, Any]]:
        """Run the step; returns the run info of each rank."""
        layout, plan = self._layout, self._plan
        start = self._contents()
        x: Spread = {rank: Tensor(self._samples(rank)) for rank in self._stage(0)}
        layers = range(plan.layers * layout.pp)
        for k in layers:
            if k and k % plan.layers == 0:
                x = self.world.send(f"stages.{k // plan.layers}", x, self._neighbours(x, 1))
            x = self._forward(k, x)
        self.world.op("loss/sum", np.sum, x)
        self.world.phase = "backward"
        dx = self.world.op("loss/mul", lambda z: z * (2 / z.size), x)
        for k in reversed(layers):
            dx = self._backward(k, dx)
            if k and k % plan.layers == 0:
                dx = self.world.send(f"stages.{k // plan.layers}", dx, self._neighbours(dx, -1))
        self._reduce()
        if plan.clip:
            self.world.phase = "gradients"
            self._clip()
        self.world.phase = "optimizer"
        self._update()
        return {rank: self._info(rank, start[rank]) for rank in range(layout.world)}

    # the model

    def _initial(self) -> dict[str, Spread]:
        """The parameters of each rank; those of a layer exist on the ranks of its stage."""
        plan = self._plan
        found: dict[str, Spread] = {}
        for k in range(plan.layers * self._layout.pp):
            random = np.random.default_rng([plan.seed, 1, k])
            whole = {
                f"layers.{k}.norm.weight": np.ones(self._width),
                f"layers.{k}.w1.weight": random.standard_normal((self._width, self._hidden)) / self._width,
                f"layers.{k}.w2.weight": random.standard_normal((self._hidden, self._width)) / self._hidden,
            }
            if plan.scale:
                whole[f"layers.{k}.scale.weight"] = np.ones(self._hidden)
            for name, values in whole.items():
                found[name] = {
                    rank: Tensor(self._changed(rank, name, self._part(rank, name, values.astype(plan.dtype))), "", name)
                    for rank in self._stage(k // plan.layers)
                }
        return found

    def _changed(self, rank: int, name: str, values: Array) -> Array:
        change = self._faults.weights.get((rank, name))
        return values if change is None else change(values)

    def _part(self, rank: int, name: str, values: Array) -> Array:
        """What a rank holds of a parameter."""
        at, layout = self._layout.at(rank), self._layout
        if (dim := _TP[_kind(name)]) is not None:
            values = np.split(values, layout.tp, dim)[at["tp"]]
        if layout.sharded:
            values = np.split(values, layout.dp)[at["dp"]]
        return np.ascontiguousarray(values)

    @property
    def _width(self) -> int:
        return self._plan.width * self._layout.dp

    @property
    def _hidden(self) -> int:
        return self._plan.hidden * self._layout.dp * self._layout.tp

    def _batch(self, rank: int) -> Array:
        at, layout = self._layout.at(rank), self._layout
        random = np.random.default_rng([self._plan.seed, 2, self._faults.batches.get(rank, at["dp"])])
        return random.standard_normal((self._plan.batch * layout.tp, self._width)).astype(self._plan.dtype)

    def _samples(self, rank: int) -> Array:
        """What a rank computes of the batch that it reads."""
        whole, layout = self._batch(rank), self._layout
        return np.split(whole, layout.tp)[layout.at(rank)["tp"]] if layout.sequence else whole

    def _stage(self, stage: int) -> list[int]:
        return [rank for rank in range(self._layout.world) if self._layout.at(rank)["pp"] == stage]

    def _neighbours(self, ranks: Collection[int], way: int) -> dict[int, int]:
        return {rank: rank + way * self._layout.dp * self._layout.tp for rank in ranks}

    # the passes

    def _forward(self, k: int, x: Spread) -> Spread:
        run, plan, name = self.world, self._plan, f"layers.{k}"
        norm, w1, w2 = (self._whole(f"{name}.{of}.weight") for of in ("norm", "w1", "w2"))
        h = run.op(f"{name}.norm/mul", np.multiply, x, norm)
        if self._layout.sequence:
            h = self._over("tp", "all_gather", f"{name}.w1", h)
        a = run.op(f"{name}.w1/mm", np.matmul, h, w1)
        r = run.op(f"{name}/relu", lambda v: np.maximum(v, 0), a)
        scale = self._whole(f"{name}.scale.weight") if plan.scale else {}
        s = run.op(f"{name}.scale/mul", np.multiply, r, scale) if plan.scale else r
        mask = self._mask(f"{name}.between", k, s, divided=True)
        s = run.op(f"{name}.between/mul", np.multiply, s, mask) if plan.dropout else s
        y = run.op(f"{name}.w2/mm", np.matmul, s, w2)
        y = self._over("tp", "reduce_scatter" if self._layout.sequence else "all_reduce", f"{name}.w2", y, "sum")
        after = self._mask(f"{name}.dropout", k, y, divided=self._layout.sequence)
        y = run.op(f"{name}.dropout/mul", np.multiply, y, after) if plan.dropout else y
        if not run.recompute:
            self._saved[k] = (x, h, a, r, s, norm, w1, w2, scale, mask, after)
        return run.op(f"{name}/add", np.add, x, y)

    def _mask(self, module: str, k: int, like: Spread, *, divided: bool) -> Spread:
        """Random zeros and ones, the same on all tp ranks or different ones; those of the first pass when run again."""
        if not self._plan.dropout:
            return {}
        seeds = {}
        for rank in like:
            at = self._layout.at(rank)
            own = (1 + at["tp"],) if divided else (0, self._faults.draws.get(rank, 0))
            seeds[rank] = [self._plan.seed, 3, k, at["dp"], *own]
        return self.world.draw(f"{module}/bernoulli_", like, seeds)

    def _backward(self, k: int, dz: Spread) -> Spread:
        run, plan, name = self.world, self._plan, f"layers.{k}"
        x, h, a, r, s, norm, w1, w2, scale, mask, after = self._saved[k]
        if plan.checkpoint:
            run.recompute = True
            self._forward(k, x)
            run.recompute = False
        dy = run.op(f"{name}.dropout/mul", np.multiply, dz, after) if plan.dropout else dz
        if self._layout.sequence:
            dy = self._over("tp", "all_gather", f"{name}.w2", dy)
        ds = run.op(f"{name}.w2/mm", lambda g, w: g @ w.T, dy, w2)
        self._keep(f"{name}.w2.weight", run.op(f"{name}.w2/mm", lambda v, g: v.T @ g, s, dy))
        ds = run.op(f"{name}.between/mul", np.multiply, ds, mask) if plan.dropout else ds
        dr = ds
        if plan.scale:
            self._keep(f"{name}.scale.weight", run.op(f"{name}.scale/sum", lambda g, v: (g * v).sum(0), ds, r))
            dr = run.op(f"{name}.scale/mul", np.multiply, ds, scale)
        da = run.op(f"{name}/threshold_backward", lambda g, v: g * (v > 0), dr, a)
        dh = run.op(f"{name}.w1/mm", lambda g, w: g @ w.T, da, w1)
        dh = self._over("tp", "reduce_scatter" if self._layout.sequence else "all_reduce", f"{name}.w1", dh, "sum")
        self._keep(f"{name}.w1.weight", run.op(f"{name}.w1/mm", lambda v, g: v.T @ g, h, da))
        self._keep(f"{name}.norm.weight", run.op(f"{name}.norm/sum", lambda g, v: (g * v).sum(0), dh, x))
        dx = run.op(f"{name}.norm/mul", np.multiply, dh, norm)
        return run.op(f"{name}/add", np.add, dz, dx)

    def _whole(self, name: str) -> Spread:
        """A parameter, gathered if it is sharded."""
        if not self._layout.sharded:
            return self._weights[name]
        return self._over("dp", "all_gather", name.removesuffix(".weight"), self._weights[name])

    def _keep(self, name: str, gradient: Spread) -> None:
        if name not in self._faults.frozen:
            self._gradients[name] = named(gradient, f"{name}.grad")

    def _over(self, dimension: str, kind: str, module: str, tensors: Spread, by: str = "") -> Spread:
        return self.world.exchange(kind, module, tensors, self._layout.groups(dimension), by)

    # from gradients to weights

    def _reduce(self) -> None:
        """Average gradients over dp; those of norms are partial sums where samples are divided over tp."""
        for name, gradient in self._gradients.items():
            usual = ["tp", "dp"] if self._layout.sequence and _kind(name) == "norm" else ["dp"]
            module, dimensions = name.removesuffix(".weight"), self._faults.reduced.get(name, usual)
            alone = name in self._faults.reduced or name in self._faults.summed
            if "tp" in dimensions:
                gradient = self._over("tp", "all_reduce", module, gradient, "sum")
            if "dp" in dimensions and self._layout.sharded:
                gradient = self._averaged(module, "reduce_scatter", gradient, summed=name in self._faults.summed)
            elif "dp" in dimensions and (alone or not self._plan.bucket):
                gradient = self._averaged(module, "all_reduce", gradient, summed=name in self._faults.summed)
            self._gradients[name] = gradient
        if self._plan.bucket and not self._layout.sharded:
            for stage in range(self._layout.pp):
                self._reduce_bucket(stage)

    def _averaged(self, module: str, kind: str, tensors: Spread, *, summed: bool = False) -> Spread:
        by = "sum" if summed or not self._plan.mean else "avg"
        tensors = self._over("dp", kind, module, tensors, by)
        if by == "sum" and not summed and self._layout.dp > 1:
            tensors = self.world.write(f"{module}/div_", lambda g: g / self._layout.dp, tensors)
        return tensors

    def _reduce_bucket(self, stage: int) -> None:
        ranks = self._stage(stage)
        alone = {*self._faults.reduced, *self._faults.summed}
        names = [name for name, of in self._gradients.items() if ranks[0] in of and name not in alone]
        parts = [self._gradients[name] for name in names]
        module = f"buckets.{stage}"
        bucket = self.world.op(f"{module}/cat", lambda *of: np.concatenate([g.ravel() for g in of]), *parts)
        bucket = self._averaged(module, "all_reduce", bucket)
        start = 0
        for name, part in zip(names, parts, strict=True):
            shape = part[ranks[0]].array.shape
            end = start + int(np.prod(shape))
            views = {rank: replace(of, value=of.array[start:end].reshape(shape)) for rank, of in bucket.items()}
            self._gradients[name] = self.world.write(f"{module}/copy_", lambda _, view: view, part, views)
            start = end

    def _clip(self) -> None:
        """Scale all gradients down where their norm, over all ranks, exceeds the limit."""

        def square(*of: Array) -> Array:
            return np.sum([(g**2).sum() for g in of])

        run, names = self.world, list(self._gradients)
        total: dict[int, Tensor] = {}
        for stage in range(self._layout.pp):
            own = [name for name in names if self._stage(stage)[0] in self._gradients[name]]
            divided = [self._gradients[name] for name in own if _TP[_kind(name)] is not None]
            alike = [self._gradients[name] for name in own if _TP[_kind(name)] is None]
            part = self._over("tp", "all_reduce", "clip", run.op("clip/_foreach_norm", square, *divided), "sum")
            total |= run.op("clip/add", lambda v, *of: v + square(*of), part, *alike)
        whole: Spread = total
        if self._layout.sharded:
            whole = self._over("dp", "all_reduce", "clip", whole, "sum")
        whole = self._over("pp", "all_reduce", "clip", whole, "sum")
        factor = run.op("clip/clamp", lambda v: np.minimum(_LIMIT / (np.sqrt(v) + 1e-6), 1.0), whole)
        gradients = [self._gradients[name] for name in names]
        if self._plan.lists:
            clipped = run.write_lists("clip/_foreach_mul_", np.multiply, gradients, [factor])
        else:
            clipped = [run.write("clip/mul_", np.multiply, gradient, factor) for gradient in gradients]
        self._gradients = dict(zip(names, clipped, strict=True))

    def _update(self) -> None:
        def step(weight: Array, gradient: Array) -> Array:
            return weight - _LR * gradient

        names = list(self._gradients)
        held = {
            name: {r: t for r, t in self._weights[name].items() if name not in self._faults.left_out.get(r, ())}
            for name in names
        }
        if self._plan.lists:
            gradients = [self._gradients[name] for name in names]
            new = self.world.write_lists("optimizer/_foreach_add_", step, list(held.values()), gradients)
        else:
            new = [self.world.write("optimizer/add_", step, held[name], self._gradients[name]) for name in names]
        for name, weight in zip(names, new, strict=True):
            self._weights[name] = {**self._weights[name], **weight}

    # the run info

    def _contents(self) -> dict[int, dict[str, Array]]:
        return {
            rank: {name: of[rank].array for name, of in self._weights.items() if rank in of}
            for rank in range(self._layout.world)
        }

    def _info(self, rank: int, start: Mapping[str, Array]) -> dict[str, Any]:
        layout, faults = self._layout, self._faults
        left_out, batch = faults.left_out.get(rank, ()), self._batch(rank)
        buffers = {f"buffers.{k}": np.full(4, k, self._plan.dtype) for k in range(4)}
        for (of, name), change in faults.buffers.items():
            if of == rank:
                buffers[name] = change(buffers[name])
        end = {**self._contents()[rank], **buffers}
        trained = [name for name in start if name not in faults.frozen]
        info: dict[str, Any] = {
            "step": 1,
            "rank": rank,
            "world_size": layout.world,
            "mesh": layout.mesh,
            "mesh_coordinates": layout.at(rank),
            "parameter_digests": {name: digest(values) for name, values in start.items()},
            "buffer_digests": {name: digest(values) for name, values in buffers.items()},
            "end_state": {
                name: [digest(values), float(np.linalg.norm(values)), float(values.mean())]
                for name, values in end.items()
            },
            "batch": [{"shape": [*batch.shape], "dtype": self._plan.dtype, "digest": digest(batch)}],
            "optimizer": {
                "held": len(trained) - len(left_out),
                "not_held": sorted(left_out),
                "no_gradient": [],
            },
            "coverage": {"optimizers": [1, 1], "models": ["model"], "parameters": [len(trained), len(trained)]},
        }
        if layout.sharded:
            info["parameter_placements"] = {name: self._placement(rank, name, of) for name, of in start.items()}
        return info

    def _placement(self, rank: int, name: str, values: Array) -> dict[str, Any]:
        at, layout, dim = self._layout.at(rank), self._layout, _TP[_kind(name)]
        whole, offsets = list(values.shape), [0] * values.ndim
        whole[0] *= layout.dp
        offsets[0] = at["dp"] * values.shape[0]
        if dim is not None:
            offsets[dim] += at["tp"] * (whole[0] if dim == 0 else values.shape[dim])
            whole[dim] *= layout.tp
        placements = ["Shard(0)", "Replicate()" if dim is None else f"Shard({dim})"]
        dimensions = 2 if layout.tp > 1 else 1
        return {
            "mesh": dict([("dp", layout.dp), ("tp", layout.tp)][:dimensions]),
            "placements": placements[:dimensions],
            "shape": whole,
            "offsets": offsets,
        }


_TP: Mapping[str, int | None] = {"norm": None, "w1": 1, "w2": 0, "scale": 0}
"""Dimension in which a kind of parameter is divided over tp; None: each rank has all of it."""


def _kind(name: str) -> str:
    return name.split(".")[-2]
