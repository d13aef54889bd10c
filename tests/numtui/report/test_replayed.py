"""Verdicts on replays: each sentence where it is true, from what the processes gave."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capture.keeping.form import AGAIN, ONCE_MORE, WIDE
from numtui.report.elements import element_lines
from numtui.report.replay import as_json, write_json, write_survey, write_text
from numtui.report.replayed import Case, Replayed, asked_otherwise, certificate, verdict


def tensor(dtype: str = "float32", shape: tuple[int, ...] = (4,)) -> dict[str, Any]:
    return {"tensor": {"dtype": dtype, "shape": list(shape), "strides": [1] * len(shape)}}


def replayed(bits: str, gave: dict[str, str], **other: Any) -> Replayed:
    """A call whose log has these bits, with what the variants gave, and in float64 these distances."""
    wide = other.pop("wide", None)
    call = {
        "key": "m/op_0_mul",
        "operator": "aten::mul.Tensor",
        "schema": "aten::mul.Tensor(Tensor self, Tensor other, *, float scale=1.0) -> Tensor",
        "args": [tensor(), {"float": (0.25).hex()}],
        "kwargs": {},
        "returned": [tensor()],
        "left": [],
        "digests": {"returned": [bits], "left": []},
        "record": f"[m/op_0_mul]\n  Input digests: {other.pop('given', '00')}",
    }
    results: dict[str, dict[str, Any]] = {name: {"returned": [one], "written": []} for name, one in gave.items()}
    if wide is not None:
        results[WIDE] = {"distance": {side: [one * 1e-7, one] for side, one in wide.items()}}
    return Replayed(call | other, results)


def pair(a: Replayed, b: Replayed) -> Case:
    return Case("", {"a": a, "b": b})


def collective(together: str, *parts: str) -> Replayed:
    """A collective whose result is, or is not, made of what the ranks gave."""
    found: dict[str, Any] = {"parts": list(parts)}
    found |= {"together": together, "returned": ["aa"], "written": []} if together else {"failed": "in no known order"}
    return Replayed(replayed("aa" if together else "bb", {}).call, {AGAIN: found})


EACH = "float64 confirms each for what it was asked (a 0.4 ε, b 0.4 ε)"
BFLOAT16 = (
    "asked otherwise: dtype of self float32 in a, bfloat16 in b; other 0.25 in a, None in b: "
    "float64 sides with a (a 4e-08, b 3.1e-05)"
)
A, B = {AGAIN: "aa"}, {AGAIN: "bb"}
NEAR, FAR = {"a": 0.4, "b": 310.0}, {"a": 310.0, "b": 0.4}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (pair(replayed("aa", A), replayed("aa", A)), "same bits in both runs"),
        (
            pair(collective("sum in float32", "p", "q"), collective("", "p", "q")),
            "given the same: a is sum in float32; b is not, and is wrong",
        ),
        (pair(collective("sum in float32", "p", "q"), collective("", "p", "r")), "not replayed: in no known order"),
        (
            pair(replayed("aa", A, wide=NEAR), replayed("bb", B, wide=NEAR)),
            "asked the same, other bits: float64 sides with a (a 0.4 ε, b 310 ε)",
        ),
        (
            pair(
                replayed("aa", A | {"with 1 thread": "bb"}, wide={"a": 1, "b": 1}),
                replayed("bb", B, wide={"a": 1, "b": 1}),
            ),
            "asked the same; with 1 thread, a gives the other's bits: float64 sides with neither (a 1 ε, b 1 ε)",
        ),
        (
            pair(replayed("aa", A, wide=NEAR), replayed("bb", B, wide=FAR, given="11")),
            f"given otherwise: input 0: {EACH}",
        ),
        (
            pair(replayed("aa", A, wide=NEAR), replayed("bb", B, wide=FAR, args=[tensor(), {"float": (0.5).hex()}])),
            f"asked otherwise: other 0.25 in a, 0.5 in b: {EACH}",
        ),
        (
            pair(
                replayed("aa", A, wide=NEAR),
                replayed("bb", B, wide={"a": 9.0, "b": 9.0}, args=[tensor("bfloat16")], returned=[tensor("bfloat16")]),
            ),
            BFLOAT16,
        ),
        (
            pair(replayed("aa", {AGAIN: "cc", ONCE_MORE: "dd"}), replayed("bb", B)),
            "a gives other bits each time: nondeterministic",
        ),
        (
            pair(replayed("aa", {AGAIN: "cc", ONCE_MORE: "cc"}), replayed("bb", B)),
            "a gives other bits here: another machine or version, or memory that was not kept",
        ),
        (
            pair(replayed("aa", {AGAIN: "cc", "with 2 threads": "aa"}), replayed("bb", B)),
            "a replays to its bits only with 2 threads",
        ),
        (
            Case("", {"b": replayed("bb", B, wide={"b": 0.0})}, lacks="a"),
            "a has no such operation; b is 0 ε from float64",
        ),
        (
            Case("", {"b": replayed("bb", B, wide={"b": float("inf")})}),
            "b is not finite, in float64 it is",
        ),
        (
            Case("", {"a": replayed("aa", A | {"with 2 threads": "cc"})}),
            "a replays to its bits; its bits depend on the way: with 2 threads",
        ),
        (Case("", {"a": Replayed(replayed("aa", {}).call, {AGAIN: {"refused": "no"}})}), "not replayed: no"),
        (
            Case(
                "",
                {
                    "a": replayed(
                        "aa",
                        A | {"with 1 thread": "bb"},
                        wide={"a": 1.0},
                        planned=["?", {"outputs_a": ["bb"], "outputs_b": 3}],
                    )
                },
            ),
            "a is 1 ε from float64; with 1 thread, it gives the other run's bits",
        ),
    ],
)
def test_verdicts(case: Case, said: str) -> None:
    assert verdict(case) == said


def test_a_digest_that_the_log_does_not_have_is_no_difference() -> None:
    assert replayed("-", A).certified


def test_the_results_that_are_other_are_numbered() -> None:
    several = replayed("aa", {}, digests={"returned": ["aa", "-", "bb"], "left": []})
    found = Replayed(several.call, {AGAIN: {"returned": ["aa", "xx", "cc"], "written": []}})
    assert found.odd == "other bits in result 2 of 3"


def test_whose_bits_a_replay_gives() -> None:
    assert certificate(pair(replayed("aa", B), replayed("bb", B)), "a") == "replays to the other's bits"
    assert certificate(pair(replayed("aa", {AGAIN: "cc"}), replayed("bb", B)), "a") == "replays to other bits"
    assert (
        certificate(pair(replayed("aa", A), replayed("aa", A)), "a") == "replays to its bits, which the other has too"
    )


def test_arguments_are_told_by_the_names_of_the_schema() -> None:
    other = replayed("bb", B, args=[tensor(shape=(4, 1)), {"float": (0.25).hex()}], kwargs={"scale": {"float": "nan"}})
    assert asked_otherwise(pair(replayed("aa", A), other)) == [
        "shape of self [4] in a, [4, 1] in b",
        "scale None in a, nan in b",
    ]


def kept(folder: Path, values: Any, **other: Any) -> Replayed:
    """A call whose input has these values, and whose result has them twice."""
    trees: list[dict[str, Any]] = []
    for held in (values, values * 2):
        name = f"{held.tobytes().hex()[:16]}{len(trees)}"
        (folder / f"{name}.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}" + held.tobytes())
        form = {"dtype": "float32", "shape": list(held.shape), "strides": [1], "offset": 0, "storage": name}
        trees.append({"tensor": form})
    one = replayed(**other, args=trees[:1], returned=trees[1:])
    return Replayed(one.call, one.results, folder)


def test_inputs_and_results_are_compared_by_their_elements(tmp_path: Path) -> None:
    x = np.arange(1, 5, dtype=np.float32)
    a, b = (kept(tmp_path, one, bits=bits, gave={AGAIN: bits}, given=bits) for one, bits in ((x, "aa"), (-x, "bb")))
    assert list(element_lines(pair(a, b))) == [
        "input 0: 4 of 4 elements differ: the negative of a",
        "result: 4 of 4 elements differ: the negative of a",
    ]


def test_of_an_operation_that_one_run_alone_has_the_result_is_compared_with_its_input(tmp_path: Path) -> None:
    alone = Case("", {"b": kept(tmp_path, np.arange(1, 5, dtype=np.float32), bits="bb", gave=B)}, lacks="a")
    assert list(element_lines(alone)) == []
    roll = kept(tmp_path, np.arange(1, 5, dtype=np.float32), bits="bb", gave=B)
    (tree,) = roll.call["returned"]
    (tmp_path / f"{tree['tensor']['storage']}.safetensors").write_bytes(
        (2).to_bytes(8, "little") + b"{}" + np.array([4, 1, 2, 3], np.float32).tobytes()
    )
    assert list(element_lines(Case("", {"b": roll}))) == ["its result is its input, rolled by 1 along dimension 0"]


def test_a_hostile_key_is_shown_harmlessly() -> None:
    out = io.StringIO()
    write_text([], [Case("\x1b[31mred", {"a": replayed("aa", A, key="\x1b[2J")})], out)
    assert "\x1b" not in out.getvalue()


def test_an_infinite_distance_is_null_in_json() -> None:
    case = Case("", {"a": replayed("aa", A, wide={"a": float("inf")})})
    out = io.StringIO()
    write_json([], [case], out)
    assert json.loads(out.getvalue()) == as_json([], [case])
    assert as_json([], [case])["cases"][0]["sides"]["a"]["from_float64"] == {"a": None}


def test_a_survey_counts_and_names_the_reasons() -> None:
    out = io.StringIO()
    write_survey("kept", [replayed("aa", A)] * 3 + [replayed("aa", B)], 2, out)
    assert out.getvalue().splitlines() == [
        "kept: 3 of 4 operations replay to the bits of the log (75.0 %)",
        "  2 operations could not be kept: `missed` in its manifest says why",
        "  1 × aten::mul.Tensor: other bits",
    ]
