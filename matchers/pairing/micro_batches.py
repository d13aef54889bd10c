"""Classes of rows that cannot be partners: rows of different micro-batches, a recomputed copy and an original."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Hash, Int64, distinct
from matchers.logs.op_log import OpLog
from matchers.ops.batch_numbers import micro_batch_numbers

__all__ = ["micro_batches", "split_kinds"]


def micro_batches(a: OpLog, b: OpLog, bits_a: Hash, bits_b: Hash) -> tuple[Int64, Int64]:
    """The micro-batch of each row, numbered alike for both logs, -1 if unknown or irrelevant.

    Logs that number the calls of a model otherwise are numbered by what a loss reads together. A single micro-batch of
    one run (a rank with its share of the batch) gets the number of the other run's micro-batch with most rows in
    common.

    Args:
        bits_a, bits_b: hashes of the rows' inputs and outputs, 0 for rows without information.
    """
    one, two = a.micro_batch.astype(np.int64), b.micro_batch.astype(np.int64)
    in_a, in_b = distinct(one[one >= 0]), distinct(two[two >= 0])
    if len(in_a) and len(in_b) and len(in_a) != len(in_b):
        one, two = (micro_batch_numbers(log) if (of > 0).any() else of for log, of in ((a, one), (b, two)))
        in_a, in_b = distinct(one[one >= 0]), distinct(two[two >= 0])
    if not len(in_a) or not len(in_b) or len(in_a) == len(in_b) == 1:
        return np.broadcast_to(np.int64(-1), len(a)), np.broadcast_to(np.int64(-1), len(b))
    if len(in_a) == 1:
        one = np.where(one >= 0, _most_alike(bits_a, two, bits_b, in_b), -1)
    elif len(in_b) == 1:
        two = np.where(two >= 0, _most_alike(bits_b, one, bits_a, in_a), -1)
    return one, two


def _most_alike(bits: Hash, batch: Int64, others: Hash, batches: Int64) -> int:
    """The micro-batch with most of the given bits; the first of several."""
    common = np.isin(others, bits[bits != 0])
    return int(batches[np.argmax([np.count_nonzero(common & (batch == number)) for number in batches])])


def split_kinds(kind_a: Int64, kind_b: Int64, class_a: Int64, class_b: Int64) -> tuple[Int64, Int64]:
    """Refine the kinds of rows by classes (-1 for none), if both sides have rows of a kind in one class.

    A kind without a common class stays whole: its rows are only labelled differently, and still have partners.
    """
    classes = int(max(class_a.max(initial=-1), class_b.max(initial=-1))) + 2
    if classes == 1:
        return kind_a, kind_b
    code_a, code_b = kind_a * classes + class_a + 1, kind_b * classes + class_b + 1
    common = distinct(code_a[np.isin(code_a, code_b)] // classes)
    return (
        np.where(np.isin(kind_a, common) | (kind_a < 0), code_a, kind_a * classes),
        np.where(np.isin(kind_b, common) | (kind_b < 0), code_b, kind_b * classes),
    )
