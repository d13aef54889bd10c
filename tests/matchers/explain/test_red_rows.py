"""Sentences of first causes about inputs of which norms alone are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchers.comparison import compare
from matchers.explain.sentences import headline
from matchers.logs.parser import read_log

_STACK = "\n  # File: /home/u/model.py:7 in forward, code: x = f(x)\n"


def _log(path: Path, extra: str = "", between: bool = False) -> Path:
    """An addition, with another operation or none before its second input, of which no L1 norm tells.

    Args:
        between: another operation, which both runs have, reads its result.
    """
    x, y, z, out = (f"t${k}: f32[2, 4]" for k in range(4))
    call = "    aten::{}({})  ->  {}  # {{'input_hash': (({},), {{}}), 'hash': {}}}\n"
    lines = ["  [nn.Mod] M\n", call.format("relu", "t$9: f32[2, 4]", x, 1.5, 2.5), call.format("exp", x, y, 2.5, 3.25)]
    lines += [_STACK, call.format(extra, y, z, 3.25, 3.25)] if extra else []
    made = z if extra else y
    if between:
        lines.append(call.format("mm", made, "t$7: f32[2, 4]", 3.25, 3.25))
        made = "t$7: f32[2, 4]"
    lines.append(call.format("add.Tensor", f"{x}, {made}", out, "2.5, 3.25", 4.5 if extra else 5.75))
    path.write_text("".join(lines))
    return path


def _said(a: Path, b: Path) -> str:
    c = compare(read_log(a), read_log(b))
    (row,) = np.flatnonzero(c.cause).tolist()
    return headline(c, row)


def test_what_one_run_alone_does_is_named_as_norms_do_not_see_it(tmp_path: Path) -> None:
    a, b = _log(tmp_path / "a"), _log(tmp_path / "b", "neg")
    said = "LIKELY CAUSE: only {} has this operation; norms miss signs and order, and its consumers diverge"
    assert (_said(a, b), _said(b, a)) == (said.format("b"), said.format("a"))
    a, b = _log(tmp_path / "c", between=True), _log(tmp_path / "d", "neg", between=True)
    said = "LIKELY CAUSE: only {} has this operation; norms miss signs and order, and red rows follow"
    assert (_said(a, b), _said(b, a)) == (said.format("b"), said.format("a"))


def test_a_copy_that_one_run_alone_makes_is_no_cause_and_is_named(tmp_path: Path) -> None:
    said = _said(_log(tmp_path / "a"), _log(tmp_path / "b", "clone"))
    assert said.endswith("all inputs agree in L1 norms, but b alone runs clone before (model.py:7)")
