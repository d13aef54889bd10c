"""Environment of a run: versions, devices, command line, commit; what may be private is a digest."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .privacy import shown_command, shown_value

__all__ = [
    "command_line",
    "device_name",
    "environment",
    "git_state",
    "host",
    "libraries",
    "started_cuda",
    "uncommitted",
    "variable",
    "versions",
]

_NUMERICS = (
    *("ATEN_", "CUBLAS", "CUDA_", "CUDNN", "DNNL_", "GLOO_", "HIP_", "HSA_", "KMP_", "MKL_", "NCCL_", "NVIDIA_TF32"),
    *("OMP_", "ONEDNN_", "PYTHONHASHSEED", "PYTORCH_", "ROCM", "TORCHINDUCTOR_", "TORCH_", "TRITON_", "VECLIB_"),
)
"""Prefixes of environment variables that may change numbers."""

_OF_VERSIONS = ("torch", "numpy", "triton", "torchtitan", "transformer_engine", "flash_attn")
"""Libraries whose versions may change numbers."""
_VERSION = re.compile(r"\d{1,8}(?:\.\w{1,20}){0,5}(?:[-+]\w[\w.]{0,20})?", re.ASCII)
_MAX_LIBRARIES = 200
_MAX_FILES = 100
_MAX_DIFF = 1_000_000


def command_line() -> list[str]:
    """Return the command that started this process, without what may be private."""
    return shown_command(sys.orig_argv)


def environment() -> dict[str, str]:
    """Return environment variables that may change numbers, by name, without what may be private."""
    return {name: shown_value(name, value) for name, value in sorted(os.environ.items()) if name.startswith(_NUMERICS)}


def variable(name: str) -> str | None:
    """Return an environment variable without what may be private, None if it is not set."""
    value = os.environ.get(name)
    return None if value is None else shown_value(name, value)


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
    for package in _OF_VERSIONS[1:]:
        found[package] = getattr(sys.modules.get(package), "__version__", None)
    return {name: str(version) for name, version in found.items() if version is not None}


def libraries() -> dict[str, str]:
    """Return versions of the libraries that the run has imported, besides those of `versions`."""
    return dict(_libraries(len(sys.modules)))


@functools.lru_cache(maxsize=1)  # a step may be one of hundreds that are captured, and there are thousands of modules
def _libraries(_modules: int) -> dict[str, str]:
    found = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name in _OF_VERSIONS or name in sys.stdlib_module_names or not isinstance(module, ModuleType):
            continue
        version = vars(module).get("__version__")  # not getattr: modules may load others when asked
        if isinstance(version, str) and _VERSION.fullmatch(version):
            found[name] = version
    return dict(sorted(found.items())[:_MAX_LIBRARIES])


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
    """Return the commit of a folder's code, which tracked files have changed since, and a digest of how.

    None outside a repository.

    Args:
        folder: of the training code; None for the script's.
    """
    return _git_state(_of_script() if folder is None else os.fspath(folder))


def uncommitted() -> str | None:
    """Return how the tracked files of the script's code differ from its commit, as `git diff` writes it.

    None without changes, outside a repository, and for a text of more than a million characters.
    """
    diff = _diff(_of_script())
    return diff if diff and len(diff) <= _MAX_DIFF else None


def _of_script() -> str:
    return os.path.dirname(os.path.realpath(sys.argv[0])) if sys.argv and sys.argv[0] else "."


def _diff(folder: str) -> str | None:
    # neither programs of the repository nor whole binaries: their blobs have names
    return _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--full-index", "HEAD")


@functools.cache
def _git_state(folder: str) -> dict[str, Any] | None:
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    files = _git(folder, "diff", "--name-only", "HEAD")
    found: dict[str, Any] = {"commit": commit}
    if files is None:
        return found
    found["dirty"] = bool(files)
    if diff := _diff(folder) if files else None:
        digest = hashlib.sha256(diff.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        found |= {"changes": digest, "files": files.splitlines()[:_MAX_FILES]}
    return found


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
