"""Last contents of parameters, buffers and optimizer states, by name, whatever operations wrote them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import sources
from matchers.rules.file import parse_rules
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log, summary

NAMES = ("emb.weight", "layers.0.w.weight", "layers.1.w.weight")
RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((6, 8)).astype(np.float32) for _ in NAMES]
GRADIENTS = [RNG.standard_normal((6, 8)).astype(np.float32) for _ in NAMES]
INPUT = RNG.standard_normal((6, 8)).astype(np.float32)


def gradients(scale: float = 1.0) -> list[Any]:
    return [np.float32(scale) * gradient for gradient in GRADIENTS]


def backward(scale: float = 1.0) -> list[Step]:
    """Operations that both runs have: they make the gradients."""
    return [
        Step(
            key=f"{name.removesuffix('.weight')}/op_0_mm",
            gives=[gradient],
            reads=[INPUT],
            fields={"phase": "backward"},
        )
        for name, gradient in zip(NAMES, gradients(scale), strict=True)
    ]


def makers(scale: float = 1.0) -> list[str]:
    return [step.key for step in backward(scale)]


def after(lr: float, names: tuple[str, ...], scale: float = 1.0, wd: float = 0.0) -> list[Any]:
    return [
        weight if name not in names else weight * np.float32(1 - wd) - np.float32(lr) * gradient
        for name, weight, gradient in zip(NAMES, WEIGHTS, gradients(scale), strict=True)
    ]


def fused(lr: float = 0.1, *, names: tuple[str, ...] = NAMES, scale: float = 1.0, wd: float = 0.0) -> list[Step]:
    """One operation that updates all parameters."""
    at = [NAMES.index(name) for name in names]
    new, grads, made = after(lr, names, scale, wd), gradients(scale), makers()
    return [
        Step(
            key="optimizer/op_0__fused_sgd_",
            reads=[*(WEIGHTS[k] for k in at), *(grads[k] for k in at)],
            made=[*("" for _ in at), *(made[k] for k in at)],
            changed={slot: new[k] for slot, k in enumerate(at)},
            fields={
                "phase": "optimizer",
                "parameters": [*names, *(f"{name}.grad" for name in names)],
                "location": "train.py:7",
            },
        )
    ]


def looped(lr: float = 0.1, *, names: tuple[str, ...] = NAMES, scale: float = 1.0, wd: float = 0.0) -> list[Step]:
    """An operation for each parameter, which returns it."""
    new, grads, made = after(lr, names, scale, wd), gradients(scale), makers()
    return [
        Step(
            key=f"{name.removesuffix('.weight')}/op_1_add_",
            gives=[new[k]],
            reads=[WEIGHTS[k], grads[k]],
            made=["", made[k]],
            fields={"phase": "optimizer", "parameters": [name, f"{name}.grad"], "location": "train.py:7"},
        )
        for k, name in enumerate(NAMES)
        if name in names
    ]


def rounded(steps: list[Step]) -> list[Step]:
    """The same steps, with the last bit of what they change."""
    return [
        replace(step, changed={slot: np.nextafter(cast("Any", x), np.float32(9)) for slot, x in step.changed.items()})
        for step in steps
    ]


def digests(values: list[Any]) -> dict[str, str]:
    log = captured_log([Step(key="m/op_0_x", gives=[value]) for value in values])
    return {name: f"{int(log.digests[row][0]):016x}" for row, name in enumerate(NAMES)}


def log(steps: list[Step], **run: Any) -> OpLog:
    return captured_log(steps, parameter_digests=digests(WEIGHTS), **run)


def only_cause(c: Comparison) -> int:
    ((row, *_),) = c.consequences.starts
    return row


class TestAgreement:
    def test_another_form_of_the_same_step(self) -> None:
        c = compare(log([*backward(), *fused()]), log([*backward(), *looped()]))
        assert not c.red.any()
        assert [content.verdict and content.verdict.status for content in c.last_contents.contents.values()] == [
            Status.EQUAL
        ] * 3
        agree_a, agree_b = c.last_contents.agree
        assert agree_a.tolist() == [False] * 3 + [True]
        assert agree_b.tolist() == [False] * 3 + [True] * 3

    def test_rounding_of_another_form(self) -> None:
        one = rounded(fused())
        c = compare(log([*backward(), *one]), log([*backward(), *looped()]))
        assert not c.red.any()
        assert all(content.alone for content in c.last_contents.contents.values())

    def test_one_pair_is_judged_as_such(self) -> None:
        c = compare(log([*backward(), *fused()]), log([*backward(), *fused(0.2)]))
        assert c.last_contents.contents == {}
        assert c.status.tolist().count(Status.DIVERGED) == 1

    def test_gradients_that_differ_within_tolerance_excuse_what_they_make(self) -> None:
        noisy = log([*backward(1 + 1e-5), *looped(5.0, scale=1 + 1e-5)])
        c = compare(log([*backward(), *fused(5.0)]), noisy)
        assert not c.red.any()

    def test_a_state_is_not_judged_by_a_pair_that_only_reads_it(self) -> None:
        """An update of Adam does not show the scale of the first moment."""

        def adam(scale: float, form: str) -> OpLog:
            moment, root = np.float32(scale) * GRADIENTS[0], np.abs(np.float32(scale) * GRADIENTS[0])
            fields = {"phase": "optimizer", "parameters": [f"{NAMES[0]}.exp_avg", f"{NAMES[0]}.grad"]}
            keys = f"emb/op_1_{form}", "emb/op_2_addcdiv_"
            steps = [
                Step(key=keys[0], gives=[moment], reads=[0 * moment, moment], made=["", makers()[0]], fields=fields),
                Step(
                    key=keys[1],
                    gives=[WEIGHTS[0] - moment / root],
                    reads=[WEIGHTS[0], moment, root],
                    made=["", keys[0], ""],
                    fields={"phase": "optimizer", "parameters": [NAMES[0], f"{NAMES[0]}.exp_avg", ""]},
                ),
            ]
            return log([*backward(), *steps])

        c = compare(adam(1, "lerp_"), adam(2, "add_"))
        assert c.status[c.at_a[-1]] == Status.EQUAL
        (content,) = c.last_contents.verdicts.values()
        assert content.name == "emb.weight.exp_avg"

    @pytest.mark.parametrize(("error", "red"), [(1e-6, False), (0.1, True)])
    def test_a_state_that_begins_as_zeros_may_have_other_signs_where_the_gradient_is_rounding(
        self, error: float, red: bool
    ) -> None:
        """As momentum of a quotient: its last reader, which adds it to the parameter, says nothing of signs."""

        def rms(key: str, error: float) -> OpLog:
            gradient = GRADIENTS[0] * np.float32(1 + error)
            gradient[0, 0] = np.copysign(1e-9, 0.5 - bool(error))
            root = np.abs(gradient)
            held = np.sign(gradient)
            held[1:] *= np.float32(1 + (error if red else 0.0))
            state = {"phase": "optimizer", "parameters": [f"{NAMES[0]}.momentum_buffer", f"{NAMES[0]}.grad", ""]}
            steps = [
                Step(key="emb/op_0_mm", gives=[gradient], reads=[INPUT], fields={"phase": "backward"}),
                Step(
                    key="emb/op_1_abs",
                    gives=[root],
                    reads=[gradient],
                    made=["emb/op_0_mm"],
                    fields=state | {"parameters": [f"{NAMES[0]}.grad"]},
                ),
                Step(
                    key=key,
                    gives=[held],
                    reads=[0 * held, gradient, root],
                    made=["", "emb/op_0_mm", "emb/op_1_abs"],
                    changed={0: held},
                    fields=state,
                ),
                Step(
                    key="emb/op_3_add_",
                    gives=[WEIGHTS[0] - np.float32(0.1) * held],
                    reads=[WEIGHTS[0], held],
                    made=["", key],
                    changed={0: WEIGHTS[0] - np.float32(0.1) * held},
                    fields={"phase": "optimizer", "parameters": [NAMES[0], f"{NAMES[0]}.momentum_buffer"]},
                ),
            ]
            return log(steps)

        c = compare(
            rms("emb/op_2_addcdiv_", 0.0),
            rms("optimizer/op_0__foreach_addcdiv_", error),
            expectation=Expectation(preset=Expect.REDUCTION_ORDER),
        )
        told = [c.last_contents.contents.get(f"{NAMES[0]}.momentum_buffer")]
        assert any(content is not None and content.red for content in told) is red, told

    def test_logs_without_names(self) -> None:
        plain = [Step(key=s.key, gives=s.gives, reads=s.reads, fields={"phase": "optimizer"}) for s in looped()]
        c = compare(log([*backward(), *plain]), log([*backward(), *fused(0.2)]))
        assert not c.red.any()
        assert not c.last_contents.contents


class TestDifference:
    @pytest.mark.parametrize(("one", "other"), [(fused, looped), (looped, fused)])
    def test_many_parameters_of_one_optimizer_are_one_cause(self, one: Any, other: Any) -> None:
        c = compare(log([*backward(), *one(0.1)]), log([*backward(), *other(0.1001)]))
        row = only_cause(c)
        assert c.red.sum() == 1
        assert c.role[row] == Role.ORIGIN
        assert c.pair[row] < 0
        assert "and 2 more parameters differ after the step" in headline(c, row)
        assert headline(c, row).endswith("gradients and states before are bitwise equal")
        assert not any(flags.any() for flags in c.last_contents.agree)

    def test_weight_decay_of_one_step(self) -> None:
        c = compare(log([*backward(), *fused(wd=1e-5)]), log([*backward(), *looped()]))
        assert c.red.sum() == 1

    def test_a_red_gradient_explains_it(self) -> None:
        c = compare(log([*backward(), *fused()]), log([*backward(1.2), *looped(scale=1.2)]))
        left = [row for row in np.flatnonzero(c.red).tolist() if c.pair[row] < 0]
        assert left
        assert all(c.role[row] == Role.RECEIVER and not c.cause[row] for row in left)
        assert "already differs, from" in headline(c, left[0])

    @pytest.mark.parametrize("of_optimizer", [False, True])
    def test_a_term_that_one_run_alone_adds_to_a_gradient_explains_it(self, of_optimizer: bool) -> None:
        """The second pass through a layer, which is detached in the other run: no pair reads what it makes."""
        one, added = fused(0.2 if of_optimizer else 0.1), []
        if not of_optimizer:
            term = Step(key="emb/op_1_mm", gives=[INPUT], reads=[INPUT], made=[""], fields={"phase": "backward"})
            total = [GRADIENTS[0] + INPUT]
            add = Step(
                key="emb/op_2_add",
                gives=total,
                reads=[GRADIENTS[0], INPUT],
                made=[makers()[0], term.key],
                fields={"phase": "backward"},
            )
            new = WEIGHTS[0] - np.float32(0.1) * total[0]
            made = [*one[0].made[:3], add.key, *one[0].made[4:]]
            reads = [*one[0].reads[:3], *total, *one[0].reads[4:]]
            one, added = [replace(one[0], made=made, reads=reads, changed={**one[0].changed, 0: new})], [term, add]
        c = compare(log([*backward(), *added, *one]), log([*backward(), *looped()]))
        row = only_cause(c)
        assert (c.a.keys[int(c.row_a[row])] in {step.key for step in added}) is not of_optimizer

    def test_a_parameter_that_one_run_leaves_alone(self) -> None:
        c = compare(log([*backward(), *fused()]), log([*backward(), *looped(names=NAMES[:2])]))
        told = headline(c, only_cause(c))
        assert told.startswith("FIRST CAUSE: only a changed layers.1.w.weight; it differs after the step by")
        assert told.endswith("no captured operation of b writes to it")

    @pytest.mark.parametrize("weight", [0.1, 0.10000000001, 0.101])
    def test_another_argument_of_what_writes_them(self, weight: float) -> None:
        """In a list or one by one; what it changes is within the tolerance."""

        def average(key: str, at: list[int], asked: float) -> Step:
            fields = {"phase": "after", "parameters": [NAMES[k] for k in at], "arguments": {"weight": asked}}
            new = {slot: WEIGHTS[k] * np.float32(1 + 5e-3 * asked) for slot, k in enumerate(at)}
            return Step(key=key, reads=[WEIGHTS[k] for k in at], made=[""] * len(at), changed=new, fields=fields)

        together = average("ema/op_0__foreach_lerp_", [0, 1, 2], 0.1)
        each = [average(f"ema/op_{k}_lerp_", [k], weight) for k in range(3)]
        c = compare(log([*backward(), together]), log([*backward(), *each]))
        assert bool(c.red.any()) is (weight == 0.101)
        if c.red.any():
            assert headline(c, only_cause(c)).startswith("FIRST CAUSE: weight 0.1 in a, 0.101 in b; ")

    @pytest.mark.parametrize("how", ["not", "a call", "elsewhere"])
    def test_a_run_that_updates_nothing_at_all(self, how: str) -> None:
        """A rank whose optimizer does not step; a call of a model need not, and what no capture sees may do it."""
        new = after(0.1, NAMES)
        ends = {
            name: [digests(new)[name], float(np.linalg.norm(x)), float(x.mean())]
            for name, x in zip(NAMES, new, strict=True)
        }
        told: dict[str, Any] = {"a call": {"coverage": {"forward": [0, 3]}}, "elsewhere": {"end_state": ends}}
        c = compare(log([*backward(), *looped()]), log(backward(), **told.get(how, {})))
        assert bool(c.red.any()) is (how == "not")
        if how == "not":
            assert headline(c, only_cause(c)).startswith("FIRST CAUSE: only a changed emb.weight")

    @pytest.mark.parametrize("left", ["as it was", "changed", "with a state"])
    def test_an_update_that_changes_nothing_is_none(self, left: str) -> None:
        """Of a gradient of zeros, where the other run has none; its states are then as states begin."""
        zeros, changed = np.zeros_like(WEIGHTS[2]), left == "changed"
        state = np.float32(0.1) * WEIGHTS[2] if left == "with a state" else zeros
        update = Step(
            key="layers.1.w/op_1_addcdiv_",
            gives=[WEIGHTS[2] * np.float32(1 - 1e-5 * changed)],
            reads=[WEIGHTS[2], zeros, zeros],
            made=["", "", ""],
            changed={2: state},
            fields={"phase": "optimizer", "parameters": [NAMES[2], f"{NAMES[2]}.grad", f"{NAMES[2]}.exp_avg"]},
        )
        c = compare(log([*backward(), *looped(names=NAMES[:2]), update]), log([*backward(), *looped(names=NAMES[:2])]))
        assert bool(c.red.any()) is changed
        assert c.last_contents.agree[0][-1] == (left == "as it was")

    @pytest.mark.parametrize("stale", [True, False])
    def test_a_parameter_that_others_may_write_to_is_as_the_end_of_the_log_has_it(self, stale: bool) -> None:
        """Ranks that send weights: no record need name what they write to."""
        sent = Step(
            key="after/op_0_broadcast_",
            reads=[WEIGHTS[0]],
            changed={0: WEIGHTS[0]},
            fields={"phase": "after", "group": {"ranks": [0, 1], "nth": 0}},
        )
        left = WEIGHTS[2] if stale else after(0.1, NAMES)[2]
        entry = [digests([*WEIGHTS[:2], left])[NAMES[2]], float(np.linalg.norm(left)), float(left.mean())]
        other = log([*backward(), *looped(names=NAMES[:2]), sent], end_state={NAMES[2]: entry})
        c = compare(log([*backward(), *fused(), sent]), other)
        assert any(content.name == NAMES[2] for of in c.last_contents.at.values() for content in of) is stale

    @pytest.mark.parametrize("lr", [0.1, 0.11])
    def test_parameters_in_a_flat_one(self, lr: float) -> None:
        """The flat one is updated under a name that the other run does not have; what is in it, the end tells."""
        new, entries = after(lr, NAMES), {}
        for name, x in zip(NAMES, new, strict=True):
            sketch = summary(x).sketch
            assert sketch is not None
            entries[name] = ["0f" * 8, float(np.linalg.norm(x)), None, b64encode(sketch).decode()]
        flat, gradient = np.concatenate(WEIGHTS).ravel(), np.concatenate(gradients()).ravel()
        update = Step(
            key="optimizer/op_0_add_",
            gives=[np.concatenate(new).ravel()],
            reads=[flat, gradient],
            made=["", ""],
            fields={"phase": "optimizer", "parameters": ["_flat_param", "_flat_param.grad"]},
        )
        run = {"end_state": entries, "flat_parameters": {"_flat_param": [*NAMES]}}
        c = compare(log([*backward(), *looped()]), log([*backward(), update], **run))
        assert bool(c.red.any()) is (lr == 0.11)
        assert [bool(of[-1]) for of in c.last_contents.agree] == [lr == 0.1] * 2
        if c.red.any():
            assert " differs after the step by " in headline(c, only_cause(c))

    def test_a_parameter_that_the_other_run_does_not_know(self) -> None:
        other = captured_log([*backward(), *looped(names=NAMES[:2])])
        assert not compare(log([*backward(), *fused()]), other).red.any()

    def test_a_log_that_was_cut_off_leaves_nothing_alone(self) -> None:
        other = log([*backward(), *looped(names=NAMES[:2])], incomplete="killed")
        assert not compare(log([*backward(), *fused()]), other).red.any()

    def test_bitwise(self) -> None:
        one = rounded(fused())
        expectation = Expectation(preset=Expect.BITWISE)
        c = compare(log([*backward(), *one]), log([*backward(), *looped()]), expectation=expectation)
        assert c.red.sum() == 1

    def test_an_ignored_row_is_not_red(self) -> None:
        rules = parse_rules("ignore: [{op: _fused_sgd_}]\n")
        c = compare(log([*backward(), *fused(0.2)]), log([*backward(), *looped()]), rules)
        assert not c.red.any()


class TestStates:
    """A state of an optimizer that differs before the step."""

    @staticmethod
    def with_counts(counted: float, form: Any, lr: float) -> list[Step]:
        """A step that counts, and whose size depends on the count."""
        count = Step(
            key="optimizer/op_9__foreach_add_" if form is fused else "embedding/op_9_add_",
            gives=[] if form is fused else [np.float32(counted + 1)],
            reads=[np.float32(counted)],
            changed={0: np.float32(counted + 1)} if form is fused else {},
            fields={"phase": "optimizer", "parameters": ["emb.weight.step"], "location": "train.py:7"},
        )
        return [*backward(), count, *form(lr)]

    def test_it_is_the_cause_of_what_the_step_makes_of_it(self) -> None:
        c = compare(log(self.with_counts(5.0, fused, 0.1)), log(self.with_counts(1.0, looped, 0.3)))
        roles = {
            content.name: Role(c.role[c.at_a[content.a] if side == "a" else c.at_b[content.b]])
            for (side, _), contents in c.last_contents.at.items()
            for content in contents
        }
        assert roles["emb.weight.step"] == Role.ORIGIN
        assert c.last_contents.contents["emb.weight"].given
        assert not c.last_contents.contents["emb.weight.step"].given

    @staticmethod
    def corrected(counted: float, correction: float) -> list[Step]:
        """A step that counts, and divides by a number that the host computes from the count."""
        fields = {"phase": "optimizer", "location": "train.py:7"}
        count = Step(
            key="optimizer/op_0__foreach_add_",
            reads=[np.float32(counted)],
            changed={0: np.float32(counted + 1)},
            fields={**fields, "parameters": ["emb.weight.step"]},
        )
        root = Step(
            key="optimizer/op_1__foreach_sqrt",
            gives=[np.sqrt(WEIGHTS[0] ** 2)],
            reads=[WEIGHTS[0] ** 2],
            fields={**fields, "parameters": ["emb.weight.exp_avg_sq"]},
        )
        divide = Step(
            key="optimizer/op_2__foreach_div_",
            reads=root.gives,
            made=[root.key],
            changed={0: root.gives[0] / np.float32(correction)},
            fields=fields,
        )
        update, *_ = fused()
        return [*backward(), replace(update, key="optimizer/op_3__fused_sgd_"), count, root, divide]

    @pytest.mark.parametrize(("counted", "causes"), [(1.0, ["op_2__foreach_div_"]), (5.0, ["op_0__foreach_add_"])])
    def test_scalars_that_follow_from_it_are_no_first_cause(self, counted: float, causes: list[str]) -> None:
        c = compare(log(self.corrected(1.0, 0.5)), log(self.corrected(counted, 0.25)))
        starts = [row for row, *_ in c.consequences.starts]
        assert [c.a.keys[int(c.row_a[row])] for row in starts] == [f"optimizer/{key}" for key in causes]
        assert ("emb.weight.step differs before the step" in headline(c, starts[0])) == (counted == 5.0)

    def test_one_that_the_step_makes_follows_from_what_makes_it(self) -> None:
        """The first step of momentum copies the gradient, with the decay that was added to it."""

        def first_step(decay: float) -> list[Step]:
            fields = {"phase": "optimizer", "location": "train.py:7"}
            slope = WEIGHTS[0] * np.float32(0.5) + WEIGHTS[0] * np.float32(decay)
            add = Step(
                key="optimizer/op_0_add",
                gives=[slope],
                reads=[WEIGHTS[0] * np.float32(0.5), WEIGHTS[0]],
                fields={**fields, "arguments": {"alpha": decay}, "parameters": ["emb.weight.grad", "emb.weight"]},
            )
            copy = Step(
                key="optimizer/op_1_clone",
                gives=[slope],
                reads=[slope],
                made=[add.key],
                fields={**fields, "parameters": ["emb.weight.momentum_buffer"]},
            )
            return [*backward(), add, copy]

        c = compare(log(first_step(0.1)), log(first_step(0.2)))
        assert [c.a.keys[int(c.row_a[row])] for row, *_ in c.consequences.starts] == ["optimizer/op_0_add"]

    def test_a_count_is_not_made_by_an_operation_with_its_norm(self) -> None:
        """The log tells what made a state: an equal norm is no evidence."""
        ones = Step(key="m/op_0_ones", gives=[np.float32(5.0)])
        steps = self.corrected(5.0, 0.5)
        made = sources(log([ones, *steps]))
        assert made[len(steps) - 2].tolist() == [-1]
        unnamed = replace(steps[-3], fields={"phase": "optimizer"})
        assert sources(log([ones, *steps[:-3], unnamed]))[len(steps) - 2].tolist() == [0]

    def test_the_same_count(self) -> None:
        c = compare(log(self.with_counts(5.0, fused, 0.1)), log(self.with_counts(5.0, looped, 0.1)))
        assert not c.red.any()


class TestLists:
    """Operations on lists of tensors: another order of parameters, other groups."""

    @staticmethod
    def fused_in_groups(*groups: tuple[str, ...], lr: float = 0.1) -> list[Step]:
        steps = []
        for n, names in enumerate(groups):
            (step,) = fused(lr, names=names)
            steps.append(replace(step, key=f"optimizer/op_{n}__fused_sgd_"))
        return steps

    @pytest.mark.parametrize("groups", [(NAMES[::-1],), (NAMES[:1], NAMES[1:])])
    def test_other_lists_are_judged_by_name(self, groups: tuple[tuple[str, ...], ...]) -> None:
        a = log([*backward(), *self.fused_in_groups(*groups)])
        c = compare(a, log([*backward(), *fused()]))
        assert not c.red.any()
        assert len(groups) == 1 or c.last_contents.contents  # a pair that holds the same tensors is judged itself
        c = compare(a, log([*backward(), *fused(0.2)]))
        assert c.red.any()
        assert len(c.consequences.starts) == 1

    @pytest.mark.parametrize("lr", [0.1, 0.101])
    def test_a_gradient_that_is_rounding_excuses_no_other_tensor_of_its_list(self, lr: float) -> None:
        terms = np.tile(GRADIENTS[2], (64, 1, 1))

        def run(seed: int, *groups: tuple[str, ...], lr: float = 0.1) -> OpLog:
            scale = 1.0 + 1e-6 * seed
            noise = np.float32(1e-8) * np.random.default_rng(seed).standard_normal((6, 8)).astype(np.float32)
            *steps, last = backward(scale)
            steps.append(replace(last, gives=[terms]))
            steps.append(Step(key="noise/op_0_sum", gives=[noise], reads=[terms], made=[last.key], fields=last.fields))
            for n, names in enumerate(groups):
                (step,) = fused(lr, names=names, scale=scale)
                *most, _ = step.reads
                if names[-1] == NAMES[2]:
                    changed = {**step.changed, len(names) - 1: WEIGHTS[2]}
                    reads, made = [*most, noise], [*step.made[:-1], "noise/op_0_sum"]
                    step = replace(step, reads=reads, made=made, changed=changed)
                steps.append(replace(step, key=f"optimizer/op_{n}__fused_sgd_"))
            return log(steps)

        c = compare(run(0, NAMES), run(1, NAMES[:1], NAMES[1:], lr=lr))
        assert c.red.any() == (lr != 0.1)

    def test_a_parameter_that_one_run_alone_has_a_gradient_of_is_named(self) -> None:
        """It is frozen in the other, where one operation makes fewer gradients, and clipping adds up fewer."""
        logs = []
        for names in (NAMES, NAMES[:2]):
            first, second = backward()[:2]
            asked = {"phase": "backward", "arguments": {"output_mask": [True, len(names) == 3, False]}}
            key = "layers.0.w/op_0_native_layer_norm_backward"
            second = replace(second, key=key, gives=gradients()[1 : len(names)], fields=asked)
            grads, made = gradients()[: len(names)], [first.key, second.key, second.key][: len(names)]
            fields = {"phase": "gradients", "parameters": [f"{name}.grad" for name in names]}
            sizes = np.array([np.linalg.norm(each) for each in grads], np.float32)
            stack = Step(key="clip/op_0_stack", gives=[sizes], reads=grads, made=made, fields=fields)
            total = Step(
                key="clip/op_1_linalg_vector_norm",
                gives=[np.array(np.linalg.norm(sizes), np.float32)],
                reads=[sizes],
                made=[stack.key],
                fields={"phase": "gradients"},
            )
            (step,) = fused(names=names)
            step = replace(step, made=[*("" for _ in names), *made])
            logs.append(log([first, second, stack, total, step]))
        c = compare(logs[0], logs[1])
        assert f"only a has a gradient of {NAMES[2]}" in headline(c, only_cause(c))

    @pytest.mark.parametrize(("decay", "causes"), [(0.0, 0), (0.1, 1)])
    def test_what_one_run_alone_adds_to_the_gradients_is_the_cause(self, decay: float, causes: int) -> None:
        """The list of the one run has temporary tensors where that of the other has gradients."""
        temporary = [gradient + np.float32(decay) * w for gradient, w in zip(GRADIENTS, WEIGHTS, strict=True)]
        states = [np.zeros_like(weight) for weight in WEIGHTS]
        fields = {"phase": "optimizer", "location": "train.py:7"}
        gradient_names = [f"{name}.grad" for name in NAMES]
        add = Step(
            key="optimizer/op_0__foreach_add",
            gives=[*temporary],
            reads=[*GRADIENTS, *WEIGHTS],
            made=[*makers(), "", "", ""],
            fields={**fields, "parameters": [*gradient_names, *NAMES]},
        )

        def moved(read: list[Any], made: list[str], names: list[str], n: int) -> Step:
            return Step(
                key=f"optimizer/op_{n}__foreach_lerp_",
                reads=[*states, *read],
                made=["", "", "", *made],
                changed={k: np.float32(0.1) * tensor for k, tensor in enumerate(read)},
                fields={**fields, "parameters": [*(f"{name}.exp_avg" for name in NAMES), *names]},
            )

        one = [*backward(), add, moved(temporary, [add.key] * 3, [""] * 3, 1)]
        c = compare(log(one), log([*backward(), moved(GRADIENTS, makers(), gradient_names, 0)]))
        assert [int(c.row_a[row]) for rows in c.consequences.starts for row in rows] == [3] * causes
        assert bool(c.red.any()) == bool(causes)

    @pytest.mark.parametrize("copied", [1.0, 1.01])
    def test_the_update_of_a_tensor_that_the_model_has_not_is_judged_by_name(self, copied: float) -> None:
        """A slice, of the shape of another parameter, that a rank updates and copies into its own."""
        (whole,), new = looped(names=NAMES[:1]), after(0.1, NAMES)[0]
        part, gradient = WEIGHTS[1], GRADIENTS[1]
        update = replace(
            whole,
            gives=[part - np.float32(0.1) * gradient],
            reads=[part, gradient],
            fields={**whole.fields, "parameters": ["group0.0", "group0.0.grad"]},
        )
        copy = Step(
            key="after/op_0_copy_",
            gives=[new * np.float32(copied)],
            reads=[WEIGHTS[0]],
            fields={"phase": "after", "parameters": [NAMES[0]]},
        )
        c = compare(log([*backward(), whole]), log([*backward(), update, copy]))
        assert bool(c.red.any()) is (copied != 1)
        assert Status.NOT_JUDGED in c.status

    def test_exchanged_parameters_are_no_other_order(self) -> None:
        (step,) = fused()
        exchanged = replace(step, changed={**step.changed, 0: step.changed[1], 1: step.changed[0]})
        c = compare(log([*backward(), step]), log([*backward(), exchanged]))
        assert c.red.any()


def test_a_tensor_that_is_a_rounding_error_leaves_the_other_tensors_of_its_operation_compared() -> None:
    left = compare(log([*backward(), *fused()]), log([*backward(), *looped()])).last_contents
    row = len(NAMES)  # behind the backward pass
    assert left.agree[0][row]
    others = {name: content for name, content in left.contents.items() if name != NAMES[2]}
    assert not replace(left, contents=others).agree[0][row]
    assert replace(left, contents=others, noise={NAMES[2]}).agree[0][row]
    assert not replace(left, contents={}, noise=set(NAMES)).agree[0][row]


class TestStacks:
    """Parameters that one run has one by one, and the other in one tensor."""

    def of_two(self, factor: float = 1.0, of_gradient: float = 1.0) -> Comparison:
        new = np.stack(after(0.1, NAMES)[1:]) * np.float32(factor)
        stack = Step(
            key="stack/op_1_add_",
            gives=[new],
            reads=[np.stack(WEIGHTS[1:]), np.stack(gradients()[1:]) * np.float32(of_gradient)],
            fields={"phase": "optimizer", "parameters": ["layers.w", "layers.w.grad"]},
        )
        return compare(log([*backward(), *looped()]), log([*backward(), *looped(names=NAMES[:1]), stack]))

    def test_what_updates_leave_in_a_stack_is_what_they_leave_in_its_parts(self) -> None:
        c = self.of_two()
        assert not c.red.any()
        assert {name for name, content in c.last_contents.contents.items() if content.agrees} == {
            *NAMES[1:],
            "layers.w",
        }
        assert c.coverage.enough

    def test_another_gradient_of_a_stack_is_named_where_what_it_leaves_differs(self) -> None:
        c = self.of_two(1.001, of_gradient=2.0)
        told = headline(c, only_cause(c))
        assert told.startswith("FIRST CAUSE: the gradient layers.w.grad differs by ≥5.0e-01")

    def test_another_update_of_a_stack_is_its_cause(self) -> None:
        c = self.of_two(1.001)
        row = only_cause(c)
        assert c.b.keys[int(c.row_b[row])] == "stack/op_1_add_"
