"""`numtui isolate`: every bug of a script at its line, by the real captures; and what an interruption leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numtui.cli import isolate
from numtui.cli.main import main
from numtui.report.isolation import Called

SCRIPT = """
import sys
import torch
from torch import nn
bugs = sys.argv[1].split(",")
torch.manual_seed(0)
class Unit(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8, eps=eps), nn.Linear(8, 8)
    def forward(self, x):
        return x + torch.tanh(self.inner(self.norm(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.ModuleList([Unit(1e-2 if "eps" in bugs and k == 0 else 1e-5) for k in range(3)])
    def forward(self, x):
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

pytestmark = [pytest.mark.torch, pytest.mark.slow]


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
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture starts no Python of its own, which takes seconds."""
    from tests.capture.runs import run_captured

    def run(line: list[str]) -> int:
        cut, at = line.index("--"), line.index("-o")
        options = [*line[4:at], *line[at + 2 : cut]]
        run_captured(Path(line[cut + 1]), Path(line[at + 1]), " ".join(line[cut + 2 :]), " ".join(options))
        return 0

    monkeypatch.setattr(isolate, "_launched", run)


def isolated(folder: Path, bugs: str, *options: str) -> list[str]:
    return ["isolate", str(folder / "a"), "-o", str(folder / "out"), *options, "--", str(folder / "script.py"), bugs]


def line_of(text: str) -> str:
    (number,) = (n for n, line in enumerate(SCRIPT.splitlines(), 1) if text in line)
    return f":{number}"


def test_every_bug_is_a_cause_at_its_line_and_nothing_else_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(isolated(folder, "eps,scale,nudge,beta", "--format", "json")) == 1
    told = json.loads(capsys.readouterr().out)
    lines = [cause["line"] for cause in told["causes"]]
    wanted = [line_of("self.inner(self.norm(x))"), line_of("# scale"), line_of("# nudge"), line_of("optimizer.step()")]
    assert [line.endswith(end) for line, end in zip(lines, wanted, strict=True)] == [True] * 4
    errors = {each["module"]: each for each in told["own_errors"]}
    assert errors["units.0.norm"]["forward"] > 1e3
    assert errors["units.2"]["forward"] == 0


def test_a_healthy_run_has_no_cause(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(isolated(folder, "none")) == 0
    assert capsys.readouterr().out.startswith("No cause in 1 capture: nothing is red\n")


def test_all_blocks_are_grafted_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(isolated(folder, "eps", "--all")) == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  units.")] == [
        "units.0",
        "units.1",
        "units.2",
    ]


def test_an_interrupted_isolation_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(isolated(folder, "scale,beta")) == 1
    whole = capsys.readouterr().out
    run = isolate._launched
    calls: list[list[str]] = []

    def interrupted(line: list[str]) -> int:
        calls.append(line)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(line)

    monkeypatch.setattr(isolate, "_launched", interrupted)
    assert main(isolated(folder, "scale,beta")) == 130
    assert main(isolated(folder, "scale,beta", "--resume")) == 1
    assert capsys.readouterr().out == whole
    assert len(calls) == 3
    assert main(isolated(folder, "scale", "--resume")) == 2
    assert "was begun with another command" in capsys.readouterr().err


def test_a_run_without_boundaries_says_how_to_make_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    line = isolated(folder, "scale")
    line[1] = str(tmp_path / "a")
    assert main(line) == 2
    assert f"numtui capture --save 'boundary:*' -o {tmp_path}/a -- COMMAND_A" in capsys.readouterr().err
    assert main([*line[:2], "--reference", f"{folder / 'script.py'} none", *line[2:]]) == 1
    assert "1 cause" in capsys.readouterr().out


def test_blocks_are_the_layers_of_a_stack_and_what_stands_beside_it() -> None:
    calls = [("M", None), ("m", "M"), ("m.emb", "m"), ("m.layers.0", "m"), ("m.layers.0.a", "m.layers.0"),
             ("m.layers.1", "m"), ("head", "M")]  # fmt: skip
    called = Called.of({"module": name, "within": within} for name, within in calls)
    assert called.blocks() == ["m.emb", "m.layers.0", "m.layers.1", "head"]
    assert called.nearest("m.layers.0.a.b") == "m.layers.0.a"
    assert called.nearest("loss_of") == ""
