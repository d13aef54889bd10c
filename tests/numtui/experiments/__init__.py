"""Tests of the runs that numtui starts itself."""
