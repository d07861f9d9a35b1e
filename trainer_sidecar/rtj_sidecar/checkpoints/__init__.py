"""Checkpoint files on this pod's disk: find them, prove them whole, pin them, put them back.

Nothing here knows a store or a network, imports torch, or executes a byte of a checkpoint.
"""
