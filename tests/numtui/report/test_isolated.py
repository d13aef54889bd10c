"""Page of an isolation, and the screen that leads to the explorer."""

from __future__ import annotations

import io
from pathlib import Path

from numtui.inputs import OpenRequest
from numtui.report.isolated import write_html, write_text
from numtui.report.isolation import Found, Isolation
from numtui.report.own_errors import OwnError
from numtui.session.isolated import IsolatedCursor
from numtui.views.isolated import isolated_lines

REQUEST = OpenRequest(path_a="", path_b="", name_a="", name_b="", rules_path=Path("rules.yaml"), color=False)
LAST = OpenRequest(path_a="a.log", path_b="b.log", name_a="ref", name_b="run_1", rules_path=Path("rules.yaml"))
FOUND = Isolation(
    ("runs/a", "train.py <b>"),
    2,
    [
        Found("m/op_3_mul", "m/op_3_mul", (3,), "m", "forward", "vit.py:62", "0.25 in a", place=(7, None)),
        Found("", "\x1bembed/op_0_roll", (2, 5), "embed", "forward", "vit.py:50", "only b", True, (None, 28),
              also=tuple("wxyz")),
        Found("", "", (), "head", "forward", "", "no operation tells why"),
    ],
    12,
    [OwnError("norm", 0.0, 2.0, 0.0, "float32"), OwnError("blocks.1", 6e4, 2.7e5, None, "float32")],
    ["blocks.1"],
    {"embed: inputs x": "another shape"},
    "There may be more causes.",
    {"blocks.1": (9, None)},
    16.0,
)  # fmt: skip


def test_the_page_has_causes_modules_and_what_is_open() -> None:
    out = io.StringIO()
    write_html(FOUND, out)
    page = out.getvalue()
    assert (
        '<h1>runs/a ⇄ train.py &lt;b&gt;</h1><p id="result" class="red">3 independent causes in 2 captures</p>' in page
    )
    assert "<li><strong><code>m/op_3_mul</code></strong><br><code>forward, vit.py:62</code>" in page
    assert "<td>blocks.1</td><td>6e+04</td><td>2.7e+05</td><td>-</td><td>float32</td>" in page
    assert "only b; also in w, x, y and 1 more</li>" in page
    assert "There may be more causes." in page
    assert "<p>and 1 module with rounding alone, at most 2 ε</p>" in page
    assert "\x1b" not in page
    assert "<script" not in page


def test_every_line_of_the_screen_leads_to_its_row() -> None:
    cursor = IsolatedCursor(FOUND, LAST)
    opened = []
    for at in range(len(cursor.items)):
        cursor.go_to(at)
        lines, items = isolated_lines(cursor, 80, 24)
        assert (len(lines), len(items)) == (24, 24)
        chosen = [
            number for number, line in zip(items, lines, strict=True) if any(role == "chosen" for _, role in line)
        ]
        assert chosen == [at]
        asked = cursor.opening(REQUEST)
        opened.append(asked and (asked.path_a, asked.path_b, asked.row, asked.line_b))
    assert opened == [("a.log", "b.log", 7, None), ("a.log", "b.log", None, 28), None, ("a.log", "b.log", 9, None)]
    cursor.go_to(2)
    cursor.opening(REQUEST)
    assert "no row tells" in cursor.message


def test_nothing_found_opens_the_last_comparison() -> None:
    cursor = IsolatedCursor(Isolation(("a", "b"), 1, [], 0, [], [], {}), LAST)
    lines, _ = isolated_lines(cursor, 80, 24)
    assert "No cause in 1 capture: nothing is red" in "".join(text for text, _ in lines[0])
    asked = cursor.opening(REQUEST)
    assert asked is not None
    assert (asked.path_b, asked.row) == ("b.log", None)


def test_text_says_what_is_open() -> None:
    out = io.StringIO()
    write_text(FOUND, out)
    assert "  and 1 module with rounding alone, at most 2 ε\n" in out.getvalue()
    assert "Not grafted: 1; the first: embed: inputs x: another shape\n" in out.getvalue()
