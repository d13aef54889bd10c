"""Other tools at work in one step of examples/train.py: the logs that each writes, or that are made by its schema.

`python -m tests.truth.imported.writers WRITER FOLDER [--site DIR]… -- ARGUMENTS` runs the example once. Tools that the
environment lacks may lie in other environments' site-packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.matchers.logs.imported.samples import Line, hashes

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import train  # the example's folder has to be known first

__all__ = ["WRITERS"]

Writer = Callable[[Path, Sequence[str]], None]
WRITERS: dict[str, Writer] = {}
"""By name: writes logs into a folder, of a run with these arguments."""


def _writer(name: str) -> Callable[[Writer], Writer]:
    return lambda write: WRITERS.setdefault(name, write)


@contextmanager
def _replaced(name: str, value: object) -> Iterator[Any]:
    """A function of the example replaced; gives the one that it has."""
    before = getattr(train, name)
    setattr(train, name, value)
    try:
        yield before
    finally:
        setattr(train, name, before)


def _model_of(change: Callable[[nn.Module], None], arguments: Sequence[str]) -> None:
    """Run the example with its model changed after it was built."""
    real = train.build

    def build(settings: Any) -> nn.Module:
        model = real(settings)
        change(model)
        return model

    with _replaced("build", build):
        train.main(arguments)


@_writer("debugmode")
def _debug_mode(folder: Path, arguments: Sequence[str]) -> None:
    """Forms in which torch's DebugMode prints and saves, and its dump of hashes by schema, which no release writes."""
    from torch.utils._debug_mode import DebugMode

    real = train.train

    def run(*args: Any) -> None:
        with (
            DebugMode(record_nn_module=True, record_ids=True, record_stack_trace=True) as mode,
            DebugMode.log_tensor_hashes(hash_fn=["norm", "hash_tensor"], hash_inputs=True),
        ):
            real(*args)
        (folder / "printed.txt").write_text(mode.debug_string())
        if save := getattr(DebugMode, "save_logs", None):  # since torch 2.14
            save(mode.logs, str(folder / "saved.json"))
        (folder / "hashes.txt").write_text(hashes([_line(call) for call in mode.logs]))

    with _replaced("train", run):
        train.main(arguments)


def _line(call: Any) -> Line:
    if header := getattr(call, "header", None):
        return Line(call.call_depth, f"[{header}]", call.tag)
    read, named = (call.log or {}).get("input_hash") or (None, {})
    name = f"{call.op.namespace}::{call.op.__name__}" if hasattr(call.op, "namespace") else str(getattr(call, "op", ""))
    return Line(call.call_depth, name.removesuffix(".default"), "", "", read, (call.log or {}).get("hash"), named or {})


def _msprobe(level: str, task: str, summary: str) -> Writer:
    def write(folder: Path, arguments: Sequence[str]) -> None:
        of_task: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary}
        wanted = {"task": task, "dump_path": str(folder), "rank": [], "step": [], "level": level, "async_dump": False}
        config = folder / "config.json"
        config.write_text(json.dumps({**wanted, task: of_task}))
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=str(config))
        real = train.make_optimizer

        def make(model: nn.Module, *args: Any, **settings: Any) -> Any:
            optimizer = real(model, *args, **settings)
            zero, step = optimizer.zero_grad, optimizer.step

            def zero_grad(*args: Any, **settings: Any) -> None:
                zero(*args, **settings)
                debugger.start(model=model)

            def stepped(*args: Any, **settings: Any) -> Any:
                done = step(*args, **settings)
                debugger.stop()
                debugger.step()
                return done

            optimizer.zero_grad, optimizer.step = zero_grad, stepped
            return optimizer

        with _replaced("make_optimizer", make):
            train.main(arguments)

    return write


for _level in ("L0", "L1", "mix"):
    WRITERS[f"msprobe-{_level}"] = _msprobe(_level, "statistics", "statistics")
for _sum in ("md5", "xor"):
    WRITERS[f"msprobe-{_sum}"] = _msprobe("L1", "statistics", _sum)
WRITERS["msprobe-tensor"] = _msprobe("L1", "tensor", "statistics")


def _tree(use_repr: bool) -> Writer:
    def write(folder: Path, arguments: Sequence[str]) -> None:
        from transformers.model_debugging_utils import _attach_debugger_logic

        def attach(model: nn.Module) -> None:
            _attach_debugger_logic(model, str(folder), do_prune_layers=False, use_repr=use_repr)

        try:  # its forward pass is one without gradients, so that no backward pass can follow
            _model_of(attach, arguments)
        except RuntimeError as error:
            if not any(folder.glob("*_debug_tree_SUMMARY.json")):
                raise error

    return write


WRITERS["transformers"] = _tree(use_repr=False)
WRITERS["transformers-repr"] = _tree(use_repr=True)


@_writer("results")
def _results(folder: Path, arguments: Sequence[str]) -> None:
    """The results of all modules, the last of each, as anybody dumps them: seven forms of files."""
    found: dict[str, Tensor] = {}

    def watch(model: nn.Module) -> None:
        for name, module in model.named_modules():

            def hook(_module: nn.Module, _inputs: Any, output: Any, name: str = name) -> None:
                if isinstance(output, Tensor) and name:
                    found.pop(name, None)
                    found[name] = output.detach().clone()

            module.register_forward_hook(hook)

    _model_of(watch, arguments)
    torch.save(found, folder / "results.pt")
    _named_tensors(folder, found)
    (dumper := folder / "dumper").mkdir()
    for number, (name, tensor) in enumerate(found.items(), 1):
        tags = f"step=0___rank=0___dump_index={number}___name=non_intrusive__{name}.output___recompute_status=disabled"
        torch.save({"value": tensor, "meta": {"name": name, "step": 0, "rank": 0}}, dumper / f"{tags}.pt")
    for mode in ("full", "sampled", "summary"):
        (trace := folder / mode).mkdir()
        lines = (_boundary(number, name, tensor, mode) for number, (name, tensor) in enumerate(found.items()))
        (trace / "rank_000000.jsonl").write_text("".join(lines))


def _named_tensors(folder: Path, found: Mapping[str, Tensor]) -> None:
    """A file of named tensors with an index that has their order, and a folder with a file of each."""
    (each := folder / "each").mkdir()
    (together := folder / "together").mkdir()
    (together / "model.safetensors").write_bytes(_safetensors(found))
    index = {"metadata": {}, "weight_map": dict.fromkeys(found, "model.safetensors")}
    (together / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, tensor in found.items():
        (each / f"{name}.safetensors").write_bytes(_safetensors({name: tensor}))


def _safetensors(found: Mapping[str, Tensor]) -> bytes:
    head, data = {}, b""
    for name, tensor in found.items():
        content = _bytes(tensor)
        told = {"dtype": {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype], "shape": list(tensor.shape)}
        head[name] = {**told, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    told_head = json.dumps(head).encode()
    return struct.pack("<Q", len(told_head)) + told_head + data


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _boundary(number: int, name: str, tensor: Tensor, mode: str) -> str:
    """A line of Megatron's determinism trace, by its schema."""
    shape, numel = list(tensor.shape), tensor.numel()
    told: dict[str, Any] = {"device_type": "cpu", "dtype": str(tensor.dtype).removeprefix("torch."), "mode": mode}
    told |= {"layout": "strided", "numel": numel, "requires_grad": True, "shape": shape, "stride": [*tensor.stride()]}
    told |= {"value_observed": True, "exact_value_certificate": mode == "full"}
    if mode == "summary":
        numbers = {"l2_norm": tensor.double().norm(), "mean": tensor.double().mean()}
        numbers |= {"maximum": tensor.max(), "minimum": tensor.min()}
        told["summary"] = {"all_finite": True, **{key: float(value) for key, value in numbers.items()}}
    else:
        head = {"dtype": told["dtype"], "mode": mode, "schema_version": 1, "shape": shape}
        values = tensor.contiguous().view(-1)
        if mode == "sampled":
            count = min(numel, 256)
            at = [k * (numel - 1) // max(count - 1, 1) for k in range(count)]
            head["sample_indices"] = told["sample_indices"] = at
            values = values[at]
        text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        told |= {"sha256": hashlib.sha256(text + b"\0" + _bytes(values)).hexdigest(), "captured_numel": len(values)}
    at_step = {"iteration": 1, "microbatch": 0, "rank": 0, "schema_version": 1, "sequence": number, "metadata": {}}
    record = {"event": "tensor", "name": name, "occurrence": 0, "phase": "forward", "tensor": told, **at_step}
    return json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n"


@_writer("routing")
def _routing(folder: Path, arguments: Sequence[str]) -> None:
    """Megatron's trace of routers, by its schema, with hidden states and logits beside it."""
    lines: list[str] = []
    with (folder / "hidden_states_rank0.bin").open("wb") as states, (folder / "logits_rank0.bin").open("wb") as scores:

        def hook(name: str, chosen: int) -> Callable[..., None]:
            def routed(_module: nn.Module, inputs: Any, output: Tensor) -> None:
                record: dict[str, Any] = {"step": 0, "stage": "pre_dispatch", "block": "decoder", "rank": 0}
                record |= {"layer": int(name.split(".")[1]), "num_tokens": len(output), "topk": chosen}
                for fields, file, tensor in (("hs", states, inputs[0]), ("logit", scores, output)):
                    data = _bytes(tensor.detach().bfloat16())
                    record |= {f"{fields}_offset": file.tell(), f"{fields}_bytes": len(data)}
                    record[f"{fields}_shape"] = list(tensor.shape)
                    file.write(data)
                record["top_indices"] = output.detach().float().softmax(-1).topk(chosen, dim=-1)[1].tolist()
                lines.append(json.dumps(record) + "\n")

            return routed

        def watch(model: nn.Module) -> None:
            for name, module in model.named_modules():
                if hasattr(module, "router"):
                    module.router.register_forward_hook(hook(name, module.top_k))

        _model_of(watch, arguments)
    (folder / "routing.jsonl").write_text("".join(lines))


def main() -> None:
    """Run the example once with a writer."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("writer", choices=list(WRITERS))
    options.add_argument("folder", type=Path)
    options.add_argument("--site", action="append", default=[], metavar="DIR", help="site-packages with the tool")
    options.epilog = "Arguments of the example follow after --."
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = options.parse_args(sys.argv[1:at])
    sys.path += args.site
    args.folder.mkdir(parents=True, exist_ok=True)
    WRITERS[args.writer](args.folder, sys.argv[at + 1 :])


if __name__ == "__main__":
    main()
