"""Ends of steps without an optimizer of torch: parameters written by hand, and what the program says itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.capture.conftest import Script
from tests.capture.logs import Log

LOOP = """
model = net()
for _ in range(4):
    x = torch.randn(4, 8)
    model.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    UPDATE
    print(loss.item().hex())
"""
UPDATES = {
    "data": "for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)",
    "no_grad": "with torch.no_grad(): [p.sub_(p.grad * 0.1) for p in model.parameters()]",
    "replaced": "for p in model.parameters(): p.data = p.data - 0.1 * p.grad",
    "foreach": "torch._foreach_add_([p.data for p in model.parameters()], [-p.grad for p in model.parameters()])",
}
FUNCTIONAL = """
from torch.func import functional_call, grad_and_value
model = net()
parameters = {name: p.detach().clone() for name, p in model.named_parameters()}

def loss_of(parameters, x):
    return functional_call(model, parameters, (x,)).pow(2).mean()

for _ in range(4):
    gradients, loss = grad_and_value(loss_of)(parameters, torch.randn(4, 8))
    parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
    print(loss.item().hex())
"""


def phases(log: Log) -> list[str]:
    """The phases of the rows, in order, each once."""
    return list(dict.fromkeys(row.phase for row in log))


class TestByHand:
    @pytest.mark.parametrize("way", UPDATES)
    def test_a_step_ends_with_the_update_before_the_next_forward_pass(self, script: Script, way: str) -> None:
        run = script(LOOP.replace("UPDATE", UPDATES[way]), "--steps 2,3")
        second, third = run.logs.values()
        assert [log.complete for log in (second, third)] == [True, True]
        assert phases(third) == ["prepare", "forward", "backward", "optimizer"]
        assert phases(second) == phases(third)[1:], "nothing told before that it would begin"
        assert third.run["coverage"]["parameters"] == [4, 4]
        assert second.ops["addmm"] == third.ops["addmm"] == 2

    def test_the_parameters_written_are_named(self, script: Script) -> None:
        log = script(LOOP.replace("UPDATE", UPDATES["data"])).log
        written = [entry["name"] for row in log if row.phase == "optimizer" for entry in row.mutated]
        named = [name for row in log if row.phase == "optimizer" for name in row.parameters if name]
        assert {*written, *named} == {"0.weight", "0.bias", "2.weight", "2.bias"}

    def test_clipping_is_work_on_gradients(self, script: Script) -> None:
        update = f"nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n    {UPDATES['data']}"
        log = script(LOOP.replace("UPDATE", update)).log
        assert phases(log) == ["forward", "backward", "gradients", "optimizer"]

    def test_micro_batches_are_one_step(self, script: Script) -> None:
        run = script(
            """
            model = net()
            for number in range(4):
                model(x).sum().backward()
                if number % 2:
                    for p in model.parameters():
                        p.data.sub_(p.grad)
                        p.grad = None
            """,
            "--steps 2",
        )
        assert run.log.ops["addmm"] == 4
        assert run.log.complete

    def test_functional_updates_are_seen_too(self, script: Script) -> None:
        run = script(FUNCTIONAL, "--steps 2,3")
        second, third = run.logs.values()
        assert phases(third) == ["prepare", "forward", "backward", "optimizer"]
        assert third.ops - second.ops == {"randn": 1}

    def test_a_look_at_the_model_before_it_is_initialised_is_no_step(self, script: Script) -> None:
        head = "model = net()\nmodel(x)\nfor p in model.parameters(): nn.init.ones_(p)\n"
        log = script(head + LOOP.replace("model = net()", "").replace("UPDATE", UPDATES["data"])).log
        assert log.ops["addmm"] == 2
        assert log.complete
        assert not torch._C._len_torch_dispatch_stack()

    def test_the_last_step_of_a_script_is_whole(self, script: Script) -> None:
        assert script(LOOP.replace("UPDATE", UPDATES["data"]), "--steps 4").log.complete

    @pytest.mark.parametrize("text", [*(LOOP.replace("UPDATE", update) for update in UPDATES.values()), FUNCTIONAL])
    def test_numbers_stay_the_same(self, script: Script, text: str) -> None:
        assert script(text, "--steps 1,3").printed == script(text, "--steps 100").printed != ""


SAID = """
import sys
from numtui import capture
model = net()

def update():
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)

class Loop:
    def step(self):
        for _ in range(2):
            model(x).sum().backward()
        update()
        SAY

loop = Loop()
for _ in range(3):
    loop.step()
"""


class TestSaid:
    @pytest.mark.parametrize(
        ("options", "say"),
        [
            ("", "capture.step()"),
            ("--step-at script:update", ""),
            ("--step-at __main__:update", ""),
            ("--step-at script:Loop.step", ""),
        ],
    )
    def test_a_step_ends_where_the_program_says(self, script: Script, options: str, say: str) -> None:
        run = script(SAID.replace("SAY", say or "pass"), f"--steps 1,2 {options}")
        assert [log.ops["addmm"] for log in run.logs.values()] == [4, 4]
        assert [phases(log)[-1] for log in run.logs.values()] == ["optimizer"] * 2
        assert all(log.complete for log in run.logs.values())

    def test_a_function_of_a_module_of_its_own(
        self, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "updating.py").write_text(
            "def update(model):\n    for p in model.parameters(): p.data.sub_(p.grad)\n"
        )
        monkeypatch.delitem(sys.modules, "updating", raising=False)
        text = "from updating import update\nmodel = net()\nfor _ in range(3): model(x).sum().backward(), update(model)"
        run = script(text, "--steps 2 --step-at updating:update")
        assert run.log.ops["addmm"] == 2
        assert phases(run.log)[-1] == "optimizer"

    def test_what_is_not_there_is_said(self, script: Script) -> None:
        assert (
            "--step-at script:nothing: no such function"
            in script(SAID.replace("SAY", ""), "--step-at script:nothing").said
        )

    def test_optimizers_may_step_several_times_in_a_step(self, script: Script) -> None:
        text = """
            from numtui import capture
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                capture.step()
                for _ in range(2):
                    optimizer.zero_grad()
                    model(x).sum().backward()
                    optimizer.step()
        """
        assert script(text.replace("                capture.step()\n", "")).log.ops["addmm"] == 2

    def test_without_a_capture_it_does_nothing(self) -> None:
        from capture import step

        step()


class TestShapes:
    """Calls that compute shapes alone, as Keras makes them to build a model, begin no step."""

    SYMBOLIC = """
class Symbol:
    def __init__(self, *shape):
        self.shape = shape

class Layer(torch.nn.Linear):
    def forward(self, x):
        if isinstance(x, Symbol):
            SYMBOLIC
            return Symbol(*x.shape[:-1], self.out_features)
        return super().forward(x)

layers = [Layer(8, 8), Layer(8, 8)]
for layer in layers:
    layer(GIVEN)
model = torch.nn.Sequential(*layers)
"""

    @pytest.mark.parametrize(
        "symbolic",
        [
            "pass",
            # some kernels are not for the meta device, and run on whatever is in memory
            "torch.relu(torch.empty(*x.shape)).to('meta') + 1",
        ],
    )
    def test_of_symbols(self, script: Script, symbolic: str) -> None:
        before = self.SYMBOLIC.replace("SYMBOLIC", symbolic).replace("GIVEN", "Symbol(4, 8)")
        log = script(before + LOOP.replace("model = net()", "").replace("UPDATE", UPDATES["data"])).log
        assert phases(log) == ["prepare", "forward", "backward", "optimizer"], "the batch is seen"
        assert [row.key for row in log if row.phase == "forward"][:2] == ["0/op_0_addmm", "1/op_0_addmm"]
        assert log.run["coverage"]["models"] == ["model"]

    def test_of_the_meta_device(self, script: Script) -> None:
        before = "import copy\nmodel = net()\ncopy.deepcopy(model).to('meta')(x.to('meta'))\n"
        log = script(before + LOOP.replace("model = net()", "").replace("UPDATE", UPDATES["data"])).log
        assert (phases(log), log.ops["addmm"]) == (["forward", "backward", "optimizer"], 2)
        assert log.run["coverage"]["models"] == ["model"]
