"""Kept collectives: their results put together from what the bundles of all ranks of the group hold, without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from capture.keeping.bundle import Bundle, BundleError, read_bundle
from capture.keeping.form import AGAIN, MANIFEST, given_to, results_of
from capture.keeping.replay import Kept
from numtui.report.elements import read_tensor

__all__ = ["from_parts"]

_EXCHANGED = re.compile(r"^  Exchanged: (.*)$", re.MULTILINE)
_PLACE = re.compile(r"rank_\d+_kept")


def from_parts(kept: Kept) -> dict[str, dict[str, Any]]:
    """Return what a collective gives, as a replay does: the digests of its log if the ranks' parts make its results.

    Each result has `together`, how it is made of the parts, and `parts`, the content that each rank gave.
    """
    group = kept.call["group"]
    try:
        peers = [_peer(kept, rank) for rank in group["ranks"]]
        given = [_given(peer) for peer in peers]
        told = _told(kept, group, [(peer.folder, each) for peer, each in zip(peers, given, strict=True)])
    except (BundleError, OSError) as error:
        return {AGAIN: {"refused": str(error)}}
    parts = {"parts": [each["storage"] for each in given]}
    if not told:
        return {AGAIN: {"failed": "its result is the parts of the ranks in no order that is known"} | parts}
    digests = kept.call["digests"]
    found = {"returned": digests["returned"], "written": digests["left"]}
    return {AGAIN: found | {"together": told} | parts}


def _told(kept: Kept, group: Mapping[str, Any], parts: list[tuple[Path, dict[str, Any]]]) -> str:
    import numpy as np  # which `--help` does without

    from matchers.elements.collective import put_together

    root = group.get("root")
    member = group["ranks"].index(_rank(kept.folder))
    tensors = [read_tensor(folder, told) for folder, told in parts]
    results = [read_tensor(kept.folder, told) for told in results_of(kept.call)]
    place = group["ranks"].index(root) if root in group["ranks"] else None
    if len(results) == len(parts) > 1:  # a list, with an entry of each
        pairs = zip(results, tensors, strict=True)
        return "what each rank gave" if all(np.array_equal(x.bits.ravel(), y.bits.ravel()) for x, y in pairs) else ""
    if len(results) != 1:
        return ""
    return put_together(tensors, results[0], member, op=group.get("op"), root=place)


def _peer(kept: Kept, rank: int) -> Kept:
    """Return the same collective on a rank of its group, from the bundle beside this one.

    Raises:
        BundleError: that rank has not kept it.
    """
    folder, group = kept.folder.with_name(f"rank_{rank}_kept"), kept.call["group"]
    if not _PLACE.fullmatch(kept.folder.name):
        raise BundleError("communication needs the bundles of the other ranks beside it, as the capture writes them")
    name = [group[each] for each in ("ranks", "name", "nth")]
    for call in _read(folder, _stamp(folder)).calls:
        other = call.get("group")
        if other is not None and [other[each] for each in ("ranks", "name", "nth")] == name:
            return Kept(folder, call)
    raise BundleError(f"communication needs the part of rank {rank}, which was not kept")


def _stamp(folder: Path) -> int:
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        raise BundleError(f"communication needs the part of {folder.name}, which is not there") from None


@lru_cache(maxsize=16)
def _read(folder: Path, _stamp: int) -> Bundle:
    return read_bundle(folder)


def _given(kept: Kept) -> dict[str, Any]:
    """Return the tensor that a rank gave, by the log's record: other arguments are memory for the results."""
    tensors = given_to(kept.call)
    found = _EXCHANGED.search(kept.call["record"])
    try:
        given = json.loads(found[1])["in"] if found else []
        (at,) = {each["input"] for each in given} or {0}
        return tensors[at]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise BundleError("which of its tensors a rank gave is unknown") from None


def _rank(folder: Path) -> int:
    return int(folder.name.split("_")[1])
