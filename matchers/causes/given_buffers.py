"""First causes in a stretch of another form that reads a parameter or buffer which differs before the step.

Tables of positions are computed from a buffer of frequencies, in one run for each row of the batch: no operation has a
partner, so the stretch would be named by its first operation. What it was given is known to differ, by name.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from matchers.causes.causes import Causes
from matchers.ops.module_path import canonical
from matchers.ops.start import Differing
from matchers.regions.find import Kind
from matchers.rows import Rows

__all__ = ["blame_given", "given_in"]


def blame_given(found: Causes) -> None:
    """Blame the first such reader, in the module that holds it, in place of unpaired operations of its stretch."""
    c = found.c
    if c.flow is None or not (c.start.parameters or c.start.buffers):
        return
    for row in np.flatnonzero(found.cause & (c.pair < 0)).tolist():
        log, record = c.shown(row)
        region = int((c.regions.of_a if log is c.a else c.regions.of_b)[record])
        if region < 0 or c.regions.kind[region] != Kind.FIRST_CAUSE:
            continue
        members = zip((c.at_a, c.at_b), c.regions.members(region), strict=True)
        readers = [at for of, records in members for at in of[records].tolist() if given_in(c, at)]
        keys = Counter(_key(c, at) for at in readers)
        if readers:  # of those that both runs have, the first: the others may read positions
            found.acquit(row, for_=min(readers, key=lambda at: (-keys[_key(c, at)], at)))


def _key(c: Rows, row: int) -> str:
    log, record = c.shown(row)
    return log.keys[record]


def given_in(c: Rows, row: int) -> Differing | None:
    """Tensors that differ before the step, of the module of an unpaired row that reads what nothing has made."""
    if c.pair[row] >= 0 or c.flow is None:
        return None
    log, record = c.shown(row)
    if not ((c.flow.a if log is c.a else c.flow.b)[record] < 0).any():
        return None
    module = canonical(log.module_name(record))
    differing = (of for of in (c.start.parameters, c.start.buffers) if of is not None)
    return next((of for of in differing if any(name.rpartition(".")[0] == module for name in of.names)), None)
