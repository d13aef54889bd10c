"""Logs that other tools write in a step of the example: are bugs in their modules, and is our own log like them?"""
