"""The explorer in a real terminal, told as a story: a wrong rule, seen, cut, mended by hand, saved, opened again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import training_step, write_log
from tests.pty.tmux import Terminal

NUMTUI = [sys.executable, "-m", "numtui"]

WRONG = """\
# agreed with Kim on Monday
version: 1
pairs:
  - a: layers.0.feed_forward.w1/op_0_mm   # this is the wrong one
    b: layers.1.feed_forward.w3/op_0_mm
    why: a guess

ignore:   # nothing yet
"""
"""The shipped example has no red row without this rule."""

SIZES = [(80, 24), (120, 40), (200, 50)]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "overrides.yaml"
    path.write_text(WRONG, encoding="utf-8")
    return path


def explorer(logs: tuple[str, str], rules: Path, size: tuple[int, int] = (120, 40), **env: str) -> Terminal:
    command = [*NUMTUI, *logs, "-r", str(rules), "--name-a", "eager", "--name-b", "traced"]
    return Terminal(command, columns=size[0], rows=size[1], env=env)


@pytest.mark.parametrize("size", SIZES)
def test_the_story(example_logs: tuple[str, str], rules: Path, size: tuple[int, int]) -> None:
    with explorer(example_logs, rules, size) as t:
        t.wait_for("✗ 1 red")
        t.keys("n")
        t.wait_for("red 1/1")
        # Cut it: the effect is said first.
        t.keys("x")
        t.wait_for("1 fewer red")
        t.keys("Enter")
        t.wait_for("✗ 0 red")
        t.keys("u")
        t.wait_for("✗ 1 red")
        # The same by hand: the right partner is the row that only b has.
        t.keys("m")
        t.wait_for("mark at #")
        t.type("/w1/op_0_mm")
        t.keys("Enter", "C-o")
        t.type("f")
        t.type("is:only-b w1")
        t.keys("Enter")
        t.wait_for("filter: is:only-b w1")
        t.keys("m")
        t.wait_for("1 fewer red")
        t.keys("Enter")
        t.wait_for("✗ 0 red")
        t.keys("C-s")
        t.wait_for("saved to")
        assert t.exit_code("q") == 0
    text = rules.read_text(encoding="utf-8")
    assert text.startswith("# agreed with Kim on Monday\nversion: 1\n")
    assert "ignore:   # nothing yet" in text
    assert "layers.1.feed_forward.w3/op_0_mm" not in text
    with explorer(example_logs, rules, size) as t:
        t.wait_for("✗ 0 red")
        t.keys("r")
        # Both keys of the pair, in full, below the list.
        t.wait_for("layers.0.feed_forward.w1/op_0_mm ↔ layers.0.feed_forward.w1/op_0_mm")
        t.keys("q")
        t.wait_for("n next red")
        assert t.exit_code("q") == 0


def test_without_colours_everything_can_still_be_read(example_logs: tuple[str, str], rules: Path) -> None:
    with explorer(example_logs, rules, NO_COLOR="1") as t:
        t.wait_for("✗ 1 red")
        t.keys("n")
        cause = "✗ layers.0.feed_forward.w1/op_0_mm"
        screen = t.wait_for(lambda screen: "red 1/1" in screen and cause in screen)
        line = next(line for line in screen.splitlines() if cause in line)
        assert "●" in line
        assert "layers.1.feed_forward.w3/op_0_mm" in line
        styled = t.screen(styles=True)
        assert "\x1b[31m" not in styled
        assert "\x1b[38" not in styled
        assert "\x1b[40m" not in styled, "no black behind the text"


def test_keys_in_a_burst_keep_their_order(example_logs: tuple[str, str], rules: Path) -> None:
    """A slow line delivers many keys at once: the letters of a search are no commands, and q is one of them."""
    with explorer(example_logs, rules) as t:
        t.wait_for("✗ 1 red")
        t.type("/wq")
        t.wait_for("/wq")
        t.keys("Escape")
        t.type("12G/w3\r;;:quit")
        t.wait_for(":quit")
        t.keys("Enter")
        assert t.exit_code() == 1


def test_escape_and_the_next_key_at_once(example_logs: tuple[str, str], rules: Path) -> None:
    """As over a slow line: for the terminal that is alt and the key."""
    with explorer(example_logs, rules) as t:
        t.wait_for("✗ 1 red")
        t.type("f")
        t.wait_for("filter: ")
        t.type("\x1bn")
        t.wait_for("red 1/1")
        t.type("=?")  # unfolded, the last line is the last row
        t.wait_for("q close")
        t.type("\x1bG")
        t.wait_for("backward")


def test_escape_and_any_next_key_at_once_leave_every_page(example_logs: tuple[str, str], rules: Path) -> None:
    def asks(sign: str) -> Callable[[str], bool]:
        return lambda screen: any(line.strip() == sign for line in screen.splitlines()[-3:])

    with explorer(example_logs, rules) as t:
        t.wait_for("✗ 1 red")
        for opening, shown in (
            ("v", "error over depth"),
            ("I", "tab next"),
            ("r", "Rules"),
            ("s", "Suggestions"),
            ("C", "first causes (1)"),
        ):
            t.type(opening)
            t.wait_for(shown)
            t.type("\x1b:")  # the line for commands
            t.wait_for(asks(":"))
            t.type("\x1b\x1b")
            t.wait_for(lambda screen: not asks(":")(screen))


def test_keys_before_the_logs_are_read_are_kept(example_logs: tuple[str, str], rules: Path) -> None:
    with explorer(example_logs, rules) as t:
        t.type("j/wq\r")
        t.wait_for("layers › 0 › attention › qkv_linear › wqkv")
        t.wait_for("✗ 1 red")


def test_a_read_only_place_is_said_and_nothing_is_lost(example_logs: tuple[str, str], tmp_path: Path) -> None:
    with explorer(example_logs, tmp_path / "no" / "such" / "folder.yaml") as t:
        t.wait_for("✗ 0 red")
        t.keys("i", "Enter")
        t.wait_for("rules not saved")
        t.keys("C-s")
        t.wait_for("not saved:")
        t.type(f":w {tmp_path / 'mine.yaml'}\r")
        t.wait_for("saved to")
        assert t.exit_code("q") == 0
    assert "ignore:" in (tmp_path / "mine.yaml").read_text(encoding="utf-8")


def test_help_and_a_small_terminal(example_logs: tuple[str, str], rules: Path) -> None:
    with explorer(example_logs, rules, (80, 24)) as t:
        t.wait_for("✗ 1 red")
        t.keys("?")
        t.wait_for("q close")
        t.keys("q")
        t.wait_for("n next red")
        t.resize(40, 8)
        t.wait_for("too small")
        t.resize(100, 30)
        t.wait_for("? help")
        assert t.exit_code("q") == 1


def test_a_larger_pair_opens_with_rows_at_once(tmp_path: Path, rules: Path) -> None:
    ops = training_step(layers=300)
    logs = tuple(str(write_log(tmp_path / side / "rank_0_activations.log", ops)) for side in "ab")
    rules.write_text("version: 1\n", encoding="utf-8")
    with explorer((logs[0], logs[1]), rules, (200, 50)) as t:
        t.wait_for("layers.0.attention.wq/op_0_mm")
        t.keys("G")
        t.wait_for("✗ 0 red")
        t.keys("G")
        t.wait_for("layers.0.attention.wq/op_1_mm")
        assert t.exit_code("q") == 0


@pytest.mark.parametrize(
    ("size", "env", "point"),
    [
        ((80, 24), {"NO_COLOR": "1", "LC_ALL": "C"}, "@"),
        ((200, 50), {"TERM": "xterm-16color", "LC_ALL": "C.UTF-8"}, "●"),
    ],
)
def test_the_shape_of_a_divergence(
    example_logs: tuple[str, str], rules: Path, size: tuple[int, int], env: dict[str, str], point: str
) -> None:
    """From a red row to its first cause, to its neighbours, over the plot, and back to where it began."""
    with explorer(example_logs, rules, size, **env) as t:
        t.wait_for("✗ 1 red")
        t.type("C")
        t.wait_for("first causes (1)")
        t.keys("Enter")
        t.wait_for("red 1/1")
        t.type("Mc")
        t.wait_for("marked c")
        t.type("w")
        t.wait_for("no other red row explains it")
        t.type("qP")
        t.wait_for("consumers, by input")
        t.type("q")
        t.type("g")
        t.wait_for("red –/1")
        t.type("vo")

        def drawn(screen: str) -> bool:
            plotted = point in "".join(screen.splitlines()[1:-5])
            return "error over depth" in screen and "w1/op_0_mm" in screen and plotted

        shown = t.wait_for(drawn)
        if env["LC_ALL"] == "C":
            assert all(line.isascii() for line in shown.splitlines()[:-5])
        t.keys("Enter")
        t.wait_for("red 1/1")
        t.type('"odd\r')
        t.wait_for("note: odd" if size[0] > 80 else "noted")
        t.type("G'c")
        t.wait_for("red 1/1")
        t.type("J")
        t.wait_for("jumps, latest first")
        t.type("q")
        t.wait_for(lambda screen: "jumps, latest first" not in screen)
        assert t.exit_code("q") == 1
