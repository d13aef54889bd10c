"""The suggestions as a person works through them, without a screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from matchers.rules.model import RuleSet
from numtui.session.rule_edits import EditError, Effect
from numtui.session.session import Session
from numtui.session.store import SessionStore
from numtui.session.suggestion_tree import Node, State, Suggested, rule_name
from numtui.views.suggestions import detail, heading, node_line
from tests.builders import Op, training_step
from tests.conftest import REPOSITORY
from tests.matchers.drifted_logs import made_up_log

DATA = REPOSITORY / "tests" / "data"


@pytest.fixture(scope="module")
def checkpointed() -> Comparison:
    return compare(read_log(DATA / "fsdp2_sac.log.gz"), read_log(DATA / "fsdp2_traced.log.gz"))


@pytest.fixture
def session(checkpointed: Comparison) -> Session:
    return Session(checkpointed, RuleFile.empty(Path("overrides.yaml")))


def suggested(session: Session) -> Suggested:
    """What is suggested now, also what changes no verdict."""
    session.suggested.everything = True
    session.suggested.update(session.comparison, session.suggestions_in(session.comparison))
    return session.suggested


def names(found: Suggested, state: State) -> list[str]:
    return [family.suggestion.name for f, family in enumerate(found.families) if found.state(Node(f)) is state]


def put(session: Session, rules: RuleSet) -> Suggested:
    """These rules in force, and what is suggested then."""
    job = session.change(rules, "change")
    job.run()
    assert session.accept(job)
    return suggested(session)


def where(found: Suggested, name: str) -> Node:
    return Node([family.suggestion.name for family in found.families].index(name))


def test_what_is_accepted_stays_in_its_place_and_comes_back_with_undo(session: Session) -> None:
    found = suggested(session)
    before = [family.suggestion.name for family in found.families]
    node = where(found, "moved to or from <none>")
    left = found.to_settle()
    edit = found.accept(node, session.rules)
    assert edit.title == "accept moved to or from <none> (13 rules)"
    found = put(session, edit.rules)
    assert [family.suggestion.name for family in found.families] == before
    assert names(found, State.ACCEPTED) == ["moved to or from <none>"]
    assert found.to_settle() == (left[0] - 1, left[1] - 13, left[2] - 63)
    with pytest.raises(EditError, match="already accepted or rejected"):
        found.accept(node, session.rules)
    job, _ = session.undo()
    assert job is not None
    job.run()
    session.accept(job)
    assert suggested(session).to_settle() == left
    assert names(found, State.ACCEPTED) == []


def test_everything_at_once_settles_every_family(session: Session) -> None:
    found = suggested(session)
    edit = found.accept_all(session.rules, session.comparison)
    assert edit.title.startswith("accept 73 rules for shifted counters, checkpointed names, ")
    found = put(session, edit.rules)
    assert found.to_settle() == (0, 0, 0)
    assert len(names(found, State.ACCEPTED)) == 5
    assert names(found, State.NEEDLESS) == ["swapped order", "recomputed copies"]
    assert heading(found) == "rules cover all that they can"
    with pytest.raises(EditError, match="nothing left"):
        found.accept_all(session.rules, session.comparison)
    for f in range(5):
        found = put(session, found.take_back(Node(f), session.rules).rules)
    assert session.rules == RuleSet()


def test_everything_is_everything_that_is_listed(session: Session) -> None:
    found = suggested(session)
    accepted = found.accept(where(found, "checkpointed names"), session.rules).rules
    found = put(session, accepted)
    found.everything = False
    assert [node.family for node in found.nodes(())] == [where(found, "checkpointed names").family]
    assert sum(len(s.rules) for s in found.quiet()) == 73 - 12
    with pytest.raises(EditError, match="nothing left"):
        found.accept_all(session.rules, session.comparison)
    found.reject(where(found, "shifted counters"))
    assert sum(len(s.rules) for s in found.quiet()) == 73 - 12 - 44, "what was rejected is not offered again"


def test_one_rule_of_a_family(session: Session) -> None:
    found = suggested(session)
    node = replace(where(found, "checkpointed names"), rule=3)
    rule = found.rule(node)
    found = put(session, found.accept(node, session.rules).rules)
    assert session.rules.rules == (rule,)
    family = where(found, "checkpointed names")
    assert found.state(family) is State.OPEN
    # what was accepted comes first
    assert found.rule(replace(family, rule=0)) == rule
    assert found.state(replace(family, rule=0)) is State.ACCEPTED
    assert (found.settles(family), found.families[family.family].suggestion.rows) == (66, 72)
    assert found.take_back(replace(family, rule=0), session.rules).rules == RuleSet()
    with pytest.raises(EditError, match="u undoes"):
        found.take_back(replace(family, rule=5), session.rules)


def test_what_is_rejected_is_not_accepted_with_the_others_and_not_suggested_in_the_next_sitting(
    session: Session, tmp_path: Path
) -> None:
    session.store = SessionStore("a.log", "b.log", folder=tmp_path)
    found = suggested(session)
    family = where(found, "lowered collectives")
    rule = found.rule(replace(family, rule=1))
    assert rule is not None
    assert found.reject(replace(family, rule=1)) == "lowered collectives: 1 rule rejected (x takes that back)"
    assert (
        found.reject(where(found, "checkpointed names")) == "checkpointed names: 12 rules rejected (x takes that back)"
    )
    assert names(found, State.REJECTED) == ["checkpointed names"]
    everything = found.accept_all(session.rules, session.comparison).rules.rules
    assert len(everything) == 73 - 12 - 1
    assert rule not in everything
    session.store_session()

    again = Session(session.comparison, session.file, store=SessionStore("a.log", "b.log", folder=tmp_path))
    assert again.store is not None
    again.resume(again.store.load())
    assert rule_name(rule) in again.suggested.rejected
    found = suggested(again)
    assert names(found, State.REJECTED) == ["checkpointed names"]
    assert found.reject(where(found, "checkpointed names")) == "checkpointed names: suggested again"
    assert names(found, State.REJECTED) == []
    # whoever points at a rule means it
    node = replace(where(found, "lowered collectives"), rule=1)
    assert found.accept(node, again.rules).rules.rules == (rule,)


def test_families_without_a_rule_have_nothing_to_decide(session: Session) -> None:
    found = suggested(session)
    node = where(found, "recomputed copies")
    with pytest.raises(EditError, match="no rule to accept, they are labelled"):
        found.accept(node, session.rules)
    with pytest.raises(EditError, match="no rule to reject"):
        found.reject(node)
    with pytest.raises(EditError, match="u undoes"):
        found.take_back(node, session.rules)


def test_the_operations_behind_a_rule_are_listed_below_it(session: Session) -> None:
    found = suggested(session)
    family = where(found, "shifted counters")
    rules = [node for node in found.nodes({family}) if node.rule >= 0]
    assert len(rules) == 44
    assert sum(len(found.instances(rule)) for rule in rules) == 197
    c = session.comparison
    inside = list(found.nodes({family, rules[0]}))
    assert (
        [node.instance >= 0 for node in inside].count(True) == len(found.instances(rules[0])) == found.settles(rules[0])
    )
    for node in inside:
        if node.instance >= 0:
            i, j = found.records(node)
            assert node.parent == rules[0]
            assert c.at_a[i] == c.at_b[j]
    needless = where(found, "recomputed copies")
    lone = [found.records(node) for node in found.nodes({needless}) if node.instance >= 0]
    assert len(lone) == 24
    assert all((i < 0) != (j < 0) for i, j in lone)


def test_every_line_says_what_there_is_to_know_in_the_room_it_has(session: Session) -> None:
    found, c = suggested(session), session.comparison
    unfolded = {Node(f) for f in range(len(found.families))}
    nodes = list(found.nodes(unfolded | {Node(0, 0), Node(1, 3)}))
    for width, room in ((80, 9), (120, 20)):
        for node in nodes:
            assert node_line(c, found, node, node in unfolded, width)
            assert 0 < len(detail(c, found, node, None, None, width, room)) <= room
    copies = next(node for node in nodes if node == Node(where(found, "recomputed copies").family, instance=0))
    told = "\n".join("".join(text for text, _ in line) for line in detail(c, found, copies, None, None, 120, 20))
    assert "repeats layers.5.attention.qkv_linear.wqkv/op_2_split_with_sizes (row 118)" in told
    after = put(session, found.accept(Node(1), session.rules).rules)
    assert after.comparison is session.comparison
    told = "\n".join(
        "".join(text for text, _ in line)
        for line in detail(c, found, Node(1), session.comparison, Effect.between(c, session.comparison), 120, 30)
    )
    assert "exact 1.00, same printed values → by a template, same printed values" in told
    assert "Effect: no new pairs · still 0 red; the existing pairs become fixed" in told


def test_pairs_made_past_each_other_are_mended_by_taking_a_rule_back(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(
        "templates:\n  - a: layers.{i}.attention.wq/op_{n}_mm\n    b: layers.{i}.attention.wk/op_{n}_mm\n",
        encoding="utf-8",
    )
    file = RuleFile.load(path)
    log = made_up_log(training_step(6))
    session = Session(compare(log, made_up_log(training_step(6)), file.rules), file)
    found = suggested(session)
    assert [family.suggestion.name for family in found.families] == ["realign"]
    assert found.families[0].suggestion.drops == file.rules.rules
    found = put(session, found.accept(Node(0), session.rules).rules)
    assert session.rules.rules == ()
    assert not session.comparison.red.any()
    assert names(found, State.ACCEPTED) == ["realign"]
    job, _ = session.undo()
    assert job is not None
    job.run()
    session.accept(job)
    assert names(suggested(session), State.OPEN) == ["realign"]


def test_two_runs_without_drift_have_nothing_to_suggest() -> None:
    ops: list[Op] = training_step()
    session = Session(compare(made_up_log(ops), made_up_log(ops)), RuleFile.empty(Path("overrides.yaml")))
    found = suggested(session)
    assert heading(found) == "no known kind of drift: the names of the two runs agree"
    assert list(found.nodes(())) == []
