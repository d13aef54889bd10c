"""Rule files as people leave them, rules of every kind, and changes of the one by the other, saved and read again."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from matchers.logs.op_log import Phase
from matchers.rules.emit import flow_item
from matchers.rules.file import RuleFile
from matchers.rules.item import block_item
from matchers.rules.model import (
    SECTIONS,
    SHARES,
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RowsRule,
    Rule,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)

__all__ = ["CHANGES", "NAMES", "RULES", "Change", "changed", "check_saves", "comments_of", "files"]

NAMES = st.one_of(
    st.sampled_from(
        [
            "layers.0.attention/op_0_mul",
            "<none>/op_0_add",
            "x#2",
            "#2",
            "a: b",
            "- x",
            "it's",
            '"',
            "yes",
            "null",
            "1e5",
            "0x1f",
            " x ",
            "<<",
            "=",
            "*a",
            "&a",
            "!t",
            "%x",
            "@",
            "`",
            "a #b",
            "…é漢",
            "\u2028",
            "\ufeff",
            "\x1b[31m",
            "\\n",
            "a,b",
            "[x]",
            "{i}",
            "x:",
            "?",
            "---",
            "...",
        ]
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
)
LISTS = st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple)
ONE = NAMES.map(lambda name: (name,))
SIDE = st.sampled_from([None, Side.A, Side.B])
PHASE = st.sampled_from([None, *Phase])
WHY = st.none() | st.text(st.characters(codec="utf-8"), max_size=12) | st.just("because: # it is\n- so")
PLACES = st.sampled_from(["layers.{i}/op_{n}_add", "{rest:path}", "x{{y}}", "{x}/{n+1}"])
INDICES = st.lists(st.sampled_from(["0", "12", ":", "3:", ":7", "2:5"]), min_size=1, max_size=3).map(", ".join)
BY_KIND: dict[type[Rule], st.SearchStrategy[Rule]] = {
    PairRule: st.builds(PairRule, a=LISTS, b=LISTS, why=WHY),
    ApartRule: st.builds(ApartRule, a=NAMES, b=NAMES, why=WHY),
    TemplateRule: st.builds(
        lambda a, more, phase, why: TemplateRule(
            a=(a, *(a + text for text in more)), b=(a, a + "2"), phase=phase, why=why
        ),
        PLACES,
        st.sampled_from([(), ("x",), ("x", "y")]),
        PHASE,
        WHY,
    ),
    ModuleRule: st.builds(lambda a, why: ModuleRule(a=a, b="y." + a, why=why), PLACES, WHY),
    OpRule: st.builds(OpRule, a=LISTS, b=ONE, phase=PHASE, why=WHY)
    | st.builds(OpRule, a=ONE, b=LISTS, phase=PHASE, why=WHY),
    IgnoreRule: st.builds(IgnoreRule, side=SIDE, phase=PHASE, op=st.none() | NAMES, match=NAMES, why=WHY),
    ToleranceRule: st.builds(ToleranceRule, match=NAMES, rtol=st.floats(0, 1e300), side=SIDE, phase=PHASE, why=WHY),
    RowsRule: st.builds(RowsRule, a=INDICES, b=INDICES, why=WHY),
    LayoutRule: st.builds(
        LayoutRule, match=NAMES, holds=st.sampled_from([*SHARES.values()]), side=SIDE, phase=PHASE, why=WHY
    ),
}
RULES = st.one_of(*BY_KIND.values())
COMMENTS = st.sampled_from(
    ["", "", "", "\n", "# c: [x\n", "  # - a: x\n", "      # deep\n", "  # one\n  # two\n", "\n\n"]
)
TRAILING = st.sampled_from(["", "", "  # why not", " # 'x"])


def comments_of(text: str) -> list[int]:
    """Count each of the comments of `files`."""
    known = ("# c: [x", "# - a: x", "# deep", "# one", "# two", "# hello", "# why not", "# 'x", "# keep")
    return [text.count(comment) for comment in known]


@st.composite
def files(draw: st.DrawFn) -> str:
    """A rule file as people leave it: comments anywhere, several styles, broken rules and unknown sections."""
    text = draw(st.sampled_from(["", "version: 1\n", "# hello\n\nversion: 1\n", "---\n", "\ufeff"]))
    for kind in draw(st.lists(st.sampled_from(SECTIONS), unique=True, max_size=4)):
        rules = draw(st.lists(BY_KIND[kind], max_size=4))
        text += draw(COMMENTS)
        style = draw(st.sampled_from(["block", "flush", "wide", "flow", "flow lines", "mixed"]))
        indent = "" if style == "flush" else draw(st.sampled_from(["  ", "    "]))
        trailing = draw(TRAILING)
        if style == "flow" or (not rules and style == "flow lines"):
            text += f"{kind.section}: [{', '.join(map(flow_item, rules))}]{trailing}\n"
        elif style == "flow lines":
            text += f"{kind.section}: [{trailing}\n"
            for at, rule in enumerate(rules):
                comma = "," if at + 1 < len(rules) or draw(st.booleans()) else ""
                text += f"{draw(COMMENTS)}  {flow_item(rule)}{comma}{draw(TRAILING)}\n"
            text += f"{draw(COMMENTS)}  ]\n"
        else:
            text += f"{kind.section}:{trailing}\n"
            for rule in rules:
                text += draw(COMMENTS)
                if draw(st.integers(0, 5)) == 0:
                    text += f"{indent}- {draw(st.sampled_from(['broken', '{a: }', '[x, y]', '']))}\n"
                if style == "mixed" and draw(st.booleans()):
                    text += f"{indent}- {flow_item(rule)}{draw(TRAILING)}\n"
                else:
                    lines = block_item(rule, indent, "\n", "-   " if style == "wide" else "- ").splitlines()
                    text += "".join(f"{line}{draw(TRAILING)}\n" for line in lines)
                    if rule.why is None and draw(st.integers(0, 4)) == 0:
                        inside = indent + ("    " if style == "wide" else "  ")
                        text += (
                            f"{inside}why: |{draw(st.sampled_from(['', '+', '-']))}\n{inside}  some\n{inside}  text\n\n"
                        )
            text += draw(COMMENTS)
    text += draw(
        st.sampled_from(["", "", "colours: [red]  # keep\n", "version: 1\n...\n" if not text.count("version") else ""])
    )
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text


Change = tuple[int, int, Rule]
"""Removes a rule (0), moves it to the end (1), or adds one (2, 3); which rule, or the new one."""

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), RULES), max_size=6)


def changed(rules: RuleSet, change: Change) -> RuleSet:
    """The rules after a change."""
    what, at, rule = change
    if what > 1 or not len(rules):
        return rules.adding(rule)
    one = rules.rules[at % len(rules)]
    return rules.removing(one) if what == 0 else rules.removing(one).adding(one)


def check_saves(path: Path, text: str, changes: list[Change]) -> int:
    """Edit and save the file at `path`: after each save memory and file are equal. Returns the number of saves."""
    path.write_bytes(text.encode())
    file = RuleFile.load(path)
    first, broken = file.rules, [problem.message for problem in file.rules.problems]
    for rules in (*_steps(first, changes), first):
        file = file.save(rules)
        again = RuleFile.load(path)
        assert file.rules == again.rules == rules
        assert [problem.message for problem in again.rules.problems] == broken
        assert again.text.count("# keep") == text.count("# keep")
    return len(changes) + 1


def _steps(rules: RuleSet, changes: list[Change]) -> list[RuleSet]:
    steps = []
    for change in changes:
        rules = changed(rules, change)
        steps.append(rules)
    return steps
