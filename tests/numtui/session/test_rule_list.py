"""The list of rules and the rule that is typed, without a screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import Comparison, compare
from matchers.rules.edit import edited
from matchers.rules.file import RuleFile, parse_rules
from matchers.rules.grammar import parse_document
from matchers.rules.model import (
    SECTIONS,
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleSet,
    TemplateRule,
    ToleranceRule,
)
from matchers.rules.resolve import RuleUsage
from numtui.query.query import completions, parse_query
from numtui.session.rule_completion import complete
from numtui.session.rule_draft import Draft, draft_of, mending, new_draft
from numtui.session.rule_edits import Edit, EditError
from numtui.session.rule_list import ORDER, RuleList, dropped, matches, moved, rule_behind, rule_text, toggled
from numtui.text.lines import width_of
from numtui.views.rules import detail, help_lines, stand_line, summary
from tests.builders import training_step
from tests.fuzz.rule_files import files
from tests.matchers.drifted_logs import made_up_log
from tests.needs import examples

RULES = """\
# ours
pairs:
  # the first
  - a: layers.0.attention.wq/op_0_mm  # q
    b: layers.0.attention.wq/op_0_mm
  - a: layers.0.attention.wk/op_0_mm
    bb: typo
  - {a: nowhere/op_0_mm, b: layers.0.attention.wv/op_0_mm}
tolerance:
  - {match: "*.norm/*", rtol: 1.0}
  - {match: "*", rtol: 1.0e-3}
modules: [{a: "{x}.nowhere", b: "{x}"}]
"""


@pytest.fixture(scope="module")
def logs() -> Comparison:
    return compare(made_up_log(training_step(2)), made_up_log(training_step(2)))


def file_of(text: str, path: str = "r.yaml") -> RuleFile:
    return RuleFile(Path(path), text.encode(), parse_document(text, path))


@pytest.fixture
def file() -> RuleFile:
    return file_of(RULES)


def retyped(draft: Draft, text: str) -> Draft:
    draft.retype(text)
    return draft


def typed(draft: Draft, text: str) -> Draft:
    """With this text at the end of the first line."""
    first, line_end, rest = draft.text.partition("\n")
    return retyped(draft, first + text + line_end + rest)


def edit_of(draft: Draft, rules: RuleSet) -> tuple[Edit, int]:
    found = draft.edit(rules)
    assert found is not None
    return found


class TestList:
    def test_every_rule_says_how_it_stands(self, logs: Comparison, file: RuleFile) -> None:
        c = logs.with_rules(file.rules)
        listed = RuleList(file.rules, c, file)
        assert [listed[at].number for at in range(len(listed))] == [1, 2, 3, 4, 5, 0]
        assert summary(listed) == "5 rules · 4 need attention (n)"
        assert listed.troubled == [0, 2, 3, 5]
        assert listed[5].trouble == "r.yaml:7:5: unknown field 'bb' in pairs (did you mean 'b'?)"
        assert listed[2].trouble == "r.yaml:8: a has no operation 'nowhere/op_0_mm'"
        lines = ["".join(text for text, _ in stand_line(listed[at], 100)) for at in range(len(listed))]
        assert lines[1].startswith(" ~   2  pairs          4         1  layers.0.attention.wq/op_0_mm ↔ ")
        assert lines[5].startswith(" ✗   –  broken         7         –  unknown field 'bb'")

    def test_of_long_keys_the_ends_are_shown(self, logs: Comparison, file: RuleFile) -> None:
        line = stand_line(RuleList(file.rules, logs, file)[1], 80)
        end = "layers.0.attention.wq/op_0_mm"[-19:]
        assert line[2][0] == f"…{end} ↔ …{end}"
        assert sum(width_of(text) for text, _ in line) <= 80

    def test_what_is_not_known_yet_and_what_is_not_saved(self, logs: Comparison, file: RuleFile) -> None:
        c = logs.with_rules(file.rules)
        rules = toggled(file.rules, 4).rules.adding(PairRule(a=("x",), b=("y",)))
        listed = RuleList(rules, c, file)
        stands = [listed[at] for at in range(len(rules))]
        assert [stand.unsaved for stand in stands] == ["", "", "", "new", "", "changed"]
        assert not listed.matched
        assert stands[1].use == c.usage[1], "it is the same rule"
        assert stands[3].use is None
        assert "…" in stand_line(stands[3], 80)[1][0]
        assert listed.disabled == 1
        assert "off" in stand_line(stands[5], 80)[1][0]

    def test_the_details_say_everything_that_is_known(self, logs: Comparison, file: RuleFile) -> None:
        rules = toggled(file.rules, 3).rules
        listed = RuleList(rules, logs.with_rules(rules), file)

        def told(at: int) -> str:
            return "\n".join("".join(text for text, _ in line) for line in detail(listed[at], 78))

        assert "makes 1 pair" in told(1)
        assert "is not needed for these two logs" in told(1)
        assert "makes 0 pairs" in told(2)
        assert "a has no operation 'nowhere/op_0_mm'" in told(2)
        assert "disabled: kept in the file, not applied" in told(3)
        assert ORDER["tolerance"] in told(4)
        assert "sets the tolerance of 64 operations of both logs" in told(4)
        assert "The file keeps it unchanged; e fixes it here." in told(5)

    def test_the_rule_behind_a_row(self, logs: Comparison) -> None:
        rules = parse_rules(
            "templates: [{a: 'layers.{i}.attention.wq/op_0_mm', b: 'layers.{i}.attention.wq/op_0_mm'}]\n"
            "pairs: [{a: tok_embeddings/op_0_embedding, b: tok_embeddings/op_0_embedding}]\n"
            "ignore: [{op: none}, {op: add}]\n"
            "tolerance: [{match: 'layers.0.*', rtol: 1.0e-9}, {match: '*', rtol: 1.0}]\n"
        )
        b = made_up_log(
            [replace(op, outputs=[float(value) * 1.001 for value in op.outputs]) for op in training_step(2)]
        )
        c = compare(logs.a, b, rules)
        behind = {key: rule_behind(c, int(row)) for key, row in zip(c.a.keys, c.at_a, strict=True)}
        assert behind["layers.1.attention.wq/op_0_mm"] == 0
        assert behind["tok_embeddings/op_0_embedding"] == 1
        assert {number for key, number in behind.items() if key.endswith("_add")} == {3}
        assert behind["layers.1.attention.wk/op_0_mm"] == 5
        assert rule_behind(logs, 3) == -1
        assert rule_behind(c, -1) == -1

    def test_every_section_says_what_order_and_counts_mean(self) -> None:
        assert {*ORDER} == {kind.section for kind in SECTIONS}
        assert matches(TemplateRule(a=("x",), b=("y",)), RuleUsage(0, 3, None, 2)) == (
            "makes 3 pairs; 2 more matching operations of a are unpaired"
        )
        assert matches(ApartRule(a="x", b="y"), RuleUsage(0, 1, None)) == "keeps 1 pair apart"
        assert matches(OpRule(a=("x",), b=("y",)), RuleUsage(0, 2, None)) == "covers 2 operations of both logs"
        shown = "\n".join("".join(text for text, _ in line) for line in help_lines())
        assert all(word in shown for word in (*ORDER, "ctrl+s", "○ disabled"))


class TestChanges:
    def test_switched_off_and_on(self, file: RuleFile) -> None:
        off = toggled(file.rules, 1)
        assert off.title.startswith("disable pairs: layers.0.attention.wq/op_0_mm ↔ ")
        assert file.render(off.rules) == RULES.replace(
            "    b: layers.0.attention.wq/op_0_mm\n", "    b: layers.0.attention.wq/op_0_mm\n    enabled: false\n"
        )
        assert file.render(toggled(off.rules, 1).rules) == RULES

    def test_what_was_typed_is_switched_as_it_was_typed(self, file: RuleFile) -> None:
        draft = retyped(draft_of(file, file.rules, 1), "a: x # mine\nb: y")
        rules = edit_of(draft, file.rules)[0].rules
        assert "  - a: x # mine\n    b: y\n    enabled: false\n" in file.render(toggled(rules, 1).rules)

    def test_moved_in_its_section_only(self, file: RuleFile) -> None:
        down = moved(file.rules, 3, 1)
        assert [rule_text(rule) for rule in down.rules.rules[3:]] == ["* up to 0.001", "*.norm/* up to 1"]
        assert parse_rules(file.render(down.rules)) == down.rules
        with pytest.raises(EditError, match="this is the last rule of tolerance"):
            moved(file.rules, 4, 1)
        with pytest.raises(EditError, match="this is the first rule of pairs"):
            moved(file.rules, 1, -1)

    def test_dropped(self, file: RuleFile) -> None:
        assert "nowhere/op_0_mm" not in file.render(dropped(file.rules, 2).rules)


class TestDraft:
    def test_a_rule_is_typed_where_it_stands(self, file: RuleFile) -> None:
        draft = draft_of(file, file.rules, 1)
        assert draft.title == "pairs: the rule of line 4"
        assert draft.text == "a: layers.0.attention.wq/op_0_mm  # q\nb: layers.0.attention.wq/op_0_mm"
        assert not draft.changed
        assert draft.edit(file.rules) is None
        typed(draft, "!")
        assert draft.problem is None
        edit, at = edit_of(draft, file.rules)
        assert at == 1
        assert edit.title.startswith("change pairs: ")
        assert file.render(edit.rules) == RULES.replace("# q\n", "# q!\n")

    def test_what_is_wrong_is_known_at_every_key(self, file: RuleFile) -> None:
        draft = draft_of(file, file.rules, 1)
        for n in range(6):
            typed(retyped(draft, draft.first), "\nwy: x"[: n + 1])
        assert str(draft.problem) == ":2:1: unknown field 'wy' in pairs (did you mean 'why'?)"
        assert draft.edit(file.rules) is None
        retyped(draft, draft.first)
        assert draft.problem is None
        assert not draft.changed

    def test_what_is_typed_back_is_what_the_file_has(self, file: RuleFile) -> None:
        rules = edit_of(retyped(draft_of(file, file.rules, 1), "{a: x, b: z}"), file.rules)[0].rules
        assert file.differs(rules)
        back = edit_of(retyped(draft_of(file, rules, 1), draft_of(file, file.rules, 1).first), rules)[0].rules
        assert not file.differs(back)

    def test_a_rule_that_is_gone_cannot_be_changed(self, file: RuleFile) -> None:
        draft = draft_of(file, file.rules, 4)
        typed(draft, " # x")
        with pytest.raises(EditError, match="no longer exists"):
            draft.edit(RuleSet())

    def test_what_is_broken_is_mended(self, file: RuleFile) -> None:
        draft = mending(file, file.rules.problems[0])
        assert draft.text == "a: layers.0.attention.wk/op_0_mm\nbb: typo"
        assert draft.problem is not None
        edit, at = edit_of(retyped(draft, "{a: x, b: y}"), file.rules)
        assert at == 2
        assert edit.rules.problems == ()
        text = RULES.replace("a: layers.0.attention.wk/op_0_mm\n    bb: typo", "{a: x, b: y}")
        assert file.render(edit.rules) == text
        with pytest.raises(EditError, match="fix it in a text editor"):
            mending(file_of("colours: red\n"), parse_rules("colours: red\n").problems[0])

    @pytest.mark.parametrize("kind", SECTIONS)
    def test_a_new_rule_is_about_the_row(self, logs: Comparison, kind: type[Rule]) -> None:
        draft = new_draft(kind, logs, (5, 5))
        assert draft.problem is None
        assert draft.title == f"{kind.section}: a new rule"
        assert not draft.changed
        edit, at = edit_of(draft, RuleSet())
        assert at == 0
        assert type(edit.rules.rules[0]) is kind
        assert new_draft(kind, logs, (-1, -1)).problem is not None, "there is no row that it could be about"

    def test_a_new_rule_comes_behind_another(self, logs: Comparison, file: RuleFile) -> None:
        kind = type(file.rules.rules[3])
        _, at = edit_of(new_draft(kind, logs, (5, 5), behind=3), file.rules)
        assert at == 4
        assert edit_of(new_draft(kind, logs, (5, 5)), file.rules)[1] == 5
        assert edit_of(new_draft(PairRule, logs, (5, 5)), file.rules)[1] == 3


class TestCompletion:
    @pytest.mark.parametrize(
        ("kind", "before", "more"),
        [
            (PairRule, "", ""),
            (PairRule, "w", "hy: "),
            (PairRule, "a: x\nen", "abled: "),
            (PairRule, "{a: x, w", "hy: "),
            (PairRule, "a: layers.1.attention.w", ""),
            (PairRule, "a: layers.1.attention.wq/", "op_"),
            (PairRule, "a: layers.1.attention.wq/op_0_m", "m"),
            (PairRule, "a: [tok_embeddings/op_0_embedding, tok", "_embeddings/"),
            (PairRule, "a:\n  - tok", "_embeddings/"),
            (PairRule, 'a: "tok_embeddings/', "op_0_embedding"),
            (PairRule, "a: x\nenabled: f", "alse"),
            (TemplateRule, "phase: fo", "rward"),
            (ModuleRule, "a: tok", "_embeddings"),
            (OpRule, "a: emb", "edding"),
            (IgnoreRule, "op: emb", "edding"),
            (IgnoreRule, "match: tok", "_embeddings/"),
            (ToleranceRule, "match: tok_embeddings/", "op_0_embedding"),
            (LayoutRule, "match: tok_embeddings/op_0_embedding\nholds: par", "tial"),
            (PairRule, "why: tok", ""),
        ],
    )
    def test_what_is_typed_is_completed(self, logs: Comparison, kind: type[Rule], before: str, more: str) -> None:
        assert complete(kind, before, logs)[0] == more

    def test_where_names_part_they_are_told(self, logs: Comparison) -> None:
        assert complete(PairRule, "", logs) == ("", "a:   b:   enabled:   why: ")
        told = complete(PairRule, "a: layers.", logs)[1]
        assert told.startswith("layers.0.attention.wk/  ")
        assert "in all" in told
        assert complete(PairRule, "a: nowhere", logs) == ("", "no completion")


class TestFilter:
    def test_the_rows_of_a_rule(self, logs: Comparison) -> None:
        rules = parse_rules(
            "modules: [{a: 'layers.0.{rest:path}', b: 'blocks.0.{rest}'}, {a: 'blocks.{rest:path}', b: '{rest}'}]\n"
            "ops: [{a: mm, b: bmm}]\n"
            "pairs: [{a: tok_embeddings/op_0_embedding, b: tok_embeddings/op_0_embedding}]\n"
            "ignore: [{op: mm, enabled: false}]\n"
            "tolerance: [{match: '*.attention/*', rtol: 1.0}]\n"
        )
        assert not rules.problems
        c = logs.with_rules(rules)
        keys = list(c.a.keys)

        def rows(query: str) -> set[str]:
            return {keys[c.row_a[row]] for row in parse_query(query).mask(c).nonzero()[0] if c.row_a[row] >= 0}

        in_first = {key for key in keys if key.startswith("layers.0.")}
        assert rows("rule:1") == rows("rule:2") == in_first
        assert rows("rule:4") == {"tok_embeddings/op_0_embedding"}
        assert rows("rule:5") == {key for key in keys if key.endswith("_mm")}, "disabled or not"
        assert "layers.1.attention/op_0_bmm" in rows("rule:6")
        assert rows("rule:3,4") == rows("rule:3") | rows("rule:4")
        assert rows("rule:99") == set()
        assert {"rule:1", "rule:6"} < set(completions(c, {}))


@settings(max_examples=examples(40), deadline=None)
@given(files(), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99)), max_size=10))
def test_any_sequence_of_changes_keeps_the_file(text: str, changes: list[tuple[int, int]]) -> None:
    """Its text is a rule file with these rules, what is broken stays, and read again it is the same; saved or not."""
    file = file_of(text.removeprefix("\ufeff"))
    rules = file.rules
    for what, number in changes:
        if not len(rules):
            break
        at = number % len(rules)
        if what <= 1:
            rules = toggled(rules, at).rules
        elif what == 2:
            try:
                rules = moved(rules, at, 1 if number % 2 else -1).rules
            except EditError:
                continue
        elif what == 3:
            rules = dropped(rules, at).rules
        elif what == 4:
            draft = draft_of(file, rules, at)
            retyped(draft, f"{draft.text} # mine {number}\n")
            if draft.edit(rules) is not None:
                rules = edit_of(draft, rules)[0].rules
        elif what == 5:
            draft = retyped(draft_of(file, rules, at), "{a: new, b: neu}  # short")
            if draft.edit(rules) is not None:
                rules = edit_of(draft, rules)[0].rules
        else:
            now = file.render(rules)
            again = file_of(now)
            assert again.rules == rules
            file, rules = again, again.rules
        out = file.render(rules)
        read = parse_document(out)
        assert read.rules == rules, out
        assert edited(read, read.rules.rules) == read.text
        assert len(read.rules.problems) == len(file.rules.problems)


def test_a_rule_that_is_no_longer_as_its_file_has_it_is_written_as_it_is() -> None:
    file = file_of("pairs:\n  - a: x  # of a\n    b: z\n")
    rule = replace(file.rules.rules[0], why="changed by a program")
    assert draft_of(file, file.rules.with_at(0, rule), 0).text == "a: x\nb: z\nwhy: changed by a program"
