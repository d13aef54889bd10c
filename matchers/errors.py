"""The errors a person can cause, and mend.

```
UserError            anything wrong with what the user gave; exit code 2
├── LogError         a log that cannot be read at all
├── RulesError       a rule file that cannot be read or saved
└── InputError       wrong paths, ranks, options
```

A traceback is a bug; a `UserError` is a sentence. Its text says where (`path:line`) and what to do.
"""

from __future__ import annotations

__all__ = ["InputError", "LogError", "RulesError", "UserError"]


class UserError(Exception):
    """Root of everything that is reported in one line instead of a traceback."""

    exit_code = 2


class LogError(UserError):
    """A file that is no log, or that cannot be read."""


class RulesError(UserError):
    """A rule file that cannot be read, understood or written."""


class InputError(UserError):
    """A path, a rank or an option that makes no sense."""
