"""Screens: the explorer, and the dialogs, panels and pages over it."""
