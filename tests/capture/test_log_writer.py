"""What is written is read again, by our reader and by the rules of torchtitan's, whatever the names."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture import log_writer
from capture.atomic_file import atomic_file
from capture.log_format import FIELDS, escape, field_prefix, json_line
from capture.log_writer import Mutation, Portion, Record, TensorSummary, write_log
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.logs.parser import read_log

SKETCH = bytes(range(128))


def tensor(value: float = 1.5, digest: int | None = 7, **other: Any) -> TensorSummary:
    known: dict[str, Any] = {"shape": (2, 3), "dtype": "float32", "l1": value, "l2": value, "min": -value, "max": value}
    return TensorSummary(**{**known, "mean": value / 3, "numel": 6, "digest": digest, **other})


def full_record(seq: int = 0) -> Record:
    return Record(
        key="layers.0.wq/op_0_mm",
        seq=seq,
        outputs=[tensor(0.1, 1, sketch=SKETCH, user_hash=3, placement={"mesh": {"dp": 2}}), tensor(1e300, 2**64 - 1)],
        inputs=[tensor(5e-324, 3), None, tensor(digest=None)],
        producers=["embed/op_0_embedding", "", ""],
        parameters=["", "layers.0.wq.weight", ""],
        location="models/attention.py:34",
        stack=["/a/attention.py:34:forward", "/a/train.py:9:<module>"],
        phase="backward",
        overload="aten.dim",
        arguments={"dim": [-1], "max": float("inf"), "text": "Phase: x"},
        forms=";[3,2]:1,3;",
        random={"seed": 1, "offset": 8},
        mutated=[Mutation(slot=1, name="layers.0.wq.weight", summary=tensor(user_hash=float("nan")))],
        group={"ranks": [0, 1], "nth": 3},
        given=[Portion(input=2, numel=6)],
        received=[Portion(output=1, vector=1, at=6, numel=6, content=tensor(2.0, sketch=SKETCH))],
        recompute=True,
        micro_batch=2,
    )


def written(path: Path, records: list[Record], *, complete: bool = True, run: dict[str, Any] | None = None) -> OpLog:
    write_log(path, records, count=len(records), excluded={"view": 3, "t": 1}, run=run or {}, complete=complete)
    return read_log(path)


def entries_by_torchtitans_rules(text: str) -> list[tuple[str, dict[str, str]]]:
    """(key, fields) as the rules of docs/log-format.md's common part have it.

    A record is a line `[key]`; a statistic is told by the start of its line; any other field by its name and colon
    anywhere in the line; what is not known is passed over. Any line break that Python knows ends a line.
    """
    entries: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        key = re.match(r"\[(.+)\]", line)
        if key:
            entries.append((key[1], {}))
            continue
        if not entries:
            continue
        fields = entries[-1][1]
        statistic = re.match(r"\s+(Shape|L1 norm|L2 norm|Min|Max|Mean):\s+(.+)", line)
        if statistic:
            fields[statistic[1]] = statistic[2]
            continue
        for name in ("Location", "Phase", "Output hash", "Input hashes", "Input producers"):
            if f"{name}:" in line:
                assert name not in fields, f"two lines look like {name}: {line}"
                fields[name] = line.strip().replace(f"{name}: ", "")
                break
    return entries


def test_a_record_with_everything_is_read_again(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", [full_record()], run={"seed": 1})
    assert log.complete is True
    assert log.problems == ()
    assert log.header.format == "numtui 2"
    assert log.header.excluded == ("t", "view")
    assert log.header.run == {"seed": 1, "excluded": {"t": 1, "view": 3}}
    assert log.keys[0] == "layers.0.wq/op_0_mm"
    assert log.phase[0] == Phase.BACKWARD
    assert log.recompute[0]
    assert log.micro_batch[0] == 2
    assert log.outputs.value.tolist() == [0.1, 1e300]
    assert log.inputs.value[0] == 5e-324
    assert np.isnan(log.inputs.value[1])
    assert log.digests.value.tolist() == [1, 2**64 - 1]
    assert log.input_digests.value.tolist() == [3, NO_DIGEST, NO_DIGEST]
    assert log.counts[:, 0].tolist() == [6, 0, 0, 0]
    extra = {name: rows[0] for name, rows in log.extra.items()}
    assert base64.b64decode(extra["Sketch"]) == SKETCH
    assert extra["Parameter"] == ";layers.0.wq.weight;"
    assert extra["Stack"] == "/a/attention.py:34:forward < /a/train.py:9:<module>"
    assert json.loads(extra["Group"]) == {"ranks": [0, 1], "nth": 3}
    assert json.loads(extra["Exchanged"]) == {
        "in": [{"input": 2, "numel": 6}],
        "out": [
            {
                "output": 1,
                "tensor": 1,
                "at": 6,
                "numel": 6,
                "digest": f"{7:016x}",
                "l1": 2.0,
                "l2": 2.0,
                "mean": 2.0 / 3,
                "sketch": base64.b64encode(SKETCH).decode(),
            }
        ],
    }
    assert extra["Overload"] == "aten.dim"
    assert json.loads(extra["Arguments"]) == {"dim": [-1], "max": float("inf"), "text": "Phase: x"}
    assert extra["Inputs"] == ";[3,2]:1,3;"
    assert json.loads(extra["Random"]) == {"seed": 1, "offset": 8}
    assert json.loads(extra["Placement"]) == {"mesh": {"dp": 2}}
    assert json.loads(extra["Output 1"])["l1"] == 1e300
    (mutated,) = json.loads(extra["Mutated"])
    assert " ".join(mutated) == "input name shape dtype l1 l2 min max mean counts digest hash"
    assert mutated["input"] == 1
    assert mutated["digest"] == f"{7:016x}"
    assert mutated["hash"] == "nan"


def test_fields_come_in_the_order_of_the_grammar(tmp_path: Path) -> None:
    written(tmp_path / "a.log", [full_record()])
    names = re.findall(r"^  ([A-Z][\w -]+): ", (tmp_path / "a.log").read_text(), re.MULTILINE)
    assert names[:7] == ["Shape", "L2 norm", "Min", "Max", "Mean", "Output hash", "Input hashes"]
    assert names[7:] == [
        *("Input producers", "Location", "Phase", "Overload", "Arguments", "Inputs", "Random", "Seq"),
        *("Digest", "Input digests", "Counts", "Sketch", "Mutated"),
        *("Output 1", "Placement", "Group", "Exchanged", "Stack", "Recompute", "Micro-batch", "Parameter"),
        "User hash",
    ]
    assert set(names) - {"Output 1"} <= set(FIELDS)


def test_what_does_not_apply_has_no_line(tmp_path: Path) -> None:
    nothing = tensor(l1=None, l2=None, min=None, max=None, mean=None, digest=None)
    written(tmp_path / "a.log", [Record(key="a/op_0_x", seq=0, outputs=[nothing]), Record(key="a/op_1_y", seq=1)])
    records = (tmp_path / "a.log").read_text().partition("=\n\n")[2]
    assert records.partition("\nEnd of capture")[0] == (
        "[a/op_0_x]\n  Shape: torch.Size([2, 3]), Dtype: torch.float32\n  Output hash: nan\n  Seq: 0\n"
        "  Counts: numel=6 nan=0 inf=0 zero=0\n\n[a/op_1_y]\n  Seq: 1\n"
    )


def test_the_footer_counts_and_a_cut_off_step_has_none(tmp_path: Path) -> None:
    one, other = Record(key="a/op_0_x", seq=0), Record(key="a/op_1_x", seq=1, outputs=[tensor()])
    # sha256 of "\n0000000000000007": the first record has no digest
    assert written(tmp_path / "a.log", [one, other]).complete is True
    text = (tmp_path / "a.log").read_text()
    content = hashlib.sha256(text[text.index("[a/op_0_x]") : text.index("End of capture")].encode()).hexdigest()[:16]
    assert text.endswith(f"\n\nEnd of capture: 2 records, digest a3e6b696e4d96cb1, content {content}\n")
    log = written(tmp_path / "b.log", [one], complete=False, run={"incomplete": "RuntimeError: out of memory"})
    assert log.complete is False
    assert log.header.run["incomplete"] == "RuntimeError: out of memory"


def test_a_log_of_nothing_is_a_log(tmp_path: Path) -> None:
    assert written(tmp_path / "new" / "folder" / "a.log", []).complete is True


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        written(tmp_path / name, [full_record(i) for i in range(2500)])
    assert (tmp_path / "a.log").read_bytes() == (tmp_path / "b.log").read_bytes()
    numbers = re.findall(r"^  Seq: (\d+)$", (tmp_path / "a.log").read_text(), re.MULTILINE)
    assert numbers == [str(i) for i in range(2500)]


HOSTILE = st.text(
    st.sampled_from("[]=; \n\r\t\v\f\x00\x1b\x85\u2028\udc80\ud800é\\<:")
    | st.characters(codec="utf-8", categories=("L", "N")),
    max_size=12,
) | st.sampled_from(
    [
        "Location: x",
        "\nPhase: backward",
        "Output hash:",
        "a Input producers:",
        "\n[x/op_0_mm]",
        "End of capture: 0 records",
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_no_name_breaks_a_line_or_starts_a_record(tmp_path: Path, key: str, file: str, name: str, run: str) -> None:
    path = tmp_path / "a.log"  # replaced by every example
    record = full_record()
    record.key = f"{key}/op_0_mm"
    record.location, record.stack = f"{file}:3", [f"{file}:3:{name}", f"{file}:4:g"]
    record.producers = [record.key, key, ""]
    record.parameters = [name, "w", ""]
    record.group = {name: file}
    record.mutated = [Mutation(slot=0, name=name, summary=tensor())]
    record.outputs = [tensor(user_hash=name), tensor(user_hash=file)]
    log = written(path, [record, replace(record, seq=1)], run={"command": [run]})

    assert log.complete is True
    assert len(log) == 2
    assert log.problems == ()
    assert log.keys[0] == escape(f"{key}/op_0_mm")
    assert log.producers.value.tolist()[3:] == [0, -2 if key else -1, -1]
    assert len(log.extra["Parameter"][0].split(";")) == 3
    assert len(log.extra["Stack"][0].split(" < ")) == 2
    # a lone surrogate is what no file can hold; JSON keeps it, escaped
    assert json.loads(log.extra["Mutated"][0])[0]["name"] == name
    assert json.loads(log.extra["Group"][0]) == {name: file}
    assert log.header.run["command"] == [run]

    (user_hash, _) = re.findall(r"^  User hash: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(user_hash.split(",")) == 2

    entries = entries_by_torchtitans_rules(path.read_text(encoding="utf-8"))
    assert [key for key, _ in entries] == [log.keys[0]] * 2
    for _, fields in entries:
        assert fields["Phase"] == "backward"
        assert fields["Location"] == escape(f"{file}:3").strip()
        assert fields["L2 norm"] == "1.5"


def test_what_escaping_does_is_pinned() -> None:
    assert escape("layers.0/a b\\c") == "layers.0/a b\\c"
    assert escape(" a;b\n\x85\u2028\udcff\ud800 ") == "\\x20a\\x3bb\\x0a\\x85\\u2028\\xff\\ud800\\x20"
    assert escape("Phase: x, Phases: y") == "Phase\\x3a x, Phases: y"
    assert json_line({"Location": "Location: é\n"}) == '{"Location": "Location\\u003a \\u00e9\\n"}'


def test_every_field_of_the_grammar_is_told_apart() -> None:
    assert len({field_prefix(name)[:7] for name in FIELDS}) >= len(FIELDS) - 4  # the five of inputs share theirs


class _FullDisk:
    def __init__(self, out: Any) -> None:
        self.out, self.left = out, 4096

    def write(self, data: bytes) -> int:
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self.out.write(data))


def test_a_full_disk_keeps_the_old_log_and_nothing_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    path.write_text("the old one")

    class Limited:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.inner = atomic_file(*args, **kwargs)

        def __enter__(self) -> _FullDisk:
            return _FullDisk(self.inner.__enter__())

        def __exit__(self, *exc: object) -> bool | None:
            return self.inner.__exit__(*exc)  # type: ignore[arg-type]

    monkeypatch.setattr(log_writer, "atomic_file", Limited)
    with pytest.raises(OSError, match="No space left on device; the log was not written and nothing is left") as error:
        written(path, [full_record(i) for i in range(100)])
    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.log"]
    assert path.read_text() == "the old one"


def test_a_folder_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"the log was not written.*a\.log"):
        written(tmp_path / "file" / "a.log", [])


def test_records_that_fail_half_way_leave_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Record]:
        yield full_record()
        raise KeyError("no such slot")

    with pytest.raises(KeyError):
        write_log(tmp_path / "a.log", broken(), count=2, excluded={}, run={}, complete=True)
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_step_that_was_cut_off_is_there_while_it_is_written(tmp_path: Path) -> None:
    """Whatever ends the process in the middle of it, such as SIGKILL."""
    path = tmp_path / "numerics" / "a.log"
    seen: list[int] = []

    def records() -> Iterator[Record]:
        for seq in range(2500):
            if seq in (1, 2499):
                seen.append(len(read_log(path)))
            yield replace(full_record(seq), key=f"a/op_{seq}_mm")
        raise KeyError("no such slot")

    with pytest.raises(KeyError):
        write_log(path, records(), count=2500, excluded={}, run={"incomplete": "SIGTERM"}, complete=False)
    assert seen == [0, 2000]
    assert len(read_log(path)) >= 2000
    assert [p.name for p in path.parent.iterdir()] == ["a.log"]
