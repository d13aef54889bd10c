"""Curves from printed lines, event files and logs of weights, and the first step at which they differ."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from capture.log_format import render_weights_footer, render_weights_header
from matchers.curves.compare import compare_curves, relative
from matchers.curves.curves import read_curves
from matchers.curves.tensorboard import _masked
from matchers.errors import LogError
from numtui.cli.main import main
from tests.matchers.curves.event_files import event_file
from tests.matchers.weights.test_weights import tensor

TITAN = (
    "[titan] 2025-06-13 10:30:34,501 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:8.5f}  "
    "\x1b[38;2;180;60;0mgrad_norm: {norm:7.4f}  \x1b[36mmemory: 12.3GiB(1.2%)  \x1b[34mtps: 1,234\x1b[39m\n"
)


def printed(path: Path, losses: list[float]) -> str:
    lines = [TITAN.format(step=step, loss=loss, norm=loss / 2) for step, loss in enumerate(losses, 1)]
    path.write_text("Loading checkpoint 3\n" + "".join(lines) + "done, total loss: 7\n")
    return str(path)


def logged(path: Path, losses: list[list[float | str]]) -> str:
    lines = []
    for step, of in enumerate(losses, 1):
        lines += [json.dumps(tensor(step, name, "grad", l2=3.0)) for name in ("a", "b")]
        lines.append(json.dumps({"step": step, "losses": of}))
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(render_weights_header({}) + text + render_weights_footer(len(losses)))
    return str(path)


def test_lines_of_torchtitan(tmp_path: Path) -> None:
    curves = read_curves(printed(tmp_path / "a.txt", [8.25, 7.5]))
    assert curves.of == {"loss": {1: 8.25, 2: 7.5}, "grad_norm": {1: 4.125, 2: 3.75}}


def test_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text('{"step": 3, "train/loss": 1.5, "lr": 0.1}\niter 4: loss nan, time 3\nstep=5 loss=-inf\n')
    curves = read_curves(str(path))
    assert curves.of["train/loss"] == {3: 1.5}
    assert math.isnan(curves.of["loss"][5]) or curves.of["loss"] == {5: -math.inf}


@pytest.mark.parametrize("as_tensors", [False, True])
def test_event_files(tmp_path: Path, as_tensors: bool) -> None:
    folder = tmp_path / "tb" / "run"
    folder.mkdir(parents=True)
    scalars = [("loss_metrics/global_avg_loss", 1, 8.25), ("lr", 1, 0.1), ("loss_metrics/global_avg_loss", 300, 7.5)]
    content = event_file(scalars, as_tensors=as_tensors)
    (folder / "events.out.tfevents.1.host").write_bytes(content)
    assert read_curves(str(tmp_path)).of == {"loss": {1: 8.25, 300: 7.5}}
    (folder / "events.out.tfevents.1.host").write_bytes(content[:-7])
    curves = read_curves(str(tmp_path))
    assert curves.of == {"loss": {1: 8.25}}
    assert curves.problems[0].endswith(":4: the last record is cut off and left out")


def test_the_checksum_is_that_of_the_format() -> None:
    """CRC-32C of the digits 1 to 9 is e3069283; a record has it rotated by 15 bits, and moved."""
    crc = 0xE3069283
    assert _masked(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_losses_and_gradients_of_a_log_of_weights(tmp_path: Path) -> None:
    curves = read_curves(logged(tmp_path / "rank_0_weights.log", [[1.5, 2.0], ["nan"]]))
    assert curves.of["loss"][1] == 3.5
    assert math.isnan(curves.of["loss"][2])
    assert curves.of["grad_norm"] == {1: pytest.approx(math.sqrt(18)), 2: pytest.approx(math.sqrt(18))}
    assert not curves.problems


def test_the_first_step_that_differs(tmp_path: Path) -> None:
    a = read_curves(printed(tmp_path / "a.txt", [8.0, 7.0, 6.0, 5.0]))
    b = read_curves(printed(tmp_path / "b.txt", [8.0, 7.0, 6.03, 4.0]))
    loss, norm = compare_curves(a, b)
    assert (loss.name, norm.name, loss.differing) == ("loss", "grad_norm", 2)
    assert loss.first is not None
    assert loss.first.step == 3
    assert loss.first.error == pytest.approx(0.03 / 6.03)
    assert loss.largest is not None
    assert (loss.largest.step, loss.largest.error) == (4, 0.25)
    assert compare_curves(a, b, 0.01)[0].first == loss.largest
    assert [relative(*of) for of in ((math.nan, math.nan), (1.0, math.nan), (0.0, 0.0))] == [0.0, math.inf, 0.0]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = printed(tmp_path / "a.txt", [8.0, 7.0, 6.0]), printed(tmp_path / "b.txt", [8.0, 7.0, 6.03])
    assert main(["losses", a, b]) == 1
    out = capsys.readouterr().out
    assert "loss: step 3 differs first, 6 ⇄ 6.03 (relative 0.005); 1 of 3 differ." in out
    assert "equal within --rtol 0.005" in out
    assert main(["losses", a, b, "--rtol", "0.01", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["differs"], report["curves"][0]["largest"]["step"]) == (False, 3)
    assert main(["losses", a, logged(tmp_path / "rank_0_weights.log", [[8.0], [7.0], ["nan"]])]) == 1
    assert "6 ⇄ nan (NaN, Inf or 0 in one)" in capsys.readouterr().out


def test_what_has_no_curve_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x00\xff" * 1000 + b"loss: 3\n")
    with pytest.raises(LogError, match=r"a\.txt:1: no curve is in it"):
        read_curves(str(tmp_path / "a.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match="neither a log of weights"):
        read_curves(str(tmp_path / "empty"))
