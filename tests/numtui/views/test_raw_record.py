"""What two logs say of a row, as it stands there."""

from __future__ import annotations

from pathlib import Path

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.single_run import single_run
from numtui.views.raw_record import raw_lines
from tests.builders import op, write_log


def test_lines_that_differ_are_marked(tmp_path: Path) -> None:
    for name, second in (("a", 2.0), ("b", 2.5)):
        write_log(tmp_path / f"{name}.log", [op("m/op_0_mm", 1.0), op("m/op_1_add", second, location="x.py:1")])
    c = compare(read_log(tmp_path / "a.log"), read_log(tmp_path / "b.log"))
    shown = ["".join(text for text, _ in line) for line in raw_lines(c, 1)]
    at = int(c.a.line[1])
    assert shown[0] == f" a  {tmp_path}/a.log:{at}"
    assert shown[1] == "   [m/op_1_add]"
    assert "     Location: x.py:1" in shown
    assert [line for line in shown if "L2 norm" in line and line.startswith(" ≠   L2 norm: ")]
    assert not any(line.startswith(" ≠") for line in ("".join(t for t, _ in n) for n in raw_lines(c, 0)))


def test_a_log_that_has_gone_says_so_beside_the_other(tmp_path: Path) -> None:
    paths = [write_log(tmp_path / f"{name}.log", [op("m/op_0_mm", 1.0)]) for name in "ab"]
    c = compare(read_log(paths[0]), read_log(paths[1]))
    paths[1].unlink()
    shown = ["".join(text for text, _ in line) for line in raw_lines(c, 0)]
    assert "   [m/op_0_mm]" in shown
    assert any(line.startswith(f" b  {paths[1]}: cannot be read again") for line in shown)
    alone = single_run(c.a)
    titles = [line[0][0] for line in raw_lines(alone, 0) if line and line[0][1] == "title"]
    assert titles == [f" a  {paths[0]}:5"]
