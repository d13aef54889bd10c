"""Calls of a model as steps: inference, evaluation, decode steps, in scripts that nobody edited."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from capture import TrainerCapture, trace
from tests.capture.conftest import HEAD, LOOP, Script
from tests.capture.logs import Log, read_logs
from tests.capture.runs import run_python

DECODING = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)

    def forward(self, ids, cache):
        cache.append(self.embed(ids).sum(0))
        return self.head(self.layer(torch.stack(cache)).relu().sum(0))

model = Model().eval()

@torch.{mode}()
def generate(ids, count):
    cache = []
    for _ in range(count):
        scores = torch.log_softmax(model(ids, cache), -1)
        print(scores.max().item().hex())
        ids = scores.argmax()[None]
    return ids

generate(torch.arange(3), 4)
"""
GENERATED = DECODING.format(mode="no_grad")


class TestCalls:
    def test_each_decode_step_is_a_step_with_what_is_computed_from_it(self, script: Script) -> None:
        run = script(GENERATED, "--calls 1,3")
        assert list(run.logs) == ["step_1/rank_0_activations.log", "step_3/rank_0_activations.log"]
        first, third = run.logs.values()
        keys = [row.key for row in third if row.phase == "forward"]
        assert keys == [row.key for row in first]
        assert keys[-3:] == [
            "generate/op_0__log_softmax",
            "generate/op_1_max",
            "generate/op_2_argmax",
        ]
        assert [f"{row.op} {row.phase}" for row in third][:2] == ["_log_softmax prepare", "argmax prepare"]
        assert third.run["step"] == 3
        assert third.run["coverage"] == {"forward": [2, 9], "models": ["model"]}
        assert "call 3: " in run.said

    def test_the_header_has_the_weights_and_what_the_call_was_given(self, script: Script) -> None:
        run = script(GENERATED, "--forward").log.run
        assert len(run["parameter_digests"]) == 5
        assert [tensor["shape"] for tensor in run["batch"]] == [[3]]
        assert "end_state" not in run

    def test_results_are_bitwise_those_without_capture(self, script: Script, tmp_path: Path) -> None:
        for mode in ("no_grad", "inference_mode"):
            (tmp_path / "plain.py").write_text(HEAD + DECODING.format(mode=mode))
            plain = run_python(["plain.py"], tmp_path).stdout
            assert script(DECODING.format(mode=mode), "--calls 1-4").printed == plain != ""

    def test_inference_mode_records_the_operations_that_no_grad_does(self, script: Script) -> None:
        """Composite operators arrive whole there."""
        plain, inference = (script(DECODING.format(mode=m), "--forward").log for m in ("no_grad", "inference_mode"))
        assert [(row.key, row.digests) for row in inference] == [(row.key, row.digests) for row in plain]
        assert [row.fields.get("Location") for row in inference] == [row.fields.get("Location") for row in plain]

    def test_nothing_is_left_of_the_capture_after_the_last_call(self, script: Script) -> None:
        run = script(
            """
            model = net()
            with torch.no_grad():
                for _ in range(3):
                    model(x)
                    print(len(torch.nn.modules.module._global_forward_pre_hooks))
            """,
            "--forward",
        )
        assert run.printed == "1\n0\n0\n"
        assert run.log.complete

    def test_what_the_next_call_reads_prepares_it(self, script: Script) -> None:
        log = script(
            """
            model = net().eval()
            with torch.no_grad():
                for _ in range(2):
                    noise, unread = torch.randn(4, 8), torch.randn(2)
                    (model(noise) > 0).sum()
            """,
            "--calls 2",
        ).log
        assert [f"{row.op} {row.phase}" for row in log] == [
            "randn prepare",
            "addmm forward",
            "relu forward",
            "addmm forward",
            "gt forward",
            "sum forward",
        ]

    def test_a_training_call_has_its_backward_pass_and_update(self, script: Script) -> None:
        log = script(LOOP, "--calls 2").log
        assert {row.phase for row in log} == {"forward", "backward", "optimizer"}
        assert log.ops["addmm"] == 2

    def test_evaluation_after_training_can_be_chosen(self, script: Script) -> None:
        log = script(LOOP + "\nwith torch.no_grad():\n    print(model(x).mean())", "--calls 4").log
        assert [row.op for row in log] == ["addmm", "relu", "addmm", "mean"]

    def test_parts_that_are_called_on_their_own_make_one_step(self, script: Script) -> None:
        run = script(
            """
            model = net()
            with torch.inference_mode():
                for _ in range(2):
                    model[2](model[1](model[0](x)))
            """,
            "--calls 1,2",
        )
        assert [[row.key for row in log] for log in run.logs.values()] == [
            ["0/op_0_addmm", "1/op_0_relu", "2/op_0_addmm"]
        ] * 2

    def test_a_call_for_shapes_alone_is_none(self, script: Script) -> None:
        log = script(
            """
            import copy
            model = net()
            copy.deepcopy(model).to("meta")(x.to("meta"))
            with torch.no_grad():
                model(x)
            """,
            "--forward",
        ).log
        assert (log.run["step"], log.ops["addmm"]) == (1, 2)
        assert log.rows[0].digests[0] not in ("", "-")

    @pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
    def test_compiled_models_are_called_too(self, script: Script, mode: str) -> None:
        run = script(
            f"""
            model = torch.compile(net(), backend="aot_eager")
            with torch.{mode}():
                for _ in range(2):
                    model(x)
            """,
            "--calls 1,2",
        )
        assert [[row.op for row in log] for log in run.logs.values()] == [["addmm", "relu", "addmm"]] * 2


class TestChosenModules:
    def test_a_call_of_a_module_is_that_call_alone(self, script: Script) -> None:
        run = script(GENERATED, "--of module:layer --calls 2,3")
        assert len(run.logs) == 2
        assert {row.module for log in run.logs.values() for row in log} == {"layer"}

    def test_means_calls(self, script: Script) -> None:
        assert script(GENERATED, "--of module:h*").log.run["settings"] == {
            "sketch": True,
            "forward": True,
            "of": ["h*"],
            "statistics": script(GENERATED, "--forward").log.run["settings"]["statistics"],
        }

    def test_a_module_that_is_never_called_is_said(self, script: Script) -> None:
        assert "no call of tail was seen" in script(GENERATED, "--of module:tail").said


class TestWithoutTheOption:
    def test_the_command_that_would_have_worked_is_said(self, script: Script, tmp_path: Path) -> None:
        run = script(GENERATED, "--no-sketch")
        assert not run.logs
        assert f"records its calls: python -m capture --forward --no-sketch -o {run.folder} -- " in run.said
        assert run.said.count("\n") == 1

    def test_a_process_that_calls_no_model_says_nothing_of_it(self, script: Script) -> None:
        assert "--forward" not in script("nn.ReLU()(x)").said

    def test_a_training_says_nothing_of_it(self, script: Script) -> None:
        assert "--forward" not in script(LOOP).said


class TestOwnCode:
    def test_a_trace_takes_passes_without_gradients_for_the_step(self, tmp_path: Path) -> None:
        model = nn.Linear(8, 1)
        with torch.no_grad(), trace(model, path=tmp_path / "a.log", forward=True):
            model(torch.ones(2, 8)).sum()
        log = Log.read(tmp_path / "a.log")
        assert [f"{row.op} {row.phase}" for row in log] == ["ones prepare", "addmm forward", "sum forward"]
        assert set(log.run["parameter_digests"]) == {"weight", "bias"}

    def test_calls_between_begin_and_end_are_counted(self, tmp_path: Path) -> None:
        model = nn.Linear(8, 1)
        model(torch.ones(2, 8))
        with TrainerCapture(tmp_path, steps=[1, 3], forward=True) as calls, torch.no_grad():
            calls.begin(model)
            for _ in range(4):
                model(torch.ones(2, 8))
        assert list(read_logs(tmp_path)) == ["step_1/rank_0_activations.log", "step_3/rank_0_activations.log"]
