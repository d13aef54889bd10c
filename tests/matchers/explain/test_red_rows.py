"""Sentences of first causes about inputs of which norms alone are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchers.comparison import compare
from matchers.explain.sentences import headline
from matchers.logs.parser import read_log

_STACK = "\n  # File: /home/u/model.py:7 in forward, code: x = f(x)\n"


def _log(path: Path, *, negated: bool) -> Path:
    """An addition whose second input is negated or not, which no L1 norm shows."""
    x, y, z, out = (f"t${k}: f32[2, 4]" for k in range(4))
    call = "    aten::{}({})  ->  {}  # {{'input_hash': (({},), {{}}), 'hash': {}}}\n"
    lines = ["  [nn.Mod] M\n", call.format("relu", "t$9: f32[2, 4]", x, 1.5, 2.5), call.format("exp", x, y, 2.5, 3.25)]
    lines += [_STACK, call.format("neg", y, z, 3.25, 3.25)] if negated else []
    lines.append(call.format("add.Tensor", f"{x}, {z if negated else y}", out, "2.5, 3.25", 4.5 if negated else 5.75))
    path.write_text("".join(lines))
    return path


def _said(a: Path, b: Path) -> str:
    c = compare(read_log(a), read_log(b))
    (row,) = np.flatnonzero(c.cause).tolist()
    return headline(c, row)


def test_what_one_run_alone_does_before_is_named_as_norms_do_not_see_it(tmp_path: Path) -> None:
    a, b = _log(tmp_path / "a", negated=False), _log(tmp_path / "b", negated=True)
    assert _said(a, b).endswith("all inputs agree in L1 norms, but b alone runs neg before (model.py:7)")
    assert _said(b, a).endswith("all inputs agree in L1 norms, but a alone runs neg before (model.py:7)")
