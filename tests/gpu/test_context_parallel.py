"""torch's context parallel attention, which has no kernel on a CPU: two processes share a GPU, and a sequence."""

from __future__ import annotations

from pathlib import Path

from tests.capture.logs import read_logs
from tests.gpu.test_steps import HEAD, TRAIN, run

RANKS = 2
# parts of 32 positions: the kernel's log-sum-exp has a multiple of them
DIVIDED = """
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn.attention import SDPBackend, sdpa_kernel

tokens = torch.randint(0, 100, (2, 4, 129)).cuda()
dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cuda", (dist.get_world_size(),))
set_rotate_method("alltoall")
"""
TRAIN_DIVIDED = TRAIN.replace(
    """    with around():
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    backward(loss)
""",
    """    x, y = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    with context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1]), sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / mesh.size()
        loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
""",
)


def ranks(folder: Path, *before: str) -> str:
    """Run on two ranks; return what they print, in order."""
    text = HEAD + DIVIDED + TRAIN_DIVIDED.replace("print(", "print(dist.get_rank(), ")
    done = run(folder, text, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), *before)
    assert done.returncode == 0, done.stderr
    return "\n".join(sorted(done.stdout.splitlines()))


def test_a_capture_changes_no_bit_of_a_divided_sequence(tmp_path: Path) -> None:
    assert TRAIN_DIVIDED != TRAIN
    plain = ranks(tmp_path)
    assert len(plain.splitlines()) == RANKS
    said, found = [], []
    for out in ("first", "second"):
        said.append(ranks(tmp_path, "-m", "capture", "-o", str(tmp_path / out), "--"))
        found.append(read_logs(tmp_path / out))
    assert said == [plain, plain]
    assert len(found[0]) == RANKS
    for name, log in found[0].items():
        assert log.complete
        assert log.ops["_scaled_dot_product_efficient_attention"] > 0
        assert [row.values for row in log] == [row.values for row in found[1][name]]
