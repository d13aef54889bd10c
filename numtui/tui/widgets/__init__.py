"""Widgets of the screen, one per file. Each shows what it is given; none reaches into another."""
