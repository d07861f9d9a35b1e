"""The vocabulary that every part of the project shares: API models, names, messages, pure rules.

It imports nothing of the project and does no I/O, so that operator, sidecar and command line can
never disagree about a name, a message or a rule.
"""
