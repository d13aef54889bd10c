"""Training steps on a GPU: a capture changes no bit, waits nowhere, and says twice the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from capture.schedule import trace
from tests.capture.logs import Log, read_logs

REPOSITORY = Path(__file__).parents[2]

HEAD = """
import contextlib, hashlib, os, sys, torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


class Block(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down, self.heads = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim), heads

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 64), nn.Linear(64, 100)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = run_block(block, x)
        return self.head(x)


run_block = lambda block, x: block(x)
around = contextlib.nullcontext
tokens = torch.randint(0, 100, (2, 4, 33)).cuda()
prepare = lambda model: model
make_optimizer = lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2)
backward = lambda loss: loss.backward()
step = lambda optimizer: optimizer.step()
"""
TRAIN = """
torch.manual_seed(1)
model = prepare(Model().cuda())
optimizer = make_optimizer(model)
for batch in tokens:
    optimizer.zero_grad()
    with around():
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    backward(loss)
    step(optimizer)
total = hashlib.sha256()
local = lambda tensor: tensor.to_local() if hasattr(tensor, "to_local") else tensor
for parameter in model.parameters():
    for tensor in (parameter, parameter.grad, *(v for v in optimizer.state[parameter].values() if v is not None)):
        total.update(local(tensor).detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
total.update(torch.cuda.get_rng_state().numpy().tobytes())
print(float(loss), total.hexdigest())
"""

FORMS = {
    "plain": "",
    "amp": "around = lambda: torch.autocast('cuda', torch.bfloat16)\n",
    "scaler": """
scaler = torch.amp.GradScaler()
around = lambda: torch.autocast('cuda', torch.float16)
backward = lambda loss: scaler.scale(loss).backward()
step = lambda optimizer: (scaler.step(optimizer), scaler.update())
""",
    "fused": "make_optimizer = lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)\n",
    "capturable": "make_optimizer = lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)\n",
    "checkpointed": """
from torch.utils.checkpoint import checkpoint
run_block = lambda block, x: checkpoint(block, x, use_reentrant=False)
""",
    "streams": """
side = torch.cuda.Stream()
def run_block(block, x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = block(x)
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    return y
""",
    "dropout": "run_block = lambda block, x: F.dropout(block(x), 0.1)\n",
    "inductor": "prepare = lambda model: (model.compile(), model)[1]\n",
    "reduce-overhead": "prepare = lambda model: (model.compile(mode='reduce-overhead'), model)[1]\n",
    "fsdp2": """
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
def prepare(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)
""",
    "ddp": """
dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
prepare = lambda model: nn.parallel.DistributedDataParallel(model)
""",
    "tp": """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
mesh = dist.device_mesh.init_device_mesh("cuda", (2,))
make_optimizer = lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
def prepare(model):
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model
""",
}
"""Changes of each form in the training below."""
COMPILED = {"inductor", "reduce-overhead"}


def run(folder: Path, text: str, *before: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, *before, str(script)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def captured(folder: Path, text: str, out: str, *options: str) -> tuple[str, dict[str, Log]]:
    done = run(folder, text, "-m", "capture", "-o", str(folder / out), *options, "--")
    assert done.returncode == 0, done.stderr
    return done.stdout, read_logs(folder / out)


@pytest.mark.parametrize("form", FORMS)
def test_a_capture_changes_no_bit_and_says_twice_the_same(tmp_path: Path, form: str) -> None:
    text = HEAD + FORMS[form] + TRAIN
    plain = run(tmp_path, text)
    assert plain.returncode == 0, plain.stderr
    first, logs = captured(tmp_path, text, "first")
    second, again = captured(tmp_path, text, "second")
    assert first == second == plain.stdout
    log, other = logs["rank_0_activations.log"], again["rank_0_activations.log"]
    assert log.complete
    assert len(log.rows) > (20 if form in COMPILED else 150)
    assert log.keys == other.keys
    assert [row.values for row in log] == [row.values for row in other]
    assert "triton" in str(log.run), log.run


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1))
    return nn.Sequential(*layers, *layers[:1], nn.Linear(256, 8)).cuda()


def waits(step: Callable[[], None], around: AbstractContextManager[Any]) -> Counter[str]:
    """Count the places at which the step waits for the device."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with around:
            torch.cuda.set_sync_debug_mode("warn")
            try:
                step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return Counter(f"{Path(w.filename).name}:{w.lineno}" for w in seen if "called a synchronizing" in str(w.message))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_captured_step_waits_no_more_than_the_script(tmp_path: Path, optimizer: type[torch.optim.Optimizer]) -> None:
    model = network()
    trains = optimizer(model.parameters(), lr=0.1)
    x = torch.randn(64, 256, device="cuda")

    def step() -> None:
        trains.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        trains.step()
        loss.item()

    step()
    plain = waits(step, warnings.catch_warnings())
    assert sum(plain.values()) >= 1, "the item above waits"
    assert waits(step, trace(model, path=tmp_path / "a.log")) == plain


def test_a_captured_graph_replays_what_it_did(tmp_path: Path) -> None:
    """Operations that `torch.cuda.graph` records are recorded without a measurement among them."""
    model = network().eval()
    x = torch.randn(64, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            model(x)
        torch.cuda.current_stream().wait_stream(stream)
        expected = model(x).clone()
        graph = torch.cuda.CUDAGraph()
        with trace(model, path=tmp_path / "a.log"), torch.cuda.graph(graph):
            out = model(x)
        for _ in range(3):
            graph.replay()
    assert out.equal(expected)
    assert Log.read(tmp_path / "a.log").complete


@pytest.mark.parametrize("left", [10, 3000], ids=["the script waits for it", "the device takes no more work"])
def test_a_device_that_does_not_answer_leaves_the_log(tmp_path: Path, left: int) -> None:
    """As of a collective without end: the operations are there, at SIGTERM."""
    text = f"""
import signal, threading, time
done = 0
def terminate():
    seen = -1
    while seen != done or not done:
        seen = done
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=terminate, daemon=True).start()
model = Model().cuda()
optimizer = make_optimizer(model)
model(tokens[0]).square().mean().backward()
torch.cuda.synchronize()
torch.cuda._sleep(10**11)
value = model.head.bias
for done in range(1, {left}):
    value = value * 2
value.sum().item()
"""
    done = run(tmp_path, HEAD + text, "-m", "capture", "-o", str(tmp_path / "out"), "--")
    assert done.returncode == -signal.SIGTERM, done.stderr
    (log,) = read_logs(tmp_path / "out").values()
    assert log.run["incomplete"] == "SIGTERM"
    assert log.ops["native_layer_norm_backward"] == 3
    last = log.of("mul")[-5:]
    assert len(last) == 5
    assert not any("Digest" in row.fields for row in last), "the device had not come so far"
