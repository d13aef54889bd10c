"""Ranks that one process simulates (`LocalTensorMode`): their weights, shards, batches, and faults of single ones."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from bugs import Planted
from faults import flip_bit
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


def unseen(work: Callable[[], Any]) -> Any:
    """Return the result of work in a thread, which has no dispatch modes: an observer sees none of its operations."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def give_each_rank_a_copy(model: nn.Module) -> None:
    """Copy parameters per rank: an update of replicated ones would otherwise hit the same memory once per rank."""
    from torch.distributed._local_tensor import local_tensor_mode

    ranks: Any = local_tensor_mode()

    def copies(parameter: Tensor) -> nn.Parameter:
        return nn.Parameter(ranks.rank_map(lambda _: parameter.detach().clone()))

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, copies(parameter))


def batch_of_all(batch_of: Callable[[int], Batch]) -> Batch:
    """Return the batches of all ranks as one.

    Args:
        batch_of: called with the number of a rank.
    """
    from torch.distributed._local_tensor import LocalTensor, local_tensor_mode

    mode: Any = local_tensor_mode()
    made = unseen(lambda: {rank: batch_of(rank) for rank in sorted(mode.ranks)})
    inputs, targets = ({rank: batch[k] for rank, batch in made.items()} for k in range(2))
    return LocalTensor(inputs), LocalTensor(targets)


def shard_fully(modules: Sequence[Any], mesh: Any) -> None:
    """Apply `fully_shard` to modules, the last of which holds the others; each rank keeps its own part.

    torch 2.13 gives all simulated ranks the first part, and cannot resize their storages.
    """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group

    if not hasattr(_fsdp_param.free_storage, "__wrapped__"):
        _fsdp_param.free_storage = _per_rank(_fsdp_param.free_storage)
        _fsdp_param.alloc_storage = _fsdp_param_group.alloc_storage = _per_rank(_fsdp_param.alloc_storage)
    model = modules[-1]
    before = {name: parts(parameter) for name, parameter in model.named_parameters()}
    size = mesh.size()
    uneven = [name for name, of_rank in before.items() if of_rank[0].shape[0] % size]
    if uneven:
        raise SystemExit(f"--local-tensor: {uneven[0]} does not divide by {size} evenly")
    for module in modules:
        fully_shard(module, mesh=mesh)
    # the mesh of the data is the outer one
    inner = len(next(iter(before.values()))) // size

    def correct() -> None:
        for name, parameter in model.named_parameters():
            for rank, part in parts(parameter).items():
                part.copy_(before[name][rank].chunk(size)[rank // inner])

    unseen(correct)


def _per_rank(of_tensor: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    @wraps(of_tensor)
    def run(tensor: Tensor) -> None:
        for part in parts(tensor).values():
            of_tensor(part)

    return run


def parts(tensor: Any) -> dict[int, Tensor]:
    """Return the plain tensors of the ranks, which share the memory; of a tensor of this process, itself."""
    for inside in ("_local_tensor", "elem"):  # of a DTensor, of a result that nobody waited for
        tensor = getattr(tensor, inside, tensor)
    found: dict[int, Tensor] = getattr(tensor, "_local_tensors", {0: tensor})
    return found


def flip_bits(model: Any, faults: Sequence[Planted]) -> None:
    """Flip the lowest bit of a norm's first weight on each rank that has this fault."""
    for fault in faults:
        if fault.name == "flipped-bit":
            flip_bit(parts(model.get_parameter(fault.parameter("attention_norm.weight")))[fault.rank])


@contextmanager
def spoiled(model: Any, faults: Sequence[Planted], *, now: bool) -> Iterator[None]:
    """Replace a feed-forward's output by NaN `now`, on each rank that has this fault, past every operation of torch."""
    with ExitStack() as hooks:
        for fault in faults:
            if now and fault.name == "nan":
                hook = model.layers[fault.layer].feed_forward.register_forward_hook(_spoils(fault.rank))
                hooks.callback(hook.remove)
        yield


def _spoils(rank: int) -> Callable[[nn.Module, Any, Any], None]:
    def spoil(_module: nn.Module, _inputs: Any, output: Any) -> None:
        unseen(lambda: parts(output)[rank].fill_(torch.nan))

    return spoil
