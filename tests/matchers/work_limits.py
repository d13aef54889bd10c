"""Constants of `matchers` that limit work: whatever they are, results are equal, as `test_work_limits.py` holds."""

from __future__ import annotations

__all__ = ["LIMITS"]

LIMITS: dict[tuple[str, str], int] = {
    ("matchers/arrays.py", "_TABLE"): 1,
    ("matchers/arrays.py", "_WIDE"): 2,
    ("matchers/files/cache_folder.py", "_ALIGNED"): 8,
    ("matchers/logs/file_identity.py", "WORTHWHILE"): 1 << 40,
    ("matchers/logs/file_identity.py", "_CHUNK"): 100,
    ("matchers/logs/head.py", "_PIECE"): 10,
    ("matchers/logs/imported/columns.py", "_BATCH"): 3,
    ("matchers/logs/source.py", "_CHUNK"): 1000,
    ("matchers/logs/source.py", "_START"): 200,
    ("matchers/ops/values.py", "_AT_ONCE"): 2,
    ("matchers/pairing/align.py", "_AT_ONCE"): 50,
    ("matchers/rules/key_index.py", "_AT_ONCE"): 3,
    ("matchers/rules/key_index.py", "_MAX_KEPT"): 1,
    ("matchers/rules/key_index.py", "_MAX_PAIRS"): 1,
    ("matchers/rules/text_index.py", "_MAX_READINGS"): 1,
    ("matchers/verdict/sketches.py", "_CHUNK"): 2,
    ("matchers/weights/numbers.py", "_CHUNK"): 64,
}
"""By file and name, another value, which the workload of the test passes."""
