"""What the training code does to models, optimizers and compiled functions around a capture."""

from __future__ import annotations

import pytest

from tests.capture.conftest import Script

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler meets its own


def test_a_compiled_optimizer_step_runs_and_ends_the_step(script: Script) -> None:
    run = script(
        """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(3):
            optimizer.zero_grad()
            model(x).sum().backward()
            step()
        print(torch._C._len_torch_dispatch_stack())
        """,
        "--steps 1,2",
    )
    first, second = run.logs.values()
    assert first.complete
    assert second.complete
    assert {row.phase for row in second} == {"forward", "backward", "optimizer"}
    assert run.printed == "0\n"


@pytest.mark.filterwarnings("ignore:numtui capture", "ignore:The .grad attribute")
def test_a_step_whose_forward_pass_begins_inside_a_compiled_function_is_recorded(script: Script) -> None:
    run = script(
        """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compiler.disable
        def loss_of():
            return model(x).sum()

        @torch.compile(backend="eager")
        def train_step():
            y = x + 1
            loss_of().backward()
            return y

        for _ in range(2):
            train_step()
            optimizer.step()
        print(torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python))
        """
    )
    assert run.printed == "False\n"
    assert [row.phase for row in run.log.of("addmm")] == ["forward", "forward"]
    assert run.log.complete


def test_a_compiled_module_brings_no_warning_about_our_hooks(script: Script) -> None:
    run = script(
        """
        import warnings
        model = torch.compile(net(), backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as said:
            model(x).sum().backward()
        optimizer.step()
        print([str(w.message) for w in said])
        """
    )
    assert run.printed == "[]\n"


def test_modules_that_are_put_in_between_steps_have_their_paths(script: Script) -> None:
    run = script(
        """
        model = net()
        for step in range(2):
            if step == 1:
                model[0] = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        """,
        "--steps 1,2",
    )
    _, second = run.logs.values()
    assert {"0.0", "0.1", "1", "2"} <= {row.module for row in second}
    named = {name for row in second for name in row.parameters}
    assert {"0.0.weight", "0.1.bias", "2.weight.grad"} <= named
