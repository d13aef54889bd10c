"""Report on the weights of single moments as JSON and JSON Lines (docs/weights.md, docs/schema/states.schema.json)."""

from __future__ import annotations

import json
import math
from typing import Any, Final, TextIO

from matchers.weights.numbers import Numbers, Outcome
from matchers.weights.partners import How
from matchers.weights.state_compare import Judged, StateComparison
from numtui import __version__
from numtui.report.states import StateMatrix, verdict

__all__ = ["VERSION", "write_json", "write_jsonl"]

VERSION: Final = 1


def write_json(matrix: StateMatrix, out: TextIO) -> None:
    """Write one object with everything, in ASCII."""
    report = {
        "version": VERSION,
        "numtui": __version__,
        "reference": matrix.names[matrix.reference],
        "agrees": matrix.agrees,
        "states": [
            {"name": name, "path": state.path, "form": state.form, "tensors": len(state.weights)}
            for name, state in zip(matrix.names, matrix.states, strict=True)
        ],
        "comparisons": [_comparison(name, c) for name, c in matrix.others],
    }
    out.write(json.dumps(report, indent=1, allow_nan=False) + "\n")


def _comparison(name: str, c: StateComparison) -> dict[str, Any]:
    trivial = (How.NAME, Outcome.EQUAL)
    return {
        "name": name,
        "verdict": verdict(c),
        "agrees": c.agrees,
        **{outcome.name.lower(): len(c.of(outcome)) for outcome in Outcome},
        "different_pairs": [_pair(one) for one in c.of(Outcome.DIFFERENT)],
        "other_pairs": [
            _pair(one)
            for one in c.judged
            if one.numbers.outcome is not Outcome.DIFFERENT and (one.pair.how, one.numbers.outcome) != trivial
        ],
        "only_in_reference": [weight.name for weight in c.only_a],
        "only_here": [weight.name for weight in c.only_b],
        "only_in_part": [{"side": side, "name": of, "without": gap, "of": all_} for side, of, gap, all_ in c.gaps],
        "problems": list(c.problems),
    }


def write_jsonl(matrix: StateMatrix, out: TextIO) -> None:
    """Write a line for each pair of weights, and for each weight without one."""
    for name, c in matrix.others:
        for one in c.judged:
            _write({"state": name, **_pair(one)}, out)
        for side, weights in (("a", c.only_a), ("b", c.only_b)):
            for weight in weights:
                _write({"state": name, side: weight.name, "outcome": "no_partner"}, out)


def _pair(one: Judged) -> dict[str, Any]:
    pair, numbers = one.pair, one.numbers
    return {
        "a": pair.a.name,
        "b": pair.b.name,
        "by": pair.how.value,
        "whole": pair.whole,
        "place": None if pair.region is None else pair.region.text,
        "outcome": numbers.outcome.name.lower(),
        **_numbers(numbers),
    }


def _numbers(numbers: Numbers) -> dict[str, Any]:
    return {
        "elements": numbers.numel,
        "differing": numbers.differing,
        # JSON has neither NaN nor infinity: both are null
        "error": numbers.error if math.isfinite(numbers.error) else None,
        "ulp": numbers.ulps,
        "index": numbers.inside,
        "zeros": None if numbers.a is None or numbers.b is None else [numbers.a[0], numbers.b[0]],
        "nan": None if numbers.a is None or numbers.b is None else [numbers.a[1], numbers.b[1]],
        "problem": numbers.problem or None,
    }


def _write(value: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value, separators=(",", ":")) + "\n")
