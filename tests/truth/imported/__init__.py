"""Logs of other tools, written by these in a step of the example: are bugs where they are, and is our own log like them?"""
