"""Bugs planted in models unlike the example, behind runs of another form: is the first cause where the bug is?"""
