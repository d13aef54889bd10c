"""What is said of two runs before any of their rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.log_format import private
from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.run_info import Note, compare_run_info, cut_gradients, tells_start
from matchers.verdict.comparability import Comparability, Severity, other_weights
from tests.builders import op, write_log
from tests.captured import Step, captured_log
from tests.conftest import DATA
from tests.matchers.drifted_logs import made_up_log

RUN: dict[str, Any] = {
    "step": 1,
    "rank": 0,
    "seed": 42,
    "world_size": 1,
    "launcher": "single process",
    "parameter_digests": {"embedding.weight": "aa", "layers.0.wq.weight": "bb"},
    "batch": [{"shape": [2, 8], "dtype": "int64", "digest": "cc"}],
    "parameters": {"count": 2, "elements": 80, "dtypes": {"float32": 2}, "devices": {"cpu": 2}, "frozen": 0},
    "rng_digests": {"torch": "11", "python": "22"},
    "deterministic": {"algorithms": True},
    "versions": {"torch": "2.13.0", "python": "3.11"},
    "command": ["python", "-m", "capture", "-o", "x", "--", "train.py"],
}


def notes(draws: bool = False, **changed: Any) -> dict[str, tuple[str, str]]:
    """Kind to (weight, text) of the notes about a run and the same with other entries."""
    found = compare_run_info(RUN, {**RUN, **changed}, draws=draws)
    return {note.kind: (note.severity.label, note.text) for note in found}


def test_what_was_not_read_does_not_differ() -> None:
    unread: dict[str, Any] = {"parameter_digests": dict.fromkeys(RUN["parameter_digests"], "-")}
    assert not notes(**unread, buffer_digests={"mask": "-"}).keys() & {"parameters", "buffers"}
    unread |= {"batch": [{**tensor, "digest": "-"} for tensor in RUN["batch"]]}
    assert not notes(**unread).keys() & {"parameters", "batch"}
    # the first module of the other run is a later one
    assert "batch" not in notes(batch=[{"shape": [4, 8], "dtype": "float32", "digest": "00", "computed": True}])
    assert not tells_start({**RUN, **unread})


def cuts(a: dict[str, int], b: dict[str, int]) -> list[str]:
    return [
        text.removeprefix("detach() cuts a gradient at ")
        for text in cut_gradients({**RUN, "detached": a}, {**RUN, "detached": b})
    ]


def test_calls_of_a_model_are_compared_whatever_their_number_and_with_a_step() -> None:
    call: dict[str, Any] = {"coverage": {"forward": [0, 9]}, "settings": {"sketch": True, "forward": True}, "step": 2}
    assert {text for _, text in notes(**call).values()} == {
        "b is a call of a model: what a does around its forward pass and makes of its result needs no partner"
    }
    (note,) = compare_run_info({**RUN, **call}, {**RUN, **call, "step": 3}, draws=False)
    assert (note.severity, note.text) == (Severity.HARMLESS, "the captured call is 2 in a and 3 in b")


def test_where_only_one_run_cuts_a_gradient() -> None:
    both = {"train.py:74": 1}
    assert cuts(both, both) == []
    assert cuts(both, {**both, "model.py:125": 1}) == ["model.py:125 only in b"]
    assert cuts({**both, "model.py:125": 1}, both) == ["model.py:125 only in a"]
    assert cuts({"model.py:9": 2}, {"model.py:9": 3}) == ["model.py:9 2 times in a and 3 in b"]
    assert cuts({"model.py:9": 2}, {"model.py:11": 2}) == [], "the lines have moved"
    assert cuts({"x.py:1": 1}, {"proj/x.py:1": 1, "proj/x.py:9": 1}) == ["proj/x.py:9 only in b"], (
        "one by a longer path"
    )
    assert cuts({"x.py:1": 1}, {"p/x.py:1": 2, "q/x.py:1": 2}) != [], "which of both is unknown"
    assert cuts({"x.py:1": "many"}, {}) == []  # type: ignore[dict-item]
    many = cuts({}, {f"x.py:{line}": 1 for line in range(5)})
    assert many[-1] == "detach() counts differ at 2 more source lines"
    assert len(many) == 4
    assert notes(detached={"model.py:9": 1})["detach"][0] == "harmless"
    assert list(cut_gradients({}, {"detached": {"model.py:9": 1}})) == []


def test_the_same_run_info_says_nothing() -> None:
    assert notes() == {}
    assert notes(command=["python", "-m", "capture", "-o", "elsewhere", "--", "train.py"]) == {}


@pytest.mark.parametrize(
    ("changed", "kind", "weight", "text"),
    [
        ({"seed": 43}, "seed", "suspicious", "the seed is 42 in a and 43 in b"),
        ({"step": 2}, "step", "fatal", "the captured step is 1 in a and 2 in b"),
        (
            {"parameter_digests": {"embedding.weight": "aa", "layers.0.wq.weight": "00"}},
            "parameters",
            "fatal",
            "1 of 2 parameters differs before the step: layers.0.wq.weight",
        ),
        ({"batch": [{"shape": [2, 8], "dtype": "int64", "digest": "00"}]}, "batch", "fatal", "the batches differ"),
        (
            {"batch": [{"shape": [2, 8], "dtype": "int32", "digest": "00"}]},
            "batch",
            "suspicious",
            "the dtype of the first batch is int64 in a and int32 in b",
        ),
        (
            {"batch": [{"shape": [4, 8], "digest": "00"}]},
            "batch",
            "suspicious",
            "the shape of the first batch is [2, 8] in a and [4, 8] in b",
        ),
        (
            {"deterministic": {"algorithms": False}},
            "determinism",
            "suspicious",
            "deterministic algorithms is true in a and false in b",
        ),
        (
            {"versions": {"torch": "2.12.0"}},
            "versions",
            "suspicious",
            "version of torch is 2.13.0 in a and 2.12.0 in b",
        ),
        ({"versions": {"python": "3.12"}}, "versions", "harmless", "version of python is 3.11 in a and 3.12 in b"),
        (
            {"launcher": "fake backend"},
            "layout",
            "harmless",
            "the launcher is single process in a and fake backend in b",
        ),
        ({"mesh": {"tp": 2}}, "layout", "suspicious", 'the device mesh is not set in a and {"tp": 2} in b'),
        (
            {"parameters": {**RUN["parameters"], "elements": 81}},
            "model",
            "fatal",
            "the model's number of weights is 80 in a and 81 in b",
        ),
        (
            {"command": ["python", "-m", "capture", "--", "train.py", "--lr", "1"]},
            "command",
            "harmless",
            "the command lines differ: --lr 1 only in b",
        ),
        (
            {"settings": {"sketch": True, "perturb": 3, "changes_run": ["--perturb 3", "--graft 0=runs/a"]}},
            "capture",
            "suspicious",
            "b was changed by --perturb 3, --graft 0=runs/a",
        ),
    ],
)
def test_every_difference_is_named_with_its_weight(changed: dict[str, Any], kind: str, weight: str, text: str) -> None:
    assert notes(**changed)[kind] == (weight, text)


def command_notes(a: list[str], b: list[str]) -> list[str]:
    one, other = ({"command": ["python", *words]} for words in (a, b))
    return [note.text for note in compare_run_info(one, other, draws=False)]


def test_values_that_are_kept_private_are_said_to_differ_by_their_option() -> None:
    x, y = private("x"), private("y")
    assert command_notes(["--tag", x, "--lr", "1"], ["--tag", y, "--lr", "2"]) == [
        "the command lines differ: 1 only in a, 2 only in b",
        "the values of --tag differ (kept private)",
    ]
    assert command_notes([f"--tag={x}", f"-p{x}"], [f"--tag={y}", f"-p{y}"]) == [
        "the values of --tag, -p differ (kept private)"
    ]
    assert command_notes(["--tokens", x, x], ["--tokens", x, y]) == ["the values of --tokens differ (kept private)"]
    assert command_notes(["--tokens", x, "1"], ["--tokens", y, "1"]) == ["the values of --tokens differ (kept private)"]
    assert command_notes(["--lr", "1", x], ["--lr", "1", y]) == ["unnamed arguments differ (kept private)"]
    assert command_notes(["--lr=1", x], ["--lr=1", y]) == ["unnamed arguments differ (kept private)"]
    assert command_notes([], ["--tag", x]) == []
    assert command_notes(["x.py"], ["x.py", "--tag", x]) == ["the command lines differ: --tag (private) only in b"]
    assert command_notes(["--tag", x], ["--tag", x]) == []
    assert command_notes(["--tag", x, "--id", y], ["--id", y, "--tag", x]) == [
        "the command lines differ: only in word order"
    ]


def test_what_one_log_keeps_private_and_the_other_says_is_compared() -> None:
    """A log of an earlier version, a path that only one machine has."""
    kept = ["--tag", private("x"), f"--data={private('/data/c4')}"]
    assert command_notes(["--tag", "x", "--data=/data/c4"], kept) == []
    assert command_notes(["--tag", "***", "--data=***"], kept) == [], "older logs do not say which secret it was"
    assert command_notes(kept, ["--tag", "y", "--data=/data/c4"]) == [
        "the command lines differ: (private) only in a, y only in b"
    ]

    def variable(a: str, b: str | None) -> list[str]:
        x, y = ({"environment": {"OMP": "1"} | ({} if of is None else {"NCCL_X": of})} for of in (a, b))
        return [note.text for note in compare_run_info(x, y, draws=False)]

    assert variable(private("x"), "x") == []
    assert variable(private("x"), private("x")) == []
    assert variable(private("x"), private("y")) == ["environment variable NCCL_X differs (kept private)"]
    assert variable("y", private("x")) == ["environment variable NCCL_X is y in a and (private) in b"]
    assert variable(private("x"), None) == ["environment variable NCCL_X is (private) in a and not set in b"]


def test_the_fake_backend_against_a_real_one_is_no_comparison() -> None:
    found = compare_run_info(RUN, {**RUN, "launcher": "fake backend"}, draws=False)
    assert found[0].severity == Severity.FATAL
    assert "its numbers mean nothing" in found[0].text


def test_bits_of_other_dtypes_or_shards_say_nothing_about_values() -> None:
    other = {"embedding.weight": "00", "layers.0.wq.weight": "01"}
    half = {**RUN["parameters"], "dtypes": {"bfloat16": 2}}
    assert notes(parameter_digests=other, parameters=half).keys() == {"dtype"}
    assert notes(parameter_digests=other, world_size=2).keys() == {"layout"}


def test_parameters_are_known_under_the_names_of_wrappers() -> None:
    wrapped = {"_orig_mod.embedding.weight": "aa", "layers.0._checkpoint_wrapped_module.wq.weight": "bb"}
    assert notes(parameter_digests=wrapped) == {}


def test_what_only_one_call_was_given_is_no_other_batch() -> None:
    assert notes(batch=[*RUN["batch"], {"shape": [2, 8], "digest": "labels"}]) == {}


def test_another_mask_is_not_another_batch() -> None:
    def given(*digests: str) -> list[dict[str, Any]]:
        return [{"shape": [4, 8], "dtype": "int64", "digest": digest} for digest in digests]

    def told(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[tuple[str, str]]:
        found = compare_run_info({**RUN, "batch": a}, {**RUN, "batch": b}, draws=False)
        return [(note.severity.label, note.text) for note in found if note.kind == "batch"]

    mask = "the first tensor given to the model agrees, tensor 2 (int64 [4, 8]) differs"
    assert told(given("a1", "b2"), given("a1", "c3")) == [("suspicious", mask)]
    assert told(given("a1", "b2"), given("d4", "b2")) == [("fatal", "the batches differ")]
    assert told(given("a1", "b2"), given("a1", "b2", "c3")) == []


def test_a_seed_may_be_a_number_or_text() -> None:
    assert "seed" not in notes(seed=str(RUN["seed"]))
    assert notes(seed="7")["seed"][0] == "suspicious"


def test_the_state_of_the_generators_matters_where_numbers_are_drawn() -> None:
    other = {"torch": "99", "python": "22"}
    assert notes(draws=True, rng_digests=other)["generators"][0] == "suspicious"
    assert "generators" not in notes(rng_digests=other), "nothing is drawn"
    assert "generators" not in notes(draws=True, rng_digests={"torch": "11", "python": "99"}), "nothing of it"


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ("--lr 1 --seed 2", "--seed 2 --lr 1", "only in word order"),
        ("--lr 1 --x --lr 2", "--lr 2 --x --lr 1", "--lr is 1 then 2 in a, 2 then 1 in b"),
        ("--lr=1 --lr=2", "--lr=2 --lr=1", "--lr is 1 then 2 in a, 2 then 1 in b"),
        ("--lr 1 --lr 1", "--lr 1", "--lr 1 only in a"),
        ("--lr 1 --lr 2 --lr 1", "--lr 2 --lr 1", "--lr 1 only in a"),
    ],
)
def test_an_option_that_is_given_twice_is_no_mere_order_of_words(a: str, b: str, text: str) -> None:
    runs = [{**RUN, "command": ["python", "-m", "capture", "--", "train.py", *words.split()]} for words in (a, b)]
    (note,) = compare_run_info(*runs, draws=False)
    assert note.text == f"the command lines differ: {text}"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_ENTRY = st.sampled_from(
    [*RUN, "start_sketches", "buffer_digests", "mesh", "autocast", "environment", "settings", "git"]
)


def test_a_learning_rate_of_0_is_said_once() -> None:
    warm: dict[str, Any] = {"optimizer_settings": [{"optimizer": "AdamW", "lr": 0.0}]}
    values = np.ones(4, np.float32)
    log = captured_log([Step(key="wq/op_0_mm", gives=[values], reads=[values])], **warm)
    told = "Compare with care: the learning rate is 0 in both runs, so the step updates nothing: capture a later one."
    assert compare(log, log).comparability.sentence == told


@given(a=st.dictionaries(_ENTRY, _JSON, max_size=6), b=st.dictionaries(_ENTRY, _JSON, max_size=6), known=st.booleans())
def test_any_run_info_is_compared(a: dict[str, Any], b: dict[str, Any], known: bool) -> None:
    """It is text from a file: nothing in it may end the comparison."""
    one = {**RUN, **a} if known else a
    for note in compare_run_info(one, b, draws=True):
        assert note.kind
        assert note.text


# Logs


def captured(run: dict[str, Any], scale: float = 1.0) -> OpLog:
    values = np.linspace(0.1, 1, 16, dtype=np.float32)
    weight = np.full(4, 2.0, np.float32)
    return captured_log([Step(key="wq/op_0_mm", gives=[values * scale], reads=[values * scale, weight])], **run)


def test_one_sentence_for_seed_batch_and_weights() -> None:
    other = {
        **RUN,
        "seed": 43,
        "batch": [{"shape": [2, 8], "dtype": "int64", "digest": "00"}],
        "parameter_digests": {"embedding.weight": "00", "layers.0.wq.weight": "01"},
    }
    found = compare(captured(RUN), captured(other, 3.0)).comparability
    assert found.severity == Severity.FATAL
    assert found.sentence == (
        "Not comparable: all 2 parameters differ before the step, embedding.weight first; the batches differ; "
        "the seed is 42 in a and 43 in b."
    )


def test_weights_that_differ_by_rounding_can_be_compared() -> None:
    other = {**RUN, "parameter_digests": {"embedding.weight": "00", "layers.0.wq.weight": "01"}}
    found = compare(captured(RUN), captured(other, 1 + 1e-6)).comparability
    assert found.severity == Severity.SUSPICIOUS
    assert "only by rounding as far as their norms show" in found.sentence


@pytest.mark.parametrize(("many", "end"), [(5, "the 5th differs."), (7, "the 5th differs; and 2 more.")])
def test_a_sentence_has_five_reasons_at_most(many: int, end: str) -> None:
    found = Comparability(tuple(Note(Severity.SUSPICIOUS, "seed", f"the {k}th differs") for k in range(1, many + 1)))
    assert found.sentence.endswith(end)


@pytest.mark.parametrize(("other", "named"), [(1, False), (2, True)])
def test_other_weights_are_those_of_half_of_the_products(other: int, named: bool) -> None:
    """Of fewer, something made them that was not recorded."""

    def log(changed: int) -> OpLog:
        weights = [k + 0.5 + (k < changed) / 9 for k in range(4)]
        return made_up_log(op(f"layers.{k}/op_0_mm", 7.0 + k, inputs=[x]) for k, x in enumerate(weights))

    c = compare(log(0), log(other))
    assert (other_weights(c.a, c.b, c.pairing, c.flow) is not None) == named


def test_half_a_log_is_named() -> None:
    whole = captured(RUN)
    cut = replace(whole, complete=False, header=replace(whole.header, declared=7))
    assert compare(whole, cut).comparability.sentence == "Compare with care: b is cut off after 1 of 7 operations."


def of(name: str) -> OpLog:
    return read_log(DATA / f"{name}.log.gz")


def test_logs_without_run_info_tell_of_another_dtype() -> None:
    found = compare(of("bug_base"), of("dtype_bf16")).comparability
    assert any(note.kind == "dtype" and note.severity == Severity.SUSPICIOUS for note in found.notes)


def started(folder: Path, weights: float, tokens: float) -> Comparison:
    """A log of torchtitan's form against one of other weights and tokens."""

    def log(w: float, t: float) -> OpLog:
        ops = [op("embed/op_0_embedding", w, inputs=(w, t))]
        for k in range(4):
            ops.append(op(f"layers.{k}/op_0_mm", w + k + t / 9, inputs=(ops[-1].outputs[0], w + k + 0.5)))
        return read_log(write_log(folder / f"{w}-{t}.log", ops))

    return compare(log(7.0, 100.0), log(weights, tokens))


def test_other_tokens_and_weights_are_seen_at_the_first_operations(tmp_path: Path) -> None:
    assert started(tmp_path, 7.0, 100.0).comparability.sentence == ""
    other = started(tmp_path, 7.0, 101.0).comparability
    assert other.sentence == "Not comparable: the batches differ: embed/op_0_embedding reads different tokens."
    found = started(tmp_path, 7.1, 100.0).comparability
    assert [note.kind for note in found.notes] == ["parameters"]
    assert "the runs differ before this step: " in found.sentence
    assert "the runs differ before this step: capture step 1; " in found.sentence


@pytest.mark.parametrize("bug", ["bug_rope_theta_l3", "bug_attn_scale_l2", "bug_neg_attn_l2"])
def test_a_bug_in_the_model_is_no_other_start(bug: str) -> None:
    assert compare(of("bug_base"), of(bug)).comparability.notes == ()


def test_that_only_one_run_communicates_is_seen() -> None:
    found = compare(of("ac_none"), of("fsdp2")).comparability
    assert any(note.kind == "layout" and "communicates" in note.text for note in found.notes)
