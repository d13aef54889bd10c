"""Command line of the training example."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from bugs import BUGS, FLOAT32_BUGS, RANK_BUGS, SIMULATED_BUGS, Bug, Planted, planted


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one run. Sizes are per process and micro-batch; `batch` counts sequences."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    batch: int
    micro_batches: int
    uneven: bool
    steps: int
    seed: int
    data_seed: int | None
    threads: int
    lr: float
    weight_decay: float
    clip: float
    optimizer: str
    loss: str
    experts: int
    top_k: int
    tied: bool
    dropout: float
    freeze: str
    unused: bool
    dtype: str
    ac: str
    ac_style: str
    compile: str
    traced: bool
    parallel: str
    local_tensor: int
    fake_world: int
    bugs: tuple[Bug, ...]
    bug_step: int
    bug_rank: int
    timeout: int
    print_state: bool

    @property
    def token_seed(self) -> int:
        """Seed of the tokens."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def bug(self) -> Bug | None:
        """The planted bug, the first of several."""
        return self.bugs[0] if self.bugs else None

    def layer_of(self, bug: Bug) -> int:
        """Layer of a planted bug: the middle one by default."""
        return self.layers // 2 if bug.layer is None else bug.layer

    def planted(self, rank: int, world_size: int) -> Planted:
        """Return the bug as this rank sees it."""
        return planted(self.bug, self.layers, self.bug_rank, rank, world_size)

    def simulated_faults(self) -> tuple[Planted, ...]:
        """Return the bugs of single ranks that this process simulates."""
        of_ranks = [bug for bug in self.bugs if self.local_tensor and bug.name in SIMULATED_BUGS]
        return tuple(planted(bug, self.layers, self.bug_rank, -1, self.local_tensor) for bug in of_ranks)

    def has_bug(self, name: str) -> bool:
        """Return True if this bug is planted in any layer."""
        return any(bug.name == name for bug in self.bugs)


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Parse settings from a command line; exit with a message if they contradict each other."""
    parser = _parser()
    found = vars(parser.parse_args(arguments))
    settings = Settings(**{**found, "bugs": tuple(found["bugs"])})
    problem = _contradiction(settings)
    if problem:
        parser.error(problem)
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train a small llama-like model on made-up tokens.")
    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=_count, default=4)
    model.add_argument("--dim", type=_count, default=64)
    model.add_argument("--heads", type=_count, default=4)
    model.add_argument("--kv-heads", type=_count, default=2)
    model.add_argument("--vocab", type=_count, default=512)
    model.add_argument("--experts", type=int, default=0, help="a mixture of this many experts in every second layer")
    model.add_argument("--top-k", type=_count, default=2, help="experts a token is sent to")
    model.add_argument("--tied", action="store_true", help="the output projection is the embedding")
    model.add_argument("--dropout", type=float, default=0.0, help="of the inputs of attention and feed-forward")
    model.add_argument("--freeze", default="", metavar="GLOB", help="parameters of these names are not trained")
    model.add_argument("--unused", action="store_true", help="a second output projection, which nothing uses")
    model.add_argument("--dtype", choices=("float32", "bfloat16", "amp"), default="float32")

    training = parser.add_argument_group("training")
    training.add_argument("--seq-len", type=_count, default=64)
    training.add_argument("--batch", type=_count, default=2, help="sequences in a micro-batch of one process")
    training.add_argument("--micro-batches", type=_count, default=1, help="micro-batches of one process in a step")
    training.add_argument("--uneven", action="store_true", help="the last rank's micro-batches have a sequence less")
    training.add_argument("--steps", type=_count, default=3)
    training.add_argument("--seed", type=int, default=42)
    training.add_argument("--data-seed", type=int, help="seed of the tokens alone (default: that of --seed)")
    training.add_argument("--threads", type=_count, default=1)
    training.add_argument("--lr", type=float, default=1e-3)
    training.add_argument("--weight-decay", type=float, default=0.1)
    training.add_argument("--clip", type=float, default=1.0, help="gradient norm above which gradients are scaled down")
    training.add_argument(
        "--optimizer", choices=("foreach", "fused", "for-loop"), default="foreach", help="AdamW's form"
    )
    training.add_argument("--loss", choices=("whole", "chunked"), default="whole")

    execution = parser.add_argument_group("execution")
    execution.add_argument("--ac", choices=("none", "selective", "full"), default="none", help="activation checkpoints")
    execution.add_argument("--ac-style", choices=("wrapper", "function", "function-reentrant"), default="wrapper")
    execution.add_argument("--compile", choices=("none", "aot_eager", "inductor"), default="none")
    execution.add_argument("--traced", action="store_true", help="replay forward, loss and backward as one graph")
    execution.add_argument("--parallel", choices=("none", "ddp", "fsdp2", "tp", "fsdp2+tp"), default="none")
    execution.add_argument("--local-tensor", type=int, default=0, metavar="N", help="simulate N ranks in one process")
    execution.add_argument("--fake-world", type=int, default=0, metavar="N", help="rank 0 of N, without communication")
    execution.add_argument("--timeout", type=_count, default=1800, help="seconds that a rank waits for the others")
    execution.add_argument("--print-state", action="store_true", help="end with a digest of all that training changed")

    bugs = parser.add_argument_group("planted bugs")
    bugs.add_argument(
        "--bug",
        dest="bugs",
        action="append",
        default=[],
        type=Bug.parse,
        metavar="NAME[@LAYER][:RANK]",
        help=f"{', '.join(BUGS)}; several if they are of layers, of the loop, or of simulated ranks",
    )
    bugs.add_argument("--bug-step", type=int, default=1, help="step of `nan`, first step of `weight-decay-off`")
    bugs.add_argument("--bug-rank", type=int, default=2, help="rank that has it, if one has; at most the last")
    return parser


def _count(text: str) -> int:
    """Parse a number of at least one."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _contradiction(settings: Settings) -> str | None:
    """Return the reason why these settings contradict each other, or None."""
    if settings.dim % (2 * settings.heads) or settings.heads % settings.kv_heads:
        return "--dim must be a multiple of twice --heads, and --heads of --kv-heads"
    if settings.experts and settings.top_k > settings.experts:
        return "--top-k is at most --experts"
    if settings.ac == "selective" and settings.ac_style == "function-reentrant":
        return "a reentrant checkpoint cannot be selective"
    if settings.traced and (settings.parallel != "none" or settings.compile != "none"):
        return "--traced is for one process without --compile"
    if settings.traced and settings.ac_style == "function-reentrant" and settings.ac != "none":
        return "a reentrant checkpoint cannot be traced"
    if "tp" in settings.parallel and (settings.tied or settings.experts):
        return "tensor parallelism here knows neither --tied nor --experts"
    if settings.local_tensor and settings.fake_world:
        return "--local-tensor and --fake-world exclude each other"
    if settings.local_tensor and settings.parallel not in ("tp", "fsdp2", "fsdp2+tp"):
        return "--local-tensor simulates --parallel tp, fsdp2 or fsdp2+tp"
    if settings.local_tensor and settings.parallel != "tp" and (settings.uneven or settings.dropout):
        return "--local-tensor: simulated data ranks know neither --uneven nor --dropout"
    if settings.fake_world and settings.parallel == "none":
        return "--fake-world needs --parallel"
    told = next(filter(None, (_of_bug(settings, bug) for bug in settings.bugs)), None)
    if told:
        return told
    simulated = settings.local_tensor and all(bug.name in SIMULATED_BUGS for bug in settings.bugs)
    if len(settings.bugs) > 1 and not simulated and any(bug.name in RANK_BUGS for bug in settings.bugs):
        return f"of ranks a single --bug, or with --local-tensor several of {', '.join(SIMULATED_BUGS)}"
    if (settings.has_bug("tp-dropout") or settings.has_bug("rng-not-restored")) and not settings.dropout:
        return "--bug tp-dropout and rng-not-restored need --dropout"
    if (settings.has_bug("counter") or settings.has_bug("rng-not-restored")) and settings.ac == "none":
        return "--bug counter and rng-not-restored need a recomputed layer: --ac full"
    if settings.traced and (settings.freeze or (settings.dropout and settings.ac != "none")):
        return "--traced differentiates every parameter, and restores no random state for --ac with --dropout"
    if settings.has_bug("nan") and (settings.traced or settings.compile != "none"):
        return "--bug nan is in one step, and a graph in all: neither --traced nor --compile"
    if settings.uneven and settings.batch == 1:
        return "--uneven needs --batch 2 or more"
    if settings.has_bug("detached-keys") and settings.parallel == "ddp":
        return "--bug detached-keys leaves a parameter without a gradient, for which DDP would wait: --parallel fsdp2"
    if settings.has_bug("accumulation-scale") and settings.micro_batches == 1:
        return "--bug accumulation-scale needs --micro-batches 2 or more"
    return None


def _of_bug(settings: Settings, bug: Bug) -> str | None:
    """Return the reason why these settings contradict a planted bug, or None."""
    if (bug.layer or 0) >= settings.layers:
        return f"--bug: there is no layer {bug.layer}"
    if bug.rank is not None and bug.rank >= settings.local_tensor:
        return f"--bug: no rank {bug.rank} is simulated; of a real rank: --bug-rank"
    if settings.parallel not in RANK_BUGS.get(bug.name, (settings.parallel,)):
        return f"--bug {bug.name} needs --parallel {' or '.join(RANK_BUGS[bug.name])}"
    one_process = settings.fake_world or (settings.local_tensor and bug.name not in SIMULATED_BUGS)
    if bug.name in RANK_BUGS and one_process:
        return f"--bug {bug.name} is of a rank, and needs real ones"
    if bug.name in FLOAT32_BUGS and settings.dtype == "bfloat16":
        return f"--bug {bug.name} writes to float32 numbers"
    return None
