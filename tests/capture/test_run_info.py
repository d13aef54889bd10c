"""The run info: what it says, that it changes nothing, that it fails for nothing, and that it keeps secrets."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from capture import machine, run_info
from capture.log_format import private
from capture.machine import git_state, uncommitted
from capture.step_start import StepStart, combined_digest
from matchers.ops.start import differing_start
from tests.capture.runs import Examples


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3, dtype=torch.float64))


def info(**given: Any) -> dict[str, Any]:
    found = run_info.run_info(**{"step": 1, "rank": 0, "settings": {"sketch": True}, **given})
    assert json.loads(json.dumps(found)) == found  # JSON-ready, and unchanged by it
    return found


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002


def test_everything_two_runs_must_agree_on_is_there() -> None:
    net = model(seed=7)
    found = info(models=[net], start=StepStart(net.named_parameters(), (), [torch.ones(2, 4)]).as_json())
    assert set(found) >= {
        *("step", "rank", "world_size", "launcher", "seed", "deterministic", "precision", "attention", "parameters"),
        *("settings", "threads", "versions", "device", "host", "command"),
        *("rng_digest", "rng_digests", "parameters_digest", "parameter_digests", "batch_digest", "batch"),
    }
    assert found["seed"] == 7
    assert found["world_size"] == 1
    assert found["launcher"] == "single process"
    assert found["parameters"]["dtypes"] == {"float32": 2, "float64": 2}
    assert found["parameters"]["elements"] == 21
    assert found["versions"]["torch"] == torch.__version__
    assert found["precision"]["default_dtype"] == "float32"
    assert found["batch"][0]["shape"] == [2, 4]
    assert set(found["parameter_digests"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_nothing_is_drawn_changed_or_started() -> None:
    net = model()
    before = random_states(), [p.clone() for p in net.parameters()], [p._version for p in net.parameters()]
    info(models=[net], start=StepStart(net.named_parameters(), net.named_buffers(), {"x": [torch.ones(3)]}).as_json())
    assert random_states() == before[0]
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before[1], strict=True))
    assert [p._version for p in net.parameters()] == before[2]
    assert machine.started_cuda() is None


def test_the_start_of_a_step_tells_weights_batches_and_random_states_apart() -> None:
    def start(seed: int, batch: float, draws: int = 0) -> dict[str, Any]:
        net = model(seed)
        torch.rand(draws)
        return StepStart(net.named_parameters(), (), [torch.full((2,), batch)]).as_json()

    one, same, other = start(1, 1.0), start(1, 1.0), start(2, 1.0)
    assert one == same
    assert one["parameters_digest"] != other["parameters_digest"]
    # the layer norm starts from ones and zeros, whatever the seed
    changed = {name for name, digest in one["parameter_digests"].items() if other["parameter_digests"][name] != digest}
    assert changed == {"0.weight", "0.bias"}
    assert one["batch_digest"] == other["batch_digest"] != start(1, 2.0)["batch_digest"]
    assert one["rng_digests"]["torch"] != start(1, 1.0, draws=1)["rng_digests"]["torch"]
    assert one["rng_digest"] != start(1, 1.0, draws=1)["rng_digest"]


def test_a_parameter_without_values_has_a_place_and_no_digest() -> None:
    found = StepStart([("w", torch.empty(3, device="meta")), ("v", torch.ones(2))]).as_json()
    assert found["parameter_digests"]["w"] == "-"
    assert len(found["parameter_digests"]["v"]) == 16
    assert "batch" not in found


def test_one_element_that_differs_before_the_step_is_told_by_the_sketches() -> None:
    net, other = model(), model()
    with torch.no_grad():
        other[0].weight.view(-1)[1] = torch.nextafter(other[0].weight.view(-1)[1], torch.tensor(9.0))
    runs = [StepStart(of.named_parameters(), [("mask", torch.ones(2))], sketch=True).as_json() for of in (net, other)]
    assert runs[0]["start_sketches"].keys() == {*runs[0]["parameter_digests"], "mask"}
    found = differing_start(*runs, together=True)
    assert found.parameters is not None
    assert "weight, in one element as far as the sketch tells, by " in found.parameters.text
    assert found.parameters.rounding
    assert "start_sketches" not in StepStart(net.named_parameters()).as_json()


def test_a_combined_digest_depends_on_order() -> None:
    assert combined_digest([1, 2]) != combined_digest([2, 1])
    assert combined_digest([1, None]) != combined_digest([1])
    assert len(combined_digest([])) == 16


def test_autocast_is_what_it_is_where_the_step_starts() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert StepStart([]).as_json()["autocast"] == {"cpu": "bfloat16"}
    assert "autocast" not in StepStart([]).as_json()


def test_mixing_the_precision_interfaces_neither_raises_nor_loses_the_rest() -> None:
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        precision = info()["precision"]
    finally:
        matmul.fp32_precision = before
    assert precision["cuda_matmul_fp32"] == "tf32"
    assert {"fp32", "cudnn_conv_fp32", "mkldnn_matmul_fp32", "bf16_reduced_reduction"} <= set(precision)


def test_activation_checkpointing_is_described() -> None:
    wrapped = [
        checkpoint_wrapper(nn.Linear(1, 1), preserve_rng_state=False, context_fn=partial(print, "x")) for _ in range(2)
    ]
    found = info(models=[nn.Sequential(*wrapped)])["activation_checkpointing"]
    assert found == [{"context_fn": "print", "preserve_rng_state": False, "use_reentrant": False, "modules": 2}]


def test_a_reader_that_fails_costs_only_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(machine, "host", fail)
    found = info()
    assert "host" not in found
    assert "versions" in found


def test_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert info(simulated=True)["launcher"] == "LocalTensorMode"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    found = info(rank=3)
    assert (found["launcher"], found["world_size"], found["rank"]) == ("torchrun", 8, 3)


def test_only_variables_that_matter_to_numbers_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("TORCH_API_KEY", "x")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    found = machine.environment()
    assert found["NCCL_ALGO"] == "Ring"
    assert found["TORCH_API_KEY"] == private("x")
    assert "HF_TOKEN" not in found


def test_the_commit_of_the_training_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        settings = ["-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgsign=false"]
        return subprocess.check_output(["git", *settings, "-C", str(tmp_path), *arguments], text=True).strip()

    monkeypatch.setattr(machine, "_git_state", machine._git_state.__wrapped__)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    script = tmp_path / "train.py"
    script.write_text("1")
    assert git_state(tmp_path) is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    digests = set()
    for text in ("2", "3"):
        script.write_text(text)
        changed = git_state() or {}
        digests.add(changed.pop("changes"))
        assert changed == {"commit": git("rev-parse", "HEAD"), "dirty": True, "files": ["train.py"]}
    assert len(digests) == 2
    assert (uncommitted() or "").endswith("-1\n\\ No newline at end of file\n+3\n\\ No newline at end of file")
    assert "uncommitted" not in info()
    assert info(keep_diff=True)["uncommitted"] == uncommitted()
    monkeypatch.setenv("PATH", "")
    assert git_state() is None


def test_versions_of_what_was_imported() -> None:
    found = machine.libraries()
    assert found["pytest"] == pytest.__version__
    assert not found.keys() & {"torch", "json", "re"}


def test_a_traced_step_begins_with_the_values_that_it_runs_on(examples: Examples) -> None:
    """Not with those of the trace, which are none."""
    eager, traced = examples.log().run, examples.log("--traced").run
    assert traced["parameter_digests"] == eager["parameter_digests"]
    assert traced["batch"][0] == eager["batch"][0]
    assert traced["coverage"]["parameters"] == eager["coverage"]["parameters"]
