"""Runs that numtui starts itself: revisions to bisect, perturbed runs to measure noise. Nothing here knows a screen."""
