"""Scripts that do not go as planned: each ends as it would without a capture, and what was captured is there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.capture.conftest import HEAD, LOOP, Script
from tests.capture.logs import Log, read_logs
from tests.forks import Forks

HALF = """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(x).sum().backward()
"""
"""A step that has not come to its optimizer."""


def only_log(folder: Path) -> Log:
    (log,) = read_logs(folder / "out").values()
    return log


class TestScriptsThatEndEarly:
    @pytest.mark.parametrize(
        ("ending", "error", "reason"),
        [
            ("raise ValueError('no more\\ndata')", ValueError, "ValueError: no more"),
            (
                "raise torch.OutOfMemoryError('CUDA out of memory')",
                RuntimeError,
                "OutOfMemoryError: CUDA out of memory",
            ),
            ("raise KeyboardInterrupt", KeyboardInterrupt, "KeyboardInterrupt"),
            ("import sys; sys.exit(3)", SystemExit, "SystemExit: 3"),
            ("raise SystemExit('bye')", SystemExit, "SystemExit: bye"),
        ],
    )
    def test_an_exception_goes_through_and_the_log_says_why_it_is_incomplete(
        self, script: Script, tmp_path: Path, ending: str, error: type[BaseException], reason: str
    ) -> None:
        with pytest.raises(error):
            script(HALF + ending)
        log = only_log(tmp_path)
        assert not log.complete
        assert log.run["incomplete"] == reason
        assert log.ops["addmm"] == 2
        assert [row for row in log if row.phase == "backward"]

    def test_exit_without_an_error_in_the_middle_of_a_step(self, script: Script, tmp_path: Path) -> None:
        with pytest.raises(SystemExit):
            script(HALF + "import sys; sys.exit(0)")
        log = only_log(tmp_path)
        assert not log.complete
        assert "before an optimizer stepped" in log.run["incomplete"]

    def test_an_exception_after_the_step_leaves_its_log_whole(self, script: Script, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError):
            script(LOOP + "1 / 0")
        assert only_log(tmp_path).complete

    def test_an_exception_inside_a_module_that_is_caught(self, script: Script) -> None:
        """The batch is skipped and the step goes on: the modules that were left by it are not taken for running."""
        log = script("""
            class Picky(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(8, 1)
                def forward(self, x):
                    y = self.layer(x)
                    if x.sum() > 0:
                        raise ValueError
                    return y
            model = Picky()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in (torch.ones(2, 8), -torch.ones(2, 8)):
                try:
                    model(batch).sum().backward()
                except ValueError:
                    pass
            optimizer.step()
        """).log
        assert [row.module for row in log.of("addmm")] == ["layer", "layer"]
        assert {row.module for row in log.of("sum")} >= {"Picky", "script"}

    def test_a_terminated_process_leaves_what_was_captured(self, forked: Forks, tmp_path: Path) -> None:
        """SIGTERM in the middle of a step, as a cluster's scheduler sends it: the process still dies of it."""
        path = tmp_path / "script.py"
        path.write_text(HEAD + HALF + "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('alive')\n")
        done = forked(["-m", "capture", "-o", "out", "--", str(path)], tmp_path)
        assert done.returncode == -signal.SIGTERM
        assert done.stdout == ""
        log = only_log(tmp_path)
        assert log.run["incomplete"] == "SIGTERM"
        assert log.ops["addmm"] == 2

    def test_a_script_with_a_handler_of_its_own_keeps_it(self, script: Script) -> None:
        run = script(
            """
            import os, signal
            signal.signal(signal.SIGTERM, lambda *_: print("saved"))
            """
            + LOOP.replace("\n", "\n            ")
            + """
            os.kill(os.getpid(), signal.SIGTERM)
            """
        )
        assert run.printed == "saved\n"
        assert run.log.complete


class TestScriptsWithoutAStep:
    def test_a_script_that_goes_on_without_an_optimizer_is_not_recorded_without_end(self, script: Script) -> None:
        with pytest.warns(RuntimeWarning, match="after 10 operations .* --step-at module:function or capture.step()"):
            run = script(
                "model = net()\nfor _ in range(9):\n    model(x).sum().backward()\nprint('done')", "--max-operations 10"
            )
        assert run.printed == "done\n"
        assert sum(run.log.ops.values()) == 10
        assert "recording stopped after 10 operations" in run.log.run["incomplete"]

    def test_a_script_that_never_steps(self, script: Script) -> None:
        run = script("model = net()\nmodel(x).sum().backward()")
        assert not run.log.complete
        assert run.log.run["incomplete"] == "the script ended before an optimizer stepped"
        assert run.log.ops["addmm"] == 2

    def test_a_script_without_a_module(self, script: Script) -> None:
        run = script("(x @ x.T).sum()")
        assert run.logs == {}
        assert "no module was called with gradients enabled" in run.said

    def test_a_script_that_only_evaluates(self, script: Script) -> None:
        run = script("""
            with torch.no_grad():
                net()(x)
        """)
        assert run.logs == {}
        assert "records its calls: python -m capture --forward -o " in run.said

    def test_an_optimizer_without_a_module(self, script: Script) -> None:
        run = script("""
            w = torch.ones(8, requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=0.1)
            (x @ w).sum().backward()
            optimizer.step()
        """)
        assert list(dict.fromkeys(row.phase for row in run.log)) == ["forward", "backward", "optimizer"]


class TestModelsThatAreHardToRecord:
    def test_data_parallel_is_refused_with_a_sentence(self, script: Script) -> None:
        with pytest.warns(RuntimeWarning, match="use DistributedDataParallel"):
            run = script(LOOP.replace("model = net()", "model = nn.DataParallel(net())") + "print('trained')")
        assert run.printed == "trained\n"
        assert run.logs == {}

    def test_a_loop_in_a_thread_is_recorded(self, script: Script) -> None:
        body = LOOP.replace("\n", "\n    ")
        log = script(f"""
import threading
def train():
    {body}
thread = threading.Thread(target=train)
thread.start()
thread.join()
""").log
        assert log.complete
        assert log.ops["addmm"] == 2

    def test_a_model_that_is_replaced_between_steps(self, script: Script) -> None:
        run = script(
            """
            for _ in range(2):
                model = net()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model(x).sum().backward()
                optimizer.step()
            """,
            "--steps 2",
        )
        assert [row.module.rpartition(".")[2] for row in run.log.of("addmm")] == ["0", "2"]

    def test_a_module_that_is_called_before_the_model(self, script: Script) -> None:
        """A tokenizer's embedding, a loss: the outermost module called first need not be the model."""
        log = script("""
            table, model = nn.Embedding(4, 8), net()
            optimizer = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=0.1)
            loss = nn.MSELoss()
            for _ in range(2):
                loss(model(table(torch.tensor([1, 2]))), torch.zeros(2, 1)).backward()
                optimizer.step()
        """).log
        assert [row.module for row in log.of("embedding")] == ["Embedding"]
        assert [row.module for row in log.of("addmm")] == ["0", "2"]
        assert [row.module for row in log.of("mse_loss")] == ["MSELoss"]
        assert {"weight", "0.weight", "2.bias"} <= {name for row in log for name in row.parameters}

    def test_a_model_that_changes_dtype_and_device_of_its_parameters(self, script: Script) -> None:
        log = script("""
            model = net()
            model = model.to(torch.float64)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(x.double()).sum().backward()
            optimizer.step()
        """).log
        assert "float64" in log.of("addmm")[0].fields["Shape"]
        assert {"0.weight", "0.bias"} <= {name for row in log for name in row.parameters}

    def test_function_transforms(self, script: Script) -> None:
        """The step begins inside `vmap` of `grad`: gradients of each sample."""
        text = """
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            def loss(weights, sample):
                return torch.func.functional_call(model, weights, (sample,)).sum()
            each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x)
            for p, gradients in zip(model.parameters(), each.values()):
                p.grad = gradients.sum(0).detach()
            optimizer.step()
        """
        log = script(text).log
        assert log.complete
        assert [row.module for row in log.of("mm")][:2] == ["0", "2"]
        assert {"0.weight", "2.bias"} <= {name for row in log for name in row.parameters}

    def test_double_backward(self, script: Script) -> None:
        log = script("""
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            y = x.clone().requires_grad_()
            output = model(y).square().sum()
            (gradient,) = torch.autograd.grad(output, y, create_graph=True)
            (gradient.square().sum() + output).backward()
            optimizer.step()
        """).log
        assert log.complete
        assert {row.module for row in log.of("mm")} == {"0", "2"}

    def test_names_that_would_break_a_line(self, script: Script) -> None:
        log = script("""
            model = nn.Sequential()
            model.add_module("a\\nb;[c]", nn.Linear(8, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(x).sum().backward()
            optimizer.step()
        """).log
        assert log.of("addmm")[0].module == "a\\x0ab\\x3b[c]"
        assert log.complete
