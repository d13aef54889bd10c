"""`numtui isolate`: every bug of a script at its line, by the real captures; and what an interruption leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capture.keeping.bundle import read_bundle
from capture.keeping.form import find_bundles
from numtui.cli.main import main
from numtui.experiments.capturing import CaptureCommand
from numtui.report.called_modules import Called
from numtui.report.elements import read_tensor

SCRIPT = """
import sys
import torch
from torch import nn
bugs = sys.argv[1].split(",")
torch.manual_seed(0)
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x.tanh())
        ctx.slope = slope
        return x.tanh()
    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (1 - y * y) * ctx.slope, None  # slope
class Unit(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, eps = k, 1e-2 if "eps" in bugs and k == 0 else 1e-5
        self.norm, self.inner, self.offset = nn.LayerNorm(8, eps=eps), nn.Linear(8, 8), nn.Parameter(torch.rand(8))
    def forward(self, x):
        offset = self.offset
        if "roll" in bugs and self.k == 1:
            offset = offset.roll(1)  # roll
        y = self.inner(self.norm(x) + offset)
        return x + Tanh.apply(y, 1.5 if "slope" in bugs and self.k == 2 else 1.0)
class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 8)
    def forward(self, x):
        at = torch.arange(4)
        if "shifted" in bugs:
            at = (at + 1) % 4  # shifted
        return x + self.table(at)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.units = Places(), nn.ModuleList([Unit(k) for k in range(3)])
    def forward(self, x):
        x = self.places(x)
        for k, unit in enumerate(self.units):
            x = unit(x)
            if "scale" in bugs and k == 1:
                x = x * 1.01  # scale
        return x
model = Net()
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.9 if "beta" in bugs else 0.999))
model(torch.randn(4, 8)).square().mean().backward()
if "nudge" in bugs:
    model.units[2].inner.weight.grad.mul_(1.5)  # nudge
optimizer.step()
"""

HIDDEN = """
import sys
import torch
from torch import nn
bugs = sys.argv[1].split(",")
torch.manual_seed(0)
class Attend(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.q = k, nn.Linear(8, 8)
    def forward(self, x, memory):
        q = self.q(x)
        if "lost" in bugs and self.k == 0:
            q = q.detach()  # lost
        scores = q @ memory.transpose(1, 2)
        if "scores" in bugs and self.k == 1:
            scores = scores / 1.1  # scores
        mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
        return x + scores.masked_fill(mask, -1e9).softmax(-1) @ x  # softmax
class Decode(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attend(k) for k in range(3)])
    def forward(self, x, memory):
        for k, layer in enumerate(self.layers):
            given = memory.detach() if "cut" in bugs and k == 2 else memory  # cut
            x = layer(x, given)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 8), Decode()
        self.first, self.all = nn.Linear(8, 3), nn.Linear(8, 5)
    def forward(self, x):
        memory = self.encode(x)
        y = self.decode(x, memory)
        first = y[:, 0] if "first" in bugs else y.mean(1)  # first
        return self.first(first), self.all(y)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
one, other = model(torch.randn(2, 4, 8))
(one.square().mean() + other.square().mean()).backward()
nn.utils.clip_grad_norm_(model.parameters(), 0.1)
optimizer.step()
"""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


MIXED = """
import sys, torch
from torch import nn

class Unit(nn.Module):
    def __init__(self, turned):
        super().__init__()
        self.norm, self.mix, self.turn = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(4, 8) if turned else None
    def forward(self, x, time=None):
        y = self.mix(self.norm(x))
        return x + (y if self.turn is None else y * self.turn(time))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.head = nn.Linear(8, 4), nn.Linear(8, 3)
        self.units = nn.ModuleList(Unit(number > 1) for number in range(4))
    def forward(self, x):
        time = self.time(x)
        for unit in self.units:
            x = unit(x) if unit.turn is None else unit(x, time)
        return self.head(x)

def made():
    torch.manual_seed(3)
    return Net()

# trains
dtype = getattr(torch, sys.argv[1])
model = made().to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(16, 8, generator=torch.Generator().manual_seed(5)).to(dtype)).square().mean().backward()
optimizer.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script, and a run of it without bugs that kept the boundaries of its modules."""
    pytest.importorskip("torch")
    from tests.capture.runs import run_captured

    folder = tmp_path_factory.mktemp("isolate")
    (folder / "script.py").write_text(SCRIPT)
    run_captured(folder / "script.py", folder / "a", "none", "--save boundary:*")
    return folder


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A capture starts no Python of its own, which takes seconds; the folders of those that were begun."""
    from tests.capture.runs import run_captured

    begun: list[Path] = []

    def run(self: CaptureCommand, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        begun.append(output)
        script, *arguments = self.command
        run_captured(cwd / script, output, " ".join(arguments), " ".join([*self.options, *options]))
        return ""

    monkeypatch.setattr(CaptureCommand, "run", run)
    return begun


def isolated(folder: Path, out: Path, bugs: str, *options: str) -> list[str]:
    return ["isolate", str(folder / "a"), "-o", str(out), *options, "--", str(folder / "script.py"), bugs]


def line_of(text: str, script: str = SCRIPT) -> str:
    (number,) = (n for n, line in enumerate(script.splitlines(), 1) if text in line)
    return f":{number}"


def test_every_bug_is_a_cause_at_its_line_and_nothing_else_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(isolated(folder, tmp_path / "out", "shifted,eps,roll,scale,slope,nudge,beta", "--format", "json")) == 1
    told = json.loads(capsys.readouterr().out)
    lines = [cause["line"] for cause in told["causes"]]
    texts = ("# shifted", "self.norm(x) + offset", "# roll", "# scale", "# slope", "# nudge", "optimizer.step()")
    assert [f":{line.rpartition(':')[2]}" for line in lines] == [line_of(text) for text in texts]
    errors = {each["module"]: each for each in told["own_errors"]}
    assert errors["units.0.norm"]["forward"] > 1e3
    assert errors["units.2"]["forward"] == 0


@pytest.mark.parametrize("bugs", ["scores", "scores,cut,first", "lost"])
def test_what_is_hidden_by_a_mask_by_a_graft_and_by_gradients_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bugs: str
) -> None:
    """Errors beside larger numbers, a gradient that is a term of a sum, and a view that a graft overwrites again.

    Of weights that get no gradient any more the norm of all gradients is a consequence.
    """
    from tests.capture.runs import run_captured

    (tmp_path / "script.py").write_text(HIDDEN)
    run_captured(tmp_path / "script.py", tmp_path / "a", "none", "--save boundary:*")
    assert main(isolated(tmp_path, tmp_path / "out", bugs, "--format", "json")) == 1
    told = json.loads(capsys.readouterr().out)
    lines = sorted(f":{cause['line'].rpartition(':')[2]}" for cause in told["causes"])
    assert lines == sorted(line_of(f"# {bug}", HIDDEN) for bug in bugs.split(",")), told["causes"]


def test_a_healthy_run_has_no_cause(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(isolated(folder, tmp_path / "out", "none")) == 0
    assert capsys.readouterr().out.startswith("No cause in 1 capture: nothing is red\n")


def test_all_blocks_are_grafted_at_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(isolated(folder, tmp_path / "out", "eps", "--all")) == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  units.")] == [
        "units.0",
        "units.1",
        "units.2",
    ]


def test_the_own_error_of_a_block_in_bfloat16_is_the_one_that_it_has_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside float64. The batch has no gradient, and that of a tensor which several blocks read is a sum."""
    from tests.capture.runs import run_captured

    (tmp_path / "script.py").write_text(MIXED)
    run_captured(tmp_path / "script.py", tmp_path / "a", "float32", "--save boundary:*")
    assert main(isolated(tmp_path, tmp_path / "out", "bfloat16", "--all", "--format", "json")) == 0
    told = {each["module"]: each for each in json.loads(capsys.readouterr().out)["own_errors"]}
    alone = alone_in_bfloat16(tmp_path / "a", MIXED)
    assert [name for name in told if name.startswith("units.")] == [*alone]
    for name, (forward, backward, weights) in alone.items():
        assert told[name]["forward"] == pytest.approx(forward, rel=0.01)
        assert told[name]["weights"] == pytest.approx(weights, rel=0.01)
        assert told[name]["backward"] == (pytest.approx(backward, rel=0.01) if name == "units.1" else None)


def test_rounding_to_another_dtype_is_no_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Adam's first step is nearly the sign of a gradient, which rounding changes where that is small."""
    from tests.capture.runs import run_captured

    wide = re.sub(r"\b8\b", "128", MIXED)
    wide = wide.replace("SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters(), foreach=False)")
    (tmp_path / "script.py").write_text(wide)
    run_captured(tmp_path / "script.py", tmp_path / "a", "float32", "--save boundary:*")
    assert main(isolated(tmp_path, tmp_path / "out", "bfloat16", "--all")) == 0
    assert capsys.readouterr().out.startswith("No cause in 1 capture: nothing is red")
    assert main(isolated(tmp_path, tmp_path / "out", "bfloat16", "--all", "--resume", "--rtol", "0.01")) == 1


def alone_in_bfloat16(run: Path, script: str) -> dict[str, tuple[float, float, float]]:
    """Return the errors of each unit alone against float64, in ε: of its output, input's gradient and weights'."""
    import torch

    defined: dict[str, Any] = {}
    exec(script.partition("# trains")[0], defined)
    (bundle,) = (read_bundle(folder) for folder in find_bundles(run))
    calls = {call["module"]: call for call in bundle.boundaries}

    def computed(name: str, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        unit = defined["made"]().get_submodule(name).to(dtype)
        kept = [read_tensor(bundle.folder, told).values for told in calls[name]["inputs"].values()]
        inputs = [torch.tensor(values).to(dtype).requires_grad_() for values in kept]
        output = unit(*inputs)
        (told,) = calls[name]["output_gradients"].values()
        output.backward(torch.tensor(read_tensor(bundle.folder, told).values).to(dtype))
        gradients = [parameter.grad for parameter in unit.parameters() if parameter.grad is not None]
        assert inputs[0].grad is not None
        return [[output.detach()], [inputs[0].grad], gradients]

    def error(wide: list[torch.Tensor], narrow: list[torch.Tensor]) -> float:
        one, other = (torch.cat([each.flatten().double() for each in of]) for of in (wide, narrow))
        return float((other - one).norm() / one.norm()) / 2**-7

    found = {}
    for name in (name for name in calls if name.startswith("units.") and name.count(".") == 1):
        of = zip(computed(name, torch.float64), computed(name, torch.bfloat16), strict=True)
        forward, backward, weights = (error(wide, narrow) for wide, narrow in of)
        found[name] = forward, backward, weights
    return found


def test_an_interrupted_isolation_goes_on(
    folder: Path,
    tmp_path: Path,
    runs: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(isolated(folder, tmp_path / "whole", "scale,beta")) == 1
    whole = capsys.readouterr().out
    run, out = CaptureCommand.run, tmp_path / "out"

    def interrupted(self: CaptureCommand, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        if output.name == "run_1":
            (output / "numerics").mkdir(parents=True)  # what is there of it does not count
            raise KeyboardInterrupt
        return run(self, output, cwd, options)

    monkeypatch.setattr(CaptureCommand, "run", interrupted)
    assert main(isolated(folder, out, "scale,beta")) == 130
    monkeypatch.setattr(CaptureCommand, "run", run)
    runs.clear()
    assert main(isolated(folder, out, "scale,beta", "--resume")) == 1
    assert capsys.readouterr().out == whole
    assert runs == [out / "run_1"]
    assert main(["isolate", str(folder / "a"), "-o", str(out), "--resume"]) == 1, "as it was asked for"
    assert capsys.readouterr().out == whole
    assert main(isolated(folder, out, "scale", "--resume")) == 2
    assert "--resume goes on as before: command was" in capsys.readouterr().err
    assert main(isolated(folder, out, "scale")) == 2
    assert "not empty: --resume goes on there" in capsys.readouterr().err


def test_a_run_without_boundaries_says_how_to_make_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    line = isolated(folder, tmp_path / "out", "scale")
    line[1] = str(tmp_path / "a")
    assert main(line) == 2
    assert f"numtui capture --save 'boundary:*' -o {tmp_path}/a -- COMMAND_A" in capsys.readouterr().err
    line[3] = str(tmp_path / "again")
    assert main([*line[:4], "--reference", f"{folder / 'script.py'} none", *line[4:]]) == 1
    assert "1 cause" in capsys.readouterr().out


def test_blocks_are_the_layers_of_a_stack_and_what_stands_beside_it() -> None:
    calls = [("M", None), ("m", "M"), ("m.emb", "m"), ("m.layers.0", "m"), ("m.layers.0.a", "m.layers.0"),
             ("m.layers.1", "m"), ("head", "M")]  # fmt: skip
    called = Called.of({"module": name, "within": within} for name, within in calls)
    assert called.blocks() == ["m.emb", "m.layers.0", "m.layers.1", "head"]
    assert called.nearest("m.layers.0.a.b") == "m.layers.0.a"
    assert called.nearest("loss_of") == ""
