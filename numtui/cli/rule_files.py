"""Rule files of a report: the one that is applied, and one that lies in the current folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from matchers.errors import InputError
from numtui.cli.output import complain
from numtui.inputs import OpenRequest
from numtui.report.options import found_rules

__all__ = ["RuleFiles", "rule_files"]


class RuleFiles(NamedTuple):
    """The rule file that is applied, and the one found in this folder that the user did not name; None without one."""

    applied: Path | None
    found: Path | None


def rule_files(request: OpenRequest) -> RuleFiles:
    """Return the rule files of a request; one that was found is said on standard error.

    Raises:
        InputError: a file that the user named does not exist.
    """
    path, exists = request.rules_path, os.path.exists(request.rules_path)
    if request.rules_given:
        if not exists:
            raise InputError(f"{path}: no such rule file")
        return RuleFiles(path, None)
    found = path if exists else None
    applied = found if request.auto_rules else None
    if found is not None:
        complain(found_rules(str(found), applied=applied is not None))
    return RuleFiles(applied, found)
