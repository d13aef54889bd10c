"""Texts of logs for hypothesis: fields absent, broken or several times there, lines where they do not belong."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.builders import Op, log_text

__all__ = ["keys", "texts"]

numbers = st.one_of(
    st.floats(),
    st.floats(-1e4, 1e4),
    st.sampled_from(["nan", "inf", "-inf", "0.000000e+00", "-0.000000e+00", "x", "1.5", "1_0", "3.402823e+38"]),
)
names = st.sampled_from(["add", "mm", "_foreach_add_", "op_3_x", "5", "", "wait_tensor"])
modules = st.sampled_from(["m", "layers.0", "layers.10.attention", "<none>", "a/b", "x/op_1_y", "Root._orig_mod.é", ""])
keys = st.one_of(
    st.builds("{}/op_{}_{}".format, modules, st.integers(0, 3), names),
    st.builds("{}/op_{}_{}".format, modules, st.sampled_from(["", "x", "1234567", "12345678", "-1", "007"]), names),
    st.sampled_from(["", "plain", "/", "//op_1_a", "m/op_1_", "m/op_1", "a]b[/op_0_x", "m/op_2_add ", "層/op_1_加"]),
)
hexadecimal = st.integers(0, 2**64 - 1).map("{:016x}".format)
some_digests = st.lists(hexadecimal | st.sampled_from(["rubbish", "-", "00fF", "0123456789abcdeg"]), min_size=1)
extra_fields = st.fixed_dictionaries(
    {},
    optional={
        "Seq": st.integers(0, 9).map(str) | st.sampled_from(["x", "", "1234567890123456"]),
        "Digest": some_digests.map(", ".join),
        "Input digests": st.lists(hexadecimal, min_size=1, max_size=3).map(", ".join),
        "Mutated": st.just("0 digest=00ff"),
        "Sketch": st.just("AAAA"),
        "Counts": st.sampled_from(["numel=4 nan=0 inf=0 zero=1", "numel=9 nan=1 inf=2 zero=3", "numel=4", ""]),
        "Placement": st.just("mesh=(2,) [Shard(0)]"),
        "Group": st.just("0,1 #3"),
        "Overload": st.sampled_from(["aten.dim", "aten.Tensor"]),
        "Arguments": st.sampled_from(['{"dim": -1}', '{"eps": 1e-05}', "{"]),
        "Inputs": st.just("[2,3]:1,2;int64"),
        "Random": st.just('{"seed": 1, "offset": 4}'),
        "Stack": st.just("model.py:1:forward < train.py:9:<module>"),
        "Recompute": st.sampled_from(["true", "false", " true", "TRUE"]),
        "Micro-batch": st.sampled_from(["0", "3", "999999999", "1234567890", "-1", "x", ""]),
        "Parameter": st.just("weight, grad"),
        "Output 1": st.just('{"shape": [2]}'),
        "Output 12": st.just("{}"),
        "Output x": st.just("a field of a later version"),
        "Something new": st.just("a field of a later version"),
    },
)


@st.composite
def records(draw: st.DrawFn) -> Op:
    """Records with anything absent, broken or several times there."""
    return Op(
        key=draw(keys),
        shape=draw(st.none() | st.lists(st.integers(0, 300), max_size=3)),
        dtype=draw(st.sampled_from(["float32", "bfloat16", "int64", "no dtype"])),
        l1=draw(st.none() | numbers),
        l2=draw(st.none() | numbers),
        min=draw(st.none() | numbers),
        max=draw(st.none() | numbers),
        mean=draw(st.none() | numbers),
        outputs=draw(st.lists(numbers, max_size=3)),
        inputs=draw(st.lists(numbers, max_size=4)),
        producers=draw(st.lists(st.just("") | keys, max_size=4)),
        location=draw(st.none() | st.sampled_from(["model.py:1", "a/b.py:22", "", "é.py:3", "Phase: backward"])),
        phase=draw(st.none() | st.sampled_from(["forward", "backward", "optimizer", " backward", "backwards", ""])),
        extra=draw(extra_fields),
    )


junk = st.sampled_from(
    [
        *("", "   ", "rubbish", "  no colon", "    deeper: 1", "  Unknown: 1", "  Unknown:", "Shape: 1"),
        *("=" * 80, "End of capture: 3 records", "End of capture: many", "Digest of all records: 00", "[", "[]", "[x"),
        *("  L2 norm: 1.000000e+00", "  Shape: torch.Size([1]), Dtype: torch.int8", "  Output hash: 5.000000e+00"),
    ]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts of logs: records, with lines put in where they do not belong, and endings of all kinds."""
    text = log_text(
        draw(st.lists(records(), max_size=8)), exact=draw(st.booleans()), run=draw(st.sampled_from([None, {}]))
    )
    lines = text.split("\n")
    start = lines.index("=" * 80) + 1
    for line, place in draw(st.lists(st.tuples(junk, st.integers(0, 200)), max_size=4)):
        lines.insert(start + place % (len(lines) - start), line)
    text = draw(st.sampled_from(["\n", "\r\n"])).join(lines)
    return (
        draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", "\n", "End of capture: 2 records\n"]))
    )
