"""Errors that users can cause and fix.

```
UserError            anything wrong with what the user gave; exit code 2
├── LogError         a log that cannot be read at all
├── RulesError       a rule file that cannot be read or saved
└── InputError       wrong paths, ranks, options
```

A `UserError` is one sentence: where (`path:line`), what is wrong and what to do. A traceback is a bug.
"""

from __future__ import annotations

__all__ = ["InputError", "LogError", "RulesError", "UserError"]


class UserError(Exception):
    """Root of all errors that are reported in one line instead of a traceback."""

    exit_code = 2


class LogError(UserError):
    """A file that cannot be read, or is not a log."""


class RulesError(UserError):
    """A rule file that cannot be read, understood or written."""


class InputError(UserError):
    """An invalid path, rank or option."""
