"""Properties of operators from their schemas, looked up once per operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import torch

__all__ = ["OpKind", "kernel_kind", "kind_of", "op_name"]

_COLLECTIVE_NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"})
_WAIT = "wait_tensor"

_NOT_RECORDED = frozenset(
    {
        # memory without content
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "empty_quantized",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "set_",
        "_resize_output_",
        "record_stream",
        "barrier",
        "monitored_barrier_",
        # the same tensor under another name
        "lift",
        "_wrap_tensor_autograd",
    }
)
_QUESTIONS = frozenset(
    {
        "dim", "size", "stride", "numel", "storage_offset", "layout", "is_contiguous", "is_strides_like_format",
        "is_non_overlapping_and_dense", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset",
        "sym_is_contiguous", "_has_compatible_shallow_copy_type", "is_same_size",
    }
)  # fmt: skip
"""Queries for a tensor's shape or layout, which some subclasses answer through the dispatcher."""
_IGNORED_NAMESPACES = frozenset({"profiler", "prim", "debug_mode_ops", "device_mesh"})

_ENTERS = {"lift_fresh": "lift_fresh", "lift_fresh_copy": "lift_fresh"}
"""Operations that give torch a tensor of Python's numbers, or of memory of another library, and the name they share."""
_READ_BY_PYTHON = frozenset({"_local_scalar_dense", "equal", "allclose"})
"""Operations that return a number of a tensor to Python."""

_OVERWRITES = frozenset(
    {
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
        "_foreach_zero_", "_foreach_copy_",
    }
)  # fmt: skip
"""In-place operations whose result is independent of the previous content, which may be uninitialised memory."""

_RUNNING = ("running_mean", "running_var")
_UNANNOTATED_WRITES = {
    # written to, though their schemas do not say so
    "fsdp::all_gather_copy_in": ("all_gather_output",),
    "aten::native_batch_norm": _RUNNING,
    "aten::cudnn_batch_norm": _RUNNING,
    "aten::miopen_batch_norm": _RUNNING,
    "aten::batch_norm_update_stats": _RUNNING,
    "aten::batch_norm_gather_stats": _RUNNING,
    "aten::batch_norm_gather_stats_with_counts": _RUNNING,
}
_UNFILLED = {
    # the second is the whole buffer, of which only this rank's shard, the first, is filled yet
    "fsdp::all_gather_copy_in": (1,),
}
_STATES = frozenset({"philox_seed", "philox_offset", "rng_state", "unused", "debug_attn_mask"})
"""Names of results of attention that hold a state of the random generator, which no kernel writes without dropout."""
_READ_BY_KERNEL, _FILLED_BY_KERNEL = "in_ptr", "out_ptr"
"""Beginnings of inductor's names for memory that a kernel only reads, and only writes to."""
_C10D_READ_ONLY = frozenset({"send"})
_C10D_IN_AND_OUT = frozenset({"allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_"})


@dataclass(frozen=True, slots=True)
class OpKind:
    """Recording properties of one operator.

    Attributes:
        name: without namespace and overload, as in keys.
        recorded: False for operators that only allocate memory or return a number to Python.
        ignored: not even counted: shape queries, the machinery of profilers and of this capture.
        annotated_view: its schema declares that it returns a view.
        writes: positions and names of the arguments that it writes to.
        overwrites: of those, the ones whose previous content is not read.
        collective: communication of a process group; its outputs are incomplete before their wait.
        is_wait: the wait for such outputs.
        unfilled: positions of results with regions that are not written yet.
        states: positions of results that hold no content, but memory for a backward pass, which may never be written.
        random: it draws random numbers.
        enters: its tensor holds numbers of Python, or memory of another library: no operation made it.
        read_by_python: it returns a number that Python may compute with.
        composite: it has no kernel of its own and calls other operators, on every device.
        overload: namespace and overload, `aten.dim` of `aten::max.dim`.
        arguments: names of the arguments, by position.
        defaults: of these, by name.
    """

    name: str
    recorded: bool
    ignored: bool
    annotated_view: bool
    writes: frozenset[int | str]
    overwrites: frozenset[int | str]
    collective: bool
    is_wait: bool
    unfilled: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    random: bool = False
    enters: bool = False
    read_by_python: bool = False
    composite: bool = False
    overload: str = ""
    arguments: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def states_of(self, result: Any) -> list[Any]:
        """Return the results without content."""
        return [result[k] for k in self.states] if self.states and isinstance(result, tuple) else []


_DEVICES = ("CPU", "CUDA", "XPU", "MPS")


def op_name(func: Any) -> str:
    """Return an operator's short name, `mm` for `aten::mm.default`; without a schema (higher-order), its own name."""
    schema = getattr(func, "_schema", None)
    if schema is not None:
        return str(schema.name).rpartition("::")[2]
    name = getattr(func, "__name__", None) or str(func)
    return str(name).rpartition(".")[2] or str(name)


def kind_of(func: Any) -> OpKind:
    """Read the properties of an operator from its schema."""
    name = op_name(func)
    schema = getattr(func, "_schema", None)
    if schema is None:
        overload = f"{getattr(func, 'namespace', None) or 'python'}.default"
        return _unknown(name, overload, _parameters(func))
    qualified = str(schema.name)
    namespace = qualified.partition("::")[0]
    collective = namespace in _COLLECTIVE_NAMESPACES and name != _WAIT
    writes = _written(qualified, name, namespace, schema)
    out = {spot for argument in schema.arguments if argument.is_out for spot in (argument.name,)}
    if name in _OVERWRITES:
        out |= writes
    if namespace == "c10d" and name not in _C10D_IN_AND_OUT:
        out |= writes
    aliases = [r.alias_info for r in schema.returns]
    views = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
    return OpKind(
        name=_ENTERS.get(name, name),
        recorded=name not in _NOT_RECORDED and (bool(writes) or collective or _gives_tensors(schema)),
        ignored=namespace in _IGNORED_NAMESPACES or name in _QUESTIONS,
        annotated_view=views and not (writes or name in _ENTERS),
        writes=frozenset(writes),
        overwrites=frozenset(out),
        collective=collective,
        is_wait=name == _WAIT and namespace in _COLLECTIVE_NAMESPACES,
        unfilled=_UNFILLED.get(qualified, ()),
        states=tuple(k for k, returned in enumerate(schema.returns) if returned.name in _STATES),
        random=torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()),
        enters=name in _ENTERS,
        read_by_python=name in _READ_BY_PYTHON,
        composite=_is_composite(func),
        overload=f"{namespace}.{schema.overload_name or 'default'}",
        arguments=tuple(str(argument.name) for argument in schema.arguments),
        defaults={str(a.name): a.default_value for a in schema.arguments if a.has_default_value()},
    )


def _is_composite(func: Any) -> bool:
    def has(key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))

    try:
        return has("CompositeImplicitAutograd") and not any(map(has, _DEVICES))
    except RuntimeError:  # one that only Python knows, such as the size of a tensor
        return False


def _parameters(func: Any) -> tuple[str, ...]:
    """Return the names of a higher-order operator's arguments, as far as its class has them."""
    try:
        parameters = list(signature(type(func).__call__).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)


def kernel_kind(name: str, arguments: Iterable[str]) -> OpKind:
    """Return the properties of a compiler's kernel; one of the user's may write to any of its arguments."""
    writes = frozenset(name for name in arguments if not name.startswith(_READ_BY_KERNEL))
    filled = frozenset(name for name in writes if name.startswith(_FILLED_BY_KERNEL))
    return replace(_unknown(name, "triton.default"), writes=writes, overwrites=filled)


def _unknown(name: str, overload: str, arguments: tuple[str, ...] = ()) -> OpKind:
    nothing: frozenset[int | str] = frozenset()
    return OpKind(name, True, False, False, nothing, nothing, False, False, overload=overload, arguments=arguments)


def _gives_tensors(schema: Any) -> bool:
    return any("Tensor" in str(returned.type) for returned in schema.returns)


def _written(qualified: str, name: str, namespace: str, schema: Any) -> set[int | str]:
    """Return the written arguments: positions (positional ones) and names (all)."""
    named = set(_UNANNOTATED_WRITES.get(qualified, ()))
    if namespace == "c10d" and name not in _C10D_READ_ONLY:
        # c10d names written arguments `tensors` or `output…` and does not annotate them
        named |= {a.name for a in schema.arguments if a.name == "tensors" or a.name.startswith("output")}
        named -= {a.name for a in schema.arguments if a.name.endswith("split_sizes")}
    found: set[int | str] = set()
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if argument.name in named or (alias is not None and alias.is_write):
            found.add(argument.name)
            if not argument.kwarg_only:
                found.add(position)
    return found
