"""Subjects with a router, whose ranks hold some of the experts: tokens travel, or each rank adds its experts' share."""
