"""Run info of a log: everything two runs must share to be comparable, and context for its reader.

Read-only: changes nothing, starts no device and raises nothing; unknown entries are left out.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from . import machine
from .modules import fsdp_state
from .placement import coordinate_of
from .privacy import shown_value

__all__ = ["run_info"]


def run_info(
    *,
    step: int,
    rank: int,
    settings: Mapping[str, Any],
    models: Sequence[nn.Module] = (),
    start: Mapping[str, Any] | None = None,
    simulated: bool = False,
    keep_diff: bool = False,
) -> dict[str, Any]:
    """Return the run info of a captured step, ready for JSON.

    Args:
        step: its number.
        rank: the rank of the log.
        settings: of the capture.
        models: the trained models.
        start: state at the start of the step, `capture.step_start.StepStart.as_json`.
        simulated: the rank is one of several in this process.
        keep_diff: keep the uncommitted changes of the code themselves.
    """
    known = {"step": step, "rank": rank, **(start or {}), "settings": dict(settings)}
    return known | _found(
        {
            "world_size": _world_size,
            "launcher": lambda: "LocalTensorMode" if simulated else _launcher(),
            "backend": _backend,
            "mesh": lambda: _mesh(models),
            "mesh_coordinates": lambda: _mesh_coordinates(models, rank if simulated else None),
            "seed": torch.initial_seed,
            "cuda_seed": _cuda_seed,
            "deterministic": _deterministic,
            "precision": _precision,
            "attention": _attention_backends,
            "backends": _backends,
            "parameters": lambda: _parameters(models),
            "mixed_precision": lambda: _mixed_precision(models),
            "activation_checkpointing": lambda: _checkpointing(models),
            "threads": lambda: {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()},
            "versions": machine.versions,
            "libraries": machine.libraries,
            "device": machine.device_name,
            "host": machine.host,
            "command": machine.command_line,
            "environment": machine.environment,
            "git": machine.git_state,
            "uncommitted": machine.uncommitted if keep_diff else lambda: None,
        }
    )


def _found(readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Collect the results of readers; one that fails or finds nothing loses only its own entry."""
    found: dict[str, Any] = {}
    for name, read in readers.items():
        with suppress(Exception):
            value = read()
            if value is not None and value != {} and value != []:
                found[name] = value
    return found


def _text(value: object) -> str:
    """Return the name of a dtype or function; for other objects, their text."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    name = getattr(value, "__qualname__", None)
    if name is None and (inner := getattr(value, "func", None)) is not None:  # a partial
        name = getattr(inner, "__qualname__", None)
    return str(value) if name is None else str(name)


# Processes


def _initialised() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _world_size() -> int:
    return torch.distributed.get_world_size() if _initialised() else int(os.environ.get("WORLD_SIZE", "1"))


def _backend() -> str | None:
    return str(torch.distributed.get_backend()) if _initialised() else None


def _launcher() -> str:
    local_tensor: Any = sys.modules.get("torch.distributed._local_tensor")
    if local_tensor is not None and local_tensor.local_tensor_mode() is not None:
        return "LocalTensorMode"
    if _backend() == "fake":
        return "fake backend"
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    return "distributed" if _initialised() else "single process"


def _meshes(models: Sequence[nn.Module]) -> Iterator[tuple[Sequence[str], Any]]:
    """Yield the device mesh of each parameter that has one, with the names of its dimensions."""
    for _, parameter in _named_parameters(models):
        mesh: Any = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            yield mesh.mesh_dim_names or [f"dim{i}" for i in range(mesh.ndim)], mesh


def _mesh(models: Sequence[nn.Module]) -> dict[str, int]:
    """Return the dimensions of the device meshes of the parameters, by name."""
    dims: dict[str, int] = {}
    for names, mesh in _meshes(models):
        dims.update(zip(names, map(int, mesh.shape), strict=True))
    return dims


def _mesh_coordinates(models: Sequence[nn.Module], rank: int | None) -> dict[str, int]:
    """Return the place of a simulated rank along these dimensions; None: of this process."""
    found: dict[str, int] = {}
    for mesh, names in {mesh: names for names, mesh in _meshes(models)}.items():
        found.update(zip(names, coordinate_of(mesh, rank) or (), strict=False))
    return found


# Arithmetic


def _cuda_seed() -> int | None:
    cuda = machine.started_cuda()
    return None if cuda is None else int(cuda.default_generators[cuda.current_device()].initial_seed())


def _deterministic() -> dict[str, Any]:
    cudnn = torch.backends.cudnn
    deterministic: Any = torch.utils.deterministic
    return _found(
        {
            "algorithms": torch.are_deterministic_algorithms_enabled,
            "warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
            "fill_uninitialized_memory": lambda: deterministic.fill_uninitialized_memory,
            "cudnn_deterministic": lambda: cudnn.deterministic,
            "cudnn_benchmark": lambda: cudnn.benchmark,
            "cublas_workspace": lambda: machine.variable("CUBLAS_WORKSPACE_CONFIG"),
        }
    )


def _precision() -> dict[str, Any]:
    """Return the precision settings of matrix products in float32 and shorter types.

    Read through `fp32_precision`: the older getters raise where both interfaces were used.
    """
    backends: Any = torch.backends
    matmul = backends.cuda.matmul
    return _found(
        {
            "default_dtype": lambda: _text(torch.get_default_dtype()),
            "fp32": lambda: backends.fp32_precision,
            "cuda_matmul_fp32": lambda: matmul.fp32_precision,
            "cudnn_conv_fp32": lambda: backends.cudnn.conv.fp32_precision,
            "cudnn_rnn_fp32": lambda: backends.cudnn.rnn.fp32_precision,
            "mkldnn_matmul_fp32": lambda: backends.mkldnn.matmul.fp32_precision,
            "mkldnn_conv_fp32": lambda: backends.mkldnn.conv.fp32_precision,
            "mkldnn_rnn_fp32": lambda: backends.mkldnn.rnn.fp32_precision,
            "fp16_reduced_reduction": lambda: matmul.allow_fp16_reduced_precision_reduction,
            "bf16_reduced_reduction": lambda: matmul.allow_bf16_reduced_precision_reduction,
            "fp16_accumulation": lambda: matmul.allow_fp16_accumulation,
        }
    )


def _attention_backends() -> list[str]:
    """Return the kernels that scaled dot product attention may choose from."""
    cuda: Any = torch.backends.cuda
    enabled = {
        "flash": cuda.flash_sdp_enabled,
        "mem_efficient": cuda.mem_efficient_sdp_enabled,
        "cudnn": cuda.cudnn_sdp_enabled,
        "math": cuda.math_sdp_enabled,
    }
    return [name for name, is_enabled in enabled.items() if is_enabled()]


def _backends() -> dict[str, Any]:
    """Return the libraries and instructions that operations may choose from."""
    backends: Any = torch.backends
    found: dict[str, Callable[[], Any]] = {
        "cpu_capability": backends.cpu.get_cpu_capability,
        "mkldnn": lambda: backends.mkldnn.enabled,
        "mkldnn_deterministic": lambda: backends.mkldnn.deterministic,
        "cudnn": lambda: backends.cudnn.enabled,
        "attention_math_reduced": backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
    }
    if machine.started_cuda() is not None:
        found["blas"] = lambda: backends.cuda.preferred_blas_library().name
        found["linalg"] = lambda: backends.cuda.preferred_linalg_library().name
    return _found(found)


# Models


def _named_parameters(models: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    for model in models:
        yield from model.named_parameters()


def _modules(models: Sequence[nn.Module]) -> Iterator[nn.Module]:
    for model in models:
        yield from model.modules()


def _parameters(models: Sequence[nn.Module]) -> dict[str, Any]:
    parameters = [parameter for _, parameter in _named_parameters(models)]
    return {
        "count": len(parameters),
        "elements": sum(parameter.numel() for parameter in parameters),
        "dtypes": dict(Counter(_text(parameter.dtype) for parameter in parameters)),
        "devices": dict(Counter(parameter.device.type for parameter in parameters)),
        "frozen": sum(not parameter.requires_grad for parameter in parameters),
    } | ({"models": [type(model).__name__ for model in models]} if models else {})


def _mixed_precision(models: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Return the FSDP2 policies: dtypes of parameters, reductions and outputs, and the number of their modules."""
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for module in _modules(models):
        policy = getattr(fsdp_state(module), "_mp_policy", None)
        fields = ("param_dtype", "reduce_dtype", "output_dtype")
        given = tuple((name, _text(dtype)) for name in fields if (dtype := getattr(policy, name, None)) is not None)
        if given:
            found[given] += 1
    return [{**dict(policy), "modules": count} for policy, count in found.items()]


def _checkpointing(models: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Return the arguments of `checkpoint_wrapper` and the number of modules wrapped with them.

    A direct call of `torch.utils.checkpoint.checkpoint` leaves no trace on a module.
    """
    found: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for module in _modules(models):
        if any(cls.__name__ == "CheckpointWrapper" for cls in type(module).__mro__):
            function: Any = getattr(module, "checkpoint_fn", None)
            keywords = getattr(function, "keywords", {})
            found[tuple((k, _plain(k, v)) for k, v in sorted(keywords.items()))] += 1
    return [{**dict(settings), "modules": count} for settings, count in found.items()]


def _plain(name: str, value: object) -> bool | float | str:
    if isinstance(value, str):
        return shown_value(name, value)
    return value if isinstance(value, (bool, int, float)) else _text(value)
