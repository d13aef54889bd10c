"""A log as the text of numtui's capture, which says what tool's log it was (docs/log-format.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from capture.log_format import UNKNOWN_DIGEST, render_footer, render_header
from matchers.logs.op_log import COUNTS, NO_DIGEST, STATISTICS, OpLog, Phase
from matchers.logs.tells import IMPORTED

__all__ = ["written"]

_LAST = ("Placement", "Group", "Exchanged", "Rows", "Stack")
"""Fields that stand behind further outputs, in this order."""
_CALL = ("Overload", "Arguments", "Inputs", "Input statistics", "Random", "Read")


def written(log: OpLog) -> Iterator[str]:
    """Yield the text of a log piece by piece; columns are all it is made of, and nothing else is kept."""
    header, form = log.header, log.header.format
    run = {**header.run, **({"imported": form, "source": log.path} if form in IMPORTED else {})}
    if log.complete is False and not header.incomplete:
        run["incomplete"] = "the log ends before the step does"
    told = header.run.get("excluded")
    known = told if isinstance(told, dict) else {}
    yield render_header(len(log), {name: known.get(name, 0) for name in header.excluded}, run)
    digests, content = hashlib.sha256(), hashlib.sha256()
    for row in range(len(log)):
        lines = [f"[{log.keys[row]}]"]
        fields = dict(_fields(log, row))
        lines += [f"  {name}: {value}" for name, value in fields.items()]
        text = "\n".join((*lines, "", ""))
        digests.update(("\n" * (row > 0) + fields.get("Digest", "")).encode())
        content.update(text.encode("utf-8", "surrogateescape"))
        yield text
    if log.complete is not False:
        yield render_footer(len(log), digests.hexdigest()[:16], content.hexdigest()[:16])


def _fields(log: OpLog, row: int) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record, in the order of a log."""
    if log.shape[row] >= 0 and log.dtype[row] >= 0:
        yield "Shape", f"torch.Size({log.shape_text(row)}), Dtype: torch.{log.dtype_text(row)}"
    for k, name in enumerate(STATISTICS):
        if log.present[row] >> k & 1:
            yield name, repr(float(log.stats[k, row]))
    for name, values in (("Output hash", log.outputs[row]), ("Input hashes", log.inputs[row])):
        if len(values):
            yield name, ", ".join(map(repr, values.tolist()))
    if (made := log.producers[row].tolist()) and any(maker >= 0 for maker in made):
        yield "Input producers", ";".join(log.keys[maker] if maker >= 0 else "" for maker in made)
    if log.location[row] >= 0:
        yield "Location", log.location_text(row)
    if (phase := Phase(int(log.phase[row]))) != Phase.FORWARD:
        yield "Phase", phase.label
    yield from _texts(log, row, _CALL)
    yield "Seq", str(row)
    for name, values in (("Digest", log.digests[row]), ("Input digests", log.input_digests[row])):
        if len(values):
            yield name, ", ".join(UNKNOWN_DIGEST if one == NO_DIGEST else f"{one:016x}" for one in values)
    if log.counts[0, row] >= 0:
        yield "Counts", " ".join(f"{name}={n}" for name, n in zip(COUNTS, log.counts[:, row].tolist(), strict=True))
    further = sorted((name for name in log.extra if name.startswith("Output ")), key=lambda name: int(name[7:]))
    yield from _texts(log, row, ("Sketch", "Mutated", *further, *_LAST))
    if log.recompute[row]:
        yield "Recompute", "true"
    if log.micro_batch[row] >= 0:
        yield "Micro-batch", str(log.micro_batch[row])
    yield from _texts(log, row, ("Parameter", "User hash"))


def _texts(log: OpLog, row: int, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        if row in log.texts(name):
            yield name, log.texts(name)[row]
