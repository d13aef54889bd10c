"""The tracer inside somebody's training job: what it meets there, what it leaves alone, what happens when it breaks."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _python_dispatch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from capture import trace
from capture.modules import ModuleNames
from capture.statistics import Statistics
from capture.tracer import active_tracer
from tests.capture.conftest import Record
from tests.capture.logs import Log


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.outer(self.inner(x).sigmoid())


X = torch.linspace(-1, 1, 32).view(4, 8)


def train(model: nn.Module) -> Callable[[], None]:
    """A step of a model: forward, backward, optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()

    return step


def traces_of_a_capture() -> dict[str, Any]:
    """All that a capture touches outside of itself."""
    modules, optimizers = (import_module(f"torch.{name}") for name in ("nn.modules.module", "optim.optimizer"))
    return {
        "modes": torch._C._len_torch_dispatch_stack(),
        "flags": [getattr(_python_dispatch, name) for name in vars(_python_dispatch) if name.startswith("_is_in")],
        "debug modes": import_module(DebugMode.__module__)._ACTIVE_DEBUG_MODE_COUNT,
        "anomaly": torch.is_anomaly_enabled(),
        "hooks": [
            len(found) for name, found in vars(modules).items() if name.startswith("_global") and "hooks" in name
        ],
        "optimizers": [len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)],
        "rng": torch.get_rng_state().tolist(),
    }


class Ops(TorchDispatchMode):
    """Counts operations, as a user's own mode may."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **kwargs or {})


class TestLeavesNothingBehind:
    def test_after_a_step(self, record: Record) -> None:
        model = Net()
        before = traces_of_a_capture()
        record(model, train(model))
        assert traces_of_a_capture() == before

    def test_after_an_exception_in_the_middle_of_a_module(self, tmp_path: Path) -> None:
        model = Net()
        model.outer.register_forward_pre_hook(lambda *_, **__: 1 / 0)
        before = traces_of_a_capture()
        with pytest.raises(ZeroDivisionError), trace(model, path=tmp_path / "x.log"):
            model(X)
        assert traces_of_a_capture() == before
        log = Log.read(tmp_path / "x.log")
        assert log.ops == {"addmm": 1, "sigmoid": 1}

    def test_after_modes_that_were_entered_before_it_and_left_inside_it(self, tmp_path: Path) -> None:
        model, mode = Net(), Ops()
        before = traces_of_a_capture()
        mode.__enter__()
        with trace(model, path=tmp_path / "x.log"):
            model(X)
            mode.__exit__(None, None, None)
            model(X)
        assert traces_of_a_capture() == before
        assert mode.seen["aten.addmm.default"] == 2
        assert Log.read(tmp_path / "x.log").ops["addmm"] == 4

    def test_after_modes_that_were_entered_inside_it_and_left_after_it(self, tmp_path: Path) -> None:
        model, mode = Net(), Ops()
        before = traces_of_a_capture()
        with trace(model, path=tmp_path / "x.log"):
            model(X)
            mode.__enter__()
            model(X)
        model(X)
        mode.__exit__(None, None, None)
        assert traces_of_a_capture() == before
        assert mode.seen["aten.addmm.default"] == 4
        assert Log.read(tmp_path / "x.log").ops["addmm"] == 4

    def test_no_tensor_is_kept_alive(self, tmp_path: Path) -> None:
        model, freed = Net(), []
        with trace(model, path=tmp_path / "x.log"):
            hidden = model.inner(X)
            storage = torch.multiprocessing.reductions.StorageWeakRef(hidden.untyped_storage())
            loss = model.outer(hidden).sum()
            loss.backward()
            del hidden, loss
            freed.append(storage.expired())
        assert freed == [True]


class TestOtherModes:
    def test_a_flop_counter_counts_what_it_counts_without(self, record: Record) -> None:
        model = Net()

        def flops() -> int:
            with FlopCounterMode(display=False) as counter:
                model(X).sum().backward()
            return int(counter.get_total_flops())

        alone, counted = flops(), []
        record(model, lambda: counted.append(flops()))
        assert counted == [alone]

    def test_a_mode_of_ones_own_sees_no_operation_of_the_capture(self, record: Record) -> None:
        model = Net()
        step = train(model)

        def seen() -> Counter[str]:
            with Ops() as mode:
                step()
            return mode.seen

        seen()  # gradients are there from here on
        alone, found = seen(), []
        record(model, lambda: found.append(seen()))
        assert found == [alone]

    def test_anomaly_detection_stays_as_it_is(self, record: Record) -> None:
        found = []
        record(nn.Identity(), lambda: found.append(torch.is_anomaly_enabled()))
        assert found == [False]

    def test_the_tracer_is_there_only_inside(self, record: Record) -> None:
        found: list[bool] = []
        record(nn.Identity(), lambda: found.append(active_tracer() is not None))
        assert found == [True]
        assert active_tracer() is None


class TestWhenTheCaptureBreaks:
    def test_training_goes_on_and_the_log_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        expected, model = Net(), Net()
        train(expected)()
        calls = iter(range(1000))
        measure = Statistics.measure

        def breaks(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == 12:
                raise KeyError("a mistake in the capture")
            return measure(*args, **kwargs)

        monkeypatch.setattr(Statistics, "measure", breaks)
        before = traces_of_a_capture()
        with (
            pytest.warns(RuntimeWarning, match="numtui.*KeyError") as warned,
            trace(model, path=tmp_path / "x.log"),
        ):
            train(model)()
        assert len(warned) == 1
        assert traces_of_a_capture() == before
        log = Log.read(tmp_path / "x.log")
        assert not log.complete
        assert "a mistake in the capture" in log.run["incomplete"]
        assert 0 < len(log.rows) < 20
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, expected.get_parameter(name))

    @pytest.mark.parametrize("broken", ["add_root", "parameter"])
    def test_hooks_that_break_do_not_end_the_training(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
    ) -> None:
        """Names of modules and parameters are looked up in hooks of modules and optimizers."""
        step = train(Net())
        before = traces_of_a_capture()
        monkeypatch.setattr(ModuleNames, broken, lambda *_, **__: 1 / 0)
        with pytest.warns(RuntimeWarning, match="ZeroDivisionError"), trace([], path=tmp_path / "x.log"):
            step()
        assert traces_of_a_capture() == before
        assert not Log.read(tmp_path / "x.log").complete

    @pytest.mark.filterwarnings("error")
    def test_training_goes_on_where_warnings_are_errors(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(Statistics, "measure", lambda *_, **__: 1 / 0)
        with trace(nn.Identity(), path=tmp_path / "x.log"):
            assert float((X + 1).max()) == 2.0
        assert "ZeroDivisionError" in capsys.readouterr().err
        assert not Log.read(tmp_path / "x.log").complete

    def test_a_hash_of_ones_own_that_raises_is_left_out(self, record: Record) -> None:
        def mistaken(_tensor: Any) -> Any:
            raise ZeroDivisionError

        with pytest.warns(RuntimeWarning, match="hash"):
            log = record(nn.Identity(), lambda: (X + 1) + 2, hash=mistaken)
        assert log.complete
        assert log.ops["add"] == 2

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_a_full_disk_is_said_and_leaves_no_half_log(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        number: int,
    ) -> None:
        def full(_descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", full)
        with trace(Net(), path=tmp_path / "x.log"):
            X + 1
        assert list(tmp_path.iterdir()) == []
        assert os.strerror(number) in capsys.readouterr().err

    def test_a_folder_that_cannot_be_made_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").write_text("")
        with trace(Net(), path=tmp_path / "file" / "x.log"):
            X + 1
        assert "was not written" in capsys.readouterr().err


class TestTensors:
    """Whatever is in a step, the step runs; what has no values to read has no numbers."""

    def test_empty_and_zero_dimensional_ones(self, record: Record) -> None:
        def step() -> None:
            torch.ones(0, 8).sum(1)
            torch.tensor(3.0) * 2

        log = record(nn.Identity(), step)
        (empty,), (scalar,) = log.of("sum"), log.of("mul")
        assert empty.shape == "0"
        assert empty.counts["numel"] == 0
        assert "Max" not in empty.fields
        assert (scalar.shape, scalar.fields["Max"]) == ("", "6.0")

    def test_operations_on_the_meta_device_are_not_recorded(self, record: Record) -> None:
        def step() -> None:
            torch.ones(4, 8, device="meta") @ torch.ones(8, 2, device="meta")
            X.to("meta") + 1
            X + 1

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert record(nn.Identity(), step).ops == {"add": 1}

    def test_fake_tensors_are_not_recorded(self, record: Record) -> None:
        def step() -> None:
            with FakeTensorMode():
                torch.ones(4) + 1
            X + 1

        assert record(nn.Identity(), step).ops == {"add": 1}

    @pytest.mark.filterwarnings("ignore:Sparse")
    def test_sparse_ones(self, record: Record) -> None:
        def step() -> Any:
            table = nn.Embedding(8, 4, sparse=True)
            table(torch.tensor([1, 2])).sum().backward()
            torch.optim.SparseAdam(table.parameters()).step()
            return torch.eye(3).to_sparse() @ torch.ones(3, 3)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log = record(nn.Identity(), step)
        assert log.complete
        assert log.ops["embedding"] == 1

    def test_nested_ones(self, record: Record) -> None:
        def step() -> Any:
            parts = torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged)
            return nn.functional.linear(parts, torch.ones(4, 8)).values().sum()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log = record(nn.Identity(), step)
        assert log.complete
        assert float(log.of("sum")[-1].fields["Max"]) == 5 * 4 * 8

    def test_quantized_ones(self, record: Record) -> None:
        def step() -> Any:
            return torch.quantize_per_tensor(X, 0.1, 0, torch.qint8).dequantize()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log = record(nn.Identity(), step)
        assert log.complete
        assert log.ops["dequantize"] == 1

    def test_a_conjugate_is_read_as_what_it_is(self, record: Record) -> None:
        z = torch.tensor([1 + 2j, 3 - 4j])
        (row,) = record(nn.Identity(), lambda: z.conj() * 1).of("mul")
        assert (row.fields["Min"], row.fields["Max"]) == ("-2.0", "4.0")

    def test_tensors_of_inference_mode(self, record: Record) -> None:
        def step() -> None:
            with torch.inference_mode():
                y = X + 1
                y.add_(1)
                y * 2

        log = record(nn.Identity(), step)
        assert [row.fields["Max"] for row in log] == ["2.0", "3.0", "6.0"]

    def test_a_view_that_is_changed_in_place_changes_its_base(self, record: Record) -> None:
        def step() -> None:
            y = torch.zeros(4, 8)
            y[1].fill_(5.0)
            y + 1

        log = record(nn.Identity(), step)
        (add,) = log.of("add")
        assert add.fields["Max"] == "6.0"
        assert add.producers == [log.of("fill_")[0].key]

    @pytest.mark.parametrize("whole", [True, False])
    def test_a_tensor_filled_part_by_part_leads_to_all_that_wrote_its_parts(self, record: Record, whole: bool) -> None:
        def step() -> None:
            y = torch.empty(3, 8)
            for k, row in enumerate(y):
                row.copy_(X[k] * 2)
            (y if whole else y[2]) + 1

        log = record(nn.Identity(), step)
        (add,), copies = log.of("add"), log.of("copy_")
        assert add.producers == [copies[2].key]
        of_parts = ["", copies[0].key, copies[1].key] if whole else [""] * 3
        assert [copy.producers[0] for copy in copies] == of_parts

    def test_memory_of_numpy_may_change_at_any_time(self, record: Record) -> None:
        buffer = np.zeros(8, dtype=np.float32)
        tensor = torch.from_numpy(buffer)

        def step() -> None:
            tensor + 1
            buffer[:] = 2
            tensor + 1

        before, after = record(nn.Identity(), step).of("add")
        assert before.input_digests != after.input_digests
        assert after.fields["Input hashes"] == "16.0"

    def test_running_statistics_change_though_no_schema_says_so(self, record: Record) -> None:
        mean, var = torch.zeros(8), torch.ones(8)

        def step() -> None:
            mean + 1
            torch.nn.functional.batch_norm(X, mean, var, training=True)
            mean + 1

        log = record(nn.Identity(), step)
        (norm,) = log.of("native_batch_norm")
        before, after = log.of("add")
        assert [change["input"] for change in norm.mutated] == [1, 2]
        assert before.input_digests != after.input_digests
        assert after.producers == [norm.key]

    def test_memory_that_nobody_wrote_to_is_not_read(self, record: Record) -> None:
        log = record(nn.Identity(), lambda: torch.empty(8).copy_(torch.ones(8)))
        (row,) = log.of("copy_")
        assert row.input_digests[0] == "-"
        assert row.fields["Max"] == "1.0"

    def test_autocast_shows_its_casts(self, record: Record) -> None:
        model = Net()

        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16):
                model(X)

        log = record(model, step)
        assert [row.fields["Shape"].rpartition(".")[2] for row in log.of("addmm")] == ["bfloat16", "bfloat16"]
        assert log.ops["_to_copy"] >= 3

    @pytest.mark.parametrize("around", [False, True], ids=["within the step", "around it"])
    def test_autocast_is_noted_where_it_is_switched(self, record: Record, around: bool) -> None:
        """Torch itself turns it off inside the operations that it casts for."""
        switches = torch.set_autocast_enabled, torch.set_autocast_dtype
        on = torch.autocast("cpu", torch.bfloat16)

        def step() -> None:
            with nullcontext() if around else on:
                scores = (X @ X.T).relu()
                with torch.autocast("cpu", enabled=False):
                    exact = scores.float().exp()
            exact.add(1)

        with on if around else nullcontext():
            log = record(nn.Identity(), step)
        keys = [log.rows[0].key, log.of("_to_copy")[-1].key, log.of("add")[0].key]
        on_or_off: list[dict[str, str]] = [{"cpu": "bfloat16"}, {}, {"cpu": "bfloat16"}]
        changes = [[key, state] for key, state in zip(keys, on_or_off, strict=True)]
        assert log.run["autocast_changes"] == changes[: 3 if around else 2]
        assert (torch.set_autocast_enabled, torch.set_autocast_dtype) == switches, "they are torch's own again"


class TestThreads:
    def test_a_step_in_another_thread_is_nobodys(self, record: Record) -> None:
        """Modes are of one thread: what another one computes is not recorded, and not disturbed."""
        model, found = Net(), []

        def elsewhere() -> None:
            found.append(float(model(X).sum().detach()))

        def step() -> None:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            model(X)

        assert record(model, step).ops["addmm"] == 2
        assert found == [float(model(X).sum().detach())]


class TestModels:
    def test_two_models_keep_their_names_apart(self, record: Record) -> None:
        first, second = Net(), Net()
        log = record([first, second], lambda: second(first(X)))
        assert [row.module for row in log.of("addmm")] == ["inner", "outer", "Net_.inner", "Net_.outer"]

    def test_a_model_that_is_made_in_the_step_goes_by_its_class(self, record: Record) -> None:
        log = record([], lambda: Net()(X))
        assert [row.module for row in log.of("addmm")] == ["inner", "outer"]

    def test_a_module_that_is_called_twice_goes_on_counting(self, record: Record) -> None:
        layer = nn.Linear(8, 8)
        log = record(nn.Sequential(layer, layer), lambda: nn.Sequential(layer, layer)(X))
        assert [row.key for row in log.of("addmm")] == ["0/op_0_addmm", "0/op_1_addmm"]


def test_a_compiler_s_kernel_reads_nothing_of_what_it_only_fills(record: Record) -> None:
    """Inductor allocates its buffers past the dispatcher: what lies there is of no run."""

    def step() -> None:
        tracer = active_tracer()
        assert tracer is not None
        given, filled = torch.ones(4), torch.full((4,), torch.nan)
        launch = tracer.record_triton_kernel(
            "triton_poi_fused_mul_0", {"in_ptr0": given, "out_ptr0": filled, "xnumel": 4}
        )
        ctypes.memset(filled.data_ptr(), 0, 16)
        launch.finalize(None)

    (row,) = record(Net(), step).of("triton_poi_fused_mul_0")
    assert row.input_digests[1] == "-"
    assert [each["l1"] for each in row.mutated] == [0.0]


@pytest.mark.parametrize("own", [True, False], ids=["the script's", "torch's"])
def test_a_detach_of_torch_itself_is_none_of_the_script(record: Record, own: bool) -> None:
    """As of straight-through samples, or of a ring of attention."""

    class Choice(nn.Module):
        def forward(self, x: Any) -> Any:
            return x - x.detach() if own else torch.nn.functional.gumbel_softmax(x, hard=True)

    model = nn.Sequential(nn.Linear(8, 8), Choice())
    log = record(model, lambda: model(X).sum().backward())
    assert sum(log.run.get("detached", {}).values()) == own
