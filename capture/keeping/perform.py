"""Run kept calls again: `python perform.py < job.json` prints a line of JSON for each variant, with a result per call.

A file by itself, which needs torch and nothing else, so that it also runs in an environment without numtui. A job has
`calls` (as in a bundle's manifest, each with the `folder` of its contents), `variants` (`flags` to set, `wide` for
float64, `contiguous`; each in a process of its own) and `imports` (libraries whose operators may run). The bundle's
structure was checked before (`capture.keeping.bundle`); here operators are checked, and contents by their digest.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from typing import Any

import torch

__all__ = ["Refused", "digest", "in_a_fork", "operator", "read_flags"]

_REFUSED = frozenset({"from_file", "_pin_memory", "record_stream", "set_", "_copy_from", "_cuda_getCurrentRawStream"})
"""Operators of aten that touch files, or memory that is not theirs."""
_OWN = {"fsdp": "torch.distributed.fsdp"}
"""Modules of torch that register further operators which compute, by their namespace."""
_ARGUMENTS = ("Tensor", "number", "Scalar", "int", "SymInt", "float", "bool", "complex", "str", "Generator",
    "ScalarType", "Layout", "Device", "MemoryFormat", "Dimname")  # fmt: skip
"""Types of the arguments of operators that compute something: others take files, streams, objects."""
_WIDE = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
_OWN_MEMORY = "/proc/self/statm"
_SPARE = 4 << 30
"""Bytes that an operation may need besides a multiple of its tensors' own."""

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def _set_workspace(value: str | None) -> None:
    """Set the memory of cuBLAS, by which it chooses its algorithms, before its first call in this process."""
    os.environ.pop(_WORKSPACE, None)
    if value is not None:
        os.environ[_WORKSPACE] = value


_CALLED: dict[str, tuple[Any, Any]] = {
    "cublas_workspace": (lambda: os.environ.get(_WORKSPACE), _set_workspace),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
}
_HELD: dict[str, tuple[Any, str]] = {
    "fill_uninitialized": (torch.utils.deterministic, "fill_uninitialized_memory"),
    "mkldnn": (torch.backends.mkldnn, "enabled"),
    "cudnn": (torch.backends.cudnn, "enabled"),
    "cudnn_tf32": (torch.backends.cudnn, "allow_tf32"),
    "cudnn_benchmark": (torch.backends.cudnn, "benchmark"),
    "bf16_reduction": (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    "fp16_reduction": (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
}
"""Settings of torch that may change the bits of a result: as functions that read and set, and as attributes."""


class Refused(Exception):
    """Raised for a call that is not run, with the reason."""


def read_flags() -> dict[str, Any]:
    """Return the settings of torch that may change the bits of a result, as they are."""
    found = {name: read() for name, (read, _) in _CALLED.items()}
    return found | {name: getattr(of, what) for name, (of, what) in _HELD.items() if hasattr(of, what)}


def set_flags(flags: dict[str, Any]) -> None:
    """Set those of some flags that have other values now."""
    now = read_flags()
    for name, value in flags.items():
        if name in now and now[name] != value:
            if name in _CALLED:
                _CALLED[name][1](value)
            else:
                setattr(*_HELD[name], value)


def digest(tensor: Any) -> str:
    """Return the digest of a tensor's bytes as in a log: 64 bits, equal for equal elements in equal order."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()
    data = torch.empty(0, dtype=torch.uint8).set_(flat.untyped_storage(), flat.storage_offset() * flat.element_size(),
        (flat.numel() * flat.element_size(),), (1,)).clone()  # fmt: skip
    words = torch.nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    mixed = torch.cat([words + (torch.arange(len(words)) + 2) * _GAMMA, torch.tensor([len(data) + _GAMMA])])
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * _signed(factor)
    return f"{int(mixed.sum()) & (1 << 64) - 1:016x}"


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


_GAMMA = _signed(0x9E3779B97F4A7C15)


def operator(name: str, imported: frozenset[str]) -> Any:
    """Return the operator of a name such as `aten::max.dim`.

    Raises:
        Refused: torch does not have it, or it is none that may run.
    """
    qualified, _, overload = name.partition(".")
    namespace, _, short = qualified.partition("::")
    if not (namespace.isidentifier() and short.isidentifier() and (overload or "default").isidentifier()):
        raise Refused(f"{name[:80]!r} is no name of an operator")
    if namespace in _OWN:
        importlib.import_module(_OWN[namespace])
    elif (namespace != "aten" or short in _REFUSED) and qualified not in imported:
        raise Refused(f"{name} may not run: only aten's operators that compute, and those of --import, may")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
    except (AttributeError, RuntimeError):
        raise Refused(f"this torch has no operator {name}") from None
    for argument in found._schema.arguments:
        kind = str(argument.real_type if hasattr(argument, "real_type") else argument.type)
        for wrapper in ("Optional[", "List[", "]", "?"):
            kind = kind.replace(wrapper, "")
        if kind.partition("[")[0] not in _ARGUMENTS:
            raise Refused(f"{name} may not run: its argument {argument.name} is a {kind}")
    return found


class Memory:
    """The contents of one call's storages, each made once, so that aliases stay aliases."""

    def __init__(self, folder: str, *, wide: bool = False, contiguous: bool = False) -> None:
        self._folder, self._wide, self._contiguous = folder, wide, contiguous
        self._storages: dict[Any, Any] = {}

    def tree(self, value: Any) -> Any:
        """Return the argument that a tagged tree of the manifest stands for."""
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((tag, told),) = value.items()
        if tag == "float":
            return float.fromhex(told)
        if tag == "complex":
            return complex(*map(float.fromhex, told))
        if tag == "tensor":
            return self.tensor(told)
        if tag == "dtype":
            dtype = getattr(torch, told)
            return _wider(dtype) if self._wide else dtype
        if tag in ("layout", "memory_format"):
            return getattr(torch, told)
        if tag == "device":
            return _here(told)
        if tag == "generator":
            generator = torch.Generator(_here(told["device"]))
            generator.set_state(self.bytes_of(told["state"]))
            return generator
        raise Refused(f"an argument is a {told}, which cannot be kept" if tag == "opaque" else f"no argument: {tag}")

    def tensor(self, told: dict[str, Any]) -> Any:
        """Return a tensor of the manifest, over the memory that it shares with others of this call."""
        key, device = (told["memory"], told["device"]), _here(told["device"])
        if key not in self._storages:
            self._storages[key] = self.bytes_of(told["storage"]).to(device).untyped_storage()
        made = torch.empty(0, dtype=getattr(torch, told["dtype"]), device=device)
        made.set_(self._storages[key], told["offset"], told["shape"], told["strides"])
        if told.get("conj"):
            made = torch._conj(made)
        if told.get("neg"):
            made = torch._neg_view(made)
        if self._wide and made.dtype in (torch.float32, torch.float16, torch.bfloat16, *_WIDE):
            made = made.to(_wider(made.dtype))
        return made.contiguous() if self._contiguous else made

    def bytes_of(self, name: str) -> Any:
        """Return the bytes of a content, uint8[n].

        Raises:
            Refused: they are not what they were when they were kept.
        """
        with open(os.path.join(self._folder, f"{name}.safetensors"), "rb") as file:
            file.seek(int.from_bytes(file.read(8), "little"), os.SEEK_CUR)
            data = bytearray(file.read())
        if hashlib.sha256(data).hexdigest() != name:
            raise Refused(f"the content {name[:12]}… was changed since it was kept")
        return torch.frombuffer(data, dtype=torch.uint8).clone() if data else torch.empty(0, dtype=torch.uint8)


def _here(name: str) -> torch.device:
    """Return the device of a name; the first of its kind where this machine has fewer than the run had."""
    device = torch.device(name)
    return torch.device(device.type, 0) if (device.index or 0) >= torch.accelerator.device_count() > 0 else device


def _wider(dtype: Any) -> Any:
    return _WIDE.get(dtype, torch.float64 if dtype.is_floating_point else dtype)


def flat(value: Any) -> list[Any]:
    """Return the tensors of an argument or a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in flat(item)] if isinstance(value, (list, tuple)) else []


def results_of(call: dict[str, Any], variant: dict[str, Any], imported: frozenset[str]) -> tuple[list[Any], list[Any]]:
    """Run a call; return the tensors that it returns and those that it leaves in its written arguments.

    Raises:
        Refused: it may not run.
    """
    run = operator(call["operator"], imported)
    wide = bool(variant.get("wide"))
    if wide and call.get("random"):
        raise Refused("it draws random numbers, which are others in float64")
    memory = Memory(call["folder"], wide=wide, contiguous=bool(variant.get("contiguous")))
    args = [memory.tree(value) for value in call["args"]]
    kwargs = {name: memory.tree(value) for name, value in call["kwargs"].items()}
    tensors = flat([*args, *kwargs.values()])
    if (wide or variant.get("contiguous")) and call["aliased"]:
        raise Refused("it writes to memory that its tensors share")
    _bound(call["bytes"], tensors)
    if call.get("random") and not call["random"].get("given"):
        _set_random(call["random"], memory)
    with torch.no_grad():
        result = flat(run(*args, **kwargs))
    return result, [tensors[position] for position in call["written"]]


def _set_random(random: dict[str, Any], memory: Memory) -> None:
    state = memory.bytes_of(random["state"])
    device = _here(random["device"])
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        getattr(torch, device.type).set_rng_state(state, device)


def _bound(size: int, tensors: list[Any]) -> None:
    """Let an operation on the host take a multiple of its own size and no more: a bundle may ask for anything."""
    if all(tensor.is_cpu for tensor in tensors) and os.path.exists(_OWN_MEMORY):
        import resource

        with open(_OWN_MEMORY, encoding="ascii") as file:
            own = int(file.read().split()[5]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (own + _SPARE + 16 * size, most))


def distance(kept: Any, exact: Any) -> tuple[float, float] | None:
    """Return how far a kept result is from the float64 one: relative, and in ε of its dtype; None for whole numbers.

    Relative is ‖kept − exact‖ / ‖exact‖ over the elements that are finite in both; infinite where one alone is.
    """
    if kept.shape != exact.shape or not (kept.is_floating_point() or kept.is_complex()):
        return None
    x, y = kept.to(exact.dtype), exact
    finite = x.isfinite() & y.isfinite()
    error = 0.0
    if bool((x.isfinite() != y.isfinite()).any()):
        error = float("inf")
    elif not bool((x == y)[finite].all()):
        error = float(torch.linalg.vector_norm((x - y)[finite]) / torch.linalg.vector_norm(y[finite]))
    return error, error / torch.finfo(kept.dtype).eps


def performed(call: dict[str, Any], variant: dict[str, Any], imported: frozenset[str]) -> dict[str, Any]:
    """Run a call and say what came out: digests, and in float64 how far each kept result is from it."""
    try:
        set_flags({**call["flags"], **variant.get("flags", {})})
        returned, written = results_of(call, variant, imported)
        if not variant.get("wide"):
            return {"returned": [digest(each) for each in returned], "written": [digest(each) for each in written]}
        found = {}
        for side, kept in call["against"].items():
            memory = Memory(kept["folder"])
            pairs = zip((memory.tensor(each) for each in kept["results"]), [*returned, *written], strict=False)
            found[side] = max(filter(None, (distance(each, exact) for each, exact in pairs)), default=None)
        return {"distance": found}
    except Refused as reason:
        return {"refused": str(reason)}
    except Exception as error:  # noqa: BLE001 an operation may fail in any way, and the next one is another
        return {"failed": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}


def main() -> None:
    """See the module."""
    # whatever libraries print goes to standard error
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    before = set(torch._C._dispatch_get_all_op_names())
    for module in job["imports"]:
        importlib.import_module(module)
    imported = frozenset(name.partition(".")[0] for name in set(torch._C._dispatch_get_all_op_names()) - before)
    for variant in job["variants"]:
        out.write(json.dumps(in_a_fork(job["calls"], variant, imported)) + "\n")
        out.flush()
    out.close()


def in_a_fork(calls: list[dict[str, Any]], variant: dict[str, Any], imported: frozenset[str]) -> Any:
    """Return the results of all calls in a process of its own, which has run nothing; text: what ended it.

    It is forked from this one, in which torch has started no threads and no device, as importing it takes seconds.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as out:
            json.dump([performed(call, variant, imported) for call in calls], out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        text = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"ended with {status}" if status else json.loads(text)


if __name__ == "__main__":
    main()
