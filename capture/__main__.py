"""Record an unmodified training script: `python -m capture -o DIR -- train.py ARGS`, the same as `numtui capture`."""

from __future__ import annotations

import sys
from importlib import import_module

from .names import SAFE_NAME, become_safe

if __name__ == "__main__":
    become_safe()
    sys.exit(import_module(f"{SAFE_NAME}.launch").main())
