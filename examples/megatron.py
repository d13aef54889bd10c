# mypy: allow-subclassing-any
"""Train a small GPT in Megatron-LM's manner: plain tensors, process groups and collectives of its own, no DTensor.

`torchrun --nproc_per_node 4 examples/megatron.py --tp 2 --dp 2`
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import faults
import torch
from bugs import MEGATRON_BUGS, Bug, Planted, planted
from data import derived_seed, matrix, micro_batch
from groups import Group, RandomStates, joined_ranks, same
from state import digest
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Dropout that draws from the random state of a context."""

    def __init__(self, p: float, state: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self.p, self.state = p, state

    def forward(self, x: Tensor) -> Tensor:
        if not self.p:
            return x
        with self.state():
            return functional.dropout(x, self.p)


class Matrix(nn.Module):
    """Part of a matrix: of its outputs (`split` 0), after which parts are joined, or of its inputs (`split` 1)."""

    def __init__(self, inputs: int, outputs: int, tp: Group, *, split: int, sequence: bool) -> None:
        super().__init__()
        sizes = [outputs, inputs]
        sizes[split] //= tp.size
        self.weight = nn.Parameter(torch.empty(sizes))
        self.weight.divided_dim = split
        self.into = self.out_of = same
        if split == 0:
            self.into = tp.gather_sequence if sequence else tp.copy_to_region
        else:
            self.out_of = tp.reduce_scatter_sequence if sequence else tp.reduce_from_region

    def forward(self, x: Tensor) -> Tensor:
        return self.out_of(functional.linear(self.into(x), self.weight))


class Embedding(nn.Module):
    """Words, of which each rank knows a part, and positions."""

    def __init__(self, settings: argparse.Namespace, tp: Group) -> None:
        super().__init__()
        self.tp = tp
        self.word = nn.Parameter(torch.empty(settings.vocab // tp.size, settings.dim))
        self.word.divided_dim = 0
        self.position = nn.Parameter(torch.empty(settings.seq_len, settings.dim))

    def forward(self, tokens: Tensor) -> Tensor:
        rows = tokens - self.tp.rank * len(self.word)
        absent = (rows < 0) | (rows >= len(self.word))
        known = functional.embedding(rows.masked_fill(absent, 0), self.word).masked_fill(absent[..., None], 0.0)
        return self.tp.reduce_from_region(known) + self.position[:, None]


class Attention(nn.Module):
    """Causal self-attention; each rank has some of the heads."""

    future: Tensor

    def __init__(self, settings: argparse.Namespace, tp: Group, states: RandomStates) -> None:
        super().__init__()
        dim, sequence = settings.dim, settings.sequence_parallel
        self.head_dim = dim // settings.heads
        self.qkv = Matrix(dim, 3 * dim, tp, split=0, sequence=sequence)
        self.proj = Matrix(dim, dim, tp, split=1, sequence=sequence)
        self.dropout = Dropout(settings.dropout, states.divided)
        future = torch.ones(settings.seq_len, settings.seq_len, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x)
        q, k, v = qkv.view(*qkv.shape[:2], -1, 3, self.head_dim).permute(3, 1, 2, 0, 4)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        # The lowest finite number, not -inf: a healthy run then has no infinity that would hide a real one.
        weights = torch.softmax(scores.masked_fill(self.future, torch.finfo(scores.dtype).min), dim=-1)
        return self.proj((self.dropout(weights) @ v).permute(2, 0, 1, 3).flatten(-2))


class Layer(nn.Module):
    """Attention and feed-forward, each after a norm and added to the residual."""

    def __init__(self, settings: argparse.Namespace, tp: Group, states: RandomStates) -> None:
        super().__init__()
        dim, sequence = settings.dim, settings.sequence_parallel
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = Attention(settings, tp, states)
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(
            Matrix(dim, 4 * dim, tp, split=0, sequence=sequence),
            nn.GELU(),
            Matrix(4 * dim, dim, tp, split=1, sequence=sequence),
        )
        self.dropout = Dropout(settings.dropout, states.divided if sequence else nullcontext)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class GPT(nn.Module):
    """Tokens to logits, each (sequence, batch, …)."""

    def __init__(self, settings: argparse.Namespace, tp: Group, states: RandomStates, bug: Planted) -> None:
        super().__init__()
        self.embedding = Embedding(settings, tp)
        self.dropout = Dropout(settings.dropout, nullcontext)
        self.enter = tp.scatter_sequence if settings.sequence_parallel else same
        groups = [faults.layer_group(tp, bug) if index == bug.layer else tp for index in range(settings.layers)]
        self.layers = nn.ModuleList(Layer(settings, group, states) for group in groups)
        self.norm = nn.LayerNorm(settings.dim)
        self.output = Matrix(settings.dim, settings.vocab, tp, split=0, sequence=settings.sequence_parallel)
        self.join = tp.gather_from_region

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.enter(self.dropout(self.embedding(tokens)))
        for layer in self.layers:
            x = layer(x)
        return self.join(self.output(self.norm(x)))


def initialise(model: nn.Module, seed: int, tp: Group) -> None:
    """Fill each matrix with this rank's part of one that depends on its name only."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            split = getattr(parameter, "divided_dim", None)
            shape = [size * tp.size if dim == split else size for dim, size in enumerate(parameter.shape)]
            values = matrix(seed, name, shape)
            parameter.data.copy_(values if split is None else tp.split(values, split))


def reduce_gradients(model: nn.Module, settings: argparse.Namespace, tp: Group, dp: Group, bug: Planted) -> None:
    """Sum the gradients of norms over slices of the sequence, then average all over the ranks with other data."""
    unreduced = bug.parameter("attention_norm.weight" if settings.sequence_parallel else "attention.proj.weight")
    buckets: list[dict[str, Tensor]] = []
    for name, parameter in model.named_parameters():
        if bug.has("not-reduced") and name == unreduced:
            if not settings.sequence_parallel:
                continue
        elif settings.sequence_parallel and "norm" in name:
            parameter.grad = tp.all_reduce(parameter.grad)
        if not buckets or sum(map(Tensor.numel, buckets[-1].values())) >= settings.bucket:
            buckets.append({})
        buckets[-1][name] = parameter.grad
    for bucket in buckets:
        odd = bug.parameter("attention.proj.weight") in bucket
        group = tp if odd and bug.has("wrong-group") else dp
        divisor = 1 if odd and bug.has("sum-not-mean") else dp.size
        mean = group.all_reduce(torch.cat([gradient.flatten() for gradient in bucket.values()]) / divisor)
        for gradient, part in zip(bucket.values(), mean.split([g.numel() for g in bucket.values()]), strict=True):
            gradient.copy_(part.view_as(gradient))


def clip_gradients(parameters: list[nn.Parameter], limit: float, tp: Group) -> Tensor:
    """Scale gradients down to a global norm of at most `limit`; return the norm. Replicated ones count once."""
    counted = [p.grad for p in parameters if hasattr(p, "divided_dim") or tp.rank == 0]
    squares = torch.stack([gradient.square().sum() for gradient in counted]).sum()
    norm = tp.all_reduce(squares).sqrt()
    for parameter in parameters:
        parameter.grad.mul_(torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def train(settings: argparse.Namespace, tp: Group, dp: Group, bug: Planted) -> None:
    """Run the loop; print one line per step."""
    seed, own_mask = settings.seed, bug.here("tp-dropout")
    states = RandomStates(derived_seed(seed, dp.rank, own_mask), derived_seed(seed, dp.rank, "divided", tp.rank))
    model = GPT(settings, tp, states, bug)
    initialise(model, seed + dp.rank if bug.has("not-broadcast") else seed, tp)
    left_out = bug.parameter("attention.proj.weight") if bug.here("left-out") else None
    trained = [parameter for name, parameter in model.named_parameters() if name != left_out]
    optimizer = torch.optim.AdamW(trained, lr=settings.lr, weight_decay=settings.weight_decay)
    if bug.here("flipped-bit"):
        faults.flip_bit(model.get_parameter(bug.parameter("attention.proj.weight")))

    for step in range(1, settings.steps + 1):
        model.zero_grad()
        loss = torch.zeros(())
        for index in range(settings.micro_batches):
            batch_index = index * dp.size + faults.data_rank(dp.rank, dp.size, bug, tp.size)
            token_seed = seed + bug.here("other-batch")
            inputs, targets = micro_batch(
                token_seed, step, batch_index, (settings.batch, settings.seq_len), settings.vocab
            )
            with faults.empty_mean(model.layers[bug.layer], bug, now=step == settings.bug_step):
                logits = model(inputs.t())
            part = functional.cross_entropy(logits.flatten(0, 1), targets.t().flatten()) / settings.micro_batches
            part.backward()
            loss += part.detach()
        reduce_gradients(model, settings, tp, dp, bug)
        norm = clip_gradients(list(model.parameters()), settings.clip, tp)
        optimizer.step()
        print(f"step {step} loss {dp.all_reduce(loss / dp.size).item()!r} grad_norm {norm.item()!r}", flush=True)
    if settings.print_state:
        print(f"state {digest(model, optimizer)}", flush=True)


MODEL = (("layers", 2), ("dim", 32), ("heads", 4), ("vocab", 64), ("dropout", 0.0))
DATA = (("seq-len", 16), ("batch", 2), ("micro-batches", 1), ("steps", 3), ("seed", 42), ("threads", 1))
OPTIMIZER = (("lr", 1e-3), ("weight-decay", 0.1), ("clip", 1.0))
RANKS = (("tp", 1), ("dp", 1), ("timeout", 60), ("bug-rank", 2), ("bug-step", 1))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with a message if it contradicts itself."""
    parser = argparse.ArgumentParser(description="Train a small GPT over tensor- and data-parallel ranks.")
    for name, default in (*MODEL, *DATA, *OPTIMIZER, *RANKS):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    parser.add_argument("--bucket", type=int, default=0, help="least number of gradients to average at once")
    parser.add_argument("--sequence-parallel", action="store_true", help="norms and residuals on slices of sequences")
    parser.add_argument("--print-state", action="store_true", help="end with a digest of all that training changed")
    parser.add_argument("--bug", type=Bug.parse, metavar="NAME[@LAYER]", help=", ".join(MEGATRON_BUGS))
    settings = parser.parse_args(arguments)
    divided = (settings.heads, settings.vocab, settings.seq_len)
    if settings.dim % settings.heads or any(size % settings.tp for size in divided):
        parser.error("--dim must be a multiple of --heads, and --heads, --vocab and --seq-len of --tp")
    if settings.bug:
        given = [option for option in ("--tp", "--dp") if vars(settings)[option[2:]] > 1]
        given += ["--dropout"] * (settings.dropout > 0) + ["--sequence-parallel"] * settings.sequence_parallel
        lacking = [option for option in MEGATRON_BUGS.get(settings.bug.name, ("train.py",)) if option not in given]
        if lacking:
            parser.error(f"--bug {settings.bug.name} needs {' and '.join(lacking)}")
        if (settings.bug.layer or 0) >= settings.layers:
            parser.error(f"--bug: there is no layer {settings.bug.layer}")
    return settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the settings of the command line."""
    settings = parse(arguments)
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
    with joined_ranks(settings.tp, settings.dp, settings.timeout) as (tp, dp):
        bug = planted(settings.bug, settings.layers, settings.bug_rank, tp.ranks[tp.rank], tp.size * dp.size)
        train(settings, tp, dp, bug)


if __name__ == "__main__":
    main()
