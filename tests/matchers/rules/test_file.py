"""Saving: what the user wrote stays, what was asked for is in the file, and nothing is lost when the disk says no."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.errors import RulesError
from matchers.rules.edit import edited
from matchers.rules.emit import quoted
from matchers.rules.file import LARGEST, RuleFile, RulesChangedError, parse_rules
from matchers.rules.grammar import parse_document
from matchers.rules.item import new_file
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    OpRule,
    PairRule,
    Rule,
    RuleSet,
    ToleranceRule,
)
from tests.fuzz.rule_files import CHANGES, NAMES, RULES, Change, changed, comments_of, files
from tests.needs import examples

USERS = """\
# Rules of the llama3 comparison.
version: 1

pairs:   # by hand
  # recompute is logged
  # under the short name
  - a: feed_forward/op_7_mul   # first
    b: 'layers.2.feed_forward/op_3_mul'
    why: AC

  # the collective
  - a: layers.0/op_0__allgather_base_
    b: [layers.0.attention_norm/op_1_all_gather_into_tensor_out, layers.0.attention_norm/op_2_wait_tensor]
    # it waits there
  - b: y   # the other way round
    a: x

colours: [red]   # what was I thinking
ignore:
- side: b
  op: wait_tensor
tolerance: []
ops: [{a: p, b: q}, {a: r, b: s}]  # short
# the end
"""

PAIR = PairRule(a=("new",), b=("neu",))


def after(text: str, rules: RuleSet) -> str:
    """The edited text, which must hold exactly these rules and every problem there was."""
    document = parse_document(text)
    out = edited(document, rules.rules)
    again = parse_document(out)
    assert again.rules == rules, out
    assert [p.message for p in again.rules.problems] == [
        p.message for p in document.rules.problems
    ] or document.root is None
    return out


def lines_gone(before: str, now: str) -> list[str]:
    return [line for line in before.splitlines() if line not in now.splitlines()]


def test_unchanged_rules_give_the_same_bytes() -> None:
    assert after(USERS, parse_rules(USERS)) == USERS


def test_a_new_rule_goes_to_the_end_of_its_section_in_the_style_of_the_file() -> None:
    assert after(USERS, parse_rules(USERS).adding(PAIR)) == USERS.replace(
        "    a: x\n", "    a: x\n  - a: new\n    b: neu\n"
    )


def test_flush_dashes_stay_flush() -> None:
    rule = IgnoreRule(match="*/op_0_x")
    assert after(USERS, parse_rules(USERS).adding(rule)) == USERS.replace(
        "  op: wait_tensor\n", '  op: wait_tensor\n- match: "*/op_0_x"\n'
    )


def test_a_section_in_brackets_becomes_lines() -> None:
    rules = parse_rules(USERS)
    first, second = rules.of(OpRule)
    more = OpRule(a=("t",), b=("u", "v"))
    one, two = "  - {a: p, b: q}\n", "  - {a: r, b: s}\n"
    assert f"ops:  # short\n{one}{two}  - {{a: t, b: [u, v]}}\n# the end\n" in after(USERS, rules.adding(more))
    assert f"ops:  # short\n{two}# the end\n" in after(USERS, rules.removing(first))
    assert f"ops:  # short\n{one}# the end\n" in after(USERS, rules.removing(second))
    assert "ops:  # short\n# the end\n" in after(USERS, rules.removing(first).removing(second))


def test_comments_in_brackets_become_lines_above_their_entries() -> None:
    text = (
        "pairs: [  # by hand\n  # the first\n  {a: x, # of a\n   b: y},  # sure\n\n  {a: z, b: 'w'}  # last\n"
        "  # nothing more\n  ]  # behind\n"
    )
    assert after(text, parse_rules(text).adding(PAIR)) == (
        "pairs:  # by hand\n  # the first\n  # sure\n  - {a: x, # of a\n     b: y}\n  # last\n  - {a: z, b: 'w'}\n"
        "  - {a: new, b: neu}\n  # nothing more\n  # behind\n"
    )


def test_sections_in_brackets_become_lines() -> None:
    text = "# mine\n{version: 1, # so\n ops: [{a: p, b: q}], colours: [red,\n  blue]}  # all of it\n"
    assert after(text, parse_rules(text).adding(PAIR)) == (
        "# mine\nversion: 1\n# so\nops: [{a: p, b: q}]\ncolours: [red,\n  blue]  # all of it\n"
        "\npairs:\n  - a: new\n    b: neu\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "pairs: &all [{a: x, b: y}]\n",
        "--- {pairs: [{a: x, b: y}]}\n",
        "pairs: [? a\n: x]\n",
        "{? pairs : [{a: x, b: y}]}\n",
        "ops: [{a: p, b: q}]\npairs: [{a: x, b: y}] # one\n",
    ],
)
def test_what_cannot_be_written_as_lines_is_refused_or_kept(text: str, tmp_path: Path) -> None:
    file = saved(tmp_path / "rules.yaml", text)
    try:
        now = file.save(file.rules.adding(PAIR))
    except RulesError as error:
        assert "would lose its content (" in str(error)  # noqa: PT017
        assert file.path.read_text() == text
        file.save(file.rules.adding(PAIR), force=True)
        assert (tmp_path / "rules.yaml.orig").read_text() == text
    else:
        assert now.rules == file.rules.adding(PAIR)
        assert now.text.count("# one") == text.count("# one")


def test_an_empty_list_becomes_lines() -> None:
    rule = ToleranceRule(match="a*", rtol=1e-5)
    now = after(USERS, parse_rules(USERS).adding(rule))
    assert 'tolerance:\n  - match: "a*"\n    rtol: 1.0e-05\n' in now


def test_a_new_section_is_written_at_the_end() -> None:
    rule = ApartRule(a="<none>/op_0_add", b="z")
    assert after(USERS, parse_rules(USERS).adding(rule)) == USERS + "\napart:\n  - a: <none>/op_0_add\n    b: z\n"


def test_a_removed_rule_takes_its_own_comments_along() -> None:
    rules = parse_rules(USERS)
    second = rules.of(PairRule)[1]
    assert lines_gone(USERS, after(USERS, rules.removing(second))) == [
        "  - a: layers.0/op_0__allgather_base_",
        "    b: [layers.0.attention_norm/op_1_all_gather_into_tensor_out, layers.0.attention_norm/op_2_wait_tensor]",
        "    # it waits there",
    ], "the comment above may speak of the rule that follows as well"


def test_a_comment_above_a_rule_that_stands_alone_goes_with_it() -> None:
    text = "pairs:\n  - a: x\n    b: y\n\n  # only this\n  - a: p\n    b: q\n\n  - a: r\n    b: s\n"
    rules = parse_rules(text)
    now = after(text, rules.removing(rules.of(PairRule)[1]))
    assert now == "pairs:\n  - a: x\n    b: y\n\n  - a: r\n    b: s\n"


def test_a_comment_over_a_group_goes_with_the_whole_group() -> None:
    text = "pairs:\n  - a: x\n    b: y\n  # both\n  - a: p\n    b: q\n  - a: r\n    b: s\n"
    rules = parse_rules(text)
    one = rules.removing(rules.of(PairRule)[1])
    assert "# both" in after(text, one)
    assert after(text, one.removing(one.of(PairRule)[1])) == "pairs:\n  - a: x\n    b: y\n"


def test_the_comment_above_the_first_rule_stays() -> None:
    rules = parse_rules(USERS)
    now = after(USERS, rules.removing(rules.of(PairRule)[0]))
    assert "# under the short name" in now
    assert "# first" not in now


@pytest.mark.parametrize("break_", ["\r\n", "\r", "\n"])
def test_line_ends_and_a_missing_last_one_stay(break_: str) -> None:
    text = USERS.replace("\n", break_).removesuffix(break_)
    rules = parse_rules(text)
    assert edited(parse_document(text), rules.rules) == text
    now = after(text, rules.adding(PAIR).adding(ApartRule(a="x", b="y")))
    assert not now.endswith(("\r", "\n"))
    assert now.count("\n") == (now.count("\r\n") if break_ == "\r\n" else 0 if break_ == "\r" else now.count("\n"))
    assert after(now, rules) != text, "the section that was added stays, empty"


def test_a_file_without_last_line_end_is_continued_on_a_new_line() -> None:
    text = "pairs:\n- a: x\n  b: y"
    assert after(text, parse_rules(text).adding(PAIR)) == text + "\n- a: new\n  b: neu"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# only a comment",
        "---\n",
        "--- # so\n",
        "version: 1\n",
        "pairs:",
        "pairs:   # none\n  # yet\nops:\n",
        "pairs: []",
        "pairs: ~\n",
        "pairs: [ ]   # none\nops: []\n",
        "pairs:\n  []\n",
        "pairs: [\n]\n",
        "pairs: [\n  # nothing\n  ]\n",
        "pairs: [{a: x, b: y}]",
        "pairs: [ {a: x, b: y}, ]",
        "pairs: [a: x]\n",
        "pairs: [\n  {a: x, b: y},  # one\n  {a: z, b: w},  # two\n]\n",
        "pairs: [\n  {a: x, b: y},  # one\n  # above\n  {a: z, b: w}  # two\n]\n",
        "pairs: [{a: x, b: y},\n  {a: z,\n   b: w}]\n",
        "{}",
        "{version: 1}\n",
        "{pairs: [{a: x, b: y}], ops: []}  # all of it\n",
        "{pairs: , ops: [],}",
        "{pairs}",
        "---\npairs:\n- a: x\n  b: y\n...\n",
        "%YAML 1.1\n---\npairs:\n- a: x\n  b: y\n",
        "  pairs:\n    - a: x\n      b: y\n",
        "pairs:\n- {a: x, b: y}\n- {a: z, b: w}\n",
        "pairs:\n-   a: x\n    b: y\n",
        "pairs:\n-\n  a: x\n  b: y\n",
        "pairs:\n  - a: x\n    b: y\n    why: |\n      c\n      so\n\n  # deep\n\n  - a: z\n    b: w\n      # deep\n",
        "pairs:\n  - a: x\n    b: y\n    why: |+\n      because\n\n\n  - a: z\n    b: w\n\n      # deeper\n",
        "pairs:\n  - a: x\n    b: y\n    why: >-\n      because",
        'pairs:\n  - a: "x\n      more"\n    b: y\n',
        "pairs:\n  - a: x\n  - 5\n  - a: z\n    b: w\n  -\n",
        "pairs: 5\n",
        "pairs:\n  - a: x\n    b: y\nops:\n- a: x\n  b: y\npairs:\n- a: second\n  b: time\n",
        "pairs:\n  - a: &k x\n    b: *k\n  - &i\n    a: x\n    b: y\n  - *i\n  - !t {a: x, b: y}\n",
    ],
)
def test_layouts(text: str) -> None:
    """Whatever the layout: rules can be added, removed one by one, and put in another order."""
    rules = parse_rules(text)
    other = PairRule(a=("[x]",), b=("{y}", "#z"), why="why: not")
    after(text, rules.adding(PAIR).adding(other).adding(ApartRule(a="- x", b="? y")))
    for rule in rules:
        after(text, rules.removing(rule))
        after(text, rules.removing(rule).adding(other))
        after(text, rules.removing(rule).adding(rule))
    after(text, RuleSet())
    after(text, RuleSet((PAIR,)))
    after(text, RuleSet((PAIR, *reversed(rules.rules))))


# Random files, random rules, random changes


@settings(max_examples=examples(120), deadline=None)
@given(files(), CHANGES)
def test_any_change_to_any_file_gives_the_rules_asked_for(text: str, changes: list[Change]) -> None:
    """Also change by change, as a session with several saves does; and undoing everything gives back the first text."""
    document = parse_document(text)
    assert document.readable
    first = rules = document.rules
    assert edited(document, first.rules) == document.text
    now = document.text
    for change in changes:
        rules = changed(rules, change)
        broken = [p.message for p in document.rules.problems]
        for base in (document.text, now):
            out = edited(parse_document(base), rules.rules)
            again = parse_document(out).rules
            assert again == rules
            assert [p.message for p in again.problems] == broken
            assert out.count("# keep") == text.count("# keep")
        now = out
    assert edited(parse_document(text), first.rules) == document.text


@settings(max_examples=examples(120), deadline=None)
@given(files(), RULES)
def test_every_comment_survives_a_new_rule(text: str, rule: Rule) -> None:
    document = parse_document(text)
    assert comments_of(edited(document, document.rules.adding(rule).rules)) == [
        before + new for before, new in zip(comments_of(text), comments_of(new_file((rule,))), strict=True)
    ]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(RULES, max_size=8))
def test_a_new_file_reads_as_written(rules: list[Rule]) -> None:
    wanted = RuleSet(tuple(rules))
    found = parse_rules(new_file(wanted))
    assert found == wanted
    assert not found.problems
    new_file(wanted).encode("utf-8")


@given(NAMES)
def test_quoting_round_trips(name: str) -> None:
    text = f"apart: [{{a: {quoted(name)}, b: {quoted(name)}}}]"
    assert parse_rules(text).rules == (ApartRule(a=name, b=name),)


# Saving


def saved(path: Path, text: str = USERS) -> RuleFile:
    path.write_bytes(text.encode())
    return RuleFile.load(path)


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    file = saved(path)
    assert not file.differs(file.rules)
    rules = file.rules.adding(PAIR)
    assert file.differs(rules)
    new = file.save(rules)
    assert path.read_text() == file.render(rules) == new.text
    assert new.rules == rules == RuleFile.load(path).rules
    assert new.rules.of(PairRule)[-1].line is not None
    assert not new.changed_on_disk()
    assert new.save(file.rules).text == USERS
    assert os.listdir(tmp_path) == ["rules.yaml"]


def test_a_new_file(tmp_path: Path) -> None:
    file = RuleFile.open(tmp_path / "new.yaml")
    assert file.raw is None
    assert not file.changed_on_disk()
    new = file.save(RuleSet((PAIR,)))
    assert new.text == "version: 1\n\npairs:\n  - a: new\n    b: neu\n"
    assert RuleFile.open(tmp_path / "new.yaml").rules == new.rules
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new.yaml").stat().st_mode) == 0o666 & ~umask


def test_a_file_changed_by_somebody_else_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    file = saved(path)
    path.write_text(USERS + "# more\n")
    assert file.changed_on_disk()
    with pytest.raises(RulesChangedError, match=r"rules\.yaml.*changed"):
        file.save(file.rules.adding(PAIR))
    assert path.read_text() == USERS + "# more\n"
    file.save(file.rules.adding(PAIR), force=True)
    assert RuleFile.load(path).rules == file.rules.adding(PAIR)


def test_a_file_that_appeared_meanwhile_is_not_overwritten_unasked(tmp_path: Path) -> None:
    file = RuleFile.empty(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").write_text("mine")
    with pytest.raises(RulesChangedError):
        file.save(RuleSet((PAIR,)))
    assert (tmp_path / "rules.yaml").read_text() == "mine"


def test_a_file_that_is_gone_is_written_again(tmp_path: Path) -> None:
    file = saved(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").unlink()
    file.save(file.rules)
    assert (tmp_path / "rules.yaml").read_text() == USERS


@pytest.mark.parametrize(
    "raw", [b"pairs: [", b"\xff\xfep\0a\0", b"- a\n- b\n", b"pairs: \x1b", b"x" * (LARGEST + 1), b"a: b\n--- \nc: d\n"]
)
def test_a_file_that_cannot_be_understood_is_kept(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "rules.yaml"
    path.write_bytes(raw)
    file = RuleFile.load(path)
    assert not file.rules
    assert len(file.rules.problems) == 1
    assert str(file.rules.problems[0]).startswith(str(path))
    rules = file.rules.adding(PAIR)
    with pytest.raises(RulesError, match="would lose"):
        file.save(rules)
    assert path.read_bytes() == raw
    file.save(rules, force=True)
    assert RuleFile.load(path).rules == RuleSet((PAIR,))
    assert (tmp_path / "rules.yaml.orig").read_bytes() == raw
    path.write_bytes(raw)
    RuleFile.load(path).save(rules, force=True)
    assert (tmp_path / "rules.yaml.orig2").read_bytes() == raw


def test_a_layout_that_cannot_be_edited_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    file = saved(path, "? pairs\n: - a: x\n    b: y\n")
    assert file.save(file.rules).text == file.text
    with pytest.raises(RulesError, match="layout"):
        file.save(RuleSet((PAIR,)))
    assert file.save(RuleSet((PAIR,)), force=True).rules == RuleSet((PAIR,))
    assert (tmp_path / "rules.yaml.orig").read_text() == file.text


def test_a_rule_that_comes_back_leaves_the_broken_entry_that_moved_to_its_line(tmp_path: Path) -> None:
    file = saved(tmp_path / "rules.yaml", "pairs:\n  - a: x\n    b: y\n  - broken\n  - a: z\n    b: w\n")
    first = file.rules
    file = file.save(first.removing(first.rules[0])).save(first)
    assert file.text.count("- broken") == 1
    assert file.rules == first


def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "real" / "rules.yaml"
    real.parent.mkdir()
    saved(real)
    real.chmod(0o640)
    link = tmp_path / "rules.yaml"
    link.symlink_to("real/rules.yaml")
    file = RuleFile.load(link)
    file.save(file.rules.adding(PAIR))
    assert link.is_symlink()
    assert "new" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(real.parent) == ["rules.yaml"]


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen while a file is being written, once."""
    left = [happens]
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        while left:
            left.pop()()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_changes_during_a_save_is_not_overwritten(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "rules.yaml", tmp_path / "other.yaml"
    file = saved(path)
    rules = file.rules.adding(PAIR)

    def change() -> None:
        (other if replaced else path).write_text("# of an editor\n")
        if replaced:
            other.replace(path)

    meanwhile(monkeypatch, change)
    with pytest.raises(RulesChangedError, match="changed"):
        file.save(rules)
    assert path.read_text() == "# of an editor\n"
    assert os.listdir(tmp_path) == ["rules.yaml"]
    assert file.save(rules, force=True).rules == RuleFile.load(path).rules == rules


def test_a_file_that_is_deleted_during_a_save_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rules.yaml"
    file = saved(path)
    meanwhile(monkeypatch, path.unlink)
    rules = file.rules.adding(PAIR)
    file.save(rules)
    assert RuleFile.load(path).rules == rules


def test_of_two_that_save_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two explorers over one pair: the slower one is asked, and finds the rules of the other in the file."""
    saved(tmp_path / "rules.yaml")
    one, other = (RuleFile.load(tmp_path / "rules.yaml") for _ in range(2))
    meanwhile(monkeypatch, lambda: other.save(other.rules.adding(PAIR)))
    with pytest.raises(RulesChangedError):
        one.save(RuleSet())
    assert RuleFile.load(tmp_path / "rules.yaml").rules == other.rules.adding(PAIR)


def test_a_link_that_leads_elsewhere_during_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if both places have the same content: the rules would be saved where nobody reads them."""
    link = tmp_path / "rules.yaml"
    for name in ("one.yaml", "two.yaml"):
        saved(tmp_path / name)
    link.symlink_to("one.yaml")
    file = RuleFile.load(link)

    def lead_elsewhere() -> None:
        link.unlink()
        link.symlink_to("two.yaml")

    meanwhile(monkeypatch, lead_elsewhere)
    with pytest.raises(RulesChangedError):
        file.save(file.rules.adding(PAIR))
    assert {path.read_text() for path in tmp_path.iterdir()} == {USERS}
    assert sorted(os.listdir(tmp_path)) == ["one.yaml", "rules.yaml", "two.yaml"]


def test_a_link_to_nothing_yet_gets_its_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").symlink_to("later.yaml")
    file = RuleFile.open(tmp_path / "rules.yaml")
    assert file.raw is None
    file.save(RuleSet((PAIR,)))
    assert (tmp_path / "rules.yaml").is_symlink()
    assert RuleFile.load(tmp_path / "later.yaml").rules == RuleSet((PAIR,))


def test_a_link_to_itself_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").symlink_to("rules.yaml")
    with pytest.raises(RulesError, match="symbolic links"):
        RuleFile.open(tmp_path / "rules.yaml")


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    file = saved(tmp_path / "rules.yaml", "\ufeff" + USERS)
    assert file.save(file.rules).text == "\ufeff" + USERS
    assert file.save(file.rules.adding(PAIR)).text.startswith("\ufeff# Rules")


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "rules.yaml"
    file = saved(path)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, {"write": "fchmod"}.get(step, step), full)
    with pytest.raises(RulesError, match=r"rules\.yaml: not saved: No space left on device; make room"):
        file.save(file.rules.adding(PAIR))
    monkeypatch.undo()
    assert path.read_text() == USERS
    assert os.listdir(tmp_path) == ["rules.yaml"]


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RulesError, match="make the folder"):
        RuleFile.empty(tmp_path / "no" / "rules.yaml").save(RuleSet((PAIR,)))
    with pytest.raises(RulesError, match="directory"):
        RuleFile.load(tmp_path)
    with pytest.raises(RulesError, match="cannot read"):
        RuleFile.load(tmp_path / "missing.yaml")
    with pytest.raises(RulesError, match="not a path"):
        RuleFile.open("a\0b")
    with pytest.raises(RulesError, match="directory"):
        RuleFile.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RulesError, match="not a regular file"):
        RuleFile.empty(tmp_path / "pipe").save(RuleSet((PAIR,)))
    file = saved(tmp_path / "rules.yaml")
    # What a user without the right to write is told (the superuser may write anywhere).
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(RulesError, match="read-only"):
        file.save(file.rules.adding(PAIR))
