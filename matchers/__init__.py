"""Two operation logs in, a comparison out: reading, pairing, verdicts, causes and the user's rules.

Pure: logs and rules in, frozen columns out; no printing, no clock, no state. Start at `comparison.compare`; the path
of data is parse → features → align → repair → verdict → origin → comparison.
"""
