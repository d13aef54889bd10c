"""One process: what changes how a step is run changes no bit, and what is planted as a bug does."""

import math

import pytest

from tests.examples.conftest import Train


@pytest.mark.parametrize("model", ["", "--experts 4", "--dtype bfloat16"])
def test_learns(train: Train, model: str) -> None:
    losses = train(f"--steps 12 --batch 4 --lr 3e-3 {model}").losses
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.2


def test_twice_the_same_and_another_seed_not(train: Train) -> None:
    assert train("") == train("")
    assert train("").states != train("--seed 43").states


def test_tokens_have_a_seed_of_their_own(train: Train) -> None:
    assert train("--data-seed 42").states == train("").states
    assert train("--data-seed 43").states != train("").states


@pytest.mark.parametrize("model", ["", "--experts 4", "--tied --micro-batches 2 --loss chunked", "--dtype amp"])
@pytest.mark.parametrize(
    "execution",
    [
        "--ac full",
        "--ac full --ac-style function",
        "--ac full --ac-style function-reentrant",
        "--ac selective",
        "--ac selective --ac-style function",
        "--traced",
    ],
)
def test_execution_changes_no_bit(train: Train, model: str, execution: str) -> None:
    assert train(f"{model} {execution}") == train(model)


def test_checkpoints_can_be_traced(train: Train) -> None:
    assert train("--traced --ac selective") == train("")


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_by_aot_eager_changes_no_bit(train: Train) -> None:
    assert train("--compile aot_eager") == train("")


@pytest.mark.parametrize("variant", ["--loss chunked", "--optimizer fused", "--optimizer for-loop", "--dtype amp"])
def test_variants_agree_up_to_rounding(train: Train, variant: str) -> None:
    tolerance = 1e-2 if "amp" in variant else 1e-5
    assert train(variant).losses == pytest.approx(train("").losses, rel=tolerance)


def test_whole_model_in_bfloat16(train: Train) -> None:
    assert train("--dtype bfloat16").losses == pytest.approx(train("").losses, rel=2e-2)


@pytest.mark.parametrize(
    "bug",
    ["rope-base", "softmax-scale", "bf16-matmul", "norm-eps", "negated-attention", "permuted-heads", "rope-base@0"],
)
def test_bug_shows_in_the_first_loss(train: Train, bug: str) -> None:
    planted, sound = train(f"--bug {bug}"), train("")
    assert planted.losses[0] != sound.losses[0]
    assert all(map(math.isfinite, planted.losses))


def test_detached_keys_show_in_the_first_gradients_only(train: Train) -> None:
    planted, sound = train("--bug detached-keys"), train("")
    assert planted.losses[0] == sound.losses[0]
    assert planted.norms[0] != sound.norms[0]


def test_weight_decay_shows_in_the_weights_only(train: Train) -> None:
    planted, sound = train("--steps 1 --bug weight-decay-off"), train("--steps 1")
    assert (planted.losses, planted.norms) == (sound.losses, sound.norms)
    assert planted.states != sound.states


def test_weight_decay_goes_off_in_the_step_that_was_asked_for(train: Train) -> None:
    assert train("--bug weight-decay-off --bug-step 3") == train("")
    assert train("--bug weight-decay-off --bug-step 2").states != train("").states


def test_accumulation_scale_doubles_the_loss_of_two_micro_batches(train: Train) -> None:
    planted, sound = train("--micro-batches 2 --bug accumulation-scale"), train("--micro-batches 2")
    assert planted.losses[0] == pytest.approx(2 * sound.losses[0])


def test_an_infinity_in_the_softmax_ends_in_nan(train: Train) -> None:
    assert math.isnan(train("--bug inf-softmax --steps 1").losses[0])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--bug nonsense", "invalid"),
        ("--bug rope-base@7", "no layer 7"),
        ("--bug stale-gather", "fsdp2"),
        ("--bug accumulation-scale", "micro-batches"),
        ("--bug detached-keys --parallel ddp", "DDP"),
        ("--traced --ac full --ac-style function-reentrant", "reentrant"),
        ("--layers 0", "invalid"),
        ("--heads 3", "multiple"),
        ("--traced --compile aot_eager", "--traced"),
        ("--parallel tp --experts 4", "--experts"),
        ("--local-tensor 2", "tp"),
        ("--fake-world 2", "--parallel"),
    ],
)
def test_contradictions_end_in_a_sentence(
    train: Train, capsys: pytest.CaptureFixture[str], arguments: str, reason: str
) -> None:
    with pytest.raises(SystemExit):
        train(arguments)
    assert reason in capsys.readouterr().err
