"""What the run info says of the optimizers that stepped."""

from __future__ import annotations

from tests.capture.conftest import Script
from tests.capture.runs import Examples


def test_parameters_that_no_optimizer_holds_and_those_without_a_gradient_are_named(script: Script) -> None:
    run = script("""
        model = net()
        model.register_parameter("spare", nn.Parameter(torch.ones(2)))
        model[0].bias.requires_grad_(False)
        held = [model[0].weight, model[0].bias, model[2].weight, model.spare, nn.Parameter(torch.ones(1))]
        optimizer = torch.optim.SGD(held, lr=0.1)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """)
    assert run.log.run["optimizer"] == {"held": 3, "others": 2, "not_held": ["2.bias"], "no_gradient": ["spare"]}


def test_two_optimizers_count_together(script: Script) -> None:
    run = script("""
        model = net()
        first, last = (torch.optim.SGD(model[n].parameters(), lr=0.1) for n in (0, 2))
        model(x).sum().backward()
        first.step()
        last.step()
    """)
    assert run.log.run["optimizer"] == {"held": 4, "not_held": [], "no_gradient": []}


def test_a_gradient_that_the_step_computes_is_one(script: Script) -> None:
    """The closure of an LBFGS runs the backward pass inside the step."""
    run = script("""
        model = net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            return loss
        optimizer.step(closure)
    """)
    assert run.log.run["optimizer"]["no_gradient"] == []


def test_each_step_is_told_by_itself(script: Script) -> None:
    run = script(
        """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            del optimizer.param_groups[0]["params"][-1]
        """,
        "--steps 1,2",
    )
    told = [log.run["optimizer"] for log in run.logs.values()]
    assert [entry["not_held"] for entry in told] == [[], ["2.bias"]]


def test_a_run_without_a_step_says_nothing(script: Script) -> None:
    run = script("model = net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(x).sum().backward()\n")
    assert "optimizer" not in run.log.run


def test_the_example_holds_all_that_it_trains(examples: Examples) -> None:
    told = examples.log().run
    assert told["optimizer"] == {"held": told["parameters"]["count"], "not_held": [], "no_gradient": []}
