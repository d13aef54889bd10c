"""Facts about torch's operations from its own tags and schemas: `python -m tests.matchers.laws.torch_operations FILE`.

Run it with each version of torch (`make register TORCH=2.15.0`): what FILE has of other versions stays, and where two
versions differ the newer one counts. Only facts that a schema or a tag states are in it; what a reviewer must know is
in `matchers/laws/reviewed.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["facts", "merged"]

NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "aten", "c10d", "fsdp")
_TAGS = {
    "pointwise": "pointwise",
    "nondeterministic_seeded": "random",
    "reduction": "reduction",
    "dynamic_output_shape": "shaped-by-data",
    "data_dependent_output": "shaped-by-data",
}
_SCALAR = re.compile(r"\b(number|Scalar|float|int|SymInt|bool)\b")
_NO_NUMBERS = ("alpha", "beta", "dtype", "layout", "memory_format", "out_dtype")
"""Arguments that a schema types as numbers, and that are none or nearly always left at 1."""
_HEADER = """\
# What torch's tags and schemas say of its operations. Written by tests/matchers/laws/torch_operations.py; edit
# matchers/laws/reviewed.py instead. A fact with "?" holds for some overloads of the name only.
"""


def facts() -> dict[str, tuple[str, ...]]:
    """Facts by qualified name, sorted; operations that have none are left out."""
    import torch

    import_module("torch.distributed.fsdp")  # registers its operations
    overloads: dict[str, list[set[str]]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.partition(".")
        namespace, _, op = base.partition("::")
        if namespace not in NAMESPACES:
            continue
        function = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
        schema = function._schema
        if _takes_output(schema) or not _makes_tensors(schema):
            continue
        overloads.setdefault(base, []).append(set(_facts_of(op, schema, function.tags)))
    out = {}
    for name, found in sorted(overloads.items()):
        everywhere = set.intersection(*found)
        somewhere = {f"{fact}?" for fact in set.union(*found) - everywhere if "=" not in fact}
        if everywhere or somewhere:
            out[name] = tuple(sorted(everywhere | somewhere))
    return out


def _facts_of(op: str, schema: Any, tags: Any) -> Iterator[str]:
    names = {str(tag).rpartition(".")[2] for tag in tags}
    yield from (fact for tag, fact in _TAGS.items() if tag in names)
    arguments, results = schema.arguments, schema.returns
    tensors = [k for k, argument in enumerate(arguments) if "Tensor" in str(argument.type)]
    place = {k: at for at, k in enumerate(tensors)}
    writes = [place[k] for k in tensors if (alias := arguments[k].alias_info) is not None and alias.is_write]
    yield from (f"writes={at}" for at in writes)
    if "view_copy" in names:
        yield "view=0"
    elif not writes:  # what is aliased and not written to is returned
        yield from [f"view={place[k]}" for k in tensors if arguments[k].alias_info is not None][:1]
    lists = ["List[Tensor]" in str(argument.type) for argument in arguments]
    if any(lists) and (any("List[Tensor]" in str(result.type) for result in results) or any(_written(arguments))):
        yield "lists"
    if not tensors and any("Tensor" in str(result.type) for result in results):
        yield "constant"
    if tensors and all(a.name in _NO_NUMBERS for a in arguments if _SCALAR.search(str(a.type))):
        yield "tensors-alone"


def _written(arguments: Sequence[Any]) -> list[bool]:
    return ["List[Tensor]" in str(a.type) and a.alias_info is not None and a.alias_info.is_write for a in arguments]


def _takes_output(schema: Any) -> bool:
    """True for the form that writes to a tensor of the caller's: it computes what the form without it does."""
    return any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)


def _makes_tensors(schema: Any) -> bool:
    return any("Tensor" in str(result.type) for result in schema.returns) or any(
        a.alias_info is not None and a.alias_info.is_write for a in schema.arguments
    )


def merged(text: str, version: str, found: dict[str, tuple[str, ...]]) -> str:
    """The text of the file, `text` before, with the facts of a version."""
    head, *lines = [line for line in text.splitlines() if not line.startswith("#")] or ["torch"]
    versions = sorted({*head.split()[1:], version}, key=_numbers)
    before = {line.split()[0]: tuple(line.split()[1:]) for line in lines}
    both = before | found if version == versions[-1] else found | before
    rows = (" ".join((name, *both[name])) for name in sorted(both))
    return _HEADER + "\n".join((" ".join(("torch", *versions)), *rows)) + "\n"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".") if part.isdigit())


if __name__ == "__main__":
    import torch

    path = Path(sys.argv[1])
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(merged(before, torch.__version__.split("+")[0], facts()), encoding="utf-8")
