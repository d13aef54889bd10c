"""Find the first causes of a comparison: by every search in its order."""

from __future__ import annotations

from matchers.causes.causes import Causes
from matchers.causes.consequences import acquit_ignored
from matchers.causes.contradicted import blame_contradicted
from matchers.causes.factors import blame_factors
from matchers.causes.first_causes import find_first_causes
from matchers.causes.given_buffers import blame_given
from matchers.causes.given_states import acquit_reads, blame_states
from matchers.causes.other_weights import blame_weights
from matchers.causes.telling import blame_telling
from matchers.causes.unsummed import blame_unsummed
from matchers.causes.within_tolerance import blame_beginnings, blame_inserted
from matchers.ops.last_contents import LastContents
from matchers.rows import Rows
from matchers.status import Role
from matchers.verdict.content_verdicts import ContentVerdicts

__all__ = ["first_causes"]


def first_causes(
    c: Rows, left: ContentVerdicts, contents: tuple[LastContents, LastContents], *, same_kernels: bool
) -> Rows:
    """The rows with their roles and first causes.

    Args:
        left: the verdicts on what the runs leave in named tensors, `contents`.
        same_kernels: no difference is expected, so that any bit tells.
    """
    assert c.flow is not None
    found = Causes.none(c)
    # ignored rows are red here, so that their consequences do not become first causes
    find_first_causes(found, left.given, left.gradients(c.flow))
    found.role[c.excluded_by >= 0] = Role.NONE
    acquit_ignored(found)
    blame_states(found, *contents)
    acquit_reads(found)
    blame_unsummed(found)
    if same_kernels:
        blame_beginnings(found)
    else:  # other kernels differ everywhere
        blame_inserted(found)
    blame_telling(found)
    blame_weights(found)
    blame_given(found)
    found = blame_factors(found)
    blame_contradicted(found)
    return found.rows()
