"""When a step begins and ends: in scripts of many shapes that nobody edited, and in loops that say it themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from capture import ActivationCaptureProfiler, CaptureSchedule, trace
from tests.capture.conftest import LOOP, Script
from tests.capture.logs import Log, read_logs

GAN = """
    generator, judge = nn.Linear(8, 8), nn.Linear(8, 1)
    makes, judges = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (generator, judge))
    for number in range(4):
        judges.zero_grad()
        judge(generator(torch.randn(4, 8)).detach()).sum().backward()
        judges.step()
        (-judge(generator(torch.randn(4, 8))).sum()).backward()
        makes.step()
        makes.zero_grad()
"""
WHOLE = """
            class Whole(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
            whole = Whole()
            optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
""".strip()
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def stepped(log: Log) -> list[str]:
    """The parameters that the optimizer moved, in its order."""
    changed = [entry["name"] for row in log if row.phase == "optimizer" for entry in row.mutated if "name" in entry]
    return [name for name in changed if not name.endswith(".grad")] or [
        row.parameters[0] for row in log if row.phase == "optimizer" and row.op == "add_"
    ]


class TestScripts:
    def test_the_first_step_is_recorded_unless_told_otherwise(self, script: Script) -> None:
        run = script(LOOP)
        assert list(run.logs) == ["rank_0_activations.log"]
        assert run.log.run["step"] == 1
        assert run.log.ops["addmm"] == 2

    def test_several_steps_go_to_a_folder_each(self, script: Script) -> None:
        run = script(LOOP, "--steps 1,3")
        assert list(run.logs) == ["step_1/rank_0_activations.log", "step_3/rank_0_activations.log"]
        first, third = run.logs.values()
        assert (first.run["step"], third.run["step"]) == (1, 3)
        # gradients that are already there are set to zero, or None: nothing else differs
        assert first.keys == third.keys
        assert first.rows[0].values != third.rows[0].values

    def test_every_nth_step_can_be_recorded(self, script: Script) -> None:
        run = script(LOOP.replace("range(3)", "range(6)"), "--steps 1,every:3")
        assert [log.run["step"] for log in run.logs.values()] == [1, 3, 6]
        assert "step 10 was requested, the script ran 3" in script(LOOP, "--steps every:10").said
        assert set(script(LOOP, "--calls every:2").logs) >= {"step_2/rank_0_activations.log"}

    def test_optimizers_that_step_one_after_the_other_are_one_step(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (model[0], model[2])]
            for _ in range(2):
                model(x).sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        """).log
        assert log.ops["addmm"] == 2
        assert stepped(log) == ["0.weight", "0.bias", "2.weight", "2.bias"]

    def test_a_backward_pass_between_two_optimizers_is_recorded(self, script: Script) -> None:
        """Both losses are computed first; each is propagated and stepped on its own."""
        log = script("""
            model, other = net(), net()
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
            for _ in range(2):
                losses = [m(x).sum() for m in (model, other)]
                for loss, optimizer in zip(losses, optimizers):
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """).log
        backward = [row for row in log if row.phase == "backward" and row.op == "mm"]
        assert len(backward) == 2 * 3
        assert stepped(log) == [*NAMES, *(f"other.{name}" for name in NAMES)]

    def test_optimizers_that_step_inside_the_backward_pass(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
            def step(p):
                optimizers[p].step()
                optimizers[p].zero_grad()
            for p in optimizers:
                p.register_post_accumulate_grad_hook(step)
            for _ in range(2):
                model(x).sum().backward()
        """).log
        assert sorted(stepped(log)) == sorted(NAMES)
        assert len([row for row in log if row.phase == "backward" and row.op == "mm"]) == 3

    def test_generator_and_discriminator_are_one_step(self, script: Script) -> None:
        run = script(GAN, "--steps 1-3")
        first, second, third = run.logs.values()
        assert first.keys == second.keys == third.keys
        assert stepped(first) == ["judge.weight", "judge.bias", "weight", "bias"]
        assert [row.phase for row in first.of("randn")] == ["prepare", "prepare"]

    def test_the_step_of_an_optimizer_that_waits_for_others_begins_with_their_forward_pass(
        self, script: Script
    ) -> None:
        """The judge steps twice before its generator does: its second step shows that another one had begun."""
        run = script(
            GAN.replace("(-judge", "if number % 2: (-judge").replace("makes.step()", "if number % 2: makes.step()"),
            "--steps 1-4",
        )
        alone, both = (
            stepped(run.logs["step_1/rank_0_activations.log"]),
            stepped(run.logs["step_2/rank_0_activations.log"]),
        )
        assert alone == ["judge.weight", "judge.bias"]
        assert both == ["judge.weight", "judge.bias", "weight", "bias"]
        judged = [log.of("addmm", "judge") for log in run.logs.values()]
        assert [len(rows) for rows in judged] == [1, 2, 1, 2]
        assert all(rows[0].fields["Micro-batch"] == "0" for rows in judged)

    def test_accumulated_micro_batches_are_one_step(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                for part in x.chunk(4):
                    model(part).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        """).log
        products = [row.fields["Micro-batch"] for row in log.of("addmm", "0")]
        assert products == ["0", "1", "2", "3"]
        assert [row.fields["Micro-batch"] for row in log.of("mm", "0")] == products

    def test_a_model_whose_parts_are_called_has_micro_batches_too(self, script: Script) -> None:
        """A pass is one until the backward pass, however many parts are called."""
        log = script(f"""
            {WHOLE}
            for _ in range(2):
                for part in x.chunk(2):
                    whole.head(whole.body(part)).sum().backward()
                optimizer.step()
        """).log
        assert [row.fields["Micro-batch"] for row in log.of("addmm")] == ["0", "0", "1", "1"]

    def test_a_head_called_for_a_piece_of_the_loss_at_a_time_begins_no_micro_batch(self, script: Script) -> None:
        log = script("""
            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

                def forward(self, x):
                    return self.body(x)

            model = Model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                for part in x.chunk(2):
                    hidden = model(part)
                    pieces = [piece.detach().requires_grad_() for piece in hidden.chunk(2)]
                    for piece in pieces:
                        model.head(piece).sum().backward()
                    hidden.backward(torch.cat([piece.grad for piece in pieces]))
                optimizer.step()
                optimizer.zero_grad()
        """).log
        heads = [row.fields["Micro-batch"] for row in log.of("addmm", "head")]
        assert heads == ["0", "0", "1", "1"]
        assert [row.fields["Micro-batch"] for row in log.of("addmm", "body")] == ["0", "1"]

    def test_what_a_closure_runs_before_the_backward_pass_is_no_part_of_the_optimizer(self, script: Script) -> None:
        log = script(f"""
            {WHOLE}
            def closure():
                noise = torch.randn(4, 8)
                loss = whole.head(whole.body(noise)).sum()
                loss.backward()
                return loss
            optimizer.step(closure)
        """).log
        assert [row.phase for row in log.of("randn")] == ["forward"]
        assert [row.phase for row in log.of("addmm")] == ["forward", "forward"]
        assert stepped(log) == ["body.weight", "body.bias", "head.weight", "head.bias"]

    def test_a_closure_is_called_many_times_in_a_step(self, script: Script) -> None:
        """LBFGS runs the model inside its step: forward and backward again, and not phase `optimizer`."""
        run = script(
            """
            model = net()
            optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
            def closure():
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                return loss
            for _ in range(2):
                optimizer.step(closure)
            """,
            "--steps 1,2",
        )
        assert len(run.logs) == 2
        log = run.logs["step_1/rank_0_activations.log"]
        calls = log.of("addmm", "0")
        assert [row.phase for row in calls] == ["forward"] * len(calls)
        assert len(calls) > 1
        assert {row.phase for row in log.of("mm", "0")} == {"backward"}
        assert [row.fields["Micro-batch"] for row in calls] == [str(n) for n in range(len(calls))]
        assert [row for row in log if row.phase == "optimizer"]

    def test_a_gradient_scaler_is_part_of_the_step(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cpu")
            for _ in range(2):
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        """).log
        assert log.ops["_amp_foreach_non_finite_check_and_unscale_"] == 1
        assert stepped(log) == NAMES

    def test_evaluation_before_training_is_no_step(self, script: Script) -> None:
        log = script("""
            model = net()
            with torch.no_grad():
                model(x)
            with torch.inference_mode():
                model(x)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(x).sum().backward()
            optimizer.step()
        """).log
        assert log.ops["addmm"] == 2

    def test_evaluation_between_steps_is_no_step(self, script: Script) -> None:
        run = script(
            """
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    model(x)
            """,
            "--steps 1,2",
        )
        assert [log.ops["addmm"] for log in run.logs.values()] == [2, 2]

    def test_a_graph_that_is_replayed_without_gradients_is_a_step_each_time(self, script: Script) -> None:
        run = script(
            """
            from torch.fx.experimental.proxy_tensor import make_fx
            model = net()
            parameters = dict(model.named_parameters())
            def step(weights, batch):
                loss = torch.func.functional_call(model, weights, (batch,)).sum()
                return torch.autograd.grad(loss, list(weights.values()))
            graph = make_fx(step)(parameters, x)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                with torch.no_grad():
                    for p, gradient in zip(parameters.values(), graph(parameters, x)):
                        p.grad = gradient
                optimizer.step()
            """,
            "--steps 2,3",
        )
        assert [log.ops["addmm"] for log in run.logs.values()] == [2, 2]
        assert [stepped(log) for log in run.logs.values()] == [NAMES, NAMES]

    def test_an_optimizer_that_steps_again_without_a_forward_pass_begins_another_step(self, script: Script) -> None:
        logs = list(script(LOOP + "\noptimizer.step()\noptimizer.step()\n", "--steps 3-5").logs.values())
        assert [log.run["step"] for log in logs] == [3, 4, 5]
        assert [stepped(log) for log in logs] == [NAMES] * 3
        assert [log.ops["addmm"] for log in logs] == [2, 0, 0]

    def test_a_step_that_the_script_does_not_reach_is_said(self, script: Script) -> None:
        run = script(LOOP, "--steps 7")
        assert run.logs == {}
        assert "step 7 was requested, the script ran 3" in run.said


class Trainer:
    """A loop of one's own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()


class TestOwnLoops:
    def test_a_schedule_records_the_steps_that_were_asked_for(self, tmp_path: Path) -> None:
        trainer = Trainer()
        with CaptureSchedule(trainer.model, steps=[2, 3], dump_folder=tmp_path) as schedule:
            for _ in range(4):
                trainer.step()
                schedule.step()
        logs = read_logs(tmp_path)
        assert [log.run["step"] for log in logs.values()] == [2, 3]
        assert all(log.complete and log.ops["addmm"] == 1 for log in logs.values())
        assert [path.parent.name for path in schedule.written] == ["step_2", "step_3"]

    def test_settings_are_keywords_too_and_stand_in_the_run_info(self, tmp_path: Path) -> None:
        trainer = Trainer()
        with CaptureSchedule(trainer.model, dump_folder=tmp_path, ops=("addmm",), sketch=False):
            trainer.step()
        (log,) = read_logs(tmp_path).values()
        assert set(log.ops) == {"addmm"}
        assert log.run["settings"]["ops"] == ["addmm"]
        assert log.run["settings"]["sketch"] is False
        assert "Sketch" not in log.rows[0].fields

    def test_a_loop_that_ends_in_the_middle_of_a_step_leaves_an_incomplete_log(self, tmp_path: Path) -> None:
        trainer = Trainer()
        with CaptureSchedule(trainer.model, dump_folder=tmp_path):
            trainer.step()
        (log,) = read_logs(tmp_path).values()
        assert not log.complete
        assert log.run["incomplete"] == "the loop ended before the step did"

    @pytest.mark.parametrize("enabled", [True, False])
    def test_torchtitans_profiler_can_be_replaced(self, tmp_path: Path, enabled: bool) -> None:
        trainer = Trainer()
        with ActivationCaptureProfiler(
            enabled=enabled, model=trainer.model, dump_dir=tmp_path, capture_step=2
        ) as profiler:
            for _ in range(3):
                trainer.step()
                profiler.step()
        assert [path.name for path in tmp_path.iterdir()] == (["rank_0_activations.log"] if enabled else [])
        if enabled:
            assert Log.read(tmp_path / "rank_0_activations.log").run["step"] == 2

    def test_torchtitans_profiler_takes_the_parts_of_a_pipeline(self, tmp_path: Path) -> None:
        parts = [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 1))]
        with ActivationCaptureProfiler(enabled=True, model=parts, dump_dir=tmp_path) as profiler:
            parts[1](parts[0](torch.ones(2, 4))).sum().backward()
            profiler.step()
        log = Log.read(tmp_path / "rank_0_activations.log")
        assert [row.module for row in log.of("addmm")] == ["Linear", "0"]

    def test_an_exception_inside_a_trace_goes_on_and_leaves_what_ran(self, tmp_path: Path) -> None:
        trainer, path = Trainer(), tmp_path / "x.log"

        def step() -> None:
            trainer.model(torch.ones(2, 4))
            raise ZeroDivisionError("division\nby zero")

        with pytest.raises(ZeroDivisionError), trace(trainer.model, path=path):
            step()
        log = Log.read(path)
        assert not log.complete
        assert log.run["incomplete"] == "ZeroDivisionError: division"
        assert log.ops["addmm"] == 1

    def test_a_trace_says_its_step_and_its_files(self, tmp_path: Path) -> None:
        trainer, path = Trainer(), tmp_path / "deep" / "x.log"
        with trace(trainer.model, path=path, step=5) as recorder:
            trainer.step()
        assert recorder.written == [path]
        assert Log.read(path).run["step"] == 5
        assert Log.read(path).complete

    def test_a_hash_of_ones_own_is_a_line_of_every_record(self, tmp_path: Path) -> None:
        def largest(tensor: Any) -> Any:
            return tensor.max()

        trainer, path = Trainer(), tmp_path / "x.log"
        with trace(trainer.model, path=path, hash=largest):
            trainer.model(torch.ones(2, 4))
        (row,) = Log.read(path).of("addmm")
        assert float(row.fields["User hash"]) == float(row.fields["Max"])
