"""Record an unmodified training script: `python -m capture --steps 1 -o DIR -- train.py ARGS`."""

from __future__ import annotations

import sys

from .launch import main

if __name__ == "__main__":
    sys.exit(main())
