"""What a step covers: several optimizers, what prepares it, what follows it, and what is no part of it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from capture.log_format import coverage_sentence
from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.weights.log import read_weights
from tests.capture.conftest import LOOP, Script
from tests.capture.runs import Run, run_captured, run_plain

LOOPS = Path(__file__).with_name("several_models.py")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Captures by arguments."""
    runs = {}
    for loop in ("gan", "sac", "ema", "noising"):
        for arguments in (loop, f"{loop} --bug"):
            folder = tmp_path_factory.mktemp("several")
            runs[arguments] = run_captured(LOOPS, folder, f"{arguments} --print-state", "--weights every")
    return runs


def compared(captured: dict[str, Run], loop: str) -> Comparison:
    one, other = (captured[key].folder / "numerics" / "rank_0_activations.log" for key in (loop, f"{loop} --bug"))
    return compare(read_log(str(one)), read_log(str(other)))


def source(location: str) -> str:
    return LOOPS.read_text(encoding="utf-8").splitlines()[int(location.rpartition(":")[2]) - 1]


@pytest.mark.parametrize("loop", ["gan", "sac", "ema", "noising"])
def test_no_bit_changes(captured: dict[str, Run], loop: str) -> None:
    assert captured[loop].printed == run_plain(LOOPS, f"{loop} --print-state")


@pytest.mark.parametrize(
    ("loop", "line", "phase"),
    [
        ("gan", "loss = functional.binary_cross_entropy_with_logits(judge(real)", "forward"),
        ("sac", "wanted = reward +", "prepare"),
        ("ema", "slow.mul_(decay)", "after"),
        ("noising", "noised = (share", "prepare"),
    ],
)
def test_the_first_cause_is_the_line_of_the_bug(captured: dict[str, Run], loop: str, line: str, phase: str) -> None:
    c = compared(captured, loop)
    row = int(c.cause.argmax())
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    line_of = source(log.location_text(record))
    assert {source(log.location_text(of)) for of in c.row_a[c.cause & (c.row_a >= 0)].tolist()} == {line_of}
    assert line in line_of
    assert captured[loop].log.rows[record].phase == phase
    assert not any(note.kind == "batch" for note in c.comparability.notes), "the log shows what made the batch"


class TestCoverage:
    @pytest.mark.parametrize(
        ("loop", "told"),
        [
            ("gan", "step 1, models generator, judge, 2 optimizers stepped, 8 parameters updated"),
            ("sac", "step 1, models actor, critic, target, 3 optimizers stepped, 8 parameters updated"),
            ("ema", "step 1, models model, average, 1 optimizer stepped, 4 parameters updated"),
        ],
    )
    def test_the_header_says_what_the_log_covers(self, captured: dict[str, Run], loop: str, told: str) -> None:
        text = (captured[loop].folder / "numerics" / "rank_0_activations.log").read_text()
        assert f"Coverage: {told}\n" in text

    def test_an_optimizer_that_did_not_step_is_said(self, script: Script) -> None:
        log = script(LOOP.replace("for step", "idle = torch.optim.SGD([torch.ones(1)], lr=1)\nfor step")).log
        assert log.run["coverage"] == {"optimizers": [1, 2], "models": ["model"], "parameters": [4, 4]}
        assert "1 of 2 optimizers stepped" in coverage_sentence(1, log.run["coverage"])

    def test_broken_entries_are_left_out(self) -> None:
        assert coverage_sentence("x", {"optimizers": [1], "models": "y", "parameters": [True, None]}) == ""


class TestWhatIsNoPartOfTheStep:
    def test_validation_and_the_sum_of_its_losses(self, captured: dict[str, Run]) -> None:
        log = captured["ema"].log
        assert {row.phase for row in log} == {"prepare", "forward", "backward", "optimizer", "after"}
        assert [row.op for row in log if row.phase == "after"] == ["mul_", "add_"] * 4

    def test_initialising_and_loading_weights(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})
            with torch.no_grad():
                model(x)
            model(x).sum().backward()
            optimizer.step()
        """).log
        assert log.rows[0].op == "addmm"
        assert log.run["unread"] > 4
        assert {"0.weight", "2.bias"} <= set(log.run["end_state"])

    def test_a_second_step_has_its_own_preparation(self, script: Script) -> None:
        run = script(
            """
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                batch = torch.randn(4, 8) * 2
                model(batch).sum().backward()
                optimizer.step()
            """,
            "--steps 2,3",
        )
        for log in run.logs.values():
            assert [row.op for row in log if row.phase == "prepare"] == ["randn", "mul"]
            assert log.run["batch"][0]["computed"]
        second, third = run.logs.values()
        assert second.keys == third.keys
        assert second.rows[0].values != third.rows[0].values

    def test_what_is_differentiated_before_the_model_is_of_no_earlier_micro_batch(self, script: Script) -> None:
        run = script(
            """
            model, scale = net(), torch.nn.Parameter(torch.ones(8))
            optimizer = torch.optim.SGD([scale, *model.parameters()], lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(x * scale).sum().backward()
                optimizer.step()
            """,
            "--steps 1,2",
        )
        for log in run.logs.values():
            assert [(row.op, row.fields.get("Micro-batch")) for row in log.rows[:2]] == [("mul", None), ("addmm", "0")]


def test_target_networks_are_called_by_what_holds_them(captured: dict[str, Run]) -> None:
    assert {row.module for row in captured["noising"].log if row.op == "addmm"} == {"0", "2", "teacher.0", "teacher.2"}
    mutated = [entry["name"] for row in captured["ema"].log if row.phase == "after" for entry in row.mutated]
    written = [name for row in captured["ema"].log if row.phase == "after" for name in row.parameters if name]
    assert {"average.0.weight", "average.2.bias"} <= {*mutated, *written}


def test_what_a_script_holds_is_known_after_its_end(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its globals, a cycle with its functions, live until the capture ends, as they do in a plain run."""

    def after_a_collection(module: object) -> list[object]:
        gc.collect()
        return referrers(module)

    referrers = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", after_a_collection)
    log = script("""
        import copy
        model = net()
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).sum().backward()
        optimizer.step()
        with torch.no_grad():
            average[0].weight.lerp_(model[0].weight, 0.1)
    """).log
    assert [row.parameters[0] for row in log if row.phase == "after"] == ["average.0.weight"]


def test_averaged_copies_are_in_the_log_of_weights(captured: dict[str, Run]) -> None:
    log = read_weights(str(captured["ema"].folder / "numerics" / "rank_0_weights.log"))
    assert {"average.0.weight", "0.weight"} <= set(log.parameters)


def test_averaged_copies_of_sharded_models_are_found(script: Script) -> None:
    """The memory of a DTensor is that of its local tensor."""
    log = script("""
        import copy
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_module
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        mesh = init_device_mesh("cpu", (2,))
        model = distribute_module(net(), mesh)
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        from torch.distributed.tensor import DTensor
        model(DTensor.from_local(x, mesh, [Replicate()])).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, 0.1)
        dist.destroy_process_group()
    """).log
    after = [row for row in log if row.phase == "after"]
    assert [row.parameters[0] for row in after] == [
        f"average.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")
    ]


def test_plain_tensors_have_no_placement_of_the_dtensor_before_them(script: Script) -> None:
    """Even where the same operation writes to both."""
    log = script("""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module, RowwiseParallel
        from torch.distributed.tensor import Replicate
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        model = nn.Sequential(nn.Embedding(8, 8), nn.RMSNorm(8))
        whole = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": whole})

        class Descent(torch.optim.Optimizer):
            def __init__(self, parameters):
                super().__init__(parameters, {})

            @torch.no_grad()
            def step(self):
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(0.1 * parameter.grad)

        optimizer = Descent(model.parameters())
        model(torch.arange(4)).square().sum().backward()
        optimizer.step()
        dist.destroy_process_group()
    """).log
    placed = {row.parameters[0]: "Placement" in row.fields for row in log if row.op == "sub_"}
    assert placed == {"0.weight": True, "1.weight": False}


@pytest.mark.parametrize("validated", [False, True])
def test_a_step_starts_with_the_shards_that_optimizers_train(script: Script, validated: bool) -> None:
    """A pass without gradients leaves the parameters of FSDP2's outermost module gathered."""
    log = script(f"""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        model = fully_shard(net(), mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if {validated}:
            with torch.no_grad():
                model(x)
        model(x).sum().backward()
        optimizer.step()
        dist.destroy_process_group()
    """).log
    assert set(log.run["parameter_placements"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_states_that_a_checkpoint_fills_are_no_step(script: Script) -> None:
    """To have states for what it loads, torch lets the optimizer step with zero gradients."""
    log = script("""
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        weights, states = get_state_dict(model, optimizer)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
        model(x).sum().backward()
        optimizer.step()
    """).log
    assert log.run["step"] == 1
    assert {row.phase for row in log} >= {"forward", "backward", "optimizer"}
