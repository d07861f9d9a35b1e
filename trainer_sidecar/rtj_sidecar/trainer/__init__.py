"""Everything about the trainer's process: starting and ending it, and how far it is.

`supervise.py` runs inside the trainer's container and is never imported by the sidecar there; the
rest runs in the sidecar and talks to it through small files.
"""
