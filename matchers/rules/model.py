"""Rules, the user's corrections to the automatic matching, and sets of them.

A rule file is YAML with one section per kind of rule (docs/rules.md, `overrides.example.yaml`); `matchers.rules.file`
reads and saves it. Rules are validated on construction: an invalid one raises `ValueError` with a sentence, whether it
comes from a file or from a key press.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypeVar, cast

from matchers.logs.op_log import Phase
from matchers.ops.row_index import normal_index
from matchers.ops.share import Holds
from matchers.rules.pattern import Pattern

__all__ = [
    "COMMON",
    "SECTIONS",
    "SHARES",
    "ApartRule",
    "IgnoreRule",
    "LayoutRule",
    "ModuleRule",
    "OpRule",
    "PairRule",
    "RowsRule",
    "Rule",
    "RuleProblem",
    "RuleSet",
    "Side",
    "TemplateRule",
    "ToleranceRule",
    "Value",
    "located",
]

_MAX_PATTERN_LENGTH: Final = 4096

SHARES: Final = {share.label: share for share in (Holds.REPLICA, Holds.SHARD, Holds.PARTIAL, Holds.UNKNOWN)}
"""The shares that a layout rule may name, by label."""


class Side(str, Enum):
    """One of the two runs. Equal to its text and hashed like it, so plain `"a"` and `"b"` work as well."""

    A = "a"
    B = "b"

    __hash__ = str.__hash__

    def __str__(self) -> str:
        return self.value


class Value(Enum):
    """What a key of a rule says. `grammar.py` has how it is read, and `emit.py` how it is written."""

    TEXT = "a key, or the name of an op"
    TEXTS = "one or several of these"
    TEMPLATE = "a template (`rules.pattern`)"
    TEMPLATES = "one or several templates"
    GLOB = "a glob (`rules.pattern`)"
    SIDE = "a run"
    PHASE = "a phase"
    ERROR = "a relative error"
    SHARE = "what merged ranks hold"
    INDEX = "an index of rows"
    REASON = "a reason, in the user's words"
    SWITCH = "true or false"


def _text(name: str, text: str) -> None:
    if not text:
        raise ValueError(f"'{name}' is empty")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"'{name}' contains a surrogate character, which files cannot store")


def _texts(name: str, texts: tuple[str, ...], check: Callable[[str, str], None] = _text) -> None:
    if not texts:
        raise ValueError(f"'{name}' is an empty list")
    for text in texts:
        check(name, text)
    if len(set(texts)) < len(texts):
        raise ValueError(f"'{name}' names '{next(text for text in texts if texts.count(text) > 1)}' twice")


def _pattern(name: str, text: str) -> None:
    """Limit the length of a pattern, because matching time is proportional to it."""
    _text(name, text)
    if len(text) > _MAX_PATTERN_LENGTH:
        raise ValueError(f"'{name}' is longer than {_MAX_PATTERN_LENGTH:,} characters")


def _error(name: str, error: float) -> float:
    if not (math.isfinite(error) and error >= 0):
        raise ValueError(f"'{name}' must be a relative error such as 1.0e-5, not {error}")
    # -0.0 equals 0.0 but would be written differently.
    return abs(float(error))


def _share(name: str, share: Holds) -> None:
    if share.label not in SHARES:
        raise ValueError(f"'{name}' must be {', '.join(SHARES)}, not {share.label}")


def _index(name: str, text: str) -> str:
    try:
        return normal_index(text)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from error


def _reason(name: str, why: str) -> str | None:
    # Space around a reason is meaningless, and a YAML block adds line breaks.
    if why := why.strip():
        _text(name, why)
    return why or None


_CHECKS: Final[Mapping[Value, Callable[[str, Any], object]]] = {
    Value.TEXT: _text,
    Value.TEXTS: _texts,
    Value.TEMPLATE: _pattern,
    Value.TEMPLATES: partial(_texts, check=_pattern),
    Value.GLOB: _pattern,
    Value.SIDE: lambda _, side: Side(side),
    Value.ERROR: _error,
    Value.SHARE: _share,
    Value.INDEX: _index,
}
"""What is wrong with a value is raised; what is returned takes its place."""

COMMON: Final[Mapping[str, Value]] = {"why": Value.REASON, "enabled": Value.SWITCH}
"""The keys that all rules have."""


@dataclass(frozen=True, slots=True)
class _Base:
    """The fields common to all rules.

    Attributes:
        section: the name of the rules of a kind in a file.
        keys: what may stand there of a rule, in the order of writing; a field of the same name has it. Of several
            templates the first one's captures fill the others.
        why: a reason in the user's words, None without one.
        enabled: a disabled rule stays in its file and has no effect.
        line: 1-based line of the rule in its file, None for a rule without a file.
        written: the rule's YAML as the user wrote it, without dash and indentation; None for a rule that is unchanged
            in its file or uses the program's formatting.

    `line` and `written` are ignored when rules are compared.
    """

    section: ClassVar[str]
    keys: ClassVar[Mapping[str, Value]]
    _: KW_ONLY
    why: str | None = None
    enabled: bool = True
    line: int | None = field(default=None, compare=False, repr=False)
    written: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", _reason("why", self.why or ""))
        templates: list[str] = []
        for name, value in self.keys.items():
            given = getattr(self, name)
            if given is None or value not in _CHECKS:
                continue
            checked = _CHECKS[value](name, given)
            if checked is not None:
                object.__setattr__(self, name, checked)
            if value in (Value.TEMPLATE, Value.TEMPLATES):
                templates += given if isinstance(given, tuple) else [given]
        for text in templates:
            Pattern.of(text).check_against(Pattern.of(templates[0]))

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """The keys that a rule of this kind must have."""
        needed = {one.name for one in fields(cls) if one.default is MISSING}
        return tuple(name for name in cls.keys if name in needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRule(_Base):
    """These operations of a and b are partners, whatever their numbers: keys, with `key#2` for the second with that
    key.
    """

    section: ClassVar = "pairs"
    keys: ClassVar = {"a": Value.TEXTS, "b": Value.TEXTS}
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartRule(_Base):
    """These two operations are never paired."""

    section: ClassVar = "apart"
    keys: ClassVar = {"a": Value.TEXT, "b": Value.TEXT}
    a: str
    b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRule(_Base):
    """A pair rule for many places at once (`rules.pattern`): the first template of `a` selects the places.

    With a `phase` it covers only operations of that phase, on both sides.
    """

    section: ClassVar = "templates"
    keys: ClassVar = {"a": Value.TEMPLATES, "b": Value.TEMPLATES, "phase": Value.PHASE}
    a: tuple[str, ...]
    b: tuple[str, ...]
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRule(_Base):
    """Rename modules of a whose complete path matches the template `a` to `b`, before any pairing."""

    section: ClassVar = "modules"
    keys: ClassVar = {"a": Value.TEMPLATE, "b": Value.TEMPLATE}
    a: str
    b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRule(_Base):
    """Equivalent ops: one op of a side, and one op or a chain of several of the other side.

    With a `phase`, only where the last op ran in it.
    """

    section: ClassVar = "ops"
    keys: ClassVar = {"a": Value.TEXTS, "b": Value.TEXTS, "phase": Value.PHASE}
    a: tuple[str, ...]
    b: tuple[str, ...]
    phase: Phase | None = None

    def __post_init__(self) -> None:
        _Base.__post_init__(self)
        if len(self.a) > 1 and len(self.b) > 1:
            raise ValueError("'a' or 'b' must be a single op: a chain of ops matches one op, not another chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule(_Base):
    """Operations that are never red, on one side or both (None), by op name, by key, or both; globs."""

    section: ClassVar = "ignore"
    keys: ClassVar = {"side": Value.SIDE, "phase": Value.PHASE, "op": Value.GLOB, "match": Value.GLOB}
    side: Side | Literal["a", "b"] | None = None
    phase: Phase | None = None
    op: str | None = None
    match: str | None = None

    def __post_init__(self) -> None:
        _Base.__post_init__(self)
        if self.op is None and self.match is None:
            raise ValueError("'op' or 'match' is required")


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyRule(_Base):
    """A rule about the operations whose keys match a glob, of one side and one phase, or of all (None)."""

    match: str
    side: Side | Literal["a", "b"] | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule(_KeyRule):
    """Relative error up to which a pair is close, for keys that match the glob, on the named side or either.

    The first rule that matches a pair decides.
    """

    section: ClassVar = "tolerance"
    keys: ClassVar = {"match": Value.GLOB, "side": Value.SIDE, "phase": Value.PHASE, "rtol": Value.ERROR}
    rtol: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule(_KeyRule):
    """The share of a result that each of several merged ranks holds, for keys that match the glob.

    For plain results only, whose placement no log tells. The first rule that matches an operation decides.
    """

    section: ClassVar = "layout"
    keys: ClassVar = {"match": Value.GLOB, "side": Value.SIDE, "phase": Value.PHASE, "holds": Value.SHARE}
    holds: Holds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRule(_Base):
    """These rows of results are the same, in this order, where logs tell rows and the runs compute others beside them.

    For results of which as many dimensions as the index has number the rows (`ops.row_index`).
    """

    section: ClassVar = "rows"
    keys: ClassVar = {"a": Value.INDEX, "b": Value.INDEX}
    a: str
    b: str


Rule = PairRule | ApartRule | TemplateRule | ModuleRule | OpRule | IgnoreRule | ToleranceRule | LayoutRule | RowsRule
_R = TypeVar("_R", bound=_Base)

SECTIONS: Final[tuple[type[Rule], ...]] = (
    ModuleRule,
    OpRule,
    TemplateRule,
    PairRule,
    ApartRule,
    IgnoreRule,
    ToleranceRule,
    LayoutRule,
    RowsRule,
)
"""The kinds of rules, in order of application; a `RuleSet` is in this order."""

_RANK: Final = {kind: rank for rank, kind in enumerate(SECTIONS)}


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """An error at one place of a rule file. Its text is preserved when the file is saved.

    `line` and `column` are 1-based, 0 for errors without a single place; `str()` is the whole message.
    """

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules sorted by kind as in `SECTIONS`; within a kind they keep their order.

    Attributes:
        rules: may contain duplicates and disabled rules; `in_force` yields the enabled ones.
        problems: errors of the file; the affected text is not in `rules`.
        path: the file, for messages; empty without one.

    Sets are equal if their rules are.
    """

    rules: tuple[Rule, ...] = ()
    problems: tuple[RuleProblem, ...] = field(default=(), compare=False)
    path: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(sorted(self.rules, key=lambda rule: _RANK[type(rule)])))

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def of(self, kind: type[_R]) -> tuple[_R, ...]:
        """The rules of one kind."""
        return tuple(cast("_R", rule) for rule in self.rules if isinstance(rule, kind))

    def in_force(self, kind: type[_R]) -> tuple[tuple[int, _R], ...]:
        """The enabled rules of one kind, each with its index in `rules`."""
        return tuple(
            (number, cast("_R", rule))
            for number, rule in enumerate(self.rules)
            if isinstance(rule, kind) and rule.enabled
        )

    def enabled(self, kind: type[_R]) -> tuple[_R, ...]:
        """The enabled rules of one kind."""
        return tuple(rule for rule in self.of(kind) if rule.enabled)

    def adding(self, *rules: Rule) -> RuleSet:
        """A copy with more rules, each the last of its kind."""
        return RuleSet((*self.rules, *rules), self.problems, self.path)

    def removing(self, *rules: Rule) -> RuleSet:
        """A copy without some rules: of each this very object if present, else the last equal one.

        Raises:
            ValueError: the set has no such rule.
        """
        out = self
        for rule in rules:
            places = [at for at, other in enumerate(out.rules) if other == rule]
            if not places:
                raise ValueError("the rule is not in this set")
            out = out.with_at(next((at for at in places if out.rules[at] is rule), places[-1]))
        return out

    def with_at(self, at: int, *rules: Rule) -> RuleSet:
        """A copy with these rules in place of the one at this index."""
        return RuleSet((*self.rules[:at], *rules, *self.rules[at + 1 :]), self.problems, self.path)

    def where(self, rule: Rule) -> str:
        """`path:line` of a rule as far as known, else a description."""
        if rule.line is None:
            return f"the new rule in {rule.section}"
        return f"{self.path}:{rule.line}" if self.path else f"line {rule.line}"


def located(sets: Iterable[RuleSet], file: RuleSet, lines: Mapping[int, int] | None = None) -> list[RuleSet]:
    """Sets of rules with the lines that their rules have in another version of their file.

    Args:
        lines: line here -> line there; rules without an entry are found by their content, and get no line if absent.
    """
    found = {replace(rule, enabled=True): rule.line for rule in reversed(file.rules)}
    moved = lines or {}
    done: dict[int, Rule] = {}

    def place(rule: Rule) -> Rule:
        if id(rule) not in done:
            line = found.get(replace(rule, enabled=True), moved.get(rule.line or 0))
            done[id(rule)] = replace(rule, line=line)
        return done[id(rule)]

    # The list keeps all rules alive meanwhile, so that ids stay unique.
    return [RuleSet(tuple(map(place, rules)), file.problems, file.path) for rules in list(sets)]
