"""One rule of a file is switched, written anew or moved: it changes, and everything around it stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.rules.edit import edited
from matchers.rules.file import RuleFile, parse_rules
from matchers.rules.grammar import parse_document
from matchers.rules.item import broken_item, cut_item, item_text, read_item, switched, text_of
from matchers.rules.model import OpRule, PairRule, Rule, RuleSet, TemplateRule, located
from tests.fuzz.rule_files import comments_of, files
from tests.matchers.rules.test_file import USERS
from tests.needs import examples

PAIR = PairRule(a=("x",), b=("y",))


def with_rule(text: str, at: int, rule: Rule) -> str:
    """The text with another rule in place of one; it must read as that."""
    document = parse_document(text)
    rules = document.rules.with_at(at, rule)
    out = edited(document, rules.rules)
    assert parse_rules(out) == rules, out
    return out


def off(text: str, at: int = 0) -> str:
    rule = parse_rules(text).rules[at]
    return with_rule(text, at, replace(rule, enabled=not rule.enabled))


@pytest.mark.parametrize(
    ("text", "disabled"),
    [
        ("a: x\nb: y", "a: x\nb: y\nenabled: false"),
        ("a: x\nb: y  # why", "a: x\nb: y  # why\nenabled: false"),
        ("a: x\nwhy: |\n  some\n  text\nb: y", "a: x\nwhy: |\n  some\n  text\nb: y\nenabled: false"),
        ("a: x\nb: y\nwhy: |\n  some\n  text", "a: x\nb: y\nwhy: |\n  some\n  text\nenabled: false"),
        ("{a: x, b: y}", "{a: x, b: y, enabled: false}"),
        ("{a: x, b: y,}  # c", "{a: x, b: y, enabled: false,}  # c"),
        ("{a: x,\n b: y\n}", "{a: x,\n b: y, enabled: false\n}"),
        ("a: x\nb: [y,\n  z]", "a: x\nb: [y,\n  z]\nenabled: false"),
    ],
)
def test_switching_off_and_on_again(text: str, disabled: str) -> None:
    rule = read_item(PairRule, text).rule
    assert rule is not None
    assert switched(text, replace(rule, enabled=False)) == disabled
    assert switched(disabled, rule) == text


@pytest.mark.parametrize(
    ("disabled", "enabled"),
    [
        ("enabled: false\na: x\nb: y", "a: x\nb: y"),
        ("a: x\nenabled: FALSE\nb: y", "a: x\nb: y"),
        ("a: x\nb: y\nenabled: false  # until it is mended", "a: x\nb: y\nenabled: true  # until it is mended"),
        ("{enabled: false, a: x, b: y}", "{a: x, b: y}"),
    ],
)
def test_what_its_user_switched_off(disabled: str, enabled: str) -> None:
    assert switched(disabled, PAIR) == enabled


def test_what_its_user_said_is_on() -> None:
    assert switched("enabled: true\na: x\nb: y", replace(PAIR, enabled=False)) == "enabled: false\na: x\nb: y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: x\nbb: y", "2:1: unknown field 'bb' in pairs (did you mean 'b'?)"),
        ("a: x", "1:1: a rule in pairs needs 'b'"),
        ("", "1:1: expected a rule with 'a: …', 'b: …', found nothing"),
        ("a: x\nb: y\nenabled: maybe", "3:10: 'enabled' must be true or false, not 'maybe'"),
        ("a: x\nb: 'y", "2:6: this is not YAML: found unexpected end of stream while scanning a quoted scalar"),
        ("a: x\nb: [y", "2:6: this is not YAML: did not find expected ',' or ']' while parsing a flow sequence"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_in_the_text(text: str, message: str) -> None:
    read = read_item(PairRule, text)
    assert read.rule is None
    assert read.problem is not None
    assert f"{read.problem.line}:{read.problem.column}: {read.problem.message}" == message


def test_a_text_cannot_leave_its_rule() -> None:
    for text in ("a: x\nb: y\nops: []", "---\na: x\nb: y", "a: x\nb: y\n...\n", "a: x\nb: y\n- a: x\n  b: z"):
        assert read_item(PairRule, text).problem is not None


def test_switched_off_in_a_file_that_a_person_wrote() -> None:
    for at, rule in enumerate(parse_rules(USERS)):
        text = off(USERS, at)
        if rule.section == "ops":
            lines = ["ops:  # short", "  - {a: p, b: q}", "  - {a: r, b: s}", "# the end"]
            assert [line.replace(", enabled: false", "") for line in text.splitlines()][-4:] == lines
            assert text.count(", enabled: false") == 1
            assert off(text, at) == off(text, at).replace(", enabled: false", "")
            assert off(text, at).splitlines()[-4:] == lines
        else:
            assert [line for line in text.splitlines() if line not in USERS.splitlines()] == [
                "  enabled: false" if rule.section == "ignore" else "    enabled: false"
            ]
            assert off(text, at) == USERS


def test_written_anew_it_stands_where_it_stood_with_its_comments() -> None:
    document = parse_document(USERS)
    first = document.rules.of(PairRule)[0]
    at = document.rules.rules.index(first)
    text = "a: feed_forward/op_7_mul   # first\nb: other # typed\n# and this"
    rule = read_item(PairRule, text).rule
    assert rule is not None
    out = with_rule(USERS, at, replace(rule, line=first.line, written=text))
    assert out == USERS.replace(
        "    b: 'layers.2.feed_forward/op_3_mul'\n    why: AC\n", "    b: other # typed\n    # and this\n"
    )


def test_written_anew_and_moved() -> None:
    text = "pairs:\n  # one\n  - a: x  # of a\n    b: y\n\n  # two\n  - a: p  # of p\n    b: q\n"
    document = parse_document(text)
    one, two = document.rules.rules
    rules = RuleSet((replace(two, enabled=False), one))
    out = edited(document, rules.rules)
    assert parse_rules(out) == rules
    assert out.index("# two") < out.index("a: p  # of p\n    b: q\n    enabled: false\n") < out.index("a: x  # of a")


def test_a_rule_goes_and_the_next_one_moves_with_its_comment() -> None:
    text = "pairs:\n- a: x\n  b: z\n- a: p\n  b: q\n  why: |\n    some\n\n  # deep\n- a: s\n  b: t\n"
    one, _, three = parse_rules(text).rules
    out = edited(parse_document(text), (three, one))
    assert out == "pairs:\n  # deep\n- a: s\n  b: t\n- a: x\n  b: z\n"


def test_only_a_comment_was_written() -> None:
    text = "pairs:\n  - a: x\n    b: y\n"
    file = RuleFile(path=RuleFile.empty("r").path, raw=b"", document=parse_document(text))
    rules = file.rules.with_at(0, replace(file.rules.rules[0], written="a: x\nb: y  # indeed"))
    assert file.differs(rules)
    assert file.render(rules) == "pairs:\n  - a: x\n    b: y  # indeed\n"


def test_written_anew_in_brackets_it_stands_as_it_was_typed() -> None:
    text = "ops: [{a: p, b: q}, {a: r, b: s}]  # short\n"
    rule = parse_rules(text).rules[0]
    lines = OpRule(a=("p",), b=("z",), line=rule.line, written="a: p  # note\nb: z")
    assert with_rule(text, 0, lines) == "ops:  # short\n  - a: p  # note\n    b: z\n  - {a: r, b: s}\n"
    spaced = replace(lines, written="{a: p,  b: z}")
    assert with_rule(text, 0, spaced) == "ops:  # short\n  - {a: p,  b: z}\n  - {a: r, b: s}\n"


def test_of_two_that_are_the_same_the_one_that_is_meant() -> None:
    text = "pairs:\n  - a: x  # 1\n    b: y\n  - a: x  # 2\n    b: y\n"
    assert off(text, 0) == text.replace("y\n  -", "y\n    enabled: false\n  -")
    assert off(text, 1) == text + "    enabled: false\n"


def test_a_new_rule_is_written_as_it_was_typed() -> None:
    written = "a: 'layers.{i}/op_0_mm'  # the first\nb: 'x.{i}/op_0_mm'"
    rule = read_item(TemplateRule, written).rule
    assert rule is not None
    rules = RuleSet((replace(rule, written=written),))
    assert edited(parse_document(""), rules.rules) == (
        "version: 1\n\ntemplates:\n  - a: 'layers.{i}/op_0_mm'  # the first\n    b: 'x.{i}/op_0_mm'\n"
    )


def test_a_text_that_says_something_else_is_not_believed() -> None:
    assert "other" not in edited(parse_document(""), (replace(PAIR, written="a: other\nb: y"),))


@settings(max_examples=examples(60), deadline=None)
@given(
    files(), st.lists(st.tuples(st.sampled_from(["switch", "write", "move", "drop"]), st.integers(0, 99)), max_size=8)
)
def test_any_sequence_of_changes_keeps_what_it_is_not_about(text: str, changes: list[tuple[str, int]]) -> None:
    """Against the file as it was, and saved after every change: the rules are those asked for, comments typed inside of
    rules that stay are there, and nothing grows worse.
    """
    document = parse_document(text)
    rules = document.rules
    for what, number in changes:
        if not len(rules):
            break
        at = number % len(rules)
        rule = rules.rules[at]
        if what == "switch":
            rules = rules.with_at(at, replace(rule, enabled=not rule.enabled))
        elif what == "write":
            rules = rules.with_at(at, replace(rule, written=f"{item_text(rule)}\n# typed {number}"))
        elif what == "move":
            kind = [k for k, other in enumerate(rules) if type(other) is type(rule)]
            other = kind[number % len(kind)]
            order = list(rules.rules)
            order.insert(other, order.pop(at))
            rules = RuleSet(tuple(order))
        else:
            rules = rules.with_at(at)
        out = edited(document, rules.rules)
        again = parse_document(out)
        assert again.rules == rules, out
        assert [p.message for p in again.rules.problems] == [p.message for p in document.rules.problems]
        assert edited(again, again.rules.rules) == again.text
        if number % 2:
            document, rules = again, again.rules


@settings(max_examples=examples(30), deadline=None)
@given(files())
def test_switched_off_and_on_every_file_is_as_it_was(text: str) -> None:
    document = parse_document(text)
    known = [(rule.line, replace(rule, enabled=True)) for rule in document.rules]
    for at, rule in enumerate(document.rules):
        if known.count(known[at]) > 1:
            continue  # nobody can tell which of two equal rules on one line is meant
        out = edited(document, document.rules.with_at(at, replace(rule, enabled=not rule.enabled)).rules)
        again = parse_document(out)
        back = edited(again, again.rules.with_at(at, replace(again.rules.rules[at], enabled=rule.enabled)).rules)
        assert comments_of(out) == comments_of(back) == comments_of(document.text)
        if any(section.value.flow for section in document.sections if type(rule) is section.kind):
            continue  # it is a list of lines from now on
        assert back == document.text
        comments = [line for line in document.text.splitlines() if line.lstrip().startswith("#")]
        assert comments == [line for line in out.splitlines() if line.lstrip().startswith("#")]


@settings(max_examples=examples(30), deadline=None)
@given(files())
def test_what_is_cut_out_says_the_same(text: str) -> None:
    document = parse_document(text)
    for section in document.sections:
        for item in section.items:
            found = cut_item(document, section, item)
            if item.rule is not None:
                assert found is not None
                assert read_item(section.kind, found).rule == item.rule


BROKEN = "pairs:\n  # mine\n  - a: x\n    bb: y  # typo\n  # that\n  - {a: p, b: q}\n  -\n  - nothing\n"


def test_what_is_broken_is_mended_where_it_stands() -> None:
    document = parse_document(BROKEN)
    assert len(document.rules.problems) == 3
    said = ["a: x\nb: y  # mended", "a: s\nb: t", "{a: u, b: v}"]
    mended: list[Rule] = []
    for problem, text in zip(document.rules.problems, said, strict=True):
        broken = broken_item(document, problem)
        assert broken is not None
        rule = read_item(broken.kind, text).rule
        assert rule is not None
        mended.append(replace(rule, line=broken.line, written=text))
    out = edited(document, (mended[0], *document.rules.rules, mended[1], mended[2]))
    assert out == (
        "pairs:\n  # mine\n  - a: x\n    b: y  # mended\n  # that\n  - {a: p, b: q}\n"
        "  - a: s\n    b: t\n  - {a: u, b: v}\n"
    )
    assert edited(document, document.rules.rules) == BROKEN


def test_what_is_broken_is_found() -> None:
    document = parse_document(BROKEN + "colours: [red]\n")
    found = [broken_item(document, problem) for problem in document.rules.problems]
    assert [None if broken is None else broken.text for broken in found] == ["a: x\nbb: y  # typo", "", "nothing", None]


def test_the_text_of_a_rule_is_that_of_its_file() -> None:
    document = parse_document(USERS)
    first = document.rules.of(PairRule)[0]
    text = "a: feed_forward/op_7_mul   # first\nb: 'layers.2.feed_forward/op_3_mul'\nwhy: AC"
    assert text_of(document, first) == text
    assert text_of(document, replace(first, enabled=False)) == f"{text}\nenabled: false"
    assert text_of(document, replace(first, line=None)) == text.replace("   # first", "").replace("'", "")
    assert text_of(document, replace(first, written="{a: feed_forward/op_7_mul}")) == text_of(
        document, replace(first, line=None)
    ), "what was written does not say this"


def test_rules_are_found_again_in_another_reading_of_their_file() -> None:
    one, two, three = (PairRule(a=(name,), b=("y",), line=line) for name, line in (("x", 3), ("z", 5), ("new", None)))
    file = parse_rules("# one more line\npairs:\n  - {a: z, b: y}\n\n  - {a: w, b: y}\n", "r")
    (rules,) = located([RuleSet((one, two, three))], file, {3: 5})
    assert [rule.line for rule in rules] == [5, 3, None]
    assert rules.path == "r"
