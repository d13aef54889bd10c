"""The bugs of layouts and of the training step, for the forms of a subject that can have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.truth.wide.parallel.layouts import LAYOUTS, Layout
from tests.truth.wide.subject import Bug

__all__ = ["of_layouts"]


def of_layouts(forms: Sequence[str], odd: str, *, clipped: bool, uneven: bool) -> tuple[Bug, ...]:
    """The bugs of some forms.

    Args:
        odd: pattern of the name of `odd_parameter`.
        clipped: gradients are clipped, which hides a factor of all of them.
        uneven: parts of the batch have other counts.
    """

    def able(wanted: Callable[[Layout], bool]) -> tuple[str, ...]:
        return tuple(form for form in forms if wanted(LAYOUTS[form]))

    data = able(lambda layout: layout.data > 1)
    hand = able(lambda layout: layout.kind == "hand")
    odd_block = r"blocks\.1\..*"
    found = [
        Bug(name="term", module="", phase="", forms=data, ranks=(-1, 1)),
        Bug(name="samples", module="", phase="", forms=data, ranks=(1,)),
        # FSDP2 keeps what it has not reduced to itself
        Bug(name="lost", phase="", parameters=r".*", forms=able(lambda one: one.micro > 1 and one.kind != "fsdp")),
        Bug(
            name="unsynchronised",
            phase="",
            parameters=r".*",
            forms=able(lambda layout: layout.micro > 1 and layout.kind == "ddp"),
        ),
        Bug(name="missing", phase="", parameters=odd, forms=(*hand, *able(lambda layout: layout.kind == "ddp"))),
        Bug(
            name="missing-shard",
            phase="",
            parameters=odd_block,
            forms=able(lambda layout: layout.kind == "fsdp" and layout.data > 1 and layout.tensor == 1),
        ),
        Bug(name="undivided", phase="", parameters=odd, forms=able(lambda layout: "each" in layout.option)),
        Bug(name="zeros", phase="", parameters=r".*", forms=able(lambda layout: layout.option == "flat"), ranks=(1,)),
        Bug(
            name="zeros-shard",
            phase="",
            parameters=odd_block,
            forms=able(lambda layout: layout.kind == "fsdp" and layout.data > 1),
            ranks=(1,),
        ),
        Bug(
            name="factor",
            phase="",
            parameters=odd_block,
            forms=able(lambda layout: layout.kind == "fsdp" and layout.data > 1 and layout.replicas == 1),
        ),
        Bug(name="rounded", phase="", parameters=r".*", forms=able(lambda layout: layout.option == "hook")),
        Bug(name="old", phase="", parameters=odd, ranks=(-1, 1)),
        Bug(name="start", phase="", parameters=odd, sizes=(1e-3, 0.5), forms=able(_replicated), ranks=(1,)),
        Bug(name="skipped", phase="optimizer", parameters=r".*", forms=able(_replicated), ranks=(1,)),
    ]
    if not clipped:
        found.append(
            Bug(name="sum", phase="", parameters=r".*", forms=able(lambda one: one.option in ("hook", "flat")))
        )
        found.append(
            Bug(name="wrong-group", phase="", parameters=r".*", forms=tuple(form for form in forms if form == "flat4"))
        )
    else:
        found += [
            Bug(name="limit", module="", phase="", sizes=(1e-3, 1.0)),
            Bug(name="local-norm", module="", phase="", forms=able(_sharded)),
        ]
    if uneven:
        found.append(Bug(name="local-count", module="", phase="", forms=data))
    tensor = able(lambda layout: layout.tensor > 1)
    if tensor:
        found.append(Bug(name="unreduced", module=r"blocks\.1\.attention\.out", phase="forward", forms=tensor))
    if sequence := tuple(form for form in tensor if "sequence" in form):
        found.append(
            Bug(name="unreduced-norm", phase="", parameters=r"blocks\.1\.norm1\.(weight|bias)", forms=sequence)
        )
    return tuple(bug for bug in found if bug.forms or bug.name in ("old", "limit"))


def _replicated(layout: Layout) -> bool:
    return layout.kind in ("ddp", "hand")


def _sharded(layout: Layout) -> bool:
    return layout.ranks > 1 and not _replicated(layout)
