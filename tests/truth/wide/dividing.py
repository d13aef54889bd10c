"""Common parts of `divisions`: a model in stages, updates and parameters that are divided, the step, the bugs.

A subject gives its model as `(embed, layers, head)` of one module whose forward skips what it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.truth.wide.subject import Bug, Run

__all__ = [
    "DATA",
    "FORMS",
    "PAIRS",
    "RANKS",
    "Staged",
    "canonical",
    "common_bugs",
    "divided",
    "optimizer",
    "own",
    "train",
]

LAYERS = 4
Data = dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """Division of a run.

    Attributes:
        kind: `""` (one process), `pipe`, `zero`, `fsdp`.
        micro: parts into which each rank splits what it reads.
        option: the variant of its kind.
        pipelines: beside each other, of two ranks that follow each other; each reads other samples.
    """

    kind: str = ""
    micro: int = 1
    option: str = ""
    pipelines: int = 1

    @property
    def within(self) -> int:
        """Ranks that compute one stage together, which follow each other."""
        return 2 if self.option.startswith(("tp", "fsdp2")) else 1

    @property
    def depth(self) -> int:
        """Ranks of a pipeline that follow each other."""
        return 4 if self.option.endswith("deep") else 2

    @property
    def ranks(self) -> int:
        return self.depth * self.pipelines * self.within if self.kind else 1

    @property
    def data(self) -> int:
        """Ranks, or pipelines, that read other samples."""
        if self.kind in ("zero", "fsdp"):
            return 2
        return self.within if self.option.startswith("fsdp2") else self.pipelines

    @property
    def place(self) -> int:
        """The place of this rank in its pipeline."""
        return dist.get_rank() // self.within % self.depth

    @property
    def many(self) -> int:
        """Number of stages."""
        return self.depth * (2 if any(kind in self.option for kind in _LOOPED) else 1)

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that this rank runs."""
        if "zbv" in self.option:
            return (0, 3) if self.place == 0 else (1, 2)
        return tuple(range(self.place, self.many, self.depth))

    @property
    def last(self) -> int:
        """The first of the ranks with the last stage."""
        return 0 if "zbv" in self.option else (self.depth - 1) * self.within

    @property
    def peer(self) -> int:
        """The rank with the other stage."""
        return dist.get_rank() ^ 1

    @property
    def part(self) -> int:
        """The part of the samples that this rank reads."""
        rank = dist.get_rank()
        if self.kind in ("zero", "fsdp"):
            return rank
        return rank % self.within if self.option.startswith("fsdp2") else rank // (2 * self.within)

    def beside(self) -> Any:
        """The process group of the ranks with the same stage."""
        return [dist.new_group(list(range(place, self.ranks, 2))) for place in range(2)][self.place]

    def pipeline(self) -> Any:
        """The process group of the ranks of this one's pipeline."""
        return [dist.new_group([rank, rank + 1]) for rank in range(0, self.ranks, 2)][self.part]

    @cache  # noqa: B019  a handful of layouts
    def mesh(self) -> Any:
        """The mesh of a pipeline whose stages several ranks compute together."""
        return init_device_mesh("cpu", (self.depth, self.within), mesh_dim_names=("pp", "within"))


_LOOPED: Mapping[str, Any] = {
    "interleaved": ScheduleInterleaved1F1B,
    "bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}
"""Schedules of several stages on each rank."""


LAYOUTS: Mapping[str, Layout] = {
    "micro2": Layout(micro=2),
    "whole": Layout(),
    "micro4": Layout(micro=4),
    "hand2": Layout("pipe", 2),
    "hand4": Layout("pipe", 4),
    "hand2-renumbered": Layout("pipe", 2, "renumbered"),
    "gpipe2": Layout("pipe", 2, "gpipe"),
    "gpipe4": Layout("pipe", 4, "gpipe"),
    "gpipe2-inferred": Layout("pipe", 2, "gpipe inferred"),
    "1f1b2": Layout("pipe", 2, "1f1b"),
    "1f1b4": Layout("pipe", 4, "1f1b"),
    "1f1b4-renumbered": Layout("pipe", 4, "1f1b renumbered"),
    "1f1b4-inferred": Layout("pipe", 4, "1f1b inferred"),
    "interleaved4": Layout("pipe", 4, "interleaved"),
    "interleaved4-inferred": Layout("pipe", 4, "interleaved inferred"),
    "bubble4": Layout("pipe", 4, "bubble"),
    "zbv4": Layout("pipe", 4, "zbv"),
    "tp-1f1b2": Layout("pipe", 2, "tp 1f1b"),
    "tp-1f1b4-deep": Layout("pipe", 4, "tp 1f1b deep"),
    "fsdp2-1f1b2": Layout("pipe", 2, "fsdp2 1f1b"),
    "fsdp2-interleaved2": Layout("pipe", 2, "fsdp2 interleaved"),
    "hand2-twice": Layout("pipe", 2, pipelines=2),
    "gpipe2-twice": Layout("pipe", 2, "gpipe", pipelines=2),
    "zero-ddp": Layout("zero", option="ddp"),
    "zero-buckets": Layout("zero", option="ddp buckets"),
    "zero-broadcast": Layout("zero", option="hand"),
    "zero-slices": Layout("zero", option="slices"),
    "fsdp-flat": Layout("fsdp", option="flat"),
    "fsdp-named": Layout("fsdp", option="named"),
}
FORMS = tuple(form for form, layout in LAYOUTS.items() if layout.ranks <= 4)  # eight: for `benchmarks.many_ranks`
PAIRS = [
    *((FORMS[0], form) for form in FORMS[1:]),
    *(("whole", form) for form in ("hand2", "gpipe2", "1f1b4", "zero-ddp", "zero-slices", "fsdp-flat", "fsdp-named")),
    *(("micro4", form) for form in FORMS if LAYOUTS[form].micro == 4 and LAYOUTS[form].kind),
    *(("micro4", form) for form in FORMS if form.endswith("twice")),
    ("gpipe4", "1f1b4"), ("gpipe2", "hand2"), ("1f1b4", "interleaved4"), ("interleaved4", "bubble4"), ("1f1b4", "zbv4"),
    ("1f1b4", "1f1b4-inferred"), ("gpipe2-twice", "fsdp2-1f1b2"), ("1f1b2", "tp-1f1b2"), ("hand2", "hand2-renumbered"),
    ("zero-ddp", "zero-broadcast"),
    ("zero-broadcast", "zero-slices"), ("fsdp-flat", "fsdp-named"),
]  # fmt: skip
DATA = tuple(form for form, layout in LAYOUTS.items() if layout.kind in ("zero", "fsdp"))
RANKS = {form: layout.ranks for form, layout in LAYOUTS.items()}


def common_bugs(odd: str) -> tuple[Bug, ...]:
    """The bugs of layouts; `odd`: pattern of the name of the first matrix of layer 3."""

    def able(kind: str, *options: str) -> tuple[str, ...]:
        return tuple(
            form
            for form in FORMS
            if (one := LAYOUTS[form]).kind == kind and (not options or any(o in one.option for o in options))
        )

    pipes, zero, fsdp = able("pipe"), able("zero"), able("fsdp")
    by_hand = tuple(form for form in pipes if form.startswith("hand"))
    torch_pipes = tuple(form for form in pipes if form not in by_hand)
    # zero-bubble schedules of torch do not run a module twice
    again = tuple(form for form in pipes if not form.startswith(("bubble", "zbv")))
    return (
        # the second stage, or the second rank, learns faster
        Bug(name="rate", phase="optimizer", parameters=r".*", ranks=(1,), forms=(*pipes, *zero, *fsdp)),
        Bug(name="exchanged", phase="", module="", forms=by_hand),
        Bug(name="targets", phase="", module="", forms=pipes),
        Bug(name="reused", phase="", module="", forms=pipes),
        Bug(name="twice", phase="", module=r"layers\.\d(\..*)?", forms=again),
        Bug(name="sent", phase="", module="", forms=pipes, sizes=(1e-3, 0.5)),
        Bug(name="unscaled", phase="", parameters=r".*", forms=torch_pipes),
        Bug(name="lost", phase="", parameters=r".*", forms=by_hand, ranks=(0, 1)),
        Bug(name="skipped", phase="optimizer", parameters=r".*", forms=(*zero, *fsdp, *pipes), ranks=(1,)),
        Bug(name="stale", phase="", parameters=odd, forms=able("zero", "hand", "slices")),
        Bug(name="early", phase="", parameters=r".*", forms=able("zero", "hand", "slices")),
        Bug(name="missing", phase="", parameters=odd, forms=able("zero", "hand", "slices")),
        Bug(name="sum", phase="", parameters=r".*", forms=able("zero", "hand", "slices")),
        Bug(name="samples", phase="", module="", forms=(*zero, *fsdp), ranks=(1,)),
        Bug(name="decay", phase="optimizer", parameters=r".*", forms=(*zero, *fsdp, *pipes), ranks=(-1, 1)),
    )


class Staged(nn.Module):
    """Layers between what comes before and after them; a stage has some of them, under their names or renumbered.

    Attributes:
        between, given: shapes of what the layers, and the head, make of a sample.
        twice: the first layer runs twice.
    """

    twice = False

    def __init__(self, embed: nn.Module, layers: list[nn.Module], head: nn.Module, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.between, self.given = shapes["between"], shapes["given"]
        self.embed: nn.Module | None = embed
        self.layers = nn.ModuleDict({str(k): layer for k, layer in enumerate(layers)})
        self.head: nn.Module | None = head

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) if self.embed is not None else x  # bug: samples
        for k, layer in enumerate(self.layers.values()):
            x = layer(x)
            if self.twice and k == 0:
                x = layer(x)  # bug: twice
        return self.head(x) if self.head is not None else x  # bug: exchanged, targets


def divided(model: Staged, run: Run) -> Any:
    """The module that a rank calls."""
    layout = LAYOUTS[run.form]
    _WHOLE.clear()
    _WHOLE.update((name, p.shape) for name, p in model.named_parameters())
    if layout.kind == "pipe":
        parts = [_stage_of(model, run, stage) for stage in layout.stages]
        if layout.within > 1:
            mesh = layout.mesh()
            for part in parts:
                _shared(part, layout, mesh["within"])
        return parts[0] if len(parts) == 1 else Parts(parts)
    if "ddp" in layout.option:
        return DistributedDataParallel(model)
    if layout.kind == "fsdp":
        options = {"use_orig_params": layout.option == "named", "device_id": torch.device("cpu")}
        for name, layer in model.layers.items():
            model.layers[name] = FullyShardedDataParallel(layer, **options)
        return FullyShardedDataParallel(model, **options)
    return model


class Parts(nn.ModuleList):
    """The stages of one rank, each a model by itself."""


def _stage_of(model: Staged, run: Run, stage: int) -> nn.Module:
    """One stage of a model."""
    layout = LAYOUTS[run.form]
    size = LAYERS // layout.many
    embed, head = (model.embed if stage == 0 else None), (model.head if stage == layout.many - 1 else None)
    part = Staged(embed, [], head, between=model.between, given=model.given)
    for k, name in enumerate(list(model.layers)[stage * size : (stage + 1) * size]):
        part.layers[str(k) if "renumbered" in layout.option else name] = model.layers[name]
    part.twice = stage == 1 and run.has("twice")
    if stage == 1 and run.has("reused"):
        part.register_forward_pre_hook(_Reusing())
    return part


class _Reusing:
    """A buffer that the second micro-batch finds as the first left it."""

    def __init__(self) -> None:
        self.read: list[Tensor] = []

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (x,) = inputs
        self.read.append(x.detach().clone())
        return (self.read[0] + (x - x.detach()),) if len(self.read) == 2 else inputs  # bug: reused


def _shared(part: nn.Module, layout: Layout, mesh: Any) -> None:
    """Divide a stage over the ranks that compute it together."""
    if layout.option.startswith("tp"):
        for layer in part.layers.values():
            parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return
    for layer in part.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(part, mesh=mesh)


def own(data: Data, run: Run) -> Data:
    """The samples that this rank reads; a stage reads all."""
    layout = LAYOUTS[run.form]
    if layout.data == 1:
        return data
    which = (layout.part + run.has("samples")) % 2
    return {name: x.chunk(2)[which].clone() for name, x in data.items()}


def optimizer(model: Any, run: Run) -> Any:
    """AdamW over what this rank updates."""
    layout = LAYOUTS[run.form]
    options: dict[str, Any] = {
        "lr": 1e-3 * (2 if run.has("rate") else 1),
        "weight_decay": 0.5 if run.has("decay") else 0.1,
    }
    parameters = list(model.parameters())
    if "ddp" in layout.option:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of TorchScript where it is imported

        buckets = "buckets" in layout.option
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, parameters_as_bucket_view=buckets, **options)
    if layout.option == "hand":
        parameters = [p for k, p in enumerate(parameters) if k % 2 == dist.get_rank()]
    elif layout.option == "slices":
        parameters = [nn.Parameter(p.detach().flatten().chunk(2)[dist.get_rank()]) for p in parameters]
    return torch.optim.AdamW(parameters, **options)


def train(model: Any, data: Data, optimizer: Any, run: Run, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Train one step of a batch `x` with targets `y`; return the loss over all samples."""
    layout = LAYOUTS[run.form]
    if layout.kind == "pipe":
        total = _pipelined(model, data, run, loss)
    else:
        total = torch.zeros(())
        for x, y in zip(data["x"].chunk(layout.micro), data["y"].chunk(layout.micro), strict=True):
            part = loss(model(x), y) / layout.micro
            part.backward()
            total += part.detach()
    if layout.kind == "zero":
        _updated_in_shares(model, optimizer, run)
    else:
        if layout.pipelines > 1:
            beside = layout.beside()
            for p in model.parameters():
                dist.all_reduce(p.grad, group=beside)
                p.grad /= layout.pipelines
        if not run.has("skipped"):
            optimizer.step()  # bug: rate, decay
    optimizer.zero_grad()
    if layout.data > 1:
        dist.all_reduce(total)  # of stages, the last has one
        total /= layout.data
    elif layout.kind:
        dist.broadcast(total, layout.last)
    return total


def _pipelined(model: Any, data: Data, run: Run, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    layout, peer = LAYOUTS[run.form], LAYOUTS[run.form].peer
    inputs, targets = data["x"].chunk(layout.micro), list(data["y"].chunk(layout.micro))
    if run.has("targets"):
        targets[:2] = targets[1], targets[0]  # bug: targets
    if layout.option not in ("", "renumbered"):
        return _scheduled(model, data["x"], torch.cat(targets), run, loss)  # bug: targets
    order = list(range(layout.micro))
    back = [1, 0, *order[2:]] if run.has("exchanged") else order
    total = torch.zeros(())
    if layout.place == 0:
        made = []
        for number in order:
            out = model(inputs[number])
            dist.send(_sent(out.detach(), run), peer)  # bug: sent
            made.append(out)
        for number in order:
            gradient = torch.empty_like(made[number])
            dist.recv(gradient, peer)  # bug: exchanged
            made[back[number]].backward(gradient)  # bug: exchanged
            if run.has("lost") and number == 0:
                model.zero_grad(set_to_none=False)  # bug: lost
        return total
    shape, read, losses = (len(targets[0]), *model.between), list[Tensor](), list[Tensor]()
    for number in order:
        received = torch.empty(shape)
        dist.recv(received, peer)  # bug: sent
        read.append(received.requires_grad_())
        losses.append(loss(model(received), targets[number]) / layout.micro)
        total += losses[-1].detach()
    for number in order:
        losses[number].backward()
        gradient = read[number].grad
        assert gradient is not None
        dist.send(gradient, peer)
        if run.has("lost") and number == 0:
            model.zero_grad(set_to_none=False)  # bug: lost
    return total


def _sent(x: Tensor, run: Run) -> Tensor:
    return x * run.factor("sent") if run.has("sent") else x  # bug: sent


def _scheduled(model: Any, x: Tensor, y: Tensor, run: Run, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    layout = LAYOUTS[run.form]
    parts, samples, group = (model if isinstance(model, Parts) else [model]), len(x) // layout.micro, None
    if layout.within > 1:
        group = layout.mesh().get_group("pp")
    elif layout.pipelines > 1:
        group = layout.pipeline()
    stages = []
    for stage, part in zip(layout.stages, parts, strict=True):
        shapes: dict[str, Any] = {}
        if "inferred" not in layout.option:
            between, ends = (torch.empty(samples, *shape, requires_grad=True) for shape in (part.between, part.given))
            shapes = {
                "input_args": (torch.empty_like(x[:samples]) if stage == 0 else between,),
                "output_args": (ends if stage == layout.many - 1 else between,),
            }
        module = _Sending(part, run, last=stage == layout.many - 1) if run.bug == "sent" else part
        stages.append(PipelineStage(module, stage, layout.many, torch.device("cpu"), group=group, **shapes))
    options: dict[str, Any] = {"loss_fn": loss, "scale_grads": not run.has("unscaled")}
    looped = next((kind for name, kind in _LOOPED.items() if name in layout.option), None)
    if looped is not None:
        schedule = looped(stages, layout.micro, **options)
    else:
        single = ScheduleGPipe if "gpipe" in layout.option else Schedule1F1B
        schedule = single(stages[0], layout.micro, **options)
    losses: list[Tensor] = []
    given = (x,) if 0 in layout.stages else ()
    if layout.many - 1 in layout.stages:
        schedule.step(*given, target=y, losses=losses)  # bug: targets, unscaled
    else:
        schedule.step(*given)  # bug: unscaled
    return torch.stack(losses).mean().detach() if losses else torch.zeros(())


class _Sending(nn.Module):
    """A stage that changes what it sends."""

    def __init__(self, model: nn.Module, run: Run, *, last: bool) -> None:
        super().__init__()
        self.inner, self.run, self.last = model, run, last

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return x if self.last else _sent(x, self.run)  # bug: sent


def _updated_in_shares(model: Any, optimizer: Any, run: Run) -> None:
    """The update in which each rank has its share, and what makes the model whole again."""
    layout, rank = LAYOUTS[run.form], dist.get_rank()
    parameters = list(model.parameters())
    if "ddp" in layout.option:
        if run.has("skipped"):
            optimizer.param_groups[0]["lr"] = 0.0
        optimizer.step()  # bug: rate, decay, skipped
        return
    odd = next(p for p in model.layers["3"].parameters() if p.dim() > 1)
    for p in parameters:
        if not (run.has("missing") and p is odd):
            dist.all_reduce(p.grad)  # bug: missing
        if not run.has("sum"):
            p.grad /= 2  # bug: sum, missing
    if layout.option == "slices":
        shares = optimizer.param_groups[0]["params"]
        for p, share in zip(parameters, shares, strict=True):
            share.grad = p.grad.flatten().chunk(2)[rank]
    if run.has("early"):
        _made_whole(parameters, odd, optimizer, run)  # bug: early
    if not run.has("skipped"):
        optimizer.step()  # bug: rate, decay, early, skipped
    if not run.has("early"):
        _made_whole(parameters, odd, optimizer, run)


def _made_whole(parameters: list[nn.Parameter], odd: nn.Parameter, optimizer: Any, run: Run) -> None:
    with torch.no_grad():
        if LAYOUTS[run.form].option == "hand":
            for k, p in enumerate(parameters):
                if not (p is odd and run.has("stale")):
                    dist.broadcast(p, k % 2)  # bug: stale, early
            return
        for p, share in zip(parameters, optimizer.param_groups[0]["params"], strict=True):
            if p is odd and run.has("stale"):
                continue
            whole = torch.empty_like(p).flatten()
            dist.all_gather(list(whole.chunk(2)), share.detach())  # bug: stale, early
            p.copy_(whole.view_as(p))


def canonical(tensors: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Tensors by the names that they have in one process, of all stages; the whole of flat parameters."""
    layout = LAYOUTS[run.form]
    wrappers = re.compile(r"^(module\.|inner\.|\d+\.)+|_fsdp_wrapped_module\.")
    found = {wrappers.sub("", name): tensor for name, tensor in tensors.items()}
    if layout.within > 1:
        found = {name: x.full_tensor() if hasattr(x, "full_tensor") else x for name, x in found.items()}
    if layout.kind not in ("pipe", "fsdp"):
        return found
    if "renumbered" in layout.option and layout.place == 1:
        found = {_numbered(name): tensor for name, tensor in found.items()}
    of_ranks: list[Any] = [None] * layout.ranks
    dist.all_gather_object(of_ranks, found)
    if layout.kind == "fsdp":
        return dict(_named(of_ranks))
    return {name: tensor for of in of_ranks for name, tensor in of.items()}


_WHOLE: dict[str, torch.Size] = {}
"""Shapes of the parameters of one process."""


def _named(of_ranks: list[dict[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Whole tensors of those that FSDP holds in slices, of one parameter or of several in a row."""
    for name in of_ranks[0].keys() & of_ranks[1].keys():
        parts = [of[name] for of in of_ranks]
        if name in _WHOLE:
            whole = parts[0].shape == _WHOLE[name]
            yield name, parts[0] if whole else torch.cat([part.flatten() for part in parts]).view(_WHOLE[name])
            continue
        unit = name.removesuffix("_flat_param")
        inside = [one for one in _WHOLE if one.startswith(unit) and (unit or not one.startswith("layers."))]
        flat, start = torch.cat(parts), 0
        for one in inside:
            yield one, flat[start : start + _WHOLE[one].numel()].view(_WHOLE[one])
            start += _WHOLE[one].numel()


def _numbered(name: str) -> str:
    head, number, *rest = name.split(".")
    return ".".join([head, str(int(number) + LAYERS // 2), *rest]) if head == "layers" else name
