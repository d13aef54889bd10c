"""What was typed as an answer is kept."""

from __future__ import annotations

from numtui.session.input_history import TypedLines, joined


def test_a_line_is_kept_once_at_its_last_place() -> None:
    typed = TypedLines()
    for text in ("op:mm", "status:red", "  ", "op:mm"):
        typed.add("filter", text)
    typed.add("search", "norm")
    assert typed.of("filter") == ("status:red", "op:mm")
    assert typed.of("search") == ("norm",)
    assert typed.of("command") == ()


def test_two_sittings_are_joined_and_the_oldest_lines_go() -> None:
    older = {"filter": tuple(f"op:{n}" for n in range(60)), "note": ("look",)}
    both = joined(older, {"filter": ("op:59", "op:3", "new")})
    assert both["filter"][-3:] == ("op:59", "op:3", "new")
    assert len(both["filter"]) == 50
    assert both["note"] == ("look",)
