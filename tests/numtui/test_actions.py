"""The registry of actions, and that everything which is made of it agrees with it."""

from __future__ import annotations

import string
import textwrap
from functools import partial
from pathlib import Path

import pytest

from matchers.status import Status
from numtui.actions import (
    ACTIONS,
    KEYS_OF_VIM,
    by_group,
    first_keys,
    help_of,
    key_label,
    offered,
    remapped,
    sequences,
    without_effect,
)
from numtui.inputs import OpenRequest
from numtui.text.glyphs import GLYPHS, WORDS
from numtui.tui.key_reader import KeyReader
from tests.conftest import REPOSITORY
from tests.numtui.fakes import comparison_of
from tests.numtui.readme_keys import main, readme_table, update_readme

README = REPOSITORY / "README.md"

FORBIDDEN = ("ctrl+a", "ctrl+b", "ctrl+enter", "shift+enter")
"""Keys that screen and tmux take, and keys that need a newer protocol."""


def test_no_key_does_two_things() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    beginnings = {sequence[0] for sequence in sequences()}
    names = {"]": "right_square_bracket", "[": "left_square_bracket"}
    assert not {names.get(k, k) for k in keys} & beginnings, "a key that begins a sequence is no command of its own"


def test_names_are_unique() -> None:
    names = [name for action in ACTIONS for name in (action.name, *action.command)]
    assert len(names) == len(set(names))


def test_no_key_that_screen_tmux_or_an_old_terminal_swallows() -> None:
    for action in ACTIONS:
        for key in action.keys:
            assert key not in FORBIDDEN
            assert not key.startswith("alt+")


def test_every_action_has_a_callable_and_a_binding_with_its_id(tmp_path: Path) -> None:
    from matchers.rules.file import RuleFile
    from numtui.session.session import Session
    from numtui.tui.screens.explorer import Explorer

    request = OpenRequest(
        path_a="a.log", path_b="b.log", name_a="a", name_b="b", rules_path=tmp_path / "overrides.yaml"
    )
    session = Session(comparison_of([Status.EQUAL]), RuleFile.empty(request.rules_path))
    does = Explorer(session, request).dispatch.by_id
    bound = {binding.id: binding for binding in Explorer.BINDINGS if not isinstance(binding, tuple)}
    for action in ACTIONS:
        assert callable(does[action.id])
        if any(" " not in key for key in action.keys):
            assert bound[action.id].description == action.help
    assert set(bound) <= {action.id for action in ACTIONS} == set(does)


def test_help_tells_every_action_with_its_keys() -> None:
    from numtui.tui.screens.pager import help_lines

    text = "\n".join("".join(piece for piece, _ in line) for line in help_lines())
    told = [line for _, lines in help_of(ACTIONS) for line in lines]
    assert sorted(a.id for line in told for a in line.actions) == sorted(a.id for a in ACTIONS), "each of them once"
    for line in told:
        assert line.help in text
        for key in (key for action in line.actions for key in action.label.split(" ")):
            assert key in line.label.split(" ")
            assert key in text


def test_the_help_of_keys_is_short() -> None:
    *with_keys, (heading, without) = help_of(ACTIONS)
    assert heading == "Without a key"
    assert {line.actions[0].keys for line in without} == {()}
    assert sum(len(lines) for _, lines in with_keys) <= 55


def test_related_keys_share_a_line_while_all_of_them_have_one() -> None:
    def labels(**keys: tuple[str, ...]) -> dict[str, str]:
        return {line.actions[0].id: line.label for _, lines in help_of(remapped(keys)) for line in lines}

    assert labels()["next_cause"] == "o O C"
    assert labels()["next_red"] == "n N ]c [c"
    moved = labels(previous_cause=("Z",))
    assert moved["next_cause"] == "o Z C"
    fewer = labels(causes=())
    assert (fewer["next_cause"], fewer["previous_cause"], fewer["causes"]) == ("o", "O", ":causes")
    told = [line.help for _, lines in help_of(remapped({"causes": ()})) for line in lines]
    assert "go to the previous first cause" in told, "each says what it does itself"


def test_a_line_of_the_help_is_led_by_an_action_of_its_group() -> None:
    of = {action.id: action for action in ACTIONS}
    led = {action.beside: action for action in ACTIONS if action.beside}
    for name, action in led.items():
        assert name is not None
        assert of[name].group == action.group
    assert set(led) == {action.id for action in ACTIONS if action.line}


def test_a_key_without_effect_names_the_action_that_was_meant() -> None:
    plain = "does nothing here: ? lists the keys"
    assert without_effect(ACTIONS, "Q") == f"Q {plain}"
    moved = "L does nothing here; `:raw`: show the row's raw log records, a page of `I`"
    assert without_effect(ACTIONS, "L") == moved
    assert without_effect(remapped({"raw": ("Z",)}), "L") == f"L {plain}", "who gave it a key knows it"
    folds = "fold or unfold each stretch of equal rows, or of another form"
    assert without_effect(ACTIONS, "zc") == f"zc does nothing here; =: {folds}"
    assert without_effect(remapped({"fold": ("F5",)}), "zo").startswith("zo does nothing here; F5: fold")
    assert without_effect(offered(ACTIONS, single=True, red=True), "zo") == f"zo {plain}"
    used = {key for action in ACTIONS for key in action.keys}
    formers = [action.former for action in ACTIONS if action.former]
    assert len(formers) == len(set(formers))
    assert not used & set(formers)


def test_keys_of_vim_that_are_explained_are_bound_to_nothing() -> None:
    assert not {key.replace(" ", "") for action in ACTIONS for key in action.keys} & set(KEYS_OF_VIM)
    assert set(KEYS_OF_VIM.values()) <= {action.id for action in ACTIONS}


def test_help_begins_with_ten_keys_and_the_signs_on_the_smallest_usual_terminal() -> None:
    from numtui.text.lines import width_of
    from numtui.tui.screens.pager import help_lines

    first = ["".join(piece for piece, _ in line) for line in help_lines()][: 24 - 2]
    assert max(map(width_of, first)) <= 80
    assert [line.split()[0] for line in first[1:11]] == ["o", "n", "w", "enter", "p", "ctrl+o", "/", "f", "s", "q"]
    text = "\n".join(first)
    for status in Status:
        assert status is Status.PENDING or GLYPHS[status] in text
        assert WORDS[status] in text
    assert not any(action.essence.endswith((" ", ";", ":")) for action in first_keys())
    moved = first_keys(remapped({"quit": (), "why": ("W",)}))
    assert [action.id for action in moved][-1] == "suggestions", "what has no key is no first key"
    assert [action.keys[0] for action in moved][2] == "W"


def test_footer_shows_only_keys_that_exist() -> None:
    assert all(action.keys for action in ACTIONS if action.footer is not None)


def test_one_log_is_offered_only_what_does_something_there() -> None:
    def names(*, single: bool, red: bool) -> set[str]:
        return {action.id for action in offered(ACTIONS, single=single, red=red)}

    every = {action.id for action in ACTIONS} - {"next_rank", "previous_rank"}
    assert names(single=False, red=False) == names(single=False, red=True) == every
    alone = names(single=True, red=True)
    assert not alone & {"mark", "rules", "suggestions", "causes", "toggle_equal", "toggle_only_b", "fold", "save"}
    assert {"next_red", "why", "sort", "plot", "toggle_red", "toggle_other"} <= alone
    assert alone - names(single=True, red=False) == {"next_red", "previous_red", "next_cause", "previous_cause"}
    labels = {action.id: action.footer for action in offered(ACTIONS, single=True, red=True)}
    assert labels["sort"] == "sort", "there is room for it where no rules are"
    assert labels["down"] is None


def test_the_keys_of_ranks_are_offered_where_there_are_several() -> None:
    several = {action.id: action for action in offered(ACTIONS, single=False, red=True, ranks=True)}
    assert several.keys() == {action.id for action in ACTIONS}
    assert several["quit"].footer == "all ranks"
    alone = {action.id: action for action in offered(ACTIONS, single=True, red=False, ranks=True)}
    assert {"next_rank", "previous_rank"} <= alone.keys()


async def test_what_has_no_key_is_run_by_the_palette_and_by_its_name(tmp_path: Path) -> None:
    from numtui.tui.screens.palette import scores
    from tests.numtui.tui.test_app import opened, press, request

    without = [action for action in ACTIONS if not action.keys]
    assert {"raw", "comparability", "messages", "keep", "larger_error", "smaller_error"} <= {a.id for a in without}
    for action in without:
        found = scores(action.name.replace("-", " "), ACTIONS)
        assert ACTIONS[max(found, key=found.__getitem__)] is action
    ran: list[str] = []
    async with opened(request(tmp_path)) as (pilot, explorer):
        explorer.dispatch.by_id = {**explorer.dispatch.by_id, **{a.id: partial(ran.append, a.id) for a in without}}
        for action in without:
            await press(pilot, "colon", *action.name, "enter")
    assert ran == [action.id for action in without]


def test_one_log_is_told_of_one_log() -> None:
    alone = offered(ACTIONS, single=True, red=True)
    told = " ".join([a.help for a in alone] + [line.help for _, lines in help_of(alone) for line in lines])
    for word in ("both", "runs", "of b", "comparability", "confidence"):
        assert word not in told.replace("list both", "")


def test_readme_has_the_table_of_keys() -> None:
    """`python -m tests.numtui.readme_keys --readme README.md` brings it up to date."""
    text = README.read_text(encoding="utf-8")
    assert update_readme(text) == text
    assert readme_table() in text


def test_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        update_readme("no markers here")


def test_main_prints_and_rewrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.rstrip("\n") == readme_table()
    page = tmp_path / "R.md"
    page.write_text("before\n<!-- keys -->\nold\n<!-- /keys -->\nafter\n", encoding="utf-8")
    assert main(["--readme", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == f"before\n<!-- keys -->\n{readme_table()}\n<!-- /keys -->\nafter\n"


def test_groups_hold_every_action_once() -> None:
    assert [a for _, actions in by_group(ACTIONS) for a in actions] == sorted(
        ACTIONS, key=lambda a: list(dict.fromkeys(x.group for x in ACTIONS)).index(a.group)
    )


def test_labels() -> None:
    assert [key_label(k) for k in ("down", "z z", "] c", "ctrl+d", "G")] == ["↓", "zz", "]c", "ctrl+d", "G"]


class TestKeyReader:
    def test_a_count_waits_for_its_command(self) -> None:
        reader = KeyReader()
        assert [reader.feed(k) for k in "123"] == [True, True, True]
        assert reader.pending == "123"
        assert reader.feed("G") is False, "a command of its own, for the bindings"
        assert reader.count() == 123
        assert reader.count() is None, "a count is used once"

    def test_a_digit_alone_is_a_command_after_a_pause(self) -> None:
        reader = KeyReader()
        reader.feed("3")
        action = reader.settle()
        assert action is not None
        assert action.id == "toggle_equal"
        assert reader.pending == ""

    def test_a_longer_count_goes_on_waiting(self) -> None:
        reader = KeyReader()
        reader.feed("1")
        reader.feed("2")
        assert reader.settle() is None
        assert reader.pending == "12"

    def test_a_digit_that_is_no_command_goes_on_waiting(self) -> None:
        reader = KeyReader()
        reader.feed("7")
        assert reader.settle() is None
        assert reader.pending == "7"

    def test_nought_begins_no_count(self) -> None:
        reader = KeyReader()
        assert reader.feed("0") is False
        reader.feed("1")
        assert reader.feed("0") is True
        assert reader.count() == 10

    def test_sequences(self) -> None:
        reader = KeyReader()
        assert reader.feed("right_square_bracket") is True
        assert reader.pending == "]"
        action = reader.feed("c")
        assert not isinstance(action, bool)
        assert action.id == "next_red"

    def test_a_count_in_front_of_a_sequence(self) -> None:
        reader = KeyReader()
        for key in ("4", "left_square_bracket"):
            assert reader.feed(key) is True
        action = reader.feed("c")
        assert not isinstance(action, bool)
        assert (action.id, reader.count()) == ("previous_red", 4)

    def test_an_unknown_sequence_is_dropped_with_its_key(self) -> None:
        reader = KeyReader()
        reader.feed("z")
        assert reader.feed("q") is True, "zq must not quit"
        assert reader.pending == ""

    def test_clear(self) -> None:
        reader = KeyReader()
        assert reader.clear() is False
        reader.feed("z")
        assert reader.clear() is True
        assert reader.pending == ""

    def test_a_count_is_never_longer_than_any_log(self) -> None:
        reader = KeyReader()
        for _ in range(50):
            reader.feed("9")
        assert reader.count() == 9_999_999


def key_map() -> str:
    """All keys of the list that every terminal sends, with their actions, and those that are free."""
    keys = [*map(chr, range(33, 127)), "space", *(f"ctrl+{letter}" for letter in string.ascii_lowercase)]
    taken: dict[str, list[str]] = {}
    for action in ACTIONS:
        for key in action.keys:
            taken.setdefault(key.split(" ")[0], []).append(action.name)
    told = textwrap.fill(" · ".join(f"{key} {'/'.join(taken[key])}" for key in keys if key in taken), 150)
    # Terminals, screen and tmux take these, or send them for enter, tab, escape and backspace.
    kept = {f"ctrl+{letter}" for letter in "abhijmqs"}
    free = textwrap.fill(" ".join(key for key in keys if key not in taken and key not in kept), 150)
    return f"Keys of the list, taken:\n{told}\nFree (what is rare goes to the palette):\n{free}\n"


def test_the_source_of_the_docs_has_every_key_taken_and_free() -> None:
    page = (REPOSITORY / "docs" / "explorer.md").read_text(encoding="utf-8")
    assert f"<!--\n{key_map()}-->\n" in page, key_map()
