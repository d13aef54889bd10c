"""Runs of four ranks with planted faults, and what a check of a run against itself has to name in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["AGAIN", "ALL_CASES", "CASES", "LAYOUTS", "ONE_PROCESS", "PLAIN_LAYOUTS", "RANKS", "Case", "compared_with"]

RANKS = 4
ALL = (0, 1, 2, 3)
ROWS = ((0, 1), (2, 3))
"""The tensor-parallel groups of two."""
COLUMNS = ((0, 2), (1, 3))
"""The data-parallel groups of two."""

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run, and what is wrong with it.

    Attributes:
        name: Of the folder of its logs.
        script: In examples/.
        arguments: Without the bug.
        ranks: Number of processes.
        bug: The argument of --bug; empty in a healthy run, in which nothing is to be named.
        check: The law that the fault breaks.
        culprits: The ranks that have the fault; all where it is a fault of the program.
        suspects: The smallest set of ranks that the logs allow to name: two replicas that differ accuse each other.
        parameter: Pattern of the parameters whose weight, gradient or state is concerned; empty without one.
        module: Module of the operation at fault, as in its key; empty without one.
        op: Name of that operation.
        groups: Process groups concerned: of the collective at fault, or over which there should have been one.
        source: File of examples/ that is in the operation's stack; empty without an operation.
        dies: The run does not reach its end, and its logs are cut off.
    """

    name: str
    script: str
    arguments: str
    ranks: int = RANKS
    bug: str = ""
    check: str = ""
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    parameter: str = ""
    module: str = ""
    op: str = ""
    groups: Groups = ()
    source: str = ""
    dies: bool = False

    @property
    def command(self) -> str:
        """Arguments of the script."""
        limit = " --timeout 20" if self.dies else ""  # its ranks come one by one on a machine that has much to do
        return f"{self.arguments} --bug {self.bug}{limit}" if self.bug else self.arguments

    def log(self, folder: Path, rank: int) -> Path:
        """The log of one rank, below the folder of all cases."""
        return folder / self.name / "numerics" / f"rank_{rank}_activations.log"

    def printed(self, folder: Path, rank: int) -> Path:
        """What a rank printed."""
        return folder / self.name / f"printed_{rank}.txt"


def _case(name: str, script: str, arguments: str, bug: str = "", **found: Any) -> Case:
    culprits = found.pop("culprits", (2,) if bug else ())
    return Case(
        name=name,
        script=script,
        arguments=arguments,
        bug=bug,
        culprits=culprits,
        **{"suspects": culprits, **found},
    )


REPLICAS = {"check": "replicas"}
TRAINED = {"check": "every parameter is trained"}
ODD: dict[str, Any] = {"check": "odd one out", "culprits": ALL}
DATA = {"check": "data"}
MASK = {"check": "replicated stays replicated", "op": "bernoulli_"}
SUMS = {"check": "collectives compute", "op": "_reduce_scatter_base_"}
STALE = {"check": "same program", "op": "_allgather_base_"}
NAN = {"check": "finite", "module": "layers.1", "op": "div", "source": "faults.py"}
RECOMPUTE = {"check": "recompute repeats", "source": "model.py"}


def _megatron() -> Iterator[Case]:
    """Tensor × data parallelism of plain tensors, ranks 0, 1 and 2, 3 beside each other."""
    start = "--print-state --tp 2 --dp 2"
    sequence = f"{start} --steps 1 --sequence-parallel --dropout 0.1"
    proj = {"parameter": "layers.1.attention.proj.weight"}
    norm = {"parameter": "layers.1.attention_norm.weight"}
    here = {"source": "megatron.py"}
    pair: dict[str, Any] = {"suspects": (2, 3), "groups": ((2, 3),)}

    def case(bug: str, *found: dict[str, Any], **more: Any) -> Case:
        for part in found:
            more = {**part, **more}
        return _case(f"megatron-{bug}", "megatron.py", sequence, bug, **more)

    yield _case("megatron", "megatron.py", sequence)
    yield _case("megatron-plain", "megatron.py", start)
    yield _case("megatron-bucket", "megatron.py", f"{start} --sequence-parallel --bucket 4000")

    yield case("flipped-bit", REPLICAS, proj, suspects=(0, 2), groups=((0, 2),))
    yield case("not-broadcast", REPLICAS, parameter="*", culprits=ALL, groups=COLUMNS)
    yield case("not-reduced", TRAINED, norm, culprits=ALL, groups=ROWS)
    yield case("wrong-group", ODD, proj, here, module="Group.all_reduce", op="allreduce_", groups=ROWS)
    yield case("sum-not-mean", ODD, proj, here, module="reduce_gradients", op="div", groups=COLUMNS)
    yield case("same-batch", DATA, culprits=(2, 3), suspects=ALL, groups=COLUMNS)
    yield case("other-batch", DATA, **pair)
    yield case("tp-dropout", MASK, here, module="dropout", **pair)
    yield case("left-out", TRAINED, proj)
    yield case("corrupt-reduce-scatter", SUMS, module="layers.1.attention.proj", source="groups.py", **pair)
    yield case("stale-gather", STALE, module="layers.1.attention.qkv", source="groups.py", groups=((2, 3),))
    yield case("nan", NAN)
    skipped = {"check": "collectives match", "module": "layers.1.attention.proj", "op": "_reduce_scatter_base_"}
    yield case("skipped-collective", skipped, source="groups.py", dies=True, **pair)


def _train() -> Iterator[Case]:
    """One process, and what torch itself offers for several."""
    small = "--layers 2 --dim 32 --seq-len 16 --vocab 64 --steps 1 --print-state"
    always = {"tp": "--kv-heads 4 --dropout 0.1", "fsdp2+tp": "--dropout 0.1"}
    wq = {"parameter": "layers.1.attention.wq.weight"}
    norm = {"parameter": "layers.1.attention_norm.weight"}
    layer = {"parameter": "layers.1.*", "module": "layers.1"}
    world: dict[str, Any] = {"groups": (ALL,)}
    everyone: dict[str, Any] = {"culprits": ALL, "groups": (ALL,)}
    pair: dict[str, Any] = {"suspects": (2, 3), "groups": ((2, 3),)}
    column: dict[str, Any] = {"suspects": (0, 2), "groups": ((0, 2),)}

    def case(layout: str, bug: str = "", *found: dict[str, Any], options: str = "", **more: Any) -> Case:
        for part in found:
            more = {**part, **more}
        if layout == "none":
            more = {"ranks": 1, "culprits": (0,) if bug else (), **more}
        name = "-".join([layout, *([bug] if bug else options.replace("--", "").split()[::2])])
        arguments = f"{small} --parallel {layout} {always.get(layout, '')} {options}"
        return _case(name, "train.py", " ".join(arguments.split()), bug, **more)

    for layout in ("ddp", "fsdp2"):
        for options in ("", "--dropout 0.1", "--tied", "--experts 4", "--freeze embedding.*", "--unused", "--uneven"):
            yield case(layout, options=options)
        yield case(layout, options="--micro-batches 2")
    yield case("fsdp2", options="--ac full")
    yield case("tp")
    yield case("fsdp2+tp")
    yield case("none")
    yield case("none", options="--ac full --dropout 0.1")

    yield case("ddp", "flipped-bit", REPLICAS, wq, world)
    yield case("ddp", "not-broadcast", REPLICAS, everyone, parameter="*")
    yield case("ddp", "not-reduced", TRAINED, wq, everyone)
    apart = {**wq, "module": "layers.1.attention.wq", "source": "parallel_faults.py"}
    yield case("ddp", "wrong-group", ODD, apart, op="allreduce_", groups=ROWS)
    yield case("ddp", "sum-not-mean", ODD, apart, op="div_", **world)
    yield case("ddp", "same-batch", DATA, world, suspects=(1, 2))

    yield case("fsdp2", "not-reduced", ODD, layer, everyone)
    yield case("fsdp2", "sum-not-mean", ODD, layer, everyone, op="div_")
    yield case("fsdp2", "same-batch", DATA, world, suspects=(1, 2))
    yield case("fsdp2", "corrupt-reduce-scatter", SUMS, layer, world, suspects=ALL)
    yield case("fsdp2", "stale-gather", STALE, layer, world)

    yield case("tp", "flipped-bit", REPLICAS, norm, world)
    yield case("tp", "not-reduced", TRAINED, norm, everyone)
    averaged = {**norm, "module": "layers.1.attention_norm", "source": "parallel_faults.py"}
    yield case("tp", "sum-not-mean", ODD, averaged, everyone, op="div")
    yield case("tp", "other-batch", DATA, world)
    yield case("tp", "tp-dropout", MASK, world, module="layers.0.attention", source="model.py")

    yield case("fsdp2+tp", "flipped-bit", REPLICAS, norm, pair)
    yield case("fsdp2+tp", "not-reduced", ODD, layer, groups=COLUMNS)
    yield case("fsdp2+tp", "wrong-group", ODD, layer, op="_reduce_scatter_base_", groups=ROWS)
    yield case("fsdp2+tp", "sum-not-mean", ODD, layer, op="div_", groups=COLUMNS)
    yield case("fsdp2+tp", "same-batch", DATA, culprits=(2, 3), suspects=ALL, groups=COLUMNS)
    yield case("fsdp2+tp", "other-batch", DATA, pair)
    yield case("fsdp2+tp", "tp-dropout", MASK, pair, module="layers.0.attention", source="model.py")
    yield case("fsdp2+tp", "corrupt-reduce-scatter", SUMS, layer, column)
    yield case("fsdp2+tp", "stale-gather", STALE, layer, groups=((0, 2),))

    for layout in ("none", "ddp", "fsdp2", "tp", "fsdp2+tp"):
        yield case(layout, "left-out", TRAINED, wq)
        yield case(layout, "nan", NAN)
    again = "--ac full --dropout 0.1"
    yield case("none", "counter", RECOMPUTE, module="layers.1", op="add_", options=again)
    yield case("none", "rng-not-restored", RECOMPUTE, module="layers.1.attention", op="bernoulli_", options=again)


CASES: tuple[Case, ...] = (*_megatron(), *_train())
AGAIN: tuple[tuple[Case, Case], ...] = tuple(
    (case, replace(case, name=f"{case.name}-again")) for case in CASES if case.name in ("megatron", "fsdp2+tp")
)
"""Healthy cases, each with a second run of the same."""

_WHOLE = "--layers 2 --dim 32 --seq-len 16 --vocab 64 --kv-heads 4 --steps 1"
ONE_PROCESS: dict[int, Case] = {
    many: _case(f"layout-none-{many}", "train.py", f"{_WHOLE} --micro-batches {many} --parallel none", ranks=1)
    for many in (1, 2, 4)
}
"""One process with the samples of so many data-parallel ranks, as micro-batches."""
_DATA_RANKS = {"tp": 1, "fsdp2+tp": 2, "ddp": 4, "fsdp2": 4}
_BUGS = {
    "tp": {
        "softmax-scale": "layers.1.attention",
        "wrong-shard": "layers.1.attention.wq",
        "partial-as-replicated": "layers.1.attention.wo",
        "not-reduced": "layers.1.attention_norm",
    },
    "fsdp2+tp": {"detached-keys": "layers.1.attention", "wrong-group": "layers.1", "local-tokens": "loss_of"},
    "ddp": {
        "norm-eps": "layers.1.attention_norm",
        "not-reduced": "layers.1.attention.wq",
        "sum-not-mean": "layers.1.attention.wq",
    },
    "fsdp2": {
        "softmax-scale": "layers.1.attention",
        "not-reduced": "layers.1",
        "partial-as-replicated": "clip_grad_norm_",
    },
}
"""By layout, bugs and the modules in which their first cause is."""
LAYOUTS: tuple[tuple[Case, Case], ...] = tuple(
    (
        ONE_PROCESS[data_ranks],
        _case(
            "-".join(filter(None, ("layout", layout, bug))),
            "train.py",
            f"{_WHOLE} --parallel {layout}",
            bug,
            culprits=ALL if bug else (),
            module=module,
        ),
    )
    for layout, data_ranks in _DATA_RANKS.items()
    for bug, module in {"": "", **_BUGS[layout]}.items()
)
"""One process, and four ranks that compute the same; with a bug of the model or the layout in the parallel run only."""

_ONE_MEGATRON = _case("layout-megatron-none", "megatron.py", "--print-state --micro-batches 2", ranks=1)
_OF_MEGATRON = (
    *(case for case in CASES if case.name in ("megatron-plain", "megatron-bucket")),
    _case(
        "layout-megatron-not-reduced",
        "megatron.py",
        "--tp 2 --dp 2 --steps 1",
        "not-reduced",
        culprits=ALL,
        module="layers.1.attention.proj",
    ),
)
PLAIN_LAYOUTS: tuple[tuple[Case, Case], ...] = tuple((_ONE_MEGATRON, parallel) for parallel in _OF_MEGATRON)
"""The same of plain tensors, of which no log says that they are parts."""

ALL_CASES: tuple[Case, ...] = (
    *CASES,
    *(again for _, again in AGAIN),
    *ONE_PROCESS.values(),
    *(parallel for _, parallel in LAYOUTS),
    _ONE_MEGATRON,
    *(case for case in _OF_MEGATRON if case not in CASES),
)


def compared_with(case: Case) -> list[Case]:
    """The healthy run of a faulty one, and the one process of ranks that compute the same."""
    healthy = [
        other for other in CASES if not other.bug and (other.script, other.arguments) == (case.script, case.arguments)
    ]
    return (healthy if case.bug else []) + [one for one, ranks in (*LAYOUTS, *PLAIN_LAYOUTS) if ranks == case]
