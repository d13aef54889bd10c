"""Bytes of a log → columns of operations."""
