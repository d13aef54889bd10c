"""What lies between values of both runs and is computed in other ways, and what those values say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.regions import RegionFacts, regions_of
from matchers.logs.op_log import OpLog
from tests.builders import Op, op
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.drifted_logs import made_up_log


def mm(key: str, value: float, *makers: Op) -> Op:
    """An operation on what others made."""
    return op(key, value, inputs=[maker.outputs[0] for maker in makers] or [9.0], producers=[m.key for m in makers])


def layer(k: int, read: Op, *, fused: bool, factor: float = 1.0, mask: Op | None = None) -> list[Op]:
    """Attention between two matrix products, as one operation or as two."""
    name, at = f"layers.{k}.attn", 8.0 * k
    q = mm(f"{name}.q/op_0_mm", 1.25 + at, read)
    masks = [mask] if mask else []
    if fused:
        inside = [mm(f"{name}/op_0_attend", 3.5 * factor + at, q, *masks)]
    else:
        inside = [mm(f"{name}/op_0_softmax", 2.75 + at, q, *masks)]
        inside.append(mm(f"{name}/op_1_bmm", 3.5 * factor + at, inside[0]))
    return [q, *inside, mm(f"{name}.o/op_0_mm", 4.5 * factor + at, inside[-1])]


def model(*, fused: bool, factor: float = 1.0, mask: bool = False) -> list[Op]:
    """Two layers; the factor is in the attention of the first one, and goes through the second."""
    masks = op("model/op_0_triu", 0.5) if mask else None
    first = layer(0, op("embed/op_0_mm", 6.25), fused=fused, factor=factor, mask=masks)
    second = layer(1, first[-1], fused=fused, factor=factor, mask=masks)
    if factor != 1.0:
        second[0] = mm(second[0].key, 9.25 * factor, first[-1])
    return [*([masks] if masks else []), op("embed/op_0_mm", 6.25, inputs=[9.0]), *first, *second]


def compared(a: Sequence[Op], b: Sequence[Op]) -> Comparison:
    return compare(made_up_log(list(a)), made_up_log(list(b)))


def keys(c: Comparison, rows: Sequence[int]) -> list[str]:
    """The keys of some rows, of a where it has one."""
    return [c.a.keys[int(c.row_a[row])] if c.row_a[row] >= 0 else c.b.keys[int(c.row_b[row])] for row in rows]


@pytest.mark.parametrize("swapped", [False, True])
def test_another_form_whose_results_agree_is_covered_layer_by_layer(swapped: bool) -> None:
    logs = [model(fused=False), model(fused=True)]
    c = compared(*reversed(logs)) if swapped else compared(*logs)
    found = list(regions_of(c))
    assert [(each.kind, each.module) for each in found] == [("covered", f"layers.{k}.attn") for k in (0, 1)]
    assert not c.red.any()
    assert keys(c, found[0].inputs) == ["layers.0.attn.q/op_0_mm"]
    assert keys(c, found[0].outputs) == ["layers.0.attn.o/op_0_mm"]
    sizes = {len(found[0].a), len(found[0].b)}
    assert sizes == {1, 2}


def test_another_form_with_another_result_is_a_first_cause_and_what_follows_is_none() -> None:
    c = compared(model(fused=False), model(fused=True, factor=1.5))
    assert [region.kind for region in regions_of(c)] == ["first-cause", "consequence"]


def test_an_inserted_operation_is_a_region_of_one() -> None:
    a = model(fused=True)
    extra = mm("layers.0.attn/op_1_mul", 3.75, a[2])
    at = next(k for k, each in enumerate(a) if each.key == "layers.0.attn.o/op_0_mm")
    changed = mm("layers.0.attn.o/op_0_mm", 4.75, extra)
    b = [*a[:at], extra, changed, mm(a[at + 1].key, 9.75, changed), *a[at + 2 :]]
    c = compared(a, b)
    (first,) = (region for region in regions_of(c) if region.kind == "first-cause")
    assert first.a == ()
    assert keys(c, first.b) == [extra.key]
    assert np.flatnonzero(c.cause).tolist() == list(first.b)


def test_a_mask_of_all_layers_connects_nothing() -> None:
    """It belongs to the first region that reads it."""
    c = compared(model(fused=False, mask=True), model(fused=True, mask=False))
    found: list[RegionFacts] = list(regions_of(c))
    assert [region.module for region in found] == ["", "layers.1.attn"]
    assert "model/op_0_triu" in keys(c, found[0].a)


def test_so_do_the_constants_that_it_is_made_of() -> None:
    ones, mask = op("model/op_0_ones", 0.75), mm("model/op_1_triu", 0.5, op("model/op_0_ones", 0.75))
    a = [ones, mask, *model(fused=False, mask=True)[1:]]
    a = [replace(each, producers=[p.replace("op_0_triu", "op_1_triu") for p in each.producers]) for each in a]
    (first, *_) = regions_of(compared(a, model(fused=True)))
    assert {ones.key, mask.key} <= set(keys(compared(a, model(fused=True)), first.a))


def test_equal_logs_have_no_regions() -> None:
    a = model(fused=True)
    assert not list(regions_of(compared(a, a)))


@pytest.mark.parametrize("buffer", [True, False])
def test_a_table_that_is_made_of_a_buffer_connects_no_layers(buffer: bool) -> None:
    """Of positions, as a rotation has it; of what the step is given, it would."""
    x = np.arange(1.0, 9.0, dtype=np.float32)

    def log(name: str, table: Array, ops: Sequence[str]) -> OpLog:
        steps = [Step(key=f"model/op_0_{name}", reads=[x], made=[""], gives=[table])]
        value, made = np.float32(2) * x, "embed/op_0_mm"
        steps.append(Step(key=made, reads=[value + 1], made=[""], gives=[value]))
        for k in range(2):
            for n, op_name in enumerate(ops):
                key, gives = f"layers.{k}.attn/op_{n}_{op_name}", value * np.float32(3 + n + len(ops))
                steps.append(Step(key=key, reads=[value, table], made=[made, f"model/op_0_{name}"], gives=[gives]))
                value, made = gives, key
            value, made = np.tanh(x) + np.float32(k), f"layers.{k}.o/op_0_mm"
            steps.append(Step(key=made, reads=[gives], made=[key], gives=[value]))
        return captured_log(steps, buffer_digests={"table": f"{summary(x).digest:016x}"} if buffer else {})

    c = compare(log("cos", np.cos(x), ["mul"]), log("sin", np.sin(x), ["sub", "sinh"]))
    assert ("layers.1.attn" in [region.module for region in regions_of(c)]) == buffer
