"""Compare the logs of two training runs: pair their operations, judge every pair, find the first causes.

    from matchers import compare, read_log

    comparison = compare(read_log("a.log"), read_log("b.log"))
    rows = comparison.cause.nonzero()[0]

Pure: logs and rules in, frozen columns out; no printing, no clock, no global state. Data moves through the rooms:

1. `logs` reads bytes into columns, `ops` derives facts about the operations of one log (`weights`: logs of weights);
2. `rules` reads the YAML rules and finds the operations that they name;
3. `pairing` finds the partner of each operation;
4. `verdict` judges every pair by its numbers;
5. `causes` finds the first causes and their consequences;
6. `rows` holds the result, a row for each line of the screen; `comparison` runs steps 2 to 6;
7. `explain` puts one row into words, `drift` suggests rules for known drift, `single_run` shows one log by itself.

The names below are imported on first use, so that `import matchers` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matchers.comparison import Comparison, compare
    from matchers.logs.parser import read_log
    from matchers.rules.model import RuleSet
else:
    _HOMES = {
        "Comparison": "matchers.comparison",
        "RuleSet": "matchers.rules.model",
        "compare": "matchers.comparison",
        "read_log": "matchers.logs.parser",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)


__all__ = ["Comparison", "RuleSet", "compare", "read_log"]
