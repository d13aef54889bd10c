"""Keys of the example's operations: module, phase, micro-batch and line, however the step is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.graph_nodes import KEEPS_FUNCTIONS
from tests.capture.conftest import Script
from tests.capture.logs import Log, Row
from tests.capture.runs import EXAMPLE, SMALL, Examples, run_captured

PARTS = [
    "attention_norm", "attention", "attention.wq", "attention.wk", "attention.wv", "attention.wo", "attention.rope",
    "feed_forward_norm", "feed_forward", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3",
]  # fmt: skip
MODULES = {
    "embedding", "norm", "output", "layers.0", "layers.1", *(f"layers.{n}.{part}" for n in (0, 1) for part in PARTS)
}  # fmt: skip
FUNCTIONS = {"micro_batch", "whole", "loss_of", "eager_step", "train", "clip_grad_norm_", "optimizer"}
"""Of the training loop: what no module runs goes by the function that calls it."""
MATRICES = [f"{part}.weight" for part in PARTS if part.partition(".")[2].startswith("w")]
NORMS = ["attention_norm.weight", "feed_forward_norm.weight"]
PARAMETERS = {
    "embedding.weight", "norm.weight", "output.weight",
    *(f"layers.{n}.{part}" for n in (0, 1) for part in (*MATRICES, *NORMS)),
}  # fmt: skip

CHECKPOINTS = [
    "--ac selective",
    "--ac selective --ac-style function",
    "--ac full",
    "--ac full --ac-style function",
    "--ac full --ac-style function-reentrant",
]


def identity(row: Row) -> tuple[object, ...]:
    """What an operation is and what came out of it, however it was run."""
    return (row.module, row.op, row.phase, *row.digests)


def recomputed(log: Log) -> list[Row]:
    return [row for row in log if row.fields.get("Recompute") == "true"]


def results(row: Row) -> str:
    """What a record says of its results; inputs and arguments name dtypes, too."""
    return str({name: value for name, value in row.fields.items() if name not in ("Inputs", "Arguments")})


class TestModules:
    def test_eager(self, examples: Examples) -> None:
        assert set(examples.log().modules) == MODULES | FUNCTIONS

    @pytest.mark.parametrize(
        "variant", [*CHECKPOINTS, "--compile aot_eager", "--dtype amp", "--dtype bfloat16", "--tied"]
    )
    def test_no_module_is_lost_and_none_is_made_up(self, examples: Examples, variant: str) -> None:
        assert set(examples.log(variant).modules) == MODULES | FUNCTIONS

    def test_replayed_graphs(self, examples: Examples) -> None:
        # torch 2.11 and 2.12 keep no functions in a traced graph
        outside = {"loss_of", "whole"} if KEEPS_FUNCTIONS else {"TracedStep.__call__"}
        expected = MODULES | FUNCTIONS - {"eager_step", "loss_of", "whole"} | outside
        assert set(examples.log("--traced").modules) == expected

    def test_simulated_ranks(self, examples: Examples) -> None:
        run = examples.captured("--parallel tp --local-tensor 2 --layers 1")
        assert sorted(run.logs) == ["rank_0_activations.log", "rank_1_activations.log"]
        first, second = run.logs.values()
        layer = {name for name in MODULES if not name.startswith("layers.1")}
        # the batches of all ranks come from outside
        assert set(first.modules) == layer | FUNCTIONS - {"micro_batch"} | {"Transformer"}
        assert [log.run["rank"] for log in (first, second)] == [0, 1]
        assert first.keys == second.keys
        assert [r.digests for r in first.of("mm")] != [r.digests for r in second.of("mm")]
        # what torch does for one rank after the other is in the log of none: it masks tokens of other shards so
        assert "ge" in first.run["excluded"]
        assert not any(log.of("ge") for log in (first, second))

    def test_a_mixture_of_experts(self, examples: Examples) -> None:
        log = examples.log("--experts 4")
        assert set(log.modules) - FUNCTIONS >= MODULES - {f"layers.1.feed_forward.w{n}" for n in (1, 2, 3)}
        (routing,) = log.of("topk")
        assert routing.module.startswith("layers.1.feed_forward")
        assert routing.outputs[0]["dtype"] == "int64"

    def test_a_chunked_loss_has_its_name(self, examples: Examples) -> None:
        log = examples.log("--loss chunked")
        assert set(log.modules) == MODULES | FUNCTIONS | {"chunked"}
        assert len(log.of("nll_loss_forward", "whole")) == 4

    def test_gradients_that_are_added_up_belong_to_their_parameters(self, examples: Examples) -> None:
        added = [row for row in examples.log("--micro-batches 2").of("add_") if row.phase == "backward"]
        assert Counter(f"{row.module}.weight" for row in added) == Counter(PARAMETERS)


class TestTwice:
    @pytest.mark.parametrize("variant", ["", "--ac full --ac-style function-reentrant", "--traced", "--experts 4"])
    def test_every_record_is_the_same(self, examples: Examples, tmp_path: Path, variant: str) -> None:
        again = run_captured(EXAMPLE, tmp_path, " ".join([*SMALL, variant])).log
        first = examples.log(variant)
        assert again.keys == first.keys
        assert [row.values for row in again] == [row.values for row in first]


class TestCheckpoints:
    @pytest.mark.parametrize("variant", CHECKPOINTS)
    def test_nothing_else_changes(self, examples: Examples, variant: str) -> None:
        log = examples.log(variant)
        again = {row.key for row in recomputed(log)}
        once = Counter(identity(row) for row in log if row.key not in again)
        assert once == Counter(map(identity, examples.log()))

    @pytest.mark.parametrize("variant", CHECKPOINTS)
    def test_what_runs_again_gives_what_it_gave(self, examples: Examples, variant: str) -> None:
        log = examples.log(variant)
        forward = {(row.module, row.op, *row.digests) for row in log if row.phase == "forward"}
        again = recomputed(log)
        assert again
        assert {row.phase for row in again} == {"backward"}
        assert {(row.module, row.op, *row.digests) for row in again} <= forward
        assert all(row.module.startswith("layers.") for row in again)

    def test_matrix_products_are_not_run_again_when_they_are_kept(self, examples: Examples) -> None:
        kept, full = ({row.op for row in recomputed(examples.log(f"--ac {kind}"))} for kind in ("selective", "full"))
        assert full - kept >= {"mm", "bmm"}

    def test_without_checkpoints_nothing_runs_again(self, examples: Examples) -> None:
        assert recomputed(examples.log()) == []


def test_a_graph_that_is_replayed_computes_the_same_in_the_same_places(examples: Examples) -> None:
    """All but autograd's first gradient, a one: the function that asked for it is another."""
    eager, traced = (
        Counter(
            identity(row)
            for row in examples.log(variant)
            if row.op != "ones_like" and (KEEPS_FUNCTIONS or row.module in MODULES)
        )
        for variant in ("", "--traced")
    )
    assert eager == traced


class TestPlaces:
    @pytest.mark.parametrize("variant", ["", "--ac full", "--traced", "--compile aot_eager"])
    def test_a_backward_product_has_the_line_of_the_forward_one(self, examples: Examples, variant: str) -> None:
        log = examples.log(variant)
        for module in (name.removesuffix(".weight") for name in PARAMETERS if "norm" not in name and "emb" not in name):
            rows = log.of("mm", module)
            assert {"forward", "backward"} == {row.phase for row in rows}
            assert len({row.fields["Location"] for row in rows}) == 1
            assert rows[0].fields["Location"].startswith("examples/model.py:")

    def test_micro_batches_are_numbered_in_both_directions(self, examples: Examples) -> None:
        log = examples.log("--micro-batches 2")
        forward = [row.fields["Micro-batch"] for row in log.of("mm", "output") if row.phase == "forward"]
        backward = [row.fields["Micro-batch"] for row in log.of("mm", "output") if row.phase == "backward"]
        assert forward == ["0", "1"]
        assert backward == ["0", "0", "1", "1"]

    def test_clipping_is_a_phase_of_its_own_and_names_the_gradients(self, examples: Examples) -> None:
        clipping = [row for row in examples.log("--micro-batches 2") if row.module == "clip_grad_norm_"]
        assert {row.phase for row in clipping} == {"gradients"}
        assert not any("Micro-batch" in row.fields for row in clipping)
        assert all(entry["name"].endswith(".weight.grad") for row in clipping for entry in row.mutated)
        assert any(row.mutated for row in clipping)

    def test_the_loss_of_a_later_micro_batch_stays_forward(self, examples: Examples) -> None:
        loss = [row for row in examples.log("--micro-batches 2") if row.op.startswith("_log_softmax")]
        assert [row.phase for row in loss] == ["forward", "backward", "forward", "backward"]

    def test_the_optimizer_is_of_no_micro_batch(self, examples: Examples) -> None:
        rows = [row for row in examples.log("--micro-batches 2") if row.phase == "optimizer"]
        assert rows
        assert not any("Micro-batch" in row.fields for row in rows)

    def test_most_inputs_have_a_producer(self, examples: Examples) -> None:
        """The rest are parameters, tokens and tables. (A tracer that ids tensors by identity: 30 to 51 %.)"""
        log = examples.log()
        named = [producer for row in log if row.phase != "optimizer" for producer in row.producers]
        assert sum(map(bool, named)) / len(named) > 0.75
        assert {producer for producer in named if producer} <= set(log.keys)


class TestOptimizer:
    @pytest.mark.parametrize("form", ["foreach", "fused", "for-loop"])
    def test_every_parameter_and_its_state_have_names(self, examples: Examples, form: str) -> None:
        log = examples.log(f"--optimizer {form}")
        rows = [row for row in log if row.phase == "optimizer"]
        named = {name for row in rows for name in row.parameters}
        states = {f"{name}.{part}" for name in PARAMETERS for part in ("exp_avg", "exp_avg_sq", "grad")}
        assert named - {f"{name}.step" for name in PARAMETERS} - {""} == PARAMETERS | states
        changed = {entry["name"] for row in rows for entry in row.mutated if "name" in entry}
        moved = {name for row in rows if row.digests[0] for name in row.parameters[:1]} | changed
        assert moved >= PARAMETERS

    def test_names_stand_where_the_inputs_do(self, examples: Examples) -> None:
        for row in examples.log("--optimizer fused").of("_fused_adamw_"):
            count = len(row.parameters) // 5
            weights = row.parameters[:count]
            assert row.parameters[count : 2 * count] == [f"{name}.grad" for name in weights]
            assert row.parameters[2 * count : 3 * count] == [f"{name}.exp_avg" for name in weights]
            assert row.parameters[4 * count :] == [f"{name}.step" for name in weights]
            assert len(row.input_digests) == len(row.parameters)

    def test_a_tied_matrix_has_one_name(self, examples: Examples) -> None:
        rows = [row for row in examples.log("--tied") if row.phase == "optimizer"]
        assert not {name for row in rows for name in row.parameters if name.startswith("output")}


class TestFilters:
    @pytest.mark.parametrize(
        ("options", "keeps"),
        [
            ("--ops mm *norm*", lambda row: row.op == "mm" or "norm" in row.op),
            ("--exclude-ops mm add*", lambda row: row.op != "mm" and not row.op.startswith("add")),
            (
                "--modules layers.1.attention clip*",
                lambda row: f"{row.module}.".startswith(("layers.1.attention.", "clip")),
            ),
            ("--dtypes complex64 int64", lambda row: any(name in results(row) for name in ("complex64", "int64"))),
        ],
    )
    def test_a_filter_leaves_records_out_and_changes_no_key(
        self, examples: Examples, options: str, keeps: Callable[[Row], bool]
    ) -> None:
        whole, part = examples.log(), examples.log("", options)
        kept = {
            row.key: row for row in whole if keeps(row) and "attention_norm" not in row.module * ("1.att" in options)
        }
        assert part.keys == list(kept)
        assert [row.digests for row in part] == [row.digests for row in kept.values()]
        # what was left out is counted by name
        for name, count in part.run["excluded"].items():
            assert part.ops[name] + count == whole.ops[name] + whole.run["excluded"].get(name, 0)
        assert part.excluded == sorted(part.run["excluded"])

    def test_small_results_can_be_left_out(self, examples: Examples) -> None:
        part = examples.log("", "--min-numel 100")
        whole = {row.key: row for row in examples.log()}
        assert set(part.keys) < set(whole)
        dropped = [row for key, row in whole.items() if key not in set(part.keys)]
        assert all(row.counts["numel"] < 100 for row in dropped if "Counts" in row.fields)

    def test_ranks_that_are_not_asked_for_write_nothing(self, examples: Examples) -> None:
        assert examples.captured("", "--ranks 3").logs == {}

    def test_sketches_can_be_left_out(self, examples: Examples) -> None:
        log = examples.log("", "--no-sketch")
        assert not any("Sketch" in row.fields for row in log)
        assert [row.digests for row in log] == [row.digests for row in examples.log()]

    def test_a_value_of_ones_own(self, examples: Examples) -> None:
        log = examples.log("", "--hash torch:sum")
        assert log.run["settings"]["hash"] == "torch:sum"
        row = log.of("mm")[0]
        assert float(row.fields["User hash"]) == pytest.approx(
            float(row.fields["Mean"]) * row.counts["numel"], rel=1e-4, abs=1e-4
        )


class TestNamesOfWhatIsWritten:
    """Outside an optimizer's step: running statistics, counters, weights that the loop changes."""

    def test_buffers_and_parameters(self, script: Script) -> None:
        log = script("""
            model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                y = model(x).sum()
                with torch.no_grad():
                    model[0].bias.clamp_(-0.1, 0.1)
                    torch.zeros(8).add_(1)
                y.backward()
                optimizer.step()
        """).log
        (norm,) = log.of("native_batch_norm")
        assert norm.parameters == ["", "", "", "0.running_mean", "0.running_var"]
        assert {entry["name"] for entry in norm.mutated} == {"0.running_mean", "0.running_var"}
        assert [row.parameters for row in log.of("clamp_")] == [["0.bias"]]
        named = [row.parameters for row in log.of("add_") if row.phase == "forward"]
        assert sorted(named) == [[], ["0.num_batches_tracked"]]

    def test_what_is_only_read_has_no_name(self, script: Script) -> None:
        log = script("""
            model = net()
            for _ in range(2):
                model(x).sum().backward()
        """).log
        assert not any(row.parameters for row in log)
