"""One process: what changes how a step is run changes no bit, and what is planted as a bug does."""

import math

import pytest

from tests.examples.conftest import Train


@pytest.mark.parametrize(
    "model", ["", "--experts 4", "--dtype bfloat16", "--dropout 0.1", "--freeze *norm*", "--unused"]
)
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


@pytest.mark.parametrize(
    "model", ["", "--experts 4", "--tied --micro-batches 2 --loss chunked", "--dtype amp", "--dropout 0.1"]
)
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


def test_what_is_frozen_or_unused_trains_nothing(train: Train) -> None:
    assert train("--unused").losses == train("").losses
    assert train("--freeze embedding.*").losses[0] == train("").losses[0]
    assert train("--freeze embedding.*").losses[1] != train("").losses[1]


def test_dropout_has_another_mask_in_each_step_and_run_of_another_seed(train: Train) -> None:
    first, second = train("--dropout 0.1 --lr 0").losses
    assert first != second
    assert train("--dropout 0.1").losses[0] != train("").losses[0]


def test_uneven_takes_a_sequence_from_the_last_rank(train: Train) -> None:
    assert train("--batch 3 --uneven").losses == train("--batch 2").losses


def test_left_out_shows_in_the_weights_only(train: Train) -> None:
    planted, sound = train("--steps 1 --bug left-out"), train("--steps 1")
    assert (planted.losses, planted.norms) == (sound.losses, sound.norms)
    assert planted.states != sound.states


def test_nan_comes_in_the_step_that_was_asked_for(train: Train) -> None:
    planted, sound = train("--steps 3 --bug nan --bug-step 2"), train("--steps 3")
    assert planted.losses[0] == sound.losses[0]
    assert all(map(math.isnan, planted.losses[1:]))


def test_random_state_that_is_not_restored_shows_in_the_first_gradients_only(train: Train) -> None:
    recomputed = "--dropout 0.1 --ac full"
    planted, sound = train(f"{recomputed} --bug rng-not-restored"), train(recomputed)
    assert planted.losses[0] == sound.losses[0]
    assert planted.norms[0] != sound.norms[0]


def test_a_counter_is_read_when_the_layer_is_recomputed(train: Train) -> None:
    """Selective checkpoints keep the products, full ones compute them anew: other gradients of one loss."""
    full, selective = (train(f"--ac {kind} --bug counter") for kind in ("full", "selective"))
    assert full.losses[0] == selective.losses[0]
    assert full.norms[0] != selective.norms[0]


def test_several_bugs_are_planted_together(train: Train) -> None:
    """Each changes the outcome of the others."""
    first, second = "--bug rope-base@0", "--bug weight-decay-off"
    outcomes = [train(each).states for each in ("", first, second, f"{first} {second}")]
    assert all(one != other for n, one in enumerate(outcomes) for other in outcomes[:n])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--bug nonsense", "invalid"),
        ("--bug rope-base@7", "no layer 7"),
        ("--bug stale-gather", "fsdp2"),
        ("--bug flipped-bit", "ddp or tp"),
        ("--parallel tp --local-tensor 2 --bug left-out", "real"),
        ("--parallel tp --local-tensor 2 --bug nan:2", "no rank 2"),
        ("--parallel tp --bug nan@1:0", "--bug-rank"),
        ("--parallel tp --bug nan --bug other-batch", "several"),
        ("--parallel fsdp2 --local-tensor 2 --dropout 0.1", "--dropout"),
        ("--bug counter", "--ac"),
        ("--bug rng-not-restored --ac full", "--dropout"),
        ("--traced --freeze *", "--traced"),
        ("--traced --ac full --dropout 0.1", "--dropout"),
        ("--compile aot_eager --bug nan", "--compile"),
        ("--parallel ddp --dtype bfloat16 --bug flipped-bit", "float32"),
        ("--uneven --batch 1", "--batch"),
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
