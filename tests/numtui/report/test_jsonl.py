"""JSON Lines: the fast writer says what the obvious one would, byte for byte."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import Comparison
from matchers.explain.reason_facts import reason_facts
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.pairing.pairing import Method, Pairing
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict
from numtui.report.jsonl import write_jsonl
from tests.builders import log_text, op, training_step
from tests.needs import examples

KEYS = [
    "layers.0/op_0_mm",
    'quo"te/op_1_add',
    "back\\slash/op_0_mul",
    "\x1b[31mε/op_2_neg",
    "<none>/op_0_x",
    "层/op_9_y",
]

GOLDEN = """\
{"a":0,"b":0,"a_key":"tok_embeddings/op_0_embedding","b_key":"tok_embeddings/op_0_embedding",\
"status":"same-print","method":"exact","confidence":0.97,"error":0.0,"error_is_bound":true,"role":null,"origin":false,\
"phase":"forward","location":"model/tok_embeddings.py:63","shape_a":"[16, 8]","shape_b":"[16, 8]",\
"inputs_equal":true,"differs_in":null,"micro_batch":null,"recompute":false,"reason":"same-numbers","reason_facts":{}}
{"a":[1,2],"b":1,"a_key":["layers.0.attention_norm/op_0_mul","layers.0.attention.wq/op_0_mm"],\
"b_key":"layers.0.attention_norm/op_0_mul",\
"status":"diverged","method":"override","confidence":1.0,"error":0.1,"error_is_bound":true,"role":"origin","origin":true,\
"phase":"forward","location":"model/attention_norm.py:21","shape_a":"[16, 8]","shape_b":"[16, 8]",\
"inputs_equal":true,"differs_in":"layers.0.wq.weight","micro_batch":null,"recompute":false,\
"reason":"last-content","reason_facts":{"limit":1.5e-05}}
{"a":null,"b":2,"a_key":null,"b_key":"x/op_0_neg",\
"status":"only-b","method":null,"confidence":null,"error":null,"error_is_bound":false,"role":null,"origin":false,\
"phase":"forward","location":null,"shape_a":null,"shape_b":null,\
"inputs_equal":false,"differs_in":null,"micro_batch":1,"recompute":true,"reason":"only-one-run","reason_facts":{}}
"""


def written(c: Comparison) -> str:
    out = io.StringIO()
    write_jsonl(c, out)
    return out.getvalue()


def reference(c: Comparison) -> str:
    """docs/jsonl.md in the plainest words: `json.dumps` of one dictionary per row."""

    def one(values: list[Any]) -> Any:
        return None if not values else values[0] if len(values) == 1 else values

    lines = []
    for row in range(len(c)):
        a, b = c.members(row)
        row_a, row_b, pair = int(c.row_a[row]), int(c.row_b[row]), int(c.pair[row])
        log, record = (c.a, row_a) if row_a >= 0 else (c.b, row_b)
        error = float(c.error[row])
        line = {
            "a": one(list(a)),
            "b": one(list(b)),
            "a_key": one([c.a.keys[r] for r in a]),
            "b_key": one([c.b.keys[r] for r in b]),
            "status": Status(c.status[row]).label,
            "method": Method(c.pairing.method[pair]).label if pair >= 0 else None,
            "confidence": round(float(c.pairing.confidence[pair]), 3) if pair >= 0 else None,
            "error": "?",
            "error_is_bound": bool(c.bound[row]),
            "role": Role(c.role[row]).label if c.role[row] else None,
            "origin": bool(c.cause[row]),
            "phase": Phase(log.phase[record]).label,
            "location": log.location_text(record) or None,
            "shape_a": (c.a.shape_text(row_a) or None) if row_a >= 0 else None,
            "shape_b": (c.b.shape_text(row_b) or None) if row_b >= 0 else None,
            "inputs_equal": bool(c.inputs_equal[row]),
            "differs_in": c.slots[row].name if row in c.slots else None,
            "micro_batch": int(log.micro_batch[record]) if log.micro_batch[record] >= 0 else None,
            "recompute": bool(log.recompute[record]),
            "reason": Reason(c.reason[row]).label,
            "reason_facts": "?",
        }
        facts = ",".join(
            f'"{name}":{value:.6g}' if isinstance(value, float) else f'"{name}":{json.dumps(value)}'
            for name, value in reason_facts(c, row).items()
        )
        digits = "0.0" if error == 0 else f"{error:.6g}" if math.isfinite(error) else "null"
        text = json.dumps(line, separators=(",", ":")).replace('"error":"?"', f'"error":{digits}')
        lines.append(text.replace('"reason_facts":"?"', f'"reason_facts":{{{facts}}}') + "\n")
    return "".join(lines)


def made_up(a: OpLog, b: OpLog, rng: np.random.Generator) -> Comparison:
    """A comparison of two logs in which nothing makes sense but the structure: pairs, groups, rows of one side."""
    paired = min(len(a), len(b))
    pairs = np.arange(paired)
    of_a, of_b = (np.where(np.arange(len(log)) < paired, np.arange(len(log)), -1) for log in (a, b))
    grouped = np.zeros(paired, bool)
    for of_side in (of_a, of_b):
        for record in np.flatnonzero(of_side < 0):
            if paired and rng.random() < 0.5:
                of_side[record] = rng.integers(paired)
                grouped[of_side[record]] = True
    alone_a, alone_b = np.flatnonzero(of_a < 0), np.flatnonzero(of_b < 0)
    row_a = np.concatenate((pairs, alone_a, np.full(len(alone_b), -1)))
    row_b = np.concatenate((pairs, np.full(len(alone_a), -1), alone_b))
    n = len(row_a)
    order = rng.permutation(n)
    pair = np.where(np.arange(n) < paired, np.arange(n), -1)
    errors = np.array([0.0, 0.0, 1e-7, 0.1, 1 / 3, 2.0, 1e300, math.nan, math.inf])
    return Comparison(
        a=a,
        b=b,
        pairing=Pairing(
            of_a=of_a,
            of_b=of_b,
            lead_a=pairs,
            lead_b=pairs,
            method=rng.integers(1, len(Method), paired).astype(np.int8),
            confidence=rng.integers(0, 1001, paired).astype(np.float32) / np.float32(1000),
            runner_up=np.full(paired, -1, np.int32),
            runner_up_score=np.zeros(paired, np.float32),
            grouped=grouped,
            assembled=grouped,
        ),
        row_a=row_a[order],
        row_b=row_b[order],
        pair=pair[order],
        verdict=rng.integers(0, len(Status), n).astype(np.int8),
        reason=rng.integers(0, len(Reason), n).astype(np.int8),
        excluded_by=np.full(n, -1, np.int32),
        error=rng.choice(errors, n),
        bound=rng.random(n) < 0.5,
        inputs_equal=rng.random(n) < 0.5,
        slots={
            int(row): SlotVerdict(str(rng.choice(KEYS)), Status.CLOSE, Reason.WITHIN_TOLERANCE)
            for row in rng.permutation(n)[: n // 3]
        },
        tolerance=np.zeros(n),
        role=rng.integers(0, len(Role), n).astype(np.int8),
        cause=rng.random(n) < 0.5,
        original=np.full(n, -1, np.int32),
        at_a=np.zeros(len(a), np.int64),
        at_b=np.zeros(len(b), np.int64),
    )


def log_of(tmp_path: Path, name: str, keys: list[str], rng: np.random.Generator) -> OpLog:
    path = tmp_path / name
    ops = [
        op(
            key,
            shape=[None, (2,), (2, 3)][rng.integers(3)],
            location=[None, "a.py:1", 'b"\x1b.py:2'][rng.integers(3)],
            phase=[None, "backward", "optimizer"][rng.integers(3)],
            extra=[{}, {"Micro-batch": "3"}, {"Recompute": "true"}][rng.integers(3)],
        )
        for key in keys
    ]
    path.write_text(log_text(ops), encoding="utf-8")
    return read_log(path)


@given(
    st.lists(st.sampled_from(KEYS), max_size=12),
    st.lists(st.sampled_from(KEYS), max_size=12),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(60))
def test_the_fast_writer_agrees_with_the_obvious_one(
    tmp_path_factory: pytest.TempPathFactory, keys_a: list[str], keys_b: list[str], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(seed)
    c = made_up(log_of(folder, "a", keys_a, rng), log_of(folder, "b", keys_b, rng), rng)
    assert written(c) == reference(c)


def test_more_rows_than_one_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = [f"layers.{i}/op_0_mm" for i in range(9_000)]
    c = made_up(log_of(tmp_path, "a", keys, rng), log_of(tmp_path, "b", keys[:8_990], rng), rng)
    assert written(c) == reference(c)


def test_golden(tmp_path: Path) -> None:
    """The form is stable: these bytes change only with a reason that users are told."""
    rng = np.random.default_rng(0)
    logs = [log_of(tmp_path, name, [], rng) for name in "ab"]
    for at, ops in enumerate(
        (
            training_step(1)[:3],
            [
                *training_step(1)[:2],
                op("x/op_0_neg", shape=None, location=None, extra={"Micro-batch": "1", "Recompute": "true"}),
            ],
        )
    ):
        path = tmp_path / f"golden {at}"
        path.write_text(log_text(ops))
        logs[at] = read_log(path)
    index = np.arange(2)
    c = replace(
        made_up(logs[0], logs[1], rng),
        row_a=np.array([0, 1, -1]),
        row_b=np.array([0, 1, 2]),
        pair=np.array([0, 1, -1]),
        verdict=np.array([Status.SAME_PRINT, Status.DIVERGED, Status.ONLY_B], np.int8),
        reason=np.array([Reason.SAME_NUMBERS, Reason.LAST_CONTENT, Reason.ONLY_ONE_RUN], np.int8),
        tolerance=np.array([np.nan, 1.5e-5, np.nan]),
        error=np.array([0.0, 0.1, np.nan]),
        bound=np.array([True, True, False]),
        inputs_equal=np.array([True, True, False]),
        slots={1: SlotVerdict("layers.0.wq.weight", Status.DIVERGED, Reason.LAST_CONTENT)},
        role=np.array([Role.NONE, Role.ORIGIN, Role.NONE], np.int8),
        cause=np.array([False, True, False]),
        pairing=Pairing(
            of_a=np.array([0, 1, 1]),
            of_b=np.array([0, 1, -1]),
            lead_a=index,
            lead_b=index,
            method=np.array([Method.EXACT, Method.OVERRIDE], np.int8),
            confidence=np.array([0.97, 1.0], np.float32),
            runner_up=np.array([-1, 0], np.int32),
            runner_up_score=np.array([0.0, 0.4], np.float32),
            grouped=np.array([False, True]),
            assembled=np.array([False, True]),
        ),
    )
    assert written(c) == GOLDEN


def test_output_is_ascii_and_strict_json(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    c = made_up(log_of(tmp_path, "a", KEYS * 9, rng), log_of(tmp_path, "b", KEYS * 8, rng), rng)
    text = written(c)
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert {r["a_key"] for r in map(json.loads, text.splitlines()) if isinstance(r["a_key"], str)} <= set(KEYS)


def test_two_empty_logs_give_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    assert written(made_up(log_of(tmp_path, "a", [], rng), log_of(tmp_path, "b", [], rng), rng)) == ""
