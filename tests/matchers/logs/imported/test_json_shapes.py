"""Shape and content of JSON: the compiled splitter says what its specification says, of JSON alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matchers.logs.imported import json_shapes
from matchers.logs.imported.json_shapes import (
    CLOSED,
    HOLE,
    Content,
    Contents,
    Entry,
    Parts,
    Place,
    Plan,
    Shapes,
    apart_of,
    picker,
    shape_and_content,
)
from matchers.logs.input_statistics import FIELD
from matchers.logs.parser import read_log
from tests.matchers.contents import contents
from tests.matchers.logs.imported.dumps import determinism, msprobe, routing
from tests.matchers.logs.imported.samples import saved

_DAMAGE = ("", ",", "]", "}", '"', "\\", "-", "0", "1e", "nul", "\x01", ":")
_PRINTED = ("{:.17e}".format, "{:.6g}".format, "{:.25f}".format)
_TEXT = st.text(st.sampled_from('ab 1.\\"\n\0é€😀/'), max_size=5) | st.just("x" * 70)
_NUMBER = st.integers() | st.floats(width=64) | st.integers(-9, 9) | st.floats(-1e9, 1e9).map(lambda x: round(x, 3))
_VALUE = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


_KEYS = ("a", "b")
"""Keys of texts that are taken apart."""
_RECORD = st.dictionaries(st.sampled_from("abc"), _VALUE | st.text(st.sampled_from("0123459.-+eE_x$[], "), max_size=12))


def _no_plan(_record: Any) -> Plan:
    raise NotImplementedError


def _as_read(text: str, *, by_line: bool = False) -> list[tuple[bytes, Any]]:
    records = Shapes(_no_plan, _KEYS).many(text.encode(), by_line=by_line, last=True)
    return [(shape, content) for _, _, shape, content, _ in records]


def _listed(content: Content) -> tuple[str, Sequence[str]]:
    """Numbers, NaN too, and texts of one content."""
    split, place = content
    numbers, texts = split.taken([place])
    return repr(numbers[0].tolist()), texts


def _filled(shape: bytes, content: Any) -> Any:
    """The record of a shape and a content."""

    def filled(placed: Any) -> Any:
        if isinstance(placed, Place):
            ((found,),) = picker(placed)(Contents([content]))
            return found
        if isinstance(placed, Parts):
            numbers = [f"<{picker(place)(Contents([content]))[0][0]!r}>" for place in placed.places]
            words = placed.pattern.split(HOLE)
            return "".join(word + number for word, number in zip(words, [*numbers, ""], strict=True))
        if isinstance(placed, dict):
            return {key: filled(one) for key, one in placed.items()}
        return [*map(filled, placed)] if isinstance(placed, list) else placed

    return filled(json_shapes._placed(shape.decode("utf-8", "surrogatepass")))


def _expected(value: Any, key: str = "") -> Any:
    """The same from the record: whole numbers are floats, and numbers in texts of `_KEYS` stand in brackets."""
    if isinstance(value, dict):
        return {key: _expected(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [*map(_expected, value)]
    if isinstance(value, str) and key in _KEYS and "\\" not in json.dumps(value, ensure_ascii=False):
        number = r"(?<![\w.])(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])"
        return re.sub(number, lambda found: f"<{_expected(json.loads(found[0]))!r}>", value, flags=re.ASCII)
    return float(value) if type(value) is int and abs(value) < 1 << 53 else value


@pytest.mark.compiler
@given(st.lists(_RECORD | _VALUE, max_size=4), st.none() | st.integers(0, 2), st.booleans())
@example(
    values=[[1e-320, 1e308, 5e-324, 2.5, 0.1, 1e23, 123456789.123456789, -0.0, 1 << 53, (1 << 53) - 1]],
    indent=None,
    plain=True,
)
@example(values=[{"a": "t$12: f32[3, -4], 1e-05, 01, 1.5.2, 9007199254740993", "b": ["1"]}], indent=None, plain=True)
def test_the_compiled_splitter_and_the_specification_say_what_json_does(
    values: list[Any], indent: int | None, plain: bool
) -> None:
    values = [*values, []]
    texts = [json.dumps(value, indent=indent, ensure_ascii=not plain) for value in values]
    found = _as_read(" ,\n".join(texts))
    assert len(found) == len(texts)
    for split, value in zip(found, values, strict=True):
        assert repr(_filled(*split)) == repr(_expected(value))
        specified = shape_and_content(value, _KEYS)
        assert repr(_filled(*specified)) == repr(_expected(value))
        if plain:
            assert specified[0] == split[0]


@pytest.mark.compiler
@given(
    st.floats(allow_nan=False) | st.floats(-1e6, 1e6),
    st.sampled_from([repr, "{:.17e}".format, "{:.6g}".format, "{:.25f}".format]),
)
def test_numbers_are_those_of_python(number: float, printed: Any) -> None:
    text = printed(number) if math.isfinite(number) else "Infinity"
    if "." in text or "e" in text or "I" in text:
        ((_, content),) = _as_read(f"[{text}]")
        assert _listed(content) == (repr([float(text)]), [])


@pytest.mark.compiler
@given(_VALUE, st.data())
def test_what_is_no_json_is_left(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value])
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at]
        + data.draw(st.sampled_from(["", ",", "]", "}", '"', "\\", "-", "0", "1e", "nul", "\x01", ":"]))
        + text[at + 1 :]
    )
    for shape, content in _as_read(f"{damaged}\n", by_line=True):
        assert repr(_filled(shape, content)) == repr(_expected(json.loads(damaged)))


@pytest.mark.compiler
def test_a_record_fills_its_line() -> None:
    """What is after it, or begins before, is no record; one beyond ASCII is left to `json`."""
    lines = [b'{"a": 1}', b"  [2]\t", b"", b"[3]"]
    found = [content for *_, content, _ in Shapes(_no_plan).many(b"\n".join([*lines, b""]), by_line=True)]
    assert Contents(found).numbers.tolist() == [[1.0], [2.0], [3.0]]
    for bad in (b"[1] [2]\n", b"[1,\n2]\n", '[1, "é"]\n'.encode(), b"[1]x\n", b"[" * 65 + b"]" * 65 + b"\n"):
        assert [*Shapes(_no_plan).many(bad, by_line=True)] == []
    assert [*Shapes(_no_plan).many(b"[1]", by_line=True)] == [], "the line may go on"
    assert next(Shapes(_no_plan).many(b"[1]12"))[1] == 3


@pytest.mark.compiler
@given(st.lists(st.integers(0, 40)))
def test_columns_are_those_of_the_records_that_are_asked_for(places: list[int]) -> None:
    """Of one split or of several, in whatever order."""
    records = [{"a": [k, k / 2], "b": f"x{k}", "c": f"y{k}", "d": None} for k in range(40)]
    text = "\n".join(map(json.dumps, records))
    several = Shapes(_no_plan).many(text.encode(), last=True)
    asked = [content for *_, content, _ in several] + [shape_and_content({**records[0], "b": "z1"})[1]]
    contents = Contents([asked[k] for k in [40, *places]])
    record = json_shapes._placed(shape_and_content(records[0])[0].decode())
    wanted = [record["a"][1], record["d"], record["c"], record["b"]]
    told = [(k / 2, None, f"y{k}", f"x{k}") for k in (k % 40 for k in places)]
    found = [*zip(*picker(*wanted)(contents), strict=True)]
    assert found[0] == (0.0, None, "y0", "z1")
    assert [one for one in found[1:] if one[3] != "z1"] == [one for one, k in zip(told, places, strict=True) if k < 40]


@pytest.mark.compiler
def test_a_name_is_no_part_of_a_record() -> None:
    """One that has an escape, or is not the name of a record, is left."""
    text = b' "a.0" : {"b": 1},\n"\xc3\xa91":[2, "x1"] , "c\\n": 3, "d": 4'
    found = [*Shapes(_no_plan).many(text, named=True)]
    assert [(line, shape, name) for line, _, shape, _, name in found] == [
        (1, b'{"b":\1}', "a.0"),
        (2, b"[\1,\3]", "\N{LATIN SMALL LETTER E WITH ACUTE}1"),
    ]
    for bad in (b'"a" {}', b'"a", {}', b"{}", b'"a":', b'"a', b""):
        assert [*Shapes(_no_plan).many(bad, named=True)] == []


_TREES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), _VALUE),
    lambda inner: st.builds(
        lambda own, within: own | {"n": within}, st.dictionaries(st.just("a"), _VALUE), st.lists(inner)
    ),
    max_leaves=8,
)


@pytest.mark.compiler
@given(_TREES, st.none() | st.integers(0, 2))
def test_records_within_a_record_follow_it(tree: Any, indent: int | None) -> None:
    def records(node: Any) -> Iterator[tuple[bytes, Any]]:
        within = node.get("n")
        if not within:
            shape, content = shape_and_content(node)
            yield shape, _listed(content)
            return
        shape, content = shape_and_content(node | {"n": None})
        yield shape.removesuffix(b"null}") + b"[0]}", _listed(content)
        for one in within:
            yield from records(one)
        yield CLOSED, ("[]", [])

    found = Shapes(_no_plan, nest="n").many(json.dumps(tree, indent=indent, ensure_ascii=False).encode(), last=True)
    assert [(one[2], *_listed(one[3])) for one in found] == [(shape, *content) for shape, content in records(tree)]


@pytest.mark.compiler
def test_what_follows_the_records_within_is_left() -> None:
    assert [one[2] for one in Shapes(_no_plan, nest="n").many(b'{"n": [{}], "a": 1}')] == [b'{"n":[0]}', b"{}"]


def _entries(shapes: Shapes, *texts: str) -> Iterator[Entry]:
    return (shapes.one(k, json.loads(text), text) for k, text in enumerate(texts))


def test_records_of_one_shape_are_told_together_and_a_bad_one_by_itself() -> None:
    """In the order of the records; what one alone is bad for costs no other."""
    asked: list[Any] = []
    together: list[Sequence[int]] = []

    def plan(record: Any) -> Plan:
        asked.append(record)
        pick = picker(record["b"])

        def told(lines: Sequence[int], contents: Contents) -> Iterable[int]:
            together.append(lines)
            return (int(text, 36) for text in pick(contents)[0])

        return told

    shapes = Shapes(plan)
    texts = ['{"a": 1.5, "b": "x1"}', '{"a": 2, "b": "x3"}', '{"a": 2.5, "b": "x2"}']
    assert [one for *_, told in shapes.told(_entries(shapes, *texts)) for one in told] == [1189, 1191, 1190]
    assert [record["b"] for record in asked] == [Place(1, json_shapes.TEXTS[0])] * 2
    assert together == [(0, 2), (1,)]
    damaged = iter([*_entries(shapes, texts[0], '{"a": 1.5, "b": "1-"}', "[]"), (9, 0, None, KeyError("x"), "")])
    ((*_, told),) = shapes.told(damaged)
    assert [type(one) for one in told] == [int, ValueError, TypeError, KeyError]
    assert len(asked) == 3, "a plan is made once for a shape, and tried again only where it failed"


@pytest.mark.compiler
@pytest.mark.parametrize("written", [saved, partial(determinism, "summary"), partial(determinism, "full"), routing])
def test_logs_are_the_same_without_a_compiler(
    written: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text(written())
    compiled = read_log(tmp_path / "a.log")
    monkeypatch.setattr(json_shapes, "_compiled", lambda: None)
    assert contents(read_log(tmp_path / "a.log")) == contents(compiled)


@pytest.mark.compiler
def test_a_dump_is_the_same_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an operation on so many tensors that its numbers stay an array."""
    numbers = [{"Max": 9.5 + k, "Min": -0.5 * k, "Mean": 0.25, "Norm": 1e3 + k} for k in range(60)]
    told = [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], **one} for one in numbers]
    many = {"input_args": told, "input_kwargs": {}, "output": told[:1]}
    path = msprobe(tmp_path, changes={"Torch.stack.0.forward": many})
    compiled = read_log(path)
    assert max(compiled.extra[FIELD]) == len(compiled) - 1, "the last operation tells of its inputs"
    monkeypatch.setattr(json_shapes, "_compiled", lambda: None)
    assert contents(read_log(path)) == contents(compiled)


def test_a_number_in_a_text_may_have_any_number_of_digits() -> None:
    assert apart_of(f"a {'9' * 5000} 12")[1] == [math.inf, 12]
