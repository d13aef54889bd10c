"""Environment of a run: versions, devices, command line, commit; secrets masked."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["command_line", "device_name", "environment", "git_state", "host", "masked", "started_cuda", "versions"]

MASK = "***"

_SECRET_WORDS = frozenset(
    {"auth", "apikey", "credential", "credentials", "passwd", "password", "pwd", "secret", "token"}
)
_SECRET_PAIRS = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key")})
_SECRET_VALUE = re.compile(
    r"(?:hf|sk|pk|gh[opsu]|github_pat|glpat|xox[abp]|wandb_v\d)[_-][\w-]{16,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.[\w.-]{10,}"
    # long words of letters and digits are keys of services; losing a digest that looks like one does no harm
    r"|(?<![\w/.-])(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{40,}(?![\w/.-])"
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_NUMERICS = (
    *("CUBLAS", "CUDA_", "CUDNN", "GLOO_", "HIP_", "HSA_", "MKL_", "NCCL_", "NVIDIA_TF32", "OMP_", "PYTHONHASHSEED"),
    *("PYTORCH_", "ROCM", "TORCHINDUCTOR_", "TORCH_", "TRITON_", "VECLIB_"),
)
"""Prefixes of environment variables that may change numbers."""
_MAX_VALUE_LENGTH = 4096


def command_line() -> list[str]:
    """Return the command that started this process, secrets masked."""
    return masked(sys.orig_argv)


def masked(arguments: Sequence[str]) -> list[str]:
    """Mask values in arguments that are, or look like, passwords, keys and tokens."""
    out: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if hide_next and not is_option:
            out.append(MASK)
        elif equals and _is_secret(name):
            out.append(f"{name}={MASK}")
        else:
            out.append(_masked_value(argument))
        hide_next = is_option and not equals and _is_secret(argument)
    return out


def _is_secret(name: str) -> bool:
    # "hf_token" and "wandb.apiKey" are; "tokenizer" and "max-tokens" are not
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    return not _SECRET_WORDS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(itertools.pairwise(words))


def _masked_value(text: str) -> str:
    return _USER_IN_URL.sub(MASK, _SECRET_VALUE.sub(MASK, text))[:_MAX_VALUE_LENGTH]


def environment() -> dict[str, str]:
    """Return environment variables that may change numbers, by name, secrets masked."""
    return {
        name: MASK if _is_secret(name) else _masked_value(value)
        for name, value in sorted(os.environ.items())
        if name.startswith(_NUMERICS)
    }


def started_cuda() -> Any | None:
    """Return `torch.cuda` if the run has initialised it, else None: any query would initialise it."""
    cuda: Any = torch.cuda
    return cuda if cuda.is_initialized() else None


def versions() -> dict[str, str]:
    """Return versions of the numeric libraries, CUDA's only where the run has initialised CUDA."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_git": getattr(torch.version, "git_version", None),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
    }
    cuda = started_cuda()
    if cuda is not None:
        backends: Any = torch.backends
        found["cudnn"] = backends.cudnn.version()
        if torch.distributed.is_available() and torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(map(str, cuda.nccl.version()))
        found["driver"] = _driver()
    for package in ("numpy", "triton", "torchtitan", "transformer_engine", "flash_attn"):
        found[package] = getattr(sys.modules.get(package), "__version__", None)
    return {name: str(version) for name, version in found.items() if version is not None}


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return match[0] if match else None


def device_name() -> str:
    """Return the name of the GPU in use, else of the processor."""
    cuda = started_cuda()
    return str(cuda.get_device_name(cuda.current_device())) if cuda is not None else _processor()


@functools.cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def git_state(folder: str | os.PathLike[str] | None = None) -> dict[str, Any] | None:
    """Return the commit of a folder's code and whether files have changed since; None outside a repository.

    Args:
        folder: of the training code; None for the script's.
    """
    if folder is None:
        folder = os.path.dirname(os.path.realpath(sys.argv[0])) if sys.argv and sys.argv[0] else "."
    return _git_state(os.fspath(folder))


@functools.cache
def _git_state(folder: str) -> dict[str, Any] | None:
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit} | ({} if changes is None else {"dirty": bool(changes)})


def _git(folder: str, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            # without optional locks `status` does not touch the index
            ["git", "--no-optional-locks", "-C", folder, *arguments],  # noqa: S607 - the user's git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
